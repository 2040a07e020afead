"""Names of torch.quantization and torch.ao. Quantized tensors are not available."""
from . import _refused

__getattr__ = _refused.module("quantization", "quantized tensors are not available; float16 and bfloat16 take half of the memory")
