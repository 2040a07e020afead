"""Methods and properties of Tensor that are no ops: where it is, its memory, and names that programs ask for."""
from __future__ import annotations

import weakref

from . import _C, _dtypes, _refused, _signatures
from ._C import Tensor
from ._error_names import rename

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    import builtins
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, NoReturn, TypeVar

    import numpy as np

    from ._annotations import DType, Device, Function, MemoryFormat, Shape

    SubclassOfTensor = TypeVar("SubclassOfTensor", bound=Tensor)

_SPARSE = "sparse tensors are not available; dense ones and index ops (index_add, scatter_add) do their work"
_QUANTIZED = "quantized tensors are not available; float16 and bfloat16 take half of the memory"


def _property(name, get, doc):
    setattr(Tensor, name, property(get, doc=doc))


def _method(function: Function) -> Function:
    setattr(Tensor, function.__name__, function)
    return function


def _on(types):
    return lambda self: str(self.device).partition(":")[0] in types


_property("is_cuda", _on(("rocm", "cuda")), "A bool: whether the tensor is on a GPU, of AMD (device rocm) or of NVIDIA (device cuda).")
_property("is_cpu", _on(("cpu", "reference", "null")), "A bool: whether the tensor is on a device that computes in the memory of the host: cpu, reference or null.")
_property("is_meta", _on(("null",)), "Whether it has a shape and no values: the device 'null', which is also called 'meta'.")
for _name in ("is_sparse", "is_sparse_csr", "is_quantized", "is_mkldnn", "is_mps", "is_nested", "is_xpu", "is_xla", "is_vulkan", "is_ipu", "is_mtia", "is_maia", "volatile"):
    _property(_name, lambda self: False, f"Always False. {_name[3:] if _name[:3] == 'is_' else _name} is PyTorch's word for a kind of tensor that PyFlame does not have.")
_property("layout", lambda self: _dtypes.strided, "Always pf.strided, the only layout: an element is found by its indices and the strides of the dims.")
_property("names", lambda self: (None,) * self.ndim, "A tuple with None for each dim of the tensor. PyTorch has named dims; dims of PyFlame have no names.")
_property("name", lambda self: None, "Always None. PyTorch has a name here for tensors of its own programs in graphs; tensors of PyFlame have none.")
_property("output_nr", lambda self: 0, "Always 0. In PyTorch it says which output of its op a tensor is; in PyFlame each output has a grad_fn of its own.")
for _name in ("is_complex", "is_nonzero", "is_same_size", "is_signed", "is_inference", "is_distributed", "is_conj", "is_neg"):
    setattr(Tensor, _name, getattr(_dtypes, _name))


@_method
def get_device(self: Tensor) -> int:
    """The number of the GPU on which the tensor is, an int; -1 for a tensor on a device without a number, such as the CPU."""
    return -1 if self.device.index is None else self.device.index


@_method
def prelu(self: Tensor, weight: Tensor) -> Tensor:
    """Where it is negative, multiplied with the weight: one number, or one for each channel."""
    from .nn import functional

    return functional.prelu(self, weight)


@_method
def hardshrink(self: Tensor, lambd: float = 0.5) -> Tensor:
    """nn.functional.hardshrink: 0 where the absolute value of an element is at most lambd, and the element elsewhere. Shape and dtype are those of the tensor."""
    from .nn import functional

    return functional.hardshrink(self, lambd)


_retain_grad = Tensor.retain_grad


@_method
def retain_grad(self: Tensor) -> None:
    """Keeps .grad of a tensor that is no leaf. Nothing changes for a leaf, which has its gradient in any case. RuntimeError for a tensor that requires none."""
    if not self.requires_grad:
        raise RuntimeError(f"retain_grad: the tensor does not require grad; got shape {tuple(self.shape)}; expected one that does; hint: requires_grad=True on what it was computed from")
    _retain_grad(self)
    self._retained = self.grad_fn is not None


_property("retains_grad", lambda self: self.grad_fn is not None and getattr(self, "_retained", False), "A bool: whether retain_grad() was called, so that backward() keeps the gradient of this tensor in .grad. False for a leaf, which has it anyway.")
_round_ = Tensor.round_


@_method
def round_(self: Tensor, *, decimals: int = 0) -> Tensor:
    """round in place, to decimals digits behind the point; before it where that is negative."""
    return _round_(self) if not decimals else self.copy_(self.round(decimals=decimals))


