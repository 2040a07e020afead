"""Functions of functions: gradients, Jacobians and Hessians as functions, modules as functions of their parameters, and vmap.

Arguments may be nested lists, tuples and dicts of tensors. There is no forward mode: jvp and jacfwd are composed of two backward passes, so that the
function's gradient must have a gradient. vmap is a loop over the batch whose results are stacked."""
from __future__ import annotations

import contextlib
import functools
import threading

from . import _C, _notes, _refused, _tree
from ._C import Tensor
from ._grad_mode import enable_grad
from .autograd.modes import grad as _gradients

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Literal

    from ._annotations import Function
    from .nn._annotations import ModuleT, TensorT
    from .nn.module import Module

_depth = threading.local()


@contextlib.contextmanager
def _inside():
    _depth.n = getattr(_depth, "n", 0) + 1
    try:
        with enable_grad():
            yield
    finally:
        _depth.n -= 1


def _tensors(op, tree):
    leaves, rebuild = _tree.flatten(tree)
    for leaf in leaves:
        if not isinstance(leaf, Tensor) or not (leaf.is_floating_point() or leaf.is_complex()):
            got = leaf.dtype if isinstance(leaf, Tensor) else type(leaf).__name__
            raise RuntimeError(f"{op}: not a floating tensor; got {got}; expected floating tensors in the arguments that are differentiated")
    return leaves, rebuild


def _own(leaf):
    """The tensor as a variable of this function; outer gradients still flow through it."""
    return leaf.view_as(leaf) if leaf.requires_grad else leaf.detach().requires_grad_()


def _depends_on_others(outputs, own):
    """Whether other leaves than our own take part, so that the gradients have gradients."""
    seen, todo = set(), [o.grad_fn for o in outputs if o.grad_fn is not None]
    while todo:
        node = todo.pop()
        key = node._id
        if key in seen:
            continue
        seen.add(key)
        if any(not any(leaf.is_same(o) for o in own) for leaf in node._leaves):
            return True
        todo += [n for n, _ in node.next_functions if n is not None]
    return False


def _keeps_graph(outputs, given, own):
    return getattr(_depth, "n", 0) > 1 or any(g.requires_grad for g in given) or _depends_on_others(outputs, own)


def _with_aux(op, out, has_aux):
    """(the result of func, aux); aux is None without has_aux."""
    if not has_aux:
        return out, None
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise RuntimeError(f"{op}: has_aux needs two results; got {type(out).__name__}; expected (result, aux)")
    return out


def _outputs(op, out):
    """The tensors of a result, and what nests them again."""
    outputs, nest = _tree.flatten(out)
    for o in outputs:
        if not isinstance(o, Tensor):
            raise RuntimeError(f"{op}: the function returned what is no tensor; got {type(o).__name__}; expected tensors")
    return outputs, nest


def _positions(op, argnums, args):
    numbers = (argnums,) if isinstance(argnums, int) else argnums
    if not isinstance(numbers, (tuple, list)) or not all(isinstance(n, int) for n in numbers):
        raise TypeError(f"{op}: argnums are no places; got {argnums!r}; expected an int or a tuple of them")
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise RuntimeError(f"{op}: argnums is out of range; got {argnums} for {len(args)} arguments")
    return [n % len(args) for n in numbers]


