"""PyTorch's functions of lists of tensors, torch._foreach_*, which averages of weights and own optimizers call. Each is a loop: the ops of a window are
fused anyway."""
from . import _C
from ._C import Tensor

_UNARY = """abs acos asin atan ceil clone cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 max neg reciprocal round rsqrt sigmoid sign sin sinh sqrt
tan tanh trunc zero""".split()
_BINARY = "add clamp_max clamp_min copy div lerp maximum minimum mul pow sub addcdiv addcmul".split()
_OF_ALPHA, _OF_TWO = ("add", "sub"), ("addcdiv", "addcmul")
_ONLY_IN_PLACE, _NEVER_IN_PLACE = ("zero", "copy"), ("clone", "max", "norm")


def _tensors(name, tensors):
    if not isinstance(tensors, (list, tuple)) or not all(isinstance(t, Tensor) for t in tensors):
        raise TypeError(f"{name}: not a list of tensors; got {type(tensors).__name__}; expected a list or tuple of tensors")
    if not tensors:
        raise RuntimeError(f"{name}: the list is empty; expected one tensor or more")
    return tensors


def _each(name, value, count, numbers=False):
    """One value for each tensor: the elements of a list, or the same number or tensor. A tensor of `numbers` has one number for each."""
    if numbers and isinstance(value, Tensor) and value.dim() == 1:
        value = value.tolist()  # PyTorch reads it, too
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise RuntimeError(f"{name}: the lists differ in length; got {count} and {len(value)}; expected equal lengths")
    return value


def _call(name, method, self, others, options):
    """The results of a method for each tensor. Ops of a pair take numbers, too."""
    others = [_each(name, o, len(self)) for o in others]
    options = {key: _each(name, value, len(self), key == "value") for key, value in options.items()}
    return [method(t, *(o[k] for o in others), **{key: v[k] for key, v in options.items()}) for k, t in enumerate(self)]


def _method(op, in_place):
    if op == "zero":
        return Tensor.zero_
    if in_place:
        return getattr(Tensor, op + "_", None) or (lambda t, other: t.copy_(getattr(_C, op)(t, _as_tensor(other, t))))
    if op in ("maximum", "minimum"):
        return lambda t, other: getattr(_C, op)(t, _as_tensor(other, t))
    return getattr(Tensor, op)


def _as_tensor(value, like):
    return value if isinstance(value, Tensor) else _C.full((), value, dtype=like.dtype, device=like.device)


def _function(op, in_place):
    name = f"_foreach_{op}{'_' if in_place else ''}"
    method = _method(op, in_place)

    def done(self, results):
        return self if in_place else tuple(results)

    if op in _UNARY:

        def function(self):
            return done(self, _call(name, method, _tensors(name, self), (), {}))

    elif op in _OF_ALPHA:

        def function(self, other, *, alpha=1):
            return done(self, _call(name, method, _tensors(name, self), (other,), {} if alpha == 1 else {"alpha": alpha}))

    elif op == "lerp":

        def function(self, tensors1, weight):
            return done(self, _call(name, method, _tensors(name, self), (tensors1, weight), {}))

    elif op in _OF_TWO:

        def function(self, tensor1, tensor2, value=1):
            return done(self, _call(name, method, _tensors(name, self), (tensor1, tensor2), {"value": value}))

    elif op == "copy":

        def function(self, src, non_blocking=False):
            return done(self, _call(name, method, _tensors(name, self), (src,), {}))

    elif op == "pow":

        def function(self, exponent):
            if not isinstance(self, (list, tuple)) and isinstance(exponent, (list, tuple)):  # a number to the power of each
                return tuple(_C.pow(self, t) for t in _tensors(name, exponent))
            return done(self, _call(name, method, _tensors(name, self), (exponent,), {}))

    else:

        def function(self, other):
            return done(self, _call(name, method, _tensors(name, self), (other,), {}))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Tensor.{op} of each tensor of a list{', in place: the list' if in_place else ': a tuple of the results'}. Further arguments are one for all, or a list with one for each."
    return function


def _foreach_norm(self, ord=2, dtype=None):
    """The norm of each tensor of a list, over all its elements: a tuple of tensors without dims."""
    return tuple((t if dtype is None else t.to(dtype)).norm(ord) for t in _tensors("_foreach_norm", self))


FUNCTIONS = {"_foreach_norm": _foreach_norm}
for _op in _UNARY + _BINARY:
    for _in_place in (False, True):
        if _op not in (_NEVER_IN_PLACE if _in_place else _ONLY_IN_PLACE):
            FUNCTIONS[f"_foreach_{_op}{'_' * _in_place}"] = _function(_op, _in_place)
