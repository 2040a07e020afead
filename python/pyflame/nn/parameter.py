"""Parameters and buffers: tensors that a Module registers automatically; also those whose shape comes with the first input."""
from __future__ import annotations

from functools import partial
from types import FunctionType

from .. import _C
from .._C import Tensor

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._annotations import DType, Device, Shape, TensorLike


def _rebuild(data, requires_grad):
    return Parameter(data, requires_grad)


class Parameter(Tensor):
    """A leaf tensor that becomes a parameter of the Module it is assigned to. Shares data's memory.

    data: a tensor, or what pyflame.tensor takes; None: an empty tensor. A DTensor: the parameter is this process's part, which knows the whole (full_tensor(),
    global_shape, placements). Raises ValueError for integers and bools, unless requires_grad is False, and for a DTensor that is Partial().
    """

    def __init__(self, data: TensorLike | None = None, requires_grad: bool = True) -> None:
        if data is None:
            data = _C.empty(0)
        layout = None
        if not isinstance(data, Tensor) and hasattr(data, "_local_tensor"):
            layout, data = data._layout("Parameter"), Tensor(data._local_tensor)
        super().__init__(data.detach() if isinstance(data, Tensor) else _C.tensor(data))
        if layout is not None:
            from ..distributed._sharding import _marked

            _marked(self, layout)
        self._lasts()
        if requires_grad:
            self.requires_grad_(True)

    def __repr__(self):
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        with _no_grad():
            copy = type(self)(self.detach().clone(), self.requires_grad)
        memo[id(self)] = copy  # without .grad, as in PyTorch: a copied module begins to collect gradients from nothing
        return copy

    def __reduce_ex__(self, protocol):
        return (_rebuild, (self.detach(), self.requires_grad))


class Buffer(Tensor):
    """A tensor that becomes a buffer of the Module it is assigned to; persistent: part of the state dict. Shares data's memory.

    data: a tensor, or what pyflame.tensor takes; None: an empty tensor. Raises TypeError for other data, such as a str.
    """

    def __init__(self, data: TensorLike | None = None, *, persistent: bool = True) -> None:
        if data is None:
            data = _C.empty(0)
        super().__init__(data.detach() if isinstance(data, Tensor) else _C.tensor(data))
        self.persistent = persistent


def with_members_of(source):
    """A class decorator: the class has the members of `source` too. Subclasses of Tensor have no second base, because nanobind before 3.0 (the last one
    for Python 3.9) refuses it."""

    def decorate(cls):
        for name, value in vars(source).items():
            if name not in vars(cls) and (not name.startswith("__") or isinstance(value, FunctionType)):
                setattr(cls, name, value)
        return cls

    return decorate


class _Uninitialized:
    """What has no shape yet. materialize(shape) gives it one."""

    def materialize(self, shape: Shape, device: Device | None = None, dtype: DType | None = None) -> None:
        """From now on, this is an ordinary tensor of this shape, with any values."""
        now = _C.empty(tuple(shape), dtype=dtype or self._dtype, device=device or self._device)
        requires_grad = self.requires_grad
        self.__class__ = self._becomes
        self._become(now, requires_grad)

    def _without_elements(self):
        """An ordinary tensor of this device and dtype, which shows where .to() would move this one."""
        return _C.empty(0, dtype=self._dtype, device=self._device)

    def _keep(self, device, dtype):
        self._device, self._dtype = device or self._device, dtype or self._dtype

    @property
    def shape(self):
        raise RuntimeError(f"{type(self).__name__}: it has no shape yet; hint: call the lazy module with an input first")

    @property
    def dtype(self):
        return self._dtype

    @property
    def device(self):
        return self._device

    def __deepcopy__(self, memo):
        copy = type(self)(device=self._device, dtype=self._dtype)
        copy.requires_grad_(self.requires_grad)
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol):
        return (_rebuild_uninitialized, (type(self), str(self._device), self._dtype, self.requires_grad))

    def __repr__(self):
        return f"<{type(self).__name__}>"


