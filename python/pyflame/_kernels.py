"""pf.kernel: GPU kernels from source text, one text for AMD and NVIDIA. docs/kernels.md has the language."""
from __future__ import annotations

import keyword
import re

from . import _C, _signatures
from ._C import Tensor
from ._grad_mode import no_grad

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCALARS = {"float32": float, "float64": float, "int32": int, "int64": int, "bool": bool}
_MOST_THREADS = 1024
_OF_TENSORS = ("_t", "_size", "_rank", "_shape", "_view")  # what the text has for each tensor
_KEYWORDS = frozenset("auto bool break case char class const continue default delete do double else enum extern false float for goto if inline int long namespace new operator private "
                      "return short signed sizeof static struct switch template this true typedef union unsigned using void volatile while".split())
_ROWS_OF_LANES = 32  # a workgroup is a multiple of this, so that it is whole waves of 32 and pairs of them are waves of 64

_WITHOUT_KERNELS = ("cpu", "reference")  # types of devices


def kernel(source: str, name: str, *, inputs: str | Sequence[str], outputs: str | Sequence[str] = ("out",), scalars: Mapping[str, str] | None = None,
           result: Any = None, grid: int | Sequence[int] | Callable[..., Any] | None = None, threads: int = 256, shared_bytes: int | Callable[..., int] = 0,
           header: str = "", fill: float | None = None, reference: Callable[..., Any] | None = None, backward: Callable[..., Any] | None = None) -> Kernel:
    """Makes a function of tensors from the text of a GPU kernel. The same text runs on AMD GPUs, through ROCm, and on NVIDIA GPUs, through CUDA.

    A GPU runs the text in many threads at once, and each thread usually computes one element of the output. Threads come in workgroups of equal size,
    and all workgroups together are the grid. docs/kernels.md has the language and longer examples.

    What the kernel computes:

    - source: the body of the kernel, statements in C++, without a function around them. Every thread runs it. In it, ``i`` is the number of the thread,
      from 0. The last workgroup may have threads for which there is no element, so the text compares: ``if (i < out_size) ...``. An input named x is a
      pointer ``x`` to its elements, one after the other in the order of the shape. Also there are their type ``x_t``, their number ``x_size``, the number
      of dims ``x_rank`` and the size of a dim ``x_shape[d]``. An output has the same, and the text writes all of its elements, unless fill is given.
    - name: how reports and profilers call the kernel, there as ``pf_<name>``; letters, digits and _.
    - inputs, outputs: the names that the tensors have in the text, in a list; one name may stand alone.
    - scalars: a dict from the names of numbers in the text to their types: "float32", "float64", "int32", "int64" or "bool".
    - header: functions that the text calls; each begins with PF_DEVICE.

    How it runs:

    - result: the shape and dtype of the output, a pair, or a list of pairs for several outputs; or a function that returns this from the inputs and
      scalars. None: as the first input.
    - threads: how many a workgroup has, a multiple of 32 up to 1024.
    - grid: how many workgroups there are: an int, a tuple of up to three, or a function that returns this from the inputs and scalars. None: so many that
      each element of the first output has a thread.
    - shared_bytes: the memory that the threads of a workgroup share, which the text gets from ``pf::dynamic_shared<T>()``; a number, or a function of the
      inputs and scalars.
    - fill: the number that outputs hold before the kernel runs, for texts that add to them. None: nothing is written before.

    Where there is no GPU, and gradients:

    - reference: a function of the inputs and scalars that computes the same with tensor ops. It runs in place of the kernel on the CPU, and check()
      compares the kernel with it.
    - backward: a function (gradients of the outputs, inputs, outputs, **scalars) that returns the gradient of each input, or None for an input without
      one. The first three arguments are tuples.

    Returns a Kernel. It is called with the inputs by position and the scalars by keyword, and returns a tensor, or a tuple for several outputs. The text
    is compiled at the first call, which can take seconds, and kept on disk. Other shapes and other values of scalars need no compilation; other dtypes do.

    Raises ValueError for a name, a source, a number of threads or a type of a scalar that cannot be used, and TypeError where inputs or outputs are no
    names. A call raises TypeError for other tensors or scalars than were named and for a result or grid of the wrong kind; ValueError for an integer
    that is too large for its type; NotImplementedError on the CPU without a reference, and on a GPU for an input that requires a gradient if there is no
    backward. If the text does not compile, the first read of a result raises RuntimeError with the messages of the compiler.

        >>> saxpy = pf.kernel("if (i < out_size) out[i] = a * x[i] + y[i];", "saxpy", inputs=["x", "y"], scalars={"a": "float32"},
        ...                   reference=lambda x, y, a: a * x + y)
        >>> saxpy(pf.ones(3), pf.arange(3.0), a=2.0)
        tensor([2., 3., 4.], dtype=pyflame.float32)
    """
    return Kernel(source, name, inputs, outputs, scalars or {}, result, grid, threads, shared_bytes, header, fill, reference, backward)


