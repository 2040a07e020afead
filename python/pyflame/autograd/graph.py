"""Names about what the tape keeps."""
import contextlib
import threading

from .. import _C, _refused

Node = _C.GradFn
_state = threading.local()


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
    nothing; device_type too."""

    def __init__(self, pin_memory=False, device_type="cuda"):
        super().__init__(lambda t: (t.device, t.to("cpu", copy=True)), lambda packed: packed[1].to(packed[0]))


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message):
    """Inside, saved_tensors_hooks() is a RuntimeError with this message."""
    if not hasattr(_state, "refused"):
        _state.refused = []
    _state.refused.append(error_message)
    try:
        yield
    finally:
        _state.refused.pop()


allow_mutation_on_saved_tensors = _refused.cls("autograd.graph.allow_mutation_on_saved_tensors", "clone() a tensor before it is written in place")
