"""Random numbers of further distributions, composed of uniform and normal ones. The numbers are functions of the seed, the same on every device;
they are not PyTorch's. `generator` is a pyflame.Generator, None for the global one. No gradient passes through them."""
from __future__ import annotations

import math

from . import _C
from ._C import Tensor
from ._error_names import rename
from ._generator import drawing_from
from ._public import method

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from ._annotations import DType, Device, MemoryFormat, Number, Shape
    from ._generator import Generator

__all__ = ["bernoulli", "binomial", "normal", "poisson", "randint_like"]


def _need_floats(op, x):
    if not x.is_floating_point():
        raise TypeError(f"{op}: not a floating dtype; got {x.dtype}; expected a floating dtype")


def _wide(x):
    """Uniform numbers in [0, 1) for x: of float64, or of float32, which 16-bit dtypes are too coarse to replace."""
    return _C.rand(x.shape, dtype=_C.float64 if x.dtype == _C.float64 else _C.float32, device=x.device)


@method
def uniform_(input: Tensor, from_: float = 0.0, to: float = 1.0, *, generator: Generator | None = None, **other: float) -> Tensor:
    """Uniform numbers in [from, to), in place; of a complex tensor, both parts. ArgumentError when from > to."""
    from_ = other.pop("from", from_)
    if other:
        raise TypeError(f"uniform_: unknown arguments; got {sorted(other)}; expected from, to, generator")
    if input.is_complex():
        uniform_(_C.view_as_real(input), from_, to, generator=generator)
        return input
    _need_floats("uniform_", input)
    if from_ > to:
        raise _C.ArgumentError(f"uniform_: empty range; got from={from_} and to={to}; expected from <= to")
    with drawing_from(generator):
        return input.copy_(_C.rand(input.shape, dtype=input.dtype, device=input.device) * (to - from_) + from_)