def _python_type(kind):
    return _SCALARS[kind].__name__


class UserOp:
    """A function of tensors that the program brings along: what pf.kernel returns, and an op of an extension (utils.cpp_extension)."""

    # _inputs, _outputs: names. _scalars: name -> the type of a number. _reference, _backward: functions or None.

    def __repr__(self):
        return f"pyflame.{type(self).__name__.lower()}({self.name}({', '.join([*self._inputs, *self._scalars])}) -> {', '.join(self._outputs)})"

    __signature__ = _signatures.OfObject(lambda op: (dict.fromkeys(op._inputs, "Tensor"), {}, {n: _python_type(kind) for n, kind in op._scalars.items()}, {}, op._result_type()))

    def _result_type(self):
        return "Tensor" if len(self._outputs) == 1 else f"tuple[{', '.join(['Tensor'] * len(self._outputs))}]"

    def __call__(self, *inputs: Tensor, **scalars: Any) -> Any:
        """The results for these tensors and numbers: a tensor, or a tuple if there are several outputs."""
        inputs, scalars = self._arguments(inputs, scalars)
        if not self._backward:
            if self._by_reference(inputs):  # its ops have gradients
                return self._one_or_all(_tuple(self._reference(*inputs, **scalars)))
            if _C.is_grad_enabled() and any(t.requires_grad for t in inputs):
                raise NotImplementedError(f"{self.name}: the kernel has no gradient; got an input that requires one; expected {self._wants_backward}, or a call under pf.no_grad()")
            return self._one_or_all(self._run(inputs, scalars))
        return self._one_or_all(_with_gradient().apply(self, scalars, *inputs))

    def _one_or_all(self, results):
        return results[0] if len(self._outputs) == 1 else tuple(results)

    def _arguments(self, inputs, scalars):
        if len(inputs) != len(self._inputs):
            raise TypeError(f"{self.name}: the number of tensors is wrong; got {len(inputs)}; expected {len(self._inputs)}: {', '.join(self._inputs)}")
        for name, t in zip(self._inputs, inputs):
            if not isinstance(t, Tensor):
                raise TypeError(f"{self.name}: {name} is no tensor; got {type(t).__name__}; expected a tensor; hint: {self._wants_number}")
        if set(scalars) != set(self._scalars):
            raise TypeError(f"{self.name}: the scalars are others; got {', '.join(sorted(scalars)) or 'none'}; expected {', '.join(self._scalars) or 'none'}, by keyword")
        return inputs, {name: self._number_of(name, kind, scalars[name]) for name, kind in self._scalars.items()}

    def _number_of(self, name, kind, value):
        value = value.item() if isinstance(value, Tensor) else value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            if kind != "bool" or not isinstance(value, bool):
                raise TypeError(f"{self.name}: {name} is no number of its type; got {value!r}; expected {kind}")
        if _SCALARS[kind] is not float and not isinstance(value, int):
            raise TypeError(f"{self.name}: {name} is no integer; got {value!r}; expected {kind}")
        bits = {"int32": 31, "int64": 63}.get(kind)
        if bits and not -(1 << bits) <= value < 1 << bits:
            raise ValueError(f"{self.name}: {name} is too large; got {value}; expected {kind}")
        return _SCALARS[kind](value)

    def _by_reference(self, inputs):
        return False


