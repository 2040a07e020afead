"""Names about what the tape keeps."""
import contextlib
import threading
import weakref
from typing import NamedTuple

from .. import _C, _refused

Node = _C.GradFn
_state = threading.local()


class GradientEdge(NamedTuple):
    """A place in the tape where the gradient of a tensor is computed: autograd.grad and autograd.backward take it as an input, in place of the tensor.

    node: the grad_fn of the tensor, None for a leaf. output_nr: 0. ownership_token: the tensor, whose memory lives as long as the edge. get_gradient_edge() makes
    one. The fields are not checked here: autograd.grad raises TypeError for an edge without its tensor."""

    node: Node
    output_nr: int
    ownership_token: object = None


def get_gradient_edge(tensor):
    """The GradientEdge of a tensor. RuntimeError if it requires no gradient.

        >>> x = pf.ones(2, requires_grad=True)
        >>> y = x * 3
        >>> pf.autograd.grad((y * y).sum(), pf.autograd.graph.get_gradient_edge(y))[0].tolist()
        [6.0, 6.0]
    """
    if not tensor.requires_grad:
        raise RuntimeError("get_gradient_edge: the tensor requires no gradient; expected requires_grad=True or a result of such tensors")
    return GradientEdge(tensor.grad_fn, 0, tensor)


class saved_tensors_hooks:  # noqa: N801 - PyTorch's name
    """Inside, pack_hook(tensor) is called for each tensor that an op saves for its gradient, and its result is kept instead of the tensor.
    unpack_hook(result) is called once for each gradient that needs it, and returns a tensor of the same shape, dtype and device. Gradients are off in
    both. Of nested contexts the innermost counts. A pack_hook that writes to its argument is a RuntimeError."""

    def __init__(self, pack_hook, unpack_hook):
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self):
        refused = getattr(_state, "refused", None)
        if refused:
            raise RuntimeError(refused[-1])
        _C._push_saved_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *_):
        _C._pop_saved_hooks()


class save_on_cpu(saved_tensors_hooks):  # noqa: N801
    """Inside, what ops save for their gradients is moved to the host's memory, and back when a gradient needs it. pin_memory is accepted and changes
    nothing; device_type too. Entering it is a RuntimeError inside of disable_saved_tensors_hooks()."""

    def __init__(self, pin_memory=False, device_type="cuda"):
        super().__init__(lambda t: (t.device, t.to("cpu", copy=True)), lambda packed: packed[1].to(packed[0]))


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message):
    """A context of this thread in which entering saved_tensors_hooks() is a RuntimeError with the text error_message."""
    if not hasattr(_state, "refused"):
        _state.refused = []
    _state.refused.append(error_message)
    try:
        yield
    finally:
        _state.refused.pop()


class _Pass:
    """The gradients of one backward pass. Only what is called at its end holds it, so that it is gone after a pass that failed, too."""

    def __init__(self, hook):
        self.hook, self.grads, self.done = hook, {}, False
        _C._run_at_end_of_backward(self.finish)

    def finish(self):
        if not self.done:
            self.done = True
            self.hook.fn([self.grads.get(i) for i in range(self.hook.count)])


class _MultiGradHook:
    """What the hooks of several tensors call. It does not hold the tensors, which hold it."""

    def __init__(self, fn, first, count):
        self.fn, self.first, self.count, self._passes = fn, first, count, weakref.WeakValueDictionary()

    def of(self, index):
        return lambda grad: self._arrived(index, grad)

    def _arrived(self, index, grad):
        number = _C._backward_pass()
        now = self._passes.get(number)
        if now is None:
            now = self._passes[number] = _Pass(self)
        if self.first and not now.done:
            now.done = True
            self.fn(grad)
        elif not self.first:
            now.grads[index] = grad
            if len(now.grads) == self.count:
                now.finish()


class _Handles:
    """remove() ends the calls of several hooks; as a context, the end of the block does."""

    def __init__(self, handles):
        self._handles = handles

    def remove(self):
        """fn is called no more."""
        for handle in self._handles:
            handle.remove()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


def register_multi_grad_hook(tensors, fn, *, mode="all"):
    """Calls fn in each pass of backward() or grad() that reaches one of the tensors, and returns a handle with remove(), which is a context, too.

    mode "all": fn(list of gradients) as soon as all tensors have theirs; where the pass does not reach some of them, at its end, with None for those.
    mode "any": fn(gradient) for the first gradient; tensors that require none are left out. A pass that fails before does not call fn.
    RuntimeError for a tensor that requires no gradient with "all", ValueError for another mode."""
    if mode not in ("all", "any"):
        raise ValueError(f"register_multi_grad_hook: no such mode; got {mode!r}; expected 'all' or 'any'")
    first = mode == "any"
    tensors = [t for t in tensors if t.requires_grad or not first]
    hook = _MultiGradHook(fn, first, len(tensors))
    return _Handles([t.register_hook(hook.of(i)) for i, t in enumerate(tensors)])


def queue_callback(callback):
    """Called in a hook: callback() runs once, at the end of this pass of backward() or grad(), after all gradients are in .grad.

    A pass that fails does not call it. RuntimeError outside of a pass."""
    if not _C._backward_pass():
        raise RuntimeError("queue_callback: no backward pass runs on this thread; got a call outside of one; expected a call in a hook")
    _C._run_at_end_of_backward(callback)


allow_mutation_on_saved_tensors = _refused.cls("autograd.graph.allow_mutation_on_saved_tensors", "clone() a tensor before it is written in place")
