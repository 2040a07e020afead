"""Recomputation of intermediates in the backward pass, by PyTorch's path."""
import contextlib
import enum
import warnings

from .. import _C, _refused
from ..autograd.recompute import checkpoint as _checkpoint


class CheckpointError(RuntimeError):
    """PyTorch's error where the second run differs from the first. Nothing raises it here."""


class CheckpointPolicy(enum.Enum):
    """What a selective checkpoint would do with an op. create_selective_checkpoint_contexts(), which takes it, is not available.

    Raises ValueError for a value of no member.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


def checkpoint(function, *args, use_reentrant=None, context_fn=None, determinism_check="default", debug=False, early_stop=True, preserve_rng_state=True, **kwargs):
    """Runs function(*args, **kwargs) without keeping its intermediates. The backward pass computes them again, with the same random numbers.

    There is one way to do it, so that use_reentrant, determinism_check, debug and early_stop change nothing. Another preserve_rng_state than True, and
    context_fn, are a NotImplementedError."""
    if context_fn is not None:
        raise NotImplementedError("checkpoint: context_fn is not available; expected None")
    if not preserve_rng_state:
        raise NotImplementedError("checkpoint: preserve_rng_state=False is not available; the random numbers are always the same; expected True")
    return _checkpoint(lambda *tensors: function(*tensors, **kwargs), *args)


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """Runs modules one after the other, in `segments` parts of which each but the last one is computed again in the backward pass.

    functions: a Sequential, or a list of modules or functions of one argument. segments: from 1 to their number; ValueError. input: the argument of the first one. use_reentrant changes
    nothing. kwargs: preserve_rng_state, as of checkpoint(); ValueError for others.
    """
    functions = list(functions.children()) if hasattr(functions, "children") else list(functions)
    options = {"preserve_rng_state": kwargs.pop("preserve_rng_state", True)}
    if kwargs:
        raise ValueError(f"checkpoint_sequential: unknown arguments; got {', '.join(kwargs)}; expected preserve_rng_state or none")
    if not 1 <= segments <= len(functions):
        raise ValueError(f"checkpoint_sequential: segments is out of range; got {segments}; expected 1 to {len(functions)}, the number of functions")
    size = len(functions) // segments

    def run(first, last):
        def part(x):
            for f in functions[first:last]:
                x = f(x)
            return x

        return part

    end = 0
    for end in range(size, size * (segments - 1) + 1, size):
        input = checkpoint(run(end - size, end), input, **options)
    return run(end if segments > 1 else 0, len(functions))(input)


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled):
    """A context that changes nothing: it is a setting of PyTorch's implementation. Raises nothing."""
    yield


@contextlib.contextmanager
def set_checkpoint_early_stop(enable):
    """A context that changes nothing: a function is always computed again as a whole. Raises nothing."""
    yield


def detach_variable(inputs):
    """The inputs, of which tensors have no history and need gradients as before.

    Returns a tuple. Raises RuntimeError where inputs is neither a tuple nor a list.
    """
    if not isinstance(inputs, (tuple, list)):
        raise RuntimeError(f"detach_variable: not a tuple; got {type(inputs).__name__}; expected a tuple of tensors and other values")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, _C.Tensor) else x for x in inputs)


def check_backward_validity(inputs):
    """Warns with a UserWarning where no tensor among inputs, an iterable, requires a gradient: then a checkpoint gives none. Returns None."""
    if not any(isinstance(x, _C.Tensor) and x.requires_grad for x in inputs):
        warnings.warn("checkpoint: no input needs a gradient, so that gradients will be None", stacklevel=2)


def noop_context_fn():
    """Returns a pair of contexts that do nothing, one for the forward pass and one for the recomputation: the default of context_fn."""
    return contextlib.nullcontext(), contextlib.nullcontext()


_SAME_NUMBERS = "checkpoint() draws the same random numbers when it computes again"
get_device_states = _refused.function("utils.checkpoint.get_device_states", _SAME_NUMBERS)
set_device_states = _refused.function("utils.checkpoint.set_device_states", _SAME_NUMBERS)
CheckpointFunction = _refused.cls("utils.checkpoint.CheckpointFunction", "use checkpoint()")
SelectiveCheckpointContext = _refused.cls("utils.checkpoint.SelectiveCheckpointContext", "checkpoint() computes a function again as a whole")
create_selective_checkpoint_contexts = _refused.function("utils.checkpoint.create_selective_checkpoint_contexts", "checkpoint() computes a function again as a whole")