class Kernel(UserOp):
    """What pf.kernel returns."""

    _wants_backward = "backward= of pf.kernel"
    _wants_number = "scalars= of pf.kernel declares numbers, which are given by keyword"

    def __init__(self, source, name, inputs, outputs, scalars, result, grid, threads, shared_bytes, header, fill, reference, backward):
        self.name = name
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"kernel: the name is no identifier; got {name!r}; expected letters, digits and _")
        self._inputs, self._outputs = [_names(name, what, given) for what, given in (("inputs", inputs), ("outputs", outputs))]
        self._scalars = dict(scalars)
        names = [*self._inputs, *self._outputs, *_names(name, "scalars", self._scalars, empty=True)]
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise ValueError(f"{name}: a name stands for two things; got {', '.join(twice)}; expected different names for inputs, outputs and scalars")
        tensors = [*self._inputs, *self._outputs]
        if taken := sorted({n for n in names for t in tensors for s in _OF_TENSORS if n == t + s}):
            raise ValueError(f"{name}: a name is one that the text has for a tensor; got {', '.join(taken)}; expected names that are no tensor's with {', '.join(_OF_TENSORS)} behind it")
        for scalar, kind in self._scalars.items():
            if kind not in _SCALARS:
                raise ValueError(f"{name}: a scalar has an unknown type; got {scalar}: {kind!r}; expected {', '.join(_SCALARS)}")
        if not isinstance(threads, int) or not 0 < threads <= _MOST_THREADS or threads % _ROWS_OF_LANES:
            raise ValueError(f"{name}: the number of threads of a workgroup is wrong; got {threads}; expected a multiple of {_ROWS_OF_LANES} up to {_MOST_THREADS}")
        if not isinstance(source, str) or not source.strip():
            raise ValueError(f"{name}: there is no source; got {source!r}; expected statements")
        self._threads, self._result, self._grid, self._shared = threads, result, grid, shared_bytes
        self._fill, self._reference, self._backward = fill, reference, backward
        body = f"{_INDEX if _mentions(source, 'i') and not _declares(source, 'i') else ''}{source}"
        self._number = _C._register_kernel(name, header, body, self._inputs, self._outputs, list(self._scalars), [_dtype(k) for k in self._scalars.values()], threads)

    def check(self, *inputs: Tensor, rtol: float | None = None, atol: float | None = None, **scalars: Any) -> None:
        """AssertionError unless the kernel computes on these arguments what its reference does, within assert_close's tolerances of the dtype or the given ones.
        ValueError without a reference, or for tensors on the CPU."""
        from .testing import assert_close

        inputs, scalars = self._arguments(inputs, scalars)
        if not self._reference:
            raise ValueError(f"{self.name}.check: there is nothing to compare with; got no reference; expected pf.kernel(..., reference=)")
        if inputs[0].device.type in _WITHOUT_KERNELS:
            raise ValueError(f"{self.name}.check: the reference would be compared with itself; got tensors on the CPU; expected tensors on a GPU; hint: the wave emulator is one (docs/kernels.md)")
        with no_grad():
            want = _tuple(self._reference(*inputs, **scalars))
            for output, a, b in zip(self._outputs, self._run(inputs, scalars), want, strict=True):
                assert_close(a, b, rtol=rtol, atol=atol, msg=lambda text, output=output: f"{self.name}.check: {output}: {text.removeprefix('assert_close: ')}")

    def _by_reference(self, inputs):
        return self._reference is not None and inputs[0].device.type in _WITHOUT_KERNELS

    def _run(self, inputs, scalars):
        if self._by_reference(inputs):
            return _tuple(self._reference(*inputs, **scalars))
        device = inputs[0].device
        if device.type in _WITHOUT_KERNELS:
            raise NotImplementedError(
                f"{self.name}: the kernel has no implementation for this device; got {device}; expected a GPU; hint: give reference=, a function of tensors, or use the wave emulator (docs/kernels.md)")
        outs = self._result_of(inputs, scalars)
        grid = self._grid(*inputs, **scalars) if callable(self._grid) else self._grid
        if grid is None:
            grid = -(-_product(outs[0][0]) // self._threads)
        grid = (grid,) if isinstance(grid, int) else tuple(grid)
        if not 1 <= len(grid) <= 3 or not all(isinstance(n, int) for n in grid):
            raise TypeError(f"{self.name}: the grid is no number of workgroups; got {grid!r}; expected an int or up to three")
        shared = self._shared(*inputs, **scalars) if callable(self._shared) else self._shared
        into = [_C.full(shape, self._fill, dtype=dtype, device=device) for shape, dtype in outs] if self._fill is not None else []
        return _C._launch_kernel(self._number, list(inputs), list(scalars.values()), [s for s, _ in outs], [d for _, d in outs], *(*grid, 1, 1)[:3], shared, into)

    def _result_of(self, inputs, scalars):
        if self._result is None:
            return [(tuple(inputs[0].shape), inputs[0].dtype)] * len(self._outputs)
        got = self._result(*inputs, **scalars) if callable(self._result) else self._result
        outs = list(got) if isinstance(got, list) else [got]
        if len(outs) != len(self._outputs) or not all(isinstance(o, tuple) and len(o) == 2 and isinstance(o[1], _C.dtype) for o in outs):
            raise TypeError(f"{self.name}: result does not describe the outputs; got {got!r}; expected (shape, dtype) for each of {', '.join(self._outputs)}, in a list if there are several")
        return [((s,) if isinstance(s, int) else tuple(s), d) for s, d in outs]


_INDEX = "const pf::i64 i = (pf::i64)pf::group().x * pf::threads() + pf::thread();\n#line 1\n"


def _mentions(source, name):
    return re.search(rf"(?<![\w.]){name}(?!\w)", source) is not None


def _declares(source, name):
    return re.search(rf"\b(?:int|unsigned|long|auto|size_t|\w*i64|\w*u64|\w*i32|\w*u32)\s+{name}\b", source) is not None


def _names(kernel_name, what, given, empty=False):
    names = [given] if isinstance(given, str) else list(given)
    if not names and not empty:
        raise ValueError(f"{kernel_name}: there are no {what}; got none; expected at least one name")
    for n in names:
        if not isinstance(n, str) or not _NAME.fullmatch(n) or n in ("i", "pf") or n in _KEYWORDS or keyword.iskeyword(n):
            raise ValueError(f"{kernel_name}: one of the {what} has an unusable name; got {n!r}; expected an identifier other than i, pf and keywords")
    return names


def _dtype(kind):
    return _C.bool_ if kind == "bool" else getattr(_C, kind)


def _product(shape):
    n = 1
    for size in shape:
        n *= size
    return n


def _tuple(results):
    return (results,) if isinstance(results, Tensor) else tuple(results)


_function = None


def _with_gradient():
    """The autograd.Function of kernels with a backward; made at its first use, as it needs the package."""
    global _function
    if _function:
        return _function
    from .autograd.function import Function

    class UserOpFunction(Function):
        @staticmethod
        def forward(ctx, kernel, scalars, *inputs):
            outputs = tuple(kernel._run(inputs, scalars))
            ctx.kernel, ctx.scalars, ctx.count = kernel, scalars, len(inputs)
            ctx.save_for_backward(*inputs, *outputs)
            return outputs

        @staticmethod
        def backward(ctx, *grads):
            saved = ctx.saved_tensors
            result = ctx.kernel._backward(grads, saved[:ctx.count], saved[ctx.count:], **ctx.scalars)
            result = (result,) if result is None or isinstance(result, Tensor) else tuple(result)
            if len(result) != ctx.count:
                raise TypeError(f"{ctx.kernel.name}: backward gave a wrong number of gradients; got {len(result)}; expected one or None for each of {', '.join(ctx.kernel._inputs)}")
            return (None, None, *result)

    _function = UserOpFunction
    return _function
