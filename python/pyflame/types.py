"""Names for annotations, as PyTorch's torch.types."""
import builtins
import os
from typing import IO, Any, List, Sequence, Tuple, Union

from . import _C
from ._C import Tensor as Tensor
from ._tensor_methods import Storage as Storage

_int, _float, _bool, _complex, _str = builtins.int, builtins.float, builtins.bool, builtins.complex, builtins.str
_dtype, _device = _C.dtype, _C.device
_size = Union[Sequence[int], List[int], Tuple[int, ...]]
_symsize = _size
_dispatchkey = Union[str, Any]
_TensorOrTensors = Union[Tensor, Sequence[Tensor]]
Number = Union[int, float, bool]
Device = Union[_C.device, str, int, None]
FileLike = Union[str, "os.PathLike[str]", IO[bytes]]
IntLikeType, FloatLikeType, BoolLikeType = int, float, bool
