"""Names of torch.export. Models are exported as ONNX, weights as safetensors."""
from . import _refused

_ADVICE = "export the model with pyflame.onnx.export, or its weights with pyflame.save"
Dim, ExportedProgram = (_refused.cls(f"export.{name}", _ADVICE) for name in ("Dim", "ExportedProgram"))
__getattr__ = _refused.module("export", _ADVICE)
