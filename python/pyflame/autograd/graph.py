"""Names about what the tape keeps."""
from .. import _C, _refused

_ADVICE = "what the tape keeps cannot be replaced; utils.checkpoint computes intermediates again instead of keeping them"
saved_tensors_hooks, save_on_cpu, allow_mutation_on_saved_tensors, disable_saved_tensors_hooks = (
    _refused.cls(f"autograd.graph.{name}", _ADVICE) for name in ("saved_tensors_hooks", "save_on_cpu", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks")
)
Node = _C.GradFn
