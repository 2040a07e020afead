"""Jacobians, Hessians and their products with vectors. Results have no history unless create_graph is set."""
from .. import _C, func as _func
from .._C import Tensor
from .modes import grad as _gradients


def _tuple(op, what, x):
    parts = (x,) if isinstance(x, Tensor) else tuple(x)
    for p in parts:
        if not isinstance(p, Tensor):
            raise TypeError(f"{op}: {what} holds {type(p).__name__}; expected a tensor or a tuple of tensors")
    return isinstance(x, Tensor), parts


def _variables(op, inputs, create_graph):
    single, parts = _tuple(op, "inputs", inputs)
    own = tuple(p.view_as(p) if create_graph and p.requires_grad else p.detach().requires_grad_() for p in parts)
    return single, own


def _call(op, func, own):
    with _func.enable_grad():
        return _tuple(op, "the output of the function", func(*own))


def _strict(op, strict, outputs):
    if strict and not all(o.requires_grad for o in outputs):
        raise RuntimeError(f"{op}: an output does not depend on the inputs; expected that all do, as strict=True asks")


def _each_depends(op, outputs, own):
    """Raises unless each output depends on each input."""
    for i, output in enumerate(outputs):
        found = _gradients([output], list(own), [_C.ones_like(output)], retain_graph=True, allow_unused=True)
        for k, part in enumerate(found):
            if part is None:
                raise RuntimeError(f"{op}: output {i} does not depend on input {k}; expected that it does, as strict=True asks")


def _weights(op, what, v, like):
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"{op}: no vector v; expected one unless the {what} has one element")
        return tuple(_C.ones_like(t) for t in like)
    _, v = _tuple(op, "v", v)
    if [t.shape for t in v] != [t.shape for t in like]:
        raise RuntimeError(f"{op}: v does not fit; got shapes {[tuple(t.shape) for t in v]}; expected {[tuple(t.shape) for t in like]}")
    return v


def _done(single, parts, create_graph):
    parts = tuple(p if create_graph else p.detach() for p in parts)
    return parts[0] if single else parts


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), v times the Jacobian).

    create_graph: the results can be differentiated again. strict: RuntimeError where an output does not depend on the inputs.
    """
    single, own = _variables("vjp", inputs, create_graph)
    one, outputs = _call("vjp", func, own)
    _strict("vjp", strict, outputs)
    weights = _weights("vjp", "output", v, outputs)
    found = _func._differentiated(list(outputs), list(own), list(weights), create_graph)
    return _done(one, outputs, create_graph), _done(single, found, create_graph)


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), the Jacobian times v), by two backward passes.

    create_graph: the results can be differentiated again. strict: RuntimeError where an output does not depend on the inputs.
    """
    _, own = _variables("jvp", inputs, create_graph)
    directions = _weights("jvp", "input", v, own)
    one, outputs = _call("jvp", func, own)
    _strict("jvp", strict, outputs)
    with _func.enable_grad():
        moved = [_func._forward(o, list(own), list(directions)) for o in outputs]
    return _done(one, outputs, create_graph), _done(one, moved, create_graph)


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """The Jacobian of func: for each output and each input a tensor of the output's shape followed by the input's; nested tuples where there are several.

    inputs: a tensor or a tuple of them, the arguments of func. create_graph: the results can be differentiated again. strict: RuntimeError where an
    output does not depend on one of the inputs, and with create_graph where the Jacobian does not depend on any. vectorize changes nothing. strategy: 'reverse-mode' (a backward pass for each element of the output) or
    'forward-mode' (for each element of the input).
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ValueError(f"jacobian: no such strategy; got {strategy!r}; expected 'reverse-mode' or 'forward-mode'")
    single, own = _variables("jacobian", inputs, create_graph)
    one, outputs = _call("jacobian", func, own)
    _strict("jacobian", strict, outputs)
    if strict:
        _each_depends("jacobian", outputs, own)
    rows = _func._reverse if strategy == "reverse-mode" else _func._columns
    with _func.enable_grad():
        found = [rows(o, list(own), create_graph) for o in outputs]
        if strict and create_graph and not all(block.requires_grad for blocks in found for block in blocks):
            raise RuntimeError("jacobian: the Jacobian does not depend on the inputs; expected that it does, as strict=True asks with create_graph=True")
        blocks = [_done(single, blocks, create_graph) for blocks in found]
    return blocks[0] if one else tuple(blocks)


def _scalar(op, func, own):
    one, outputs = _call(op, func, own)
    if not one or outputs[0].numel() != 1:
        raise RuntimeError(f"{op}: the function's value is not one number; got shapes {[tuple(o.shape) for o in outputs]}; expected one element")
    return outputs[0]


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """The Hessian of a function of one value: for each pair of inputs a tensor of both shapes.

    func: its value has one element; RuntimeError otherwise. create_graph: the results can be differentiated again. strict: RuntimeError where an
    output does not depend on the inputs. vectorize changes nothing. outer_jacobian_strategy: the strategy of jacobian for the second derivatives.
    """
    single, parts = _tuple("hessian", "inputs", inputs)

    def gradient(*own):
        value = _scalar("hessian", func, own)
        _strict("hessian", strict, [value])
        found = _func._differentiated([value], list(own), None, True)
        return found[0] if single else tuple(found)

    return jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), v times the Hessian).

    create_graph: the results can be differentiated again. strict: RuntimeError where an output does not depend on the inputs.
    """
    single, own = _variables("vhp", inputs, create_graph)
    weights = _weights("vhp", "input", v, own)
    value = _scalar("vhp", func, own)
    _strict("vhp", strict, [value])
    with _func.enable_grad():
        first = _func._differentiated([value], list(own), None, True)
        found = _func._differentiated(first, list(own), list(weights), create_graph)
    return _done(True, [value], create_graph), _done(single, found, create_graph)


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), the Hessian times v), which is vhp, as a Hessian is symmetric.

    create_graph: the results can be differentiated again. strict: RuntimeError where an output does not depend on the inputs.
    """
    return vhp(func, inputs, v, create_graph, strict)
