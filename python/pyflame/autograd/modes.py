"""The backward pass, the gradients of chosen inputs, and settings of both."""
from .. import _C
from .._C import Tensor


def _tensors_of(inputs):
    """Tensors in the places of the gradient edges (autograd.graph.get_gradient_edge)."""
    if isinstance(inputs, (Tensor, dict)) or not hasattr(inputs, "__iter__"):
        return inputs
    from .graph import GradientEdge

    one = isinstance(inputs, GradientEdge)
    found = []
    for x in [inputs] if one else inputs:
        if isinstance(x, GradientEdge) and not isinstance(x.ownership_token, Tensor):
            raise TypeError("grad: an edge without its tensor; got a GradientEdge; expected one of get_gradient_edge()")
        found.append(x.ownership_token if isinstance(x, GradientEdge) else x)
    return found


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None):
    """Adds the gradients of the sum of tensors (each weighted by its entry of grad_tensors) to the .grad of every leaf, or of `inputs` only.

    grad_tensors: of the shapes of tensors; None only where a tensor has one element, whose weight is 1. grad_variables: an older name of grad_tensors, which
    it replaces. retain_graph: the tape stays, so that another backward pass can follow; None: as create_graph. create_graph: gradients have a tape of their own, for
    gradients of gradients.

    RuntimeError if a tensor requires no gradient, if its tape was freed, or if a saved tensor was overwritten."""
    _C._backward(tensors, grad_tensors if grad_variables is None else grad_variables, retain_graph, create_graph, _tensors_of(inputs))


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True, allow_unused=None, is_grads_batched=False, materialize_grads=False):
    """The gradients of outputs with respect to inputs, as a tuple; nothing is accumulated. An input is a tensor, or its gradient edge.

    RuntimeError if the outputs do not depend on an input; with allow_unused, its gradient is None instead, and zeros with materialize_grads.
    grad_outputs, retain_graph, create_graph: as grad_tensors and the others of backward().
    is_grads_batched: grad_outputs have one more dim in front, and so have the results; a loop over it.
    only_inputs=False, which PyTorch has given up, is a NotImplementedError."""
    if not only_inputs:
        raise NotImplementedError("grad: only_inputs=False is not available; hint: backward() adds to the gradients of all leaves")
    if allow_unused is False and materialize_grads:
        raise ValueError("grad: allow_unused=False and materialize_grads=True exclude each other")
    allow_unused = bool(allow_unused) or materialize_grads
    inputs = _tensors_of(inputs)
    if is_grads_batched:
        return _batched(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads)
    found = _C._grad(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused)
    if not materialize_grads:
        return found
    inputs = [inputs] if isinstance(inputs, Tensor) else inputs
    return tuple(_C.zeros_like(x, requires_grad=create_graph) if g is None else g for x, g in zip(inputs, found))


def _batched(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize):
    outputs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    grad_outputs = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    n = grad_outputs[0].shape[0]
    rows = [grad(outputs, inputs, [g[i] for g in grad_outputs], True if i + 1 < n else retain_graph, create_graph, True, allow_unused, False, materialize) for i in range(n)]
    return tuple(None if column[0] is None else _C.stack(list(column)) for column in zip(*rows))


class set_detect_anomaly:
    """Turns the detection of NaN gradients on or off; as a context manager, it restores what was before. While it is on, a NaN in a gradient is a RuntimeError
    that names the op and its line. mode, check_nan: it is on if both are true; nothing is raised for values that are no bools."""

    def __init__(self, mode, check_nan=True):
        self._before = _C.is_anomaly_enabled()
        _C._set_anomaly(bool(mode and check_nan))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        _C._set_anomaly(self._before)
        return False


class detect_anomaly(set_detect_anomaly):
    """A context in which a NaN in a gradient is a RuntimeError that names the op and its line. Each gradient is looked at, so backward is slow."""

    def __init__(self, check_nan=True):
        super().__init__(True, check_nan)


class set_multithreading_enabled:
    """Does nothing: backward records gradients in one thread in any case. A function or a context manager, for PyTorch's programs. mode is not used; never raises."""

    def __init__(self, mode):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False