def _without_a_shape(name):
    def refuse(self):
        raise RuntimeError(f"{name}: the tensor has no shape yet; got {type(self).__name__}; expected an ordinary tensor; hint: call the lazy module with an input first")

    return property(refuse)


for _name in ("ndim", "nbytes", "T", "mT", "H", "mH"):  # what follows from the shape
    setattr(_Uninitialized, _name, _without_a_shape(_name))


def _rebuild_uninitialized(kind, device, dtype, requires_grad):
    return kind(device=device, dtype=dtype).requires_grad_(requires_grad)


# What a tensor without a shape can do: what modules ask of all their tensors, and what does not look at elements.
_WITHOUT_A_SHAPE = frozenset(
    "bfloat16 copy_ cpu cuda double float half is_complex is_contiguous is_floating_point is_same requires_grad_ share_memory_ to type xpu "
    "register_hook register_post_accumulate_grad_hook".split())
_OPERATORS = frozenset(
    f"__{side}{name}__" for side in ("", "r", "i") for name in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
) | frozenset(f"__{name}__" for name in "abs neg pos invert eq ne lt le gt ge getitem setitem len iter contains bool int float complex index array dlpack".split())


class _Refused:
    """A method that raises ValueError. It is no function, so the pages of the reference do not list it."""

    def __init__(self, name):
        self._name = name

    def __get__(self, instance, owner=None):
        return partial(self._refuse, owner)

    def _refuse(self, owner, *args, **kwargs):
        raise ValueError(f"{self._name.strip('_')}: the tensor has no shape yet; got {owner.__name__}; expected an ordinary tensor; "
                         "hint: call the lazy module with an input first")  # fmt: skip


def _refusing_elements(cls):
    """A class decorator: methods and operators that would compute with elements raise ValueError, until materialize() makes the tensor an ordinary one."""
    for name in dir(Tensor):
        computes = name in _OPERATORS or name[0] != "_" and callable(getattr(Tensor, name)) and name not in _WITHOUT_A_SHAPE
        if computes and name not in vars(cls):
            setattr(cls, name, _Refused(name))
    cls.__hash__ = Tensor.__hash__
    return cls


@_refusing_elements
@with_members_of(_Uninitialized)
class UninitializedParameter(Parameter):
    """A Parameter without a shape, which lazy modules give it when they see their first input.

    Before that, functions such as pf.exp see a tensor without elements and do not raise. Its shape and what follows from it, such as ndim, nbytes and
    T, raise RuntimeError. Operators and methods that compute with elements raise ValueError, and so does size().

    The constructor raises ValueError for a device that does not exist and a dtype of integers, and TypeError for what is no dtype.
    """

    _becomes = Parameter

    def __init__(self, requires_grad: bool = True, device: Device | None = None, dtype: DType | None = None) -> None:
        like = _C.empty(0, dtype=dtype, device=device)
        self._device, self._dtype = like.device, like.dtype
        Parameter.__init__(self, like, requires_grad)


@_refusing_elements
@with_members_of(_Uninitialized)
class UninitializedBuffer(Tensor):
    """A buffer without a shape, which lazy modules give it when they see their first input.

    persistent: it is part of the state dict. requires_grad is accepted for PyTorch's programs and changes nothing.

    Before that, functions such as pf.exp see a tensor without elements and do not raise. Its shape and what follows from it, such as ndim, nbytes and
    T, raise RuntimeError. Operators and methods that compute with elements raise ValueError, and so does size().

    The constructor raises ValueError for a device that does not exist.
    """

    _becomes = Tensor

    def __init__(self, requires_grad: bool = False, device: Device | None = None, dtype: DType | None = None, persistent: bool = True) -> None:
        like = _C.empty(0, dtype=dtype, device=device)
        self._device, self._dtype, self.persistent = like.device, like.dtype, persistent
        Tensor.__init__(self, like)


def is_lazy(tensor: object) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return isinstance(tensor, (UninitializedParameter, UninitializedBuffer))


def _no_grad():
    from .._grad_mode import no_grad

    return no_grad()