def grad_and_value(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that returns (gradient, value) of func, whose value is a tensor without dims. With has_aux, func returns (value, aux), and the function
    (gradient, (value, aux)).

    argnums: the place of the argument that is differentiated, or a tuple of places, for which there is a tuple of gradients. A gradient has the shape and dtype
    of its argument, a tensor or a nest of tensors. The function raises RuntimeError for arguments there that are no floating or complex tensors, for a place
    that is not there, and for a func with another value; TypeError for argnums that are no ints."""

    @functools.wraps(func)
    def wrapped(*args, **kwargs):
        at = _positions("grad", argnums, args)
        given, rebuild = _tensors("grad", [args[i] for i in at])
        with _inside():
            own = [_own(leaf) for leaf in given]
            mine = dict(zip(at, rebuild(own)))
            out = func(*(mine.get(i, a) for i, a in enumerate(args)), **kwargs)
            value, aux = _with_aux("grad", out, has_aux)
            if not isinstance(value, Tensor) or value.ndim:
                raise RuntimeError(f"grad: the value is not a scalar; got {tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__}; expected a tensor without dims")
            create = _keeps_graph([value], given, own)
            found = _differentiated([value], own, None, create)
        result = rebuild(found)
        result = result[0] if isinstance(argnums, int) else tuple(result)
        value, aux = (value, aux) if create else (value.detach(), _detached(aux))
        return result, ((value, aux) if has_aux else value)

    return wrapped


def _differentiated(outputs, own, weights, create):
    """Gradients; zeros where nothing depends on an input."""
    needed = [i for i, o in enumerate(outputs) if o.requires_grad]
    if not needed:
        return [_C.zeros_like(x) for x in own]
    weights = None if weights is None else [weights[i] for i in needed]
    return list(_gradients([outputs[i] for i in needed], own, weights, retain_graph=True, create_graph=create, materialize_grads=True))


def _detached(tree):
    return _tree.map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, tree)


def grad(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that returns the gradient of func with respect to its arguments argnums; with has_aux, func returns (value, aux), and the function
    (gradient, aux). The arguments and the errors are those of func.grad_and_value.
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapped(*args, **kwargs):
        gradient, value = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapped


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """(func(*primals), a function that multiplies a cotangent by the Jacobian); with has_aux, func returns (result, aux), and aux is the third part.

    primals: tensors, or nests of them. A cotangent has the shape of the result; there is one for each tensor of it, nested as the result is. The function returns
    a tuple with the product for each of the primals, of its shape and dtype. RuntimeError for primals that are no floating or complex tensors, for a func that
    returns no tensors, and for cotangents of another number or shape."""
    given, rebuild = _tensors("vjp", list(primals))
    with _inside():
        own = [_own(leaf) for leaf in given]
        out = func(*rebuild(own))
    out, aux = _with_aux("vjp", out, has_aux)
    outputs, nest = _outputs("vjp", out)

    def back(*cotangents, retain_graph=True, create_graph=None):
        weights = _tree.flatten(cotangents[0] if len(cotangents) == 1 else cotangents)[0]
        if len(weights) != len(outputs) or not all(isinstance(w, Tensor) for w in weights):
            raise RuntimeError(f"vjp: the cotangents do not fit; got {[type(w).__name__ for w in weights]}; expected a tensor for each of the {len(outputs)} results")
        with _inside():
            create = any(w.requires_grad for w in weights) or _keeps_graph(outputs, given, own) if create_graph is None else create_graph
            found = rebuild(_differentiated(outputs, own, weights, create))
        return tuple(found)

    result = nest(outputs) if _keeps_graph(outputs, given, own) else nest([o.detach() for o in outputs])
    return (result, back, aux) if has_aux else (result, back)


def jvp(func: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *, strict: bool = False, has_aux: bool = False) -> tuple[Any, ...]:
    """(func(*primals), the Jacobian times the tangents), by two backward passes; with has_aux also aux.

    func: of tensors, or of nests of them; with has_aux it returns (result, aux). primals, tangents: tuples of equal structure and shapes. strict is accepted for
    PyTorch's programs and changes nothing: an output that does not depend on an input has zeros. RuntimeError for what is no tuple, for primals that are no
    floating or complex tensors, for tangents of another number or shape, and for a func that returns no tensors."""
    for name, value in (("primals", primals), ("tangents", tangents)):
        if not isinstance(value, (tuple, list)):
            raise RuntimeError(f"jvp: {name} are no tuple; got {type(value).__name__}; expected a tuple of tensors")
    given, rebuild = _tensors("jvp", list(primals))
    directions = _tree.flatten(list(tangents))[0]
    if not all(isinstance(d, Tensor) for d in directions):
        raise RuntimeError(f"jvp: a tangent is no tensor; got {[type(d).__name__ for d in directions]}; expected tensors")
    if [d.shape for d in directions] != [g.shape for g in given]:
        raise RuntimeError(f"jvp: the tangents do not fit; got shapes {[tuple(d.shape) for d in directions]}; expected {[tuple(g.shape) for g in given]}")
    with _inside():
        own = [_own(leaf) for leaf in given]
        out, aux = _with_aux("jvp", func(*rebuild(own)), has_aux)
        outputs, nest = _outputs("jvp", out)
        moved = [_forward(o, own, directions) for o in outputs]
    if not (any(d.requires_grad for d in directions) or _keeps_graph(outputs, given, own)):
        outputs, moved = [o.detach() for o in outputs], [m.detach() for m in moved]
    return (nest(outputs), nest(moved), aux) if has_aux else (nest(outputs), nest(moved))


def _forward(output, own, directions):
    """The Jacobian of one output times the directions: the gradient of w -> w J is linear in w, and its gradient is J."""
    if not output.requires_grad:
        return _C.zeros_like(output)
    w = _C.zeros_like(output, requires_grad=True)
    pulled = _gradients([output], own, [w], create_graph=True, materialize_grads=True)
    parts = [(p, d) for p, d in zip(pulled, directions) if p.requires_grad]
    if not parts:
        return _C.zeros_like(output)
    return _gradients([p for p, _ in parts], [w], [d for _, d in parts], create_graph=True, materialize_grads=True)[0]


def _jacobian(op, func, argnums, has_aux, rows_of):
    @functools.wraps(func)
    def wrapped(*args, **kwargs):
        at = _positions(op, argnums, args)
        given, rebuild = _tensors(op, [args[i] for i in at])
        with _inside():
            own = [_own(leaf) for leaf in given]
            mine = dict(zip(at, rebuild(own)))
            out = func(*(mine.get(i, a) for i, a in enumerate(args)), **kwargs)
            out, aux = _with_aux(op, out, has_aux)
            outputs, nest = _outputs(op, out)
            create = _keeps_graph(outputs, given, own)
            blocks = [rows_of(o, own, create) for o in outputs]
        if not create:
            aux = _detached(aux)

        def shaped(block):
            inner = rebuild(block)
            return inner[0] if isinstance(argnums, int) else tuple(inner)

        result = nest([shaped(b) for b in blocks])
        return (result, aux) if has_aux else result

    return wrapped


def _reverse(output, own, create):
    flat = output.reshape(-1)
    rows = [_differentiated([flat[i]], own, None, create) for i in range(flat.shape[0])]
    return [_C.stack(list(column)).reshape(tuple(output.shape) + tuple(x.shape)) if rows else _C.zeros(tuple(output.shape) + tuple(x.shape), device=x.device) for column, x in zip(zip(*rows) if rows else [()] * len(own), own)]


def _columns(output, own, create):
    blocks = []
    for k, x in enumerate(own):
        directions = [_C.zeros_like(o) for o in own]
        columns = []
        for i in range(x.numel()):
            one = _C.zeros(x.numel(), dtype=x.dtype, device=x.device)
            one[i] = 1.0
            directions[k] = one.reshape(x.shape)
            moved = _forward(output, own, directions)
            columns.append(moved if create else moved.detach())
        blocks.append(_C.stack(columns, -1).reshape(tuple(output.shape) + tuple(x.shape)) if columns else _C.zeros(tuple(output.shape) + tuple(x.shape), device=x.device))
    return blocks


def _check_chunk_size(op, chunk_size):
    if chunk_size is not None and (isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1):
        raise ValueError(f"{op}: chunk_size is not a number of entries; got {chunk_size!r}; expected None, or an integer of 1 or more")


def _check_randomness(op, randomness):
    if randomness not in ("error", "same", "different"):
        raise RuntimeError(f"{op}: no such randomness; got {randomness!r}; expected 'error', 'same' or 'different'")


def jacrev(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False, chunk_size: int | None = None,
           _preallocate_and_copy: bool = False) -> Callable[..., Any]:
    """A function that returns the Jacobian of func: one backward pass for each element of the output.

    func: of tensors, or of nests of them. argnums: the place of the argument that is differentiated, or a tuple of places, for which there is a tuple of Jacobians. has_aux: func
    returns (result, aux), and the function (Jacobian, aux). A Jacobian has the shape of the output and then that of the argument.
    chunk_size: None or a number from 1 on (ValueError). It changes nothing, since there is one pass at a time."""
    _check_chunk_size("jacrev", chunk_size)
    return _jacobian("jacrev", func, argnums, has_aux, _reverse)


def jacfwd(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False, *, randomness: Literal["error", "same", "different"] = "error",
           chunk_size: int | None = None) -> Callable[..., Any]:
    """A function that returns the Jacobian of func: two backward passes for each element of the input. jacrev is the better choice for most functions.

    The arguments are those of func.jacrev. randomness: 'error' refuses a func that draws random numbers (RuntimeError); 'same' uses the same ones for all columns; with
    'different' a func that draws them is a NotImplementedError, since func is called once."""
    _check_chunk_size("jacfwd", chunk_size)
    _check_randomness("jacfwd", randomness)

    @functools.wraps(func)
    def checked(*args, **kwargs):
        before = _C.get_rng_state()
        result = func(*args, **kwargs)
        if randomness != "same" and _C.get_rng_state() != before:
            if randomness == "error":
                raise RuntimeError("jacfwd: the function drew random numbers; expected randomness='same'")
            raise NotImplementedError("jacfwd: the function drew random numbers and is called once for all columns; got randomness='different'; expected 'same'")
        return result

    return _jacobian("jacfwd", checked, argnums, has_aux, _columns)


def hessian(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """A function that returns the matrix of second derivatives of func with respect to the argument number argnums (or a tuple of numbers):
    jacrev(jacrev(func)). Its shape is that of func's result, followed twice by that of the argument.

    The function raises RuntimeError for arguments there that are no floating or complex tensors, for a place that is not there, and for a func that returns no
    tensors; TypeError for argnums that are no ints.
    """
    return jacrev(jacrev(func, argnums), argnums)


def functional_call(module: Module, parameter_and_buffer_dicts: dict[str, TensorT] | Sequence[Mapping[str, Tensor]], args: Any = None,
                    kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = False) -> Any:
    """Calls the module with these tensors in the places of its parameters and buffers, which are unchanged afterwards. Tied ones are replaced together.

    parameter_and_buffer_dicts: tensors by dotted name, a dict or several. args: a tuple, or one argument. kwargs: a dict. tie_weights: a tensor
    stands for all names of its parameter. strict: RuntimeError where names are missing or unknown.
    """
    dicts = [parameter_and_buffer_dicts] if isinstance(parameter_and_buffer_dicts, dict) else parameter_and_buffer_dicts
    values = {name: value for d in dicts for name, value in d.items()}
    own = {name: place for name, place in _places(module)}
    if strict and set(values) != set(own):
        raise RuntimeError(f"functional_call: the names are not the module's; missing {sorted(set(own) - set(values))}; unexpected {sorted(set(values) - set(own))}")
    unknown = sorted(set(values) - set(own))
    if unknown:
        raise KeyError(f"functional_call: the module has no '{unknown[0]}'")
    if tie_weights:
        same = {id(group[key]): values[name] for name, (group, key) in own.items() if name in values}
        values = {name: values.get(name, same.get(id(group[key]))) for name, (group, key) in own.items() if name in values or id(group[key]) in same}
    before = [(own[name], own[name][0][own[name][1]]) for name in values]
    try:
        for name, value in values.items():
            group, key = own[name]
            group[key] = value
        args = () if args is None else args if isinstance(args, tuple) else (args,)
        return module(*args, **(kwargs or {}))
    finally:
        for (group, key), value in before:
            group[key] = value


def _places(module):
    for path, m in module.named_modules(remove_duplicate=False):
        for group in (m._parameters, m._buffers):
            for key, value in group.items():
                if value is not None:
                    yield (f"{path}.{key}" if path else key), (group, key)


def stack_module_state(models: list[ModuleT] | tuple[ModuleT, ...]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(parameters, buffers) of models of one kind, each stacked along a new first dim: dicts of tensors [models, ..] by name. The parameters require gradients
    as they did.

    models: a list of Modules. RuntimeError for an empty one, and for models of different classes or with different names of parameters and buffers; ValueError
    where tensors of one name have different shapes; TypeError for what is no Module."""
    from .nn import Module

    if not models:
        raise RuntimeError("stack_module_state: no models; expected at least one")
    if not isinstance(models, (list, tuple)) or not all(isinstance(m, Module) for m in models):
        raise TypeError(f"stack_module_state: not a list of modules; got {models!r}; expected Modules")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: the models are of different classes; expected one class")

    def stacked(dicts):
        out = {}
        if any(d.keys() != dicts[0].keys() for d in dicts):
            raise RuntimeError(f"stack_module_state: the models have different parameters or buffers; got {[sorted(d) for d in dicts]}; expected the same names")
        for name in dicts[0]:
            parts = [d[name] for d in dicts]
            out[name] = _C.stack([p.detach() for p in parts]).requires_grad_(parts[0].requires_grad)
        return out

    return stacked([dict(m.named_parameters()) for m in models]), stacked([dict(m.named_buffers()) for m in models])


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """(func(*primals), a function of tangents that gives the Jacobian times them); each call is two backward passes.

    primals: tensors, or nests of them. A tangent has the shape of its primal, and the function's result that of func's. RuntimeError for primals that are no
    floating or complex tensors; from the function for tangents of another number or shape, and where func returns no tensors."""
    _tensors("linearize", list(primals))
    return func(*primals), lambda *tangents: jvp(func, primals, tangents)[1]


def functionalize(func: Function, *, remove: Literal["mutations", "mutations_and_views"] = "mutations") -> Function:
    """func, which needs no change: in PyTorch the result records no writes in place, here a window's writes are resolved when it is planned. The values, and
    what func writes into its arguments, are those of func. remove: "mutations" or "mutations_and_views"; ValueError for others."""
    if remove not in ("mutations", "mutations_and_views"):
        raise ValueError(f"functionalize: remove is unknown; got {remove!r}; expected 'mutations' or 'mutations_and_views'")

    @functools.wraps(func)
    def same(*args, **kwargs):
        return func(*args, **kwargs)

    return same


def replace_all_batch_norm_modules_(root: ModuleT) -> ModuleT:
    """Batch norms use the statistics of the batch only, in place; returns the module. root: a Module; TypeError for something else."""
    from .nn import Module

    if not isinstance(root, Module):
        raise TypeError(f"replace_all_batch_norm_modules_: not a module; got {type(root).__name__}; expected a Module")
    for m in root.modules():
        if hasattr(m, "track_running_stats"):
            m.running_mean = m.running_var = m.num_batches_tracked = None
            m.track_running_stats = False
    return root


def _spread(op, dims, tree):
    """One entry of dims for each leaf of the tree."""
    leaves, rebuild = _tree.flatten(tree)
    if dims is None or isinstance(dims, int):
        return [dims] * len(leaves)
    if isinstance(tree, dict) and isinstance(dims, dict):
        return [d for key in tree for d in _spread(op, dims[key], tree[key])]
    if isinstance(tree, (list, tuple)) and isinstance(dims, (list, tuple)) and len(tree) == len(dims):
        return [d for part, one in zip(tree, dims) for d in _spread(op, one, part)]
    raise ValueError(f"{op}: the dims do not fit the arguments; got {dims!r}; expected an int, None, or the same nesting")


def vmap(func: Callable[..., Any], in_dims: int | tuple[Any, ...] | list[Any] | None = 0,
         out_dims: int | tuple[Any, ...] | list[Any] | dict[Any, Any] | None = 0, randomness: Literal["error", "same", "different"] = "error", *,
         chunk_size: int | None = None) -> Callable[..., Any]:
    """A function that calls func for each entry along a dim of its arguments and stacks the results: a loop, which the engine compiles once.

    in_dims: the dim for each argument, None for one that all calls share. out_dims: where the dim of the batch is in the results.
    randomness: 'error' refuses random numbers, 'same' draws the same ones in each call, 'different' draws on. chunk_size: None, or how many entries
    are computed before the next ones are recorded, which bounds the memory of what lies between; ValueError unless it is 1 or more. For a batch of no
    entries, func is called once, with zeros."""
    _check_chunk_size("vmap", chunk_size)
    _check_randomness("vmap", randomness)

    @functools.wraps(func)
    def wrapped(*args, **kwargs):
        leaves, rebuild = _tree.flatten(args)
        dims = _spread("vmap", tuple(in_dims) if isinstance(in_dims, list) else in_dims, args)
        sizes = {leaf.shape[d] for leaf, d in zip(leaves, dims) if d is not None and isinstance(leaf, Tensor)}
        if len(sizes) != 1:
            raise ValueError(f"vmap: the sizes along in_dims differ, or no argument has one; got {sorted(sizes)}; expected one size")
        for leaf, d in zip(leaves, dims):
            if d is not None and not isinstance(leaf, Tensor):
                raise ValueError(f"vmap: not a tensor; got {type(leaf).__name__} with in_dims {d}; expected None for it")
        _notes.once("vmap", "the batch is a loop whose results are stacked; ops that take the whole batch are faster")
        before, results, size = _C.get_rng_state(), [], sizes.pop()
        if size == 0:  # shapes and dtypes are those of an entry of zeros
            one = [leaf if d is None else _C.zeros(leaf.shape[:d % leaf.ndim] + leaf.shape[d % leaf.ndim + 1:], dtype=leaf.dtype, device=leaf.device) for leaf, d in zip(leaves, dims)]
            result = _stacked([func(*rebuild(one), **kwargs)], out_dims, empty=True)
            _C.set_rng_state(before)
            return result
        for i in range(size):
            if randomness == "same":
                _C.set_rng_state(before)
            results.append(func(*rebuild([leaf if d is None else leaf.select(d, i) for leaf, d in zip(leaves, dims)]), **kwargs))
            if chunk_size is not None and ((i + 1) % chunk_size == 0 or i + 1 == size):
                _C.synchronize()
        if randomness == "error" and _C.get_rng_state() != before:
            raise RuntimeError("vmap: the function drew random numbers; expected randomness='same' or 'different'")
        return _stacked(results, out_dims)

    return wrapped


def _stacked(results, out_dims, empty=False):
    parts = [_tree.flatten(r) for r in results]
    nest = parts[0][1]
    dims = _spread("vmap", list(out_dims) if isinstance(out_dims, tuple) and isinstance(results[0], list) else out_dims, results[0])
    columns = list(zip(*(leaves for leaves, _ in parts)))
    for column in columns:
        if not isinstance(column[0], Tensor):
            raise ValueError(f"vmap: the function returned {type(column[0]).__name__}; expected tensors")
    return nest([c[0] if d is None else _C.stack(list(c), d).narrow(d, 0, 0) if empty else _C.stack(list(c), d) for c, d in zip(columns, dims)])


_refused.unknown(globals())