@_method
def conv_tbc(self: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """nn.functional.conv_tbc of the tensor: a convolution over time. The tensor is [time, batch, channels]; weight is [width, channels, outputs], bias [outputs]. pad: zeros at both ends."""
    from .nn import functional

    return functional.conv_tbc(self, weight, bias, pad)


@_method
def __array_wrap__(self: Tensor, array: np.ndarray, context: object = None, return_scalar: bool = False) -> Tensor:
    """What NumPy's functions of a tensor give: a tensor with the memory of the result."""
    return _C.from_numpy(array)


@_method
def pin_memory(self: Tensor, device: Device | None = None) -> Tensor:
    """Returns the tensor as it is. Copies to a GPU go through page-locked memory of PyFlame in any case. device is not used."""
    return self


@_method
def is_pinned(self: Tensor, device: Device | None = None) -> bool:
    """Always False: no tensor is in page-locked memory. Copies to a GPU go through such memory in any case. device is not used."""
    return False


@_method
def is_shared(self: Tensor) -> bool:
    """Always False: the memory of a tensor belongs to one process. A queue or a pipe sends tensors to other processes."""
    return False


Tensor.share_memory_ = _refused.function("Tensor.share_memory_", "processes do not share tensors; send them through a queue or a pipe, or let a DataLoader's workers return them")
Tensor.to_mkldnn = _refused.function("Tensor.to_mkldnn", "the layout of memory is chosen when a program is compiled")
for _name in ("to_sparse", "to_sparse_coo", "to_sparse_csr", "to_sparse_csc", "to_sparse_bsr", "to_sparse_bsc", "sparse_mask", "sparse_resize_", "coalesce", "is_coalesced", "indices", "values",
              "crow_indices", "col_indices", "sparse_dim", "dense_dim"):
    setattr(Tensor, _name, _refused.function(f"Tensor.{_name}", _SPARSE))
for _name in ("q_scale", "q_zero_point", "q_per_channel_axis", "q_per_channel_scales", "q_per_channel_zero_points", "int_repr"):
    setattr(Tensor, _name, _refused.function(f"Tensor.{_name}", _QUANTIZED))


for _name, _instead in {"eig": "linalg.eig(A)", "symeig": "linalg.eigh(A)", "lstsq": "linalg.lstsq(A, B); its A comes first", "solve": "linalg.solve(A, B); its A comes first"}.items():
    setattr(Tensor, _name, _refused.function(f"Tensor.{_name}", f"PyTorch removed it; use {_instead}"))


@_method
def to_dense(self: Tensor, dtype: DType | None = None, *, masked_grad: bool = True) -> Tensor:
    """Itself: every tensor is dense. masked_grad is about gradients of sparse tensors, and changes nothing."""
    try:
        return self if dtype is None else self.to(dtype)
    except Exception as error:
        rename("to_dense", error, (self, dtype))
        raise


@_method
def dequantize(self: Tensor) -> Tensor:
    """The tensor as float32, of the same shape. PyFlame has no quantized tensors, so that there is no scale to apply."""
    return self.float()


@_method
def resolve_conj(self: Tensor) -> Tensor:
    """Returns the tensor as it is. conj() computes the conjugate, and no tensor only has a mark that it is one."""
    return self


@_method
def resolve_neg(self: Tensor) -> Tensor:
    """Returns the tensor as it is. neg() computes the negative, and no tensor only has a mark that it is one."""
    return self


@_method
def record_stream(self: Tensor, stream: object) -> None:
    """Does nothing. A device of PyFlame computes in one order, so that memory cannot be used again too early. stream is not used."""


@_method
def dim_order(self: Tensor, *, ambiguity_check: bool | list[MemoryFormat] = False) -> tuple[int, ...]:
    """The dims from the outermost in memory to the innermost.

    ambiguity_check: True: a RuntimeError if several orders describe the memory, because a dim has size 1 or stride 0, or two dims have one stride. A list of memory formats: then the order
    of the format that the tensor is contiguous in, and a RuntimeError if that is not exactly one of them.
    """
    if not isinstance(ambiguity_check, (bool, list)) or ambiguity_check and isinstance(ambiguity_check, list) and not all(isinstance(f, _C.memory_format) for f in ambiguity_check):
        raise TypeError(f"dim_order: ambiguity_check is neither a bool nor a list of memory formats; got {ambiguity_check!r}; expected True, False or such a list")
    strides = self.stride()
    if ambiguity_check is not False and (1 in self.shape or 0 in strides or len(set(strides)) < self.ndim):
        found = [f for f in (ambiguity_check if isinstance(ambiguity_check, list) else []) if self.is_contiguous(memory_format=f)]
        if len(found) != 1:
            raise RuntimeError(f"dim_order: several orders describe the memory; got shape {tuple(self.shape)} with strides {tuple(strides)}; expected one order; "
                               "hint: ambiguity_check=[pf.contiguous_format] takes the order of that format")
        return tuple(range(self.ndim)) if found[0] == _C.contiguous_format else (0, *range(2, self.ndim), 1)
    return tuple(sorted(range(self.ndim), key=lambda d: -strides[d]))


@_method
def as_subclass(self: Tensor, cls: builtins.type[SubclassOfTensor]) -> SubclassOfTensor:
    """The same elements in the same memory, as an object of cls, a subclass of Tensor. TypeError for anything else than such a class."""
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(f"as_subclass: not a subclass of Tensor; got {cls!r}")
    return cls(self)


@_method
def detach_(self: Tensor) -> Tensor:
    """The tensor forgets what it was computed from: it has no grad_fn any more, and requires no gradient. Its elements stay. Returns the tensor."""
    if self.grad_fn is not None:
        self._become(self, False)
    else:
        self.requires_grad_(False)
    return self


@_method
def resize_(self: Tensor, *sizes: int | Shape, memory_format: MemoryFormat | None = None) -> Tensor:
    """Takes another shape in place; elements are kept in order. More elements than before have arbitrary contents.

    memory_format: contiguous_format (None), or channels_last for 4 sizes and channels_last_3d for 5: the elements are kept in the order of the memory.
    """
    shape = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    if memory_format not in (None, _C.contiguous_format) and {_C.channels_last: 4, _C.channels_last_3d: 5}.get(memory_format) != len(shape):
        raise ValueError(f"resize_: the memory format does not fit; got {memory_format} for {len(shape)} sizes; expected contiguous_format, channels_last for 4 sizes or channels_last_3d for 5")
    if self.requires_grad:
        raise RuntimeError("resize_: the tensor requires a gradient; expected one that does not; hint: reshape()")
    flat, n = self.detach().reshape(-1), 1
    for size in shape:
        n *= size
    if n > flat.shape[0]:
        wider = _C.empty(n, dtype=self.dtype, device=self.device)
        wider.narrow(0, 0, flat.shape[0]).copy_(flat)
        flat = wider
    flat = flat.narrow(0, 0, n)
    self._become(flat.view(shape) if memory_format in (None, _C.contiguous_format) else flat.view((shape[0], *shape[2:], shape[1])).movedim(-1, 1), False)
    return self


@_method
def resize_as_(self: Tensor, the_template: Tensor, memory_format: MemoryFormat | None = None) -> Tensor:
    """resize_ to the shape of another tensor. memory_format: that of resize_, or preserve_format: that of the other tensor."""
    if memory_format == _C.preserve_format:
        formats = (_C.contiguous_format, {4: _C.channels_last, 5: _C.channels_last_3d}.get(the_template.ndim))
        memory_format = next((f for f in formats if f is not None and the_template.is_contiguous(memory_format=f)), None)
    return self.resize_(tuple(the_template.shape), memory_format=memory_format)


@_method
def resize(self: Tensor, *sizes: int | Shape) -> Tensor:
    """The same as reshape: a tensor of these sizes with the same elements in the same order. ArgumentError for another number of elements."""
    return self.reshape(*sizes)


@_method
def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """reshape to the shape of another tensor: the same elements in the same order. ArgumentError for another number of elements."""
    return self.reshape(tensor.shape)


@_method
def set_(self: Tensor, source: Tensor | Storage | None = None, storage_offset: int = 0, size: Shape | None = None, stride: Shape | None = None) -> Tensor:
    """Refers to the elements of another tensor, in place; without one it is empty."""
    if source is None:
        source = _C.empty(0, dtype=self.dtype, device=self.device)
    if isinstance(source, Storage):
        source = source._flat
        size = size if size is not None else tuple(source.shape)
    if size is not None:
        source = source.as_strided(tuple(size), tuple(stride) if stride is not None else _contiguous(size), storage_offset)
    self._become(source, self.requires_grad)
    return self


def _contiguous(size):
    strides, step = [], 1
    for n in reversed(tuple(size)):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


@_method
def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Each element becomes callable(element), in place. A Python call for each element: slow."""
    self.copy_(_C.tensor([callable(v) for v in self.reshape(-1).tolist()], dtype=self.dtype, device=self.device).reshape(self.shape))
    return self


@_method
def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Each element becomes callable(element, element of tensor), in place. A Python call for each element: slow."""
    other = tensor.expand_as(self).reshape(-1).tolist()
    self.copy_(_C.tensor([callable(a, b) for a, b in zip(self.reshape(-1).tolist(), other)], dtype=self.dtype, device=self.device).reshape(self.shape))
    return self


class Storage:
    """The memory of a tensor, for programs that ask whether two tensors share it or how large it is.

    tensor: whose memory. as_bytes: the elements are bytes. Raises AttributeError for what is no tensor; an index beyond the elements is an IndexError.
    """

    def __init__(self, tensor: Tensor, as_bytes: bool) -> None:
        self._tensor, self._itemsize = tensor, 1 if as_bytes else tensor.itemsize
        self.dtype, self.device = _C.uint8 if as_bytes else tensor.dtype, tensor.device

    @property
    def _flat(self):
        return self._tensor.reshape(-1)

    def data_ptr(self) -> int:
        """The address of the first byte of the memory, an int. The call waits until pending work on the tensor has ended."""
        return self._tensor.data_ptr() - self._tensor.storage_offset() * self._tensor.itemsize

    def nbytes(self) -> int:
        """The size of the memory in bytes, an int: of all elements that were allocated, also of those that no view shows."""
        return self._tensor._storage_nbytes()

    def element_size(self) -> int:
        """The bytes of an element, an int: those of the tensor's dtype, and 1 for a storage of bytes."""
        return self._itemsize

    def size(self) -> int:
        """The number of elements that the memory has room for, an int: nbytes() divided by element_size()."""
        return self.nbytes() // self._itemsize

    def __len__(self) -> int:
        return self.size()

    def tolist(self) -> list[Any]:
        """The elements of the tensor of which this is the storage, as a list of Python numbers in the order of its shape."""
        return self._flat.tolist()

    def untyped(self) -> Storage:
        """The same memory as a storage of bytes: its dtype is uint8, and element_size() is 1. Nothing is copied."""
        return Storage(self._tensor, True)

    _cdata = property(data_ptr)
    is_cuda = property(lambda self: self._tensor.is_cuda, doc="A bool: whether the memory is on a GPU, of AMD (device rocm) or of NVIDIA (device cuda).")

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, index: int) -> Any:
        return self._flat[index].item()