@method
def normal_(input: Tensor, mean: Number = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Normal numbers of this mean and standard deviation, in place. The variance of a complex number is divided among its parts. ArgumentError for a negative std."""
    try:
        if not input.is_complex():
            _need_floats("normal_", input)
        if std < 0:
            raise _C.ArgumentError(f"normal_: negative standard deviation; got {std}; expected 0 or more")
        with drawing_from(generator):
            return input.copy_(_C.randn(input.shape, dtype=input.dtype, device=input.device) * std + mean)
    except Exception as error:
        rename("normal_", error, (input, mean, std))
        raise


@method
def exponential_(input: Tensor, lambd: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Numbers of the exponential distribution with the density lambd exp(-lambd x), in place. ArgumentError unless lambd > 0."""
    _need_floats("exponential_", input)
    if not lambd > 0:
        raise _C.ArgumentError(f"exponential_: the rate is not positive; got lambd={lambd}; expected > 0")
    with drawing_from(generator):
        return input.copy_(_C.log1p(-_wide(input)) * (-1 / lambd))


@method
def geometric_(input: Tensor, p: float, *, generator: Generator | None = None) -> Tensor:
    """How many trials it takes until one of probability p succeeds: 1, 2, ..., in place. ArgumentError unless 0 < p < 1."""
    if not 0 < p < 1:
        raise _C.ArgumentError(f"geometric_: the probability is out of range; got p={p}; expected 0 < p < 1")
    with drawing_from(generator):
        trials = _C.ceil(_C.log1p(-_wide(input)) * (1 / math.log1p(-p)))
        return input.copy_(_C.clamp(trials, min=1))


@method
def cauchy_(input: Tensor, median: float = 0, sigma: float = 1, *, generator: Generator | None = None) -> Tensor:
    """Numbers of the Cauchy distribution, in place: median + sigma tan(pi (u - 1/2)) for a uniform u. ArgumentError unless sigma > 0."""
    try:
        _need_floats("cauchy_", input)
        if not sigma > 0:
            raise _C.ArgumentError(f"cauchy_: sigma is not positive; got {sigma}; expected > 0")
        with drawing_from(generator):
            return input.copy_(_C.tan((_wide(input) - 0.5) * math.pi) * sigma + median)
    except Exception as error:
        rename("cauchy_", error, (input, median, sigma))
        raise


@method
def log_normal_(input: Tensor, mean: float = 1, std: float = 2, *, generator: Generator | None = None) -> Tensor:
    """exp of normal numbers of this mean and standard deviation, in place. ArgumentError unless std > 0."""
    try:
        _need_floats("log_normal_", input)
        if not std > 0:
            raise _C.ArgumentError(f"log_normal_: std is not positive; got {std}; expected > 0")
        with drawing_from(generator):
            drawn = _C.randn(input.shape, dtype=_C.float64 if input.dtype == _C.float64 else _C.float32, device=input.device)
            return input.copy_(_C.exp(drawn * std + mean))
    except Exception as error:
        rename("log_normal_", error, (input, mean, std))
        raise


# The integers that a dtype represents exactly: 0 to this number.
_EXACT = {"float16": 2**11, "bfloat16": 2**8, "float32": 2**24, "float64": 2**53, "bool": 1, "uint8": 255, "int8": 127, "int16": 2**15 - 1, "int32": 2**31 - 1, "int64": 2**63 - 1}


@method
def random_(input: Tensor, from_: int | None = None, to: int | None = None, *, generator: Generator | None = None, **other: int) -> Tensor:
    """Uniform integers in place: random_() from all that the dtype holds exactly and are not negative, random_(to) in [0, to),
    random_(from, to) in [from, to). ArgumentError for an empty range, and for one that an integer dtype cannot hold."""
    try:
        from_ = other.pop("from", from_)
        if other:
            raise TypeError(f"random_: unknown arguments; got {sorted(other)}; expected from, to, generator")
        if to is None:
            from_, to = (0, from_) if from_ is not None else (0, None)
        if to is None:
            most = _EXACT[str(input.dtype).rpartition(".")[2].rstrip("_")]
            to = most + 1 if most < 2**63 - 1 else most
        if from_ is None:
            from_ = 0
        if not from_ < to:
            raise _C.ArgumentError(f"random_: empty range; got from={from_} and to={to}; expected from < to")
        with drawing_from(generator):
            return input.copy_(_C.randint(from_, to, input.shape, dtype=None if input.is_floating_point() else input.dtype, device=input.device))
    except Exception as error:
        rename("random_", error, (input, from_, to))
        raise


def bernoulli(input: Tensor, p: Tensor | float | None = None, *, generator: Generator | None = None) -> Tensor:
    """1 with the probability that each element of input gives, or with probability p in the input's shape, otherwise 0.

    ArgumentError unless 0 <= p <= 1 for a number p. The probabilities of a tensor are not checked: one above 1 counts as 1, one below 0 as 0."""
    if p is None:
        if not input.is_floating_point():
            raise TypeError(f"bernoulli: the probabilities are not floats; got {str(input.dtype).rpartition('.')[2]}; expected a floating dtype")
        probability = input.detach()
    else:
        if isinstance(p, Tensor):
            probability = p.detach()
        elif not 0 <= p <= 1:
            raise _C.ArgumentError(f"bernoulli: the probability is out of range; got p={p}; expected 0 <= p <= 1")
        else:
            probability = p
    wide = probability if isinstance(probability, Tensor) else input
    with drawing_from(generator):
        drawn = _C.rand(input.shape, dtype=_C.float64 if wide.dtype == _C.float64 else _C.float32, device=input.device)
    return _C.lt(drawn, probability.to(drawn.dtype) if isinstance(probability, Tensor) else probability).to(input.dtype)


Tensor.bernoulli = bernoulli


@method
def bernoulli_(input: Tensor, p: Tensor | float = 0.5, *, generator: Generator | None = None) -> Tensor:
    """1 with probability p (a number or a tensor), otherwise 0, in place. ArgumentError unless 0 <= p <= 1."""
    try:
        return input.copy_(bernoulli(input.detach(), p, generator=generator))
    except Exception as error:
        rename("bernoulli_", error, (input, p))
        raise


def normal(mean: Tensor | float, std: Tensor | float = 1.0, size: int | Shape | None = None, *, generator: Generator | None = None, out: Tensor | None = None,
           dtype: DType | None = None, device: Device | None = None, requires_grad: bool = False) -> Tensor:
    """Normal numbers: normal(mean, std) of tensors or one tensor and a number, which broadcast; normal(mean, std, size) of two numbers.
    ArgumentError for a negative std that is a number."""
    if not isinstance(std, Tensor) and std < 0:
        raise _C.ArgumentError(f"normal: negative standard deviation; got {std}; expected 0 or more")
    with drawing_from(generator):
        if size is not None:
            result = _C.randn(size, dtype=dtype, device=device) * std + mean
        else:
            tensors = [x for x in (mean, std) if isinstance(x, Tensor)]
            if not tensors:
                raise TypeError("normal: no tensor and no size; got two numbers; expected a tensor, or size=")
            for x in tensors:
                _need_floats("normal", x)
            like = mean.detach() + std.detach() if len(tensors) == 2 else tensors[0].detach()
            drawn = _C.randn(like.shape, dtype=like.dtype, device=like.device)
            result = drawn * (std.detach() if isinstance(std, Tensor) else std) + (mean.detach() if isinstance(mean, Tensor) else mean)
    if requires_grad:
        result.requires_grad_()
    return result if out is None else out.copy_(result)


def randint_like(input: Tensor, low: Tensor | int | None = None, high: Tensor | int | None = None, *, generator: Generator | None = None,
                 dtype: DType | None = None, layout: object = None, device: Device | None = None, requires_grad: bool = False,
                 memory_format: MemoryFormat | None = None) -> Tensor:
    """Uniform integers in [low, high), or in [0, low) without high, in the input's shape and dtype. ArgumentError for an empty range.

    low, high: numbers, or tensors of one element, which are read: a sync point. memory_format: of the result; None: that of the input. layout is accepted for PyTorch's
    programs and changes nothing.
    """
    if high is None:
        low, high = 0, low
    for name, bound in (("low", low), ("high", high)):
        if isinstance(bound, Tensor):
            low, high = (bound.item(), high) if name == "low" else (low, bound.item())
    result = _C.randint(int(low), int(high), input.shape, generator=generator, dtype=dtype or input.dtype, device=device or input.device)
    if memory_format is None or memory_format == _C.preserve_format:
        place = _C.empty_like(input, dtype=result.dtype, device=result.device)
        result = result if place.is_contiguous() else place.copy_(result)
    else:
        result = result.contiguous(memory_format=memory_format)
    return result.requires_grad_() if requires_grad else result


def _quantile(uniform, start, step, probability_up_to):
    """The smallest k >= 0 with uniform < probability_up_to(k), by bisection from the widest step down; start is below it."""
    at = start
    while step >= 1:
        ahead = at + step
        at = _C.where(uniform >= probability_up_to(ahead), ahead, at)
        step //= 2
    return _C.where(uniform < probability_up_to(_C.zeros_like(at)), 0.0, at + 1)


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Numbers of the Poisson distribution with the rates of input. They invert the distribution function, the upper incomplete gamma function
    igammac(k + 1, rate), by bisection, in float64. The largest rate is read: a sync point. RuntimeError for a negative rate."""
    _need_floats("poisson", input)
    rate = input.detach().double()
    if input.numel() == 0:
        return input.detach().clone()
    most = rate.max().item()
    if rate.min().item() < 0:
        raise RuntimeError("poisson: a negative rate; expected all rates to be 0 or more")
    with drawing_from(generator):
        uniform = _C.rand(rate.shape, dtype=_C.float64, device=rate.device)
    step = 1 << max(0, int(most + 12 * math.sqrt(most) + 40).bit_length() - 1)
    counts = _quantile(uniform, _C.zeros_like(rate), step, lambda k: _C.igammac(k + 1, rate))
    return _C.where(rate == 0, 0.0, counts).to(input.dtype)


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """How many of `count` trials of probability `prob` succeed; both tensors of one floating dtype, which broadcast. The sum of single trials; the
    largest count is read, a sync point, and as many uniform numbers are drawn for each element.

    ValueError where the shapes do not broadcast. TypeError for integers and for numbers of Python, RuntimeError for two dtypes. Values of prob outside of
    0 to 1 are not refused.
    """
    _need_floats("binomial", prob)
    if count.dtype != prob.dtype:
        raise RuntimeError(f"binomial: two dtypes; got {count.dtype} and {prob.dtype}; expected the same")
    count, prob = _C.broadcast_tensors(count.detach(), prob.detach())
    most = int(count.max().item()) if count.numel() else 0
    total = _C.zeros(count.shape, dtype=_C.float32 if prob.dtype != _C.float64 else _C.float64, device=count.device)
    with drawing_from(generator):
        for trial in range(most):
            success = _C.logical_and(_C.rand(total.shape, dtype=total.dtype, device=total.device) < prob.to(total.dtype), count > trial)
            total = total + success.to(total.dtype)
    return total.to(prob.dtype)
