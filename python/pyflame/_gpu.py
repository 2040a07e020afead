"""The GPU there is, whoever made it: what pf.cuda, pf.accelerator and x.cuda() stand for."""
from __future__ import annotations

from . import _C
from ._C import Tensor

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from ._annotations import Device, MemoryFormat

_COUNTS = {"rocm": lambda: _C.rocm_device_count(), "cuda": lambda: _C.cuda_device_count()}


def kind() -> str | None:
    """'rocm' or 'cuda': the type of the current device if it is a GPU, otherwise of the one that is there; None without a GPU."""
    current = _C.get_device().partition(":")[0]
    if current in _COUNTS:
        return current
    return next((name for name, count in _COUNTS.items() if count() > 0), None)


def count() -> int:
    """How many GPUs of that type there are."""
    name = kind()
    return _COUNTS[name]() if name else 0


def index_of(device: Device | None = None) -> int:
    """The number of a GPU: of a device, its name or its number; None is the current one."""
    if device is None:
        name, _, number = _C.get_device().partition(":")
        return int(number or 0) if name in _COUNTS else _C._selected_gpu()
    if isinstance(device, int):
        return index_of() if device < 0 else device
    where = _C.device(device)
    if where.index is None:
        raise ValueError(f"cuda: not a GPU; got '{where}'; expected a number, or a device such as 'rocm:0'")
    return where.index


def select(index: int) -> None:
    """From now on a GPU's name without a number, and x.cuda(), mean this one."""
    current = _C.get_device().partition(":")[0]
    name_of(index)
    if current in _COUNTS:
        _C.set_device(f"{current}:{index}")
    _C._select_gpu(index)


def check(device: Device | None) -> None:
    """ArgumentError for a name that no device has, and TypeError for what is none; whether there is a GPU does not matter. None and numbers are not looked at."""
    if device is not None and not isinstance(device, int):
        _C.device(device)


def name_of(device: Device | None = None) -> str:
    """The name of a GPU, such as 'rocm:0'. DeviceError with the reason if there is none."""
    check(device)
    found = kind()
    if found is None:
        reason = _C.rocm_unavailable_reason()
        raise _C.DeviceError(f"cuda: there is no GPU; {reason or 'none was found'}; hint: `device = 'cuda' if pf.cuda.is_available() else 'cpu'`")
    if device is not None and not isinstance(device, int) and str(_C.device(device)).startswith(tuple(_COUNTS)):
        return str(_C.device(device))
    return f"{found}:{index_of(device)}"


def _cuda(self: Tensor, device: Device | None = None, non_blocking: bool = False, memory_format: MemoryFormat | None = None) -> Tensor:
    """On the GPU there is, of any vendor. DeviceError with the reason if there is none."""
    return self.to(name_of(device), memory_format=memory_format)


Tensor.cuda = _cuda
