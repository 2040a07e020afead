"""Names of torch.utils.cpp_extension. Extensions are programs of PyTorch's C++ library, which is not here."""
from .. import _refused

_ADVICE = "extensions use PyTorch's C++ library; compose the op of others, or write its gradient with autograd.Function"
CUDA_HOME = ROCM_HOME = None
BuildExtension = _refused.cls("utils.cpp_extension.BuildExtension", _ADVICE)
__getattr__ = _refused.module("utils.cpp_extension", _ADVICE)
