"""pf.testing.check_op: cases of an op of an extension (docs/extensions.md)."""
from __future__ import annotations

from .. import _C
from .._C import Tensor
from .._grad_mode import no_grad
from ..autograd import gradcheck
from ._comparison import assert_close

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

_FLOATS = (_C.float64, _C.float32, _C.bfloat16, _C.float16)


def check_op(op: Any, cases: Sequence[Mapping[str, Any]], reference: Callable[..., Any] | None = None, *, rtol: float | None = None, atol: float | None = None) -> list[str]:
    """Compares an op of an extension with what it should compute, and its gradient with finite differences.

    op: what utils.cpp_extension.load() has, such as ext.softplus.
    cases: a dict for each, from the names of the op's arguments to a tensor, a nested list or a number. The key 'expected' has the result, or a tuple of
    them; without it, the reference says what the result is.
    reference: a function that takes the arguments of a case by name, with floats as float64 tensors on the CPU, and returns the result or a tuple.
    rtol, atol: as of assert_close, both or none; by default its tolerances of each result's dtype. NaN equals NaN.

    Each case runs with the dtypes that it has and with all its floats as float64, float32, bfloat16 and float16, where the op has a function for them; on the
    CPU and on each GPU that is there, where the op has a function for it; and, if the op has a gradient and a function for float64 on that device, under autograd.gradcheck.

    Returns a line for each check, which also says what could not be checked: print them. AssertionError for a wrong result, RuntimeError for a wrong
    gradient; both name the case, the dtypes and the device. TypeError for what is no op of an extension; ValueError for cases that have other arguments, no
    expected result, or dtypes and devices for which the op has no function at all.

        pf.testing.check_op(ext.softplus, [dict(x=[-1.0, 0.0, 3.0], beta=2.0), dict(x=pf.randn(5, 40), beta=1.0)],
                            reference=lambda x, beta: pf.log1p(pf.exp(beta * x)) / beta)
    """
    from ..utils.cpp_extension import ExtensionOp

    if not isinstance(op, ExtensionOp):
        raise TypeError(f"check_op: this is no op of an extension; got {type(op).__name__}; expected such as ext.softplus of ext = pf.utils.cpp_extension.load(...)")
    if not cases:
        raise ValueError(f"check_op: {op.name} has no cases; got {cases!r}; expected a dict for each, with the arguments {', '.join(op._parameters)}")
    report = []
    for number, case in enumerate(cases):
        report += _Case(op, number, case, reference).check(rtol, atol)
    return report


class _Case:
    def __init__(self, op, number, case, reference):
        self.op, self.name, self.reference = op, f"case {number} of {op.name}", reference
        given = {n: value for n, value in case.items() if n != "expected"}
        if set(given) != set(op._parameters):
            raise ValueError(f"check_op: {self.name} has other arguments; got {', '.join(given) or 'none'}; expected {', '.join(op._parameters)}, and 'expected' for the result")
        if "expected" not in case and reference is None:
            raise ValueError(f"check_op: nothing says what {self.name} should compute; got neither 'expected' nor reference=; expected one of them")
        self.expected = case.get("expected")
        self.scalars = {n: given[n] for n in op._scalars}
        self.inputs = [_tensor(given[n]) for n in op._inputs]

    def check(self, rtol, atol):
        devices, report = self._devices(), []
        for device in devices:
            fitting = [inputs for inputs in self._of_each_dtype() if self.op._takes(inputs, self.scalars, device != "cpu")]
            if not fitting:
                raise ValueError(f"check_op: the op has no function for the dtypes of {self.name}; got {_dtypes(self.inputs)}, and its floats as {', '.join(d.name for d in _FLOATS)}; "
                                 "expected dtypes that PYFLAME_OPS lists; hint: give tensors, pf.tensor(..., dtype=), in place of lists")
            for inputs in fitting:
                self._check_values(inputs, device, rtol, atol)
                report.append(f"{self.name}, {_dtypes(inputs)} on {device}: values")
            report.append(self._check_gradient(device))
        if True in self.op._numbers and not any(d != "cpu" for d in devices):
            report.append(f"{self.name}: not checked on a GPU, of which there is none")
        return report

    def _devices(self):
        here = {False: ["cpu"], True: [kind for kind, there in (("rocm", _C.rocm_is_available()), ("cuda", _C.cuda_is_available())) if there]}
        devices = [device for gpu in sorted(self.op._numbers) for device in here[gpu]]
        if not devices:
            raise ValueError(f"check_op: {self.op.name} cannot be run here; got only functions with a Stream and no GPU; expected a GPU, or a function for the CPU")
        return devices

    def _of_each_dtype(self):
        """The inputs as they are, and with all floats in each of the dtypes."""
        every = {_dtypes(self.inputs): self.inputs}
        for dtype in _FLOATS:
            inputs = [t.to(dtype) if t.dtype in _FLOATS else t for t in self.inputs]
            every.setdefault(_dtypes(inputs), inputs)
        return every.values()

    def _check_values(self, inputs, device, rtol, atol):
        with no_grad():
            got = self._results(inputs, device)
            want = _tuple(self._wanted(inputs))
        if len(got) != len(want):
            raise ValueError(f"check_op: {self.name} has another number of results; got {len(want)} that are expected; expected {len(got)}: {', '.join(self.op._outputs)}")
        for output, a, b in zip(self.op._outputs, got, want):
            where = f"check_op: {self.name}, {_dtypes(inputs)} on {device}: {output}: "
            assert_close(a.cpu(), _tensor(b).to(a.dtype), rtol=rtol, atol=atol, equal_nan=True, msg=lambda text, where=where: where + text.removeprefix("assert_close: "))

    def _wanted(self, inputs):
        if self.expected is not None:
            return self.expected
        exact = [t.to(_C.float64) if t.dtype in _FLOATS else t for t in inputs]
        return self.reference(**dict(zip(self.op._inputs, exact)), **self.scalars)

    def _results(self, inputs, device):
        return _tuple(self.op(**dict(zip(self.op._inputs, (t.to(device) for t in inputs))), **self.scalars))

    def _check_gradient(self, device):
        wide = [t.to(_C.float64) if t.dtype in _FLOATS else t for t in self.inputs]
        what = f"{self.name} on {device}"
        if not self.op._gradient:
            return f"{what}: no gradient, because PYFLAME_OPS names none"
        if not any(t.dtype == _C.float64 for t in wide) or not self.op._takes(wide, self.scalars, device != "cpu"):
            return f"{what}: gradient not checked, because the op has no function for float64"
        leaves = [t.detach().clone().requires_grad_() if t.dtype == _C.float64 else t for t in wide]
        try:
            gradcheck(lambda *xs: self._results(xs, device), leaves)
        except RuntimeError as e:
            raise RuntimeError(f"check_op: the gradient of {what} is wrong: {e}") from e
        return f"{what}: gradient"


def _tensor(value):
    return value.detach().cpu() if isinstance(value, Tensor) else _C.tensor(value)


def _tuple(results):
    return tuple(results) if isinstance(results, tuple) else (results,)


def _dtypes(inputs):
    return f"({', '.join(t.dtype.name for t in inputs)})"