@_method
def storage(self: Tensor) -> Storage:
    """The memory of the tensor, as a Storage of elements of its dtype. Tensors that are views of one another have the same memory."""
    return Storage(self, False)


@_method
def untyped_storage(self: Tensor) -> Storage:
    """The memory of the tensor, as a Storage of bytes. Tensors that are views of one another have the same memory."""
    return Storage(self, True)


Tensor.typed_storage = storage


@_method
def storage_type(self: Tensor) -> builtins.type[Storage]:
    """The class of what storage() returns, for programs that compare it: pyflame.storage.Storage for every dtype and device."""
    return Storage


@_method
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether it refers to the same elements of the same memory with the same shape and strides."""
    return self.shape == tensor.shape and self.stride() == tensor.stride() and self.data_ptr() == tensor.data_ptr()


@_method
def new_empty_strided(self: Tensor, size: Shape, stride: Shape, dtype: DType | None = None, device: Device | None = None,
                      requires_grad: bool = False) -> Tensor:
    """A tensor of this size and these strides with the dtype and device of self."""
    try:
        return empty_strided(size, stride, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)
    except Exception as error:
        rename("new_empty_strided", error, (self, size, stride, dtype, device, requires_grad))
        raise


def empty_strided(size: Shape, stride: Shape, *, dtype: DType | None = None, layout: object = None, device: Device | None = None, requires_grad: bool = False,
                  pin_memory: bool = False) -> Tensor:
    """A tensor of this size and these strides with arbitrary contents.

    size, stride: sequences of equal length; a stride is how many elements of the memory are between neighbours along a dim, 0 or more.
    layout and pin_memory are accepted for PyTorch's programs and change nothing.

    ValueError for sequences of two lengths, for negative sizes or strides, and for the name of no device. TypeError for what is no sequence, and for what
    is no dtype.
    """
    need = 1 + sum((n - 1) * s for n, s in zip(size, stride)) if all(size) else 0
    result = _C.empty(need, dtype=dtype, device=device).as_strided(tuple(size), tuple(stride), 0)
    return result.requires_grad_() if requires_grad else result


def empty_permuted(size: Shape, physical_layout: Sequence[int], *, dtype: DType | None = None, layout: object = None, device: Device | None = None,
                   requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """A tensor of this size whose dims lie in memory in this order, the outermost first.

    physical_layout: the numbers of all dims, each once; (0, 1, 2) is the usual order. layout and pin_memory are accepted for PyTorch's programs and change nothing.
    RuntimeError for what is no order of the dims.
    """
    order = list(physical_layout)
    if sorted(order) != list(range(len(size))):
        raise RuntimeError(f"empty_permuted: physical_layout is no order of the dims; got {tuple(order)} for {len(size)} dims; expected each of 0 to {len(size) - 1} once")
    strides, step = [0] * len(order), 1
    for d in reversed(order):
        strides[d] = step
        step *= size[d]
    return empty_strided(size, strides, dtype=dtype, device=device, requires_grad=requires_grad)


@_method
def reinforce(self: Tensor, reward: object) -> NoReturn:
    """Always a RuntimeError, which says what to write instead: PyTorch removed this method. reward is not used."""
    raise RuntimeError("reinforce: removed from PyTorch; use distributions: loss = -dist.log_prob(action) * reward")


class _PostHook:
    def __init__(self, tensor: Tensor, number: int) -> None:
        self._tensor, self._number = tensor, number

    def remove(self) -> None:
        """The hook is called no more."""
        _C._remove_post_hook(self._tensor, self._number)


@_method
def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[[Tensor], object]) -> _PostHook:
    """hook(tensor) after its gradient was added to .grad, at the end of backward()."""
    if self.grad_fn is not None or not self.requires_grad:
        raise RuntimeError("register_post_accumulate_grad_hook: not a leaf that requires a gradient; expected one; hint: register_hook")
    leaf = weakref.ref(self)  # the hook lives as long as the tensor, not the other way round
    return _PostHook(self, _C._register_post_hook(self, lambda: hook(leaf())))


# ---- others in place


@_method
def fill_diagonal_(self: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    """Writes a number to the diagonal, in place. With wrap, the diagonal of a tall matrix begins again after each square and a row between."""
    try:
        if self.ndim < 2:
            raise RuntimeError(f"fill_diagonal_: needs at least 2 dims; got shape {tuple(self.shape)}")
        if self.ndim > 2 and len(set(self.shape)) > 1:
            raise RuntimeError(f"fill_diagonal_: the sizes differ; got shape {tuple(self.shape)}; expected equal sizes for more than 2 dims")
        step, rows, columns = sum(self.stride()), self.shape[0], self.shape[1]
        for top in range(0, rows, columns + 1) if wrap and self.ndim == 2 else (0,):
            n = min(rows - top, *self.shape[1:])
            self.as_strided((n,), (step,), self.storage_offset() + top * self.stride(0)).fill_(fill_value)
        return self
    except Exception as error:
        rename("fill_diagonal_", error, (self, fill_value, wrap))
        raise


# ---- in-place methods of compositions

_VIEWS = ("squeeze", "unsqueeze", "transpose", "t", "swapaxes", "swapdims", "as_strided")
_IN_PLACE = """abs absolute acos acosh addbmm addcdiv addcmul addmm addmv addr arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh baddbmm bitwise_and
bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil clamp clamp_max clamp_min clip copysign cos cosh cumprod cumsum deg2rad digamma divide eq erf erfc erfinv
exp exp2 expm1 fix float_power floor fmod frac gcd ge greater greater_equal gt heaviside hypot i0 igamma igammac index_add index_copy index_fill index_put index_reduce lcm ldexp le lerp
less less_equal lgamma log log10 log1p log2 logical_and logical_not logical_or logical_xor logit lt masked_scatter multiply mvlgamma nan_to_num ne neg negative nextafter not_equal
polygamma pow put rad2deg reciprocal relu remainder renorm round rsqrt scatter scatter_add scatter_reduce sgn sigmoid sign sin sinc sinh sqrt square subtract tan tanh tril triu true_divide
trunc xlogy conj_physical celu elu selu threshold leaky_relu hardtanh rrelu""".split()
_METHODS = ("outer", "ger", "allclose", "equal", "bernoulli", "broadcast_to", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "multinomial", "hash_tensor", "prelu")


def _with_old_value(self, args, kwargs):
    """The arguments of an in-place method; where a gradient is recorded, which may need the old value, with a copy of the tensor."""
    if not _C.is_grad_enabled() or not any(isinstance(a, Tensor) and a.requires_grad for a in (self, *args, *kwargs.values())):
        return self, args, kwargs
    old = self.clone()
    return old, [old if a is self else a for a in args], {name: old if a is self else a for name, a in kwargs.items()}


def _about(function):
    """What a function computes: the first sentence of its docstring; of one that only names another function, the second."""
    signatures = getattr(function, "__nb_signature__", None)
    text = " ".join(((signatures[0][1] if signatures else function.__doc__) or "").split())
    first, _, rest = text.partition(". ")
    if rest and first.startswith("The same as ") and ":" not in first:
        first = rest.partition(". ")[0]
    return first.removesuffix(".") + "."


def _in_place(name, function):
    def method(self, *args, **kwargs):
        try:
            old, args, kwargs = _with_old_value(self, args, kwargs)
            result = function(old, *args, **kwargs)
        except Exception as error:
            rename(f"{name}_", error, (self, *args, *kwargs.values()))
            raise
        if result.shape != self.shape:
            raise RuntimeError(f"{name}_: the result has another shape; got {tuple(result.shape)}; expected {tuple(self.shape)}")
        if _dtypes._category(result.dtype) > _dtypes._category(self.dtype):
            raise RuntimeError(f"{name}_: the result cannot be cast to the tensor's dtype; got {result.dtype}; expected one that {self.dtype} can hold")
        return self.copy_(result)

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = (
        f"Writes the result of {name}() over the elements of the tensor and returns the tensor. {name}(): {_about(function)}\n\n"
        f"The arguments are those of {name}() without the first. The tensor keeps its shape and dtype. RuntimeError for a result of another shape, for one\n"
        "whose dtype is of a wider category (bool, integer, floating, complex), for elements that share memory, and for a leaf that requires a gradient,\n"
        "except under no_grad."
    )
    return _signatures.forwarding(method, function, "Tensor")


_cast = Tensor.type


def type(self: Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:  # noqa: A001
    """PyTorch's name for the type, such as 'torch.FloatTensor', or a cast to another dtype or old type; of one of pf.cuda, on the GPU.

    dtype: pf.Tensor itself, as a type, means the default dtype, in memory of the CPU.
    """
    if dtype is Tensor:
        return _cast(self, _C.get_default_dtype()).cpu()
    if not hasattr(dtype, "_type_name"):
        return _cast(self, dtype)
    x = _cast(self, dtype.dtype)
    return x.cuda() if dtype._gpu else x.cpu()


Tensor.type = type
del type


def _view_in_place(name, function):
    def method(self, *args, **kwargs):
        leaf = self.is_leaf and self.requires_grad
        try:
            self._rebind(function(self, *args, **kwargs))  # an error for such a leaf, except under no_grad
        except Exception as error:
            rename(f"{name}_", error, (self, *args, *kwargs.values()))
            raise
        return self.requires_grad_() if leaf else self

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = (
        f"The tensor itself becomes the view that {name}() returns, and is returned. {name}(): {_about(function)}\n\n"
        f"The arguments are those of {name}() without the first, and so are the errors. No element is copied. RuntimeError for a leaf that requires a\n"
        "gradient, except under no_grad."
    )
    return _signatures.forwarding(method, function, "Tensor")


def complete(functions):
    """Adds methods that follow from functions, where there is no own one: at the end of the package's import."""
    for name in _METHODS:
        if name in functions and not hasattr(Tensor, name):
            setattr(Tensor, name, functions[name])
    for names, make in ((_VIEWS, _view_in_place), (_IN_PLACE, _in_place)):
        for name in names:
            function = getattr(Tensor, name, None) or functions.get(name)
            if function is not None and (name == "clamp" or not hasattr(Tensor, f"{name}_")):  # the compiled clamp_ keeps no old value
                setattr(Tensor, f"{name}_", make(name, function))
