"""Numbers that are read later: with the setting defer_reads, Tensor.item() gives an object that stands for the number.

A read waits for the device, so a program that reads its loss in each step cannot record the next step meanwhile. The object keeps a copy of the element.
The value is read when something needs it: a comparison, a format, float(). Sums and products of such objects and numbers are put off, too, and computed in
Python's floats, in the order of the program, so that they have the same bits. All values that wait are read together, at the latest when there are MOST of them."""
import math
import numbers
import operator

from . import _C

MOST = 128  # values that wait; then all are read

_item = _C.Tensor.item  # the method that reads at once
_waiting = []
_on = False


def enable(on):
    """Returns whether reads were deferred before."""
    global _on
    before, _on = _on, on
    if before and not on:
        read_all()
    _C.Tensor.item = item if on else _item
    return before


def item(self):
    """The only element as a number; ValueError when there is not exactly one. The setting defer_reads is on: the value is read when it is needed."""
    if self.numel() != 1 or self.dtype not in (_C.float32, _C.float64, _C.float16, _C.bfloat16) or str(self.device).startswith("null"):
        return _item(self)
    return Deferred(_C.clone(self.detach()))


def read_all():
    """Reads every value that waits, of each device and dtype at once."""
    groups = {}
    for number in _waiting:
        groups.setdefault((str(number._source.device), number._source.dtype), []).append(number)
    _waiting.clear()
    for found in groups.values():
        try:
            values = _C.stack([n._source.reshape(()) for n in found]).tolist() if len(found) > 1 else [_item(found[0]._source)]
        except Exception:  # one of them is poisoned: each raises its own error when it is read
            continue
        for number, value in zip(found, values):
            number._value, number._source = value, None


class Deferred:
    """A float whose value is read when it is needed. numbers.Real knows it; it is no instance of float."""

    __slots__ = ("_first", "_function", "_second", "_source", "_value", "_depth", "__weakref__")

    def __init__(self, source=None, function=None, first=None, second=None):
        self._source, self._function, self._first, self._second, self._value = source, function, first, second, None
        self._depth = 1 + max((n._depth for n in (first, second) if isinstance(n, Deferred)), default=0)
        if source is not None:
            _waiting.append(self)
            if len(_waiting) >= MOST:
                read_all()

    def __float__(self):
        if self._value is None:
            self._compute()
        return self._value

    def _compute(self):
        """Without recursion: a running sum is a long chain."""
        todo = [self]
        while todo:
            number = todo[-1]
            if number._value is not None:
                todo.pop()
            elif number._function is None:
                if any(n is number for n in _waiting):
                    read_all()
                if number._value is None:
                    number._value = _item(number._source)
                    number._source = None
            else:
                needs = [n for n in (number._first, number._second) if isinstance(n, Deferred) and n._value is None]
                if needs:
                    todo += needs
                    continue
                operands = [n._value if isinstance(n, Deferred) else n for n in (number._first, number._second)]
                number._value = number._function(*operands)
                number._first = number._second = None
            number._depth = 0 if number._value is not None else number._depth

    def _with(self, other, function, reflected=False):
        if not isinstance(other, (Deferred, float, int)):
            return NotImplemented if not isinstance(other, _C.Tensor) else function(other, float(self)) if reflected else function(float(self), other)
        result = Deferred(None, function, *((other, self) if reflected else (self, other)))
        if result._depth > MOST:  # a running sum; otherwise it would keep all its parts
            result._compute()
        return result

    def __add__(self, other): return self._with(other, operator.add)  # noqa: E704
    def __radd__(self, other): return self._with(other, operator.add, True)  # noqa: E704
    def __sub__(self, other): return self._with(other, operator.sub)  # noqa: E704
    def __rsub__(self, other): return self._with(other, operator.sub, True)  # noqa: E704
    def __mul__(self, other): return self._with(other, operator.mul)  # noqa: E704
    def __rmul__(self, other): return self._with(other, operator.mul, True)  # noqa: E704

    def __truediv__(self, other):
        # a division by zero must raise where it stands
        return self._with(other, operator.truediv) if isinstance(other, (int, float)) and other != 0 else float(self) / _plain(other)

    def __getattr__(self, name):  # methods of float: hex, is_integer, as_integer_ratio, real, imag
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return getattr(float(self), name)

    def __format__(self, spec): return format(float(self), spec)  # noqa: E704
    def __repr__(self): return repr(float(self))  # noqa: E704
    def __hash__(self): return hash(float(self))  # noqa: E704
    def __bool__(self): return bool(float(self))  # noqa: E704
    def __int__(self): return int(float(self))  # noqa: E704
    def __reduce__(self): return float, (float(self),)  # noqa: E704
    def __round__(self, digits=None): return round(float(self), digits)  # noqa: E704
    def __trunc__(self): return math.trunc(float(self))  # noqa: E704
    def __floor__(self): return math.floor(float(self))  # noqa: E704
    def __ceil__(self): return math.ceil(float(self))  # noqa: E704


def _plain(value):
    return float(value) if isinstance(value, Deferred) else value


def _at_once(name):
    function = getattr(operator, name)
    return lambda self, other: function(float(self), _plain(other))


def _at_once_reflected(name):
    function = getattr(operator, name)
    return lambda self, other: function(_plain(other), float(self))


for _name in ("lt", "le", "gt", "ge", "eq", "ne", "floordiv", "mod", "pow"):
    setattr(Deferred, f"__{_name}__", _at_once(_name))
for _name in ("truediv", "floordiv", "mod", "pow"):
    setattr(Deferred, f"__r{_name}__", _at_once_reflected(_name))
for _name in ("neg", "pos", "abs"):
    setattr(Deferred, f"__{_name}__", lambda self, f=getattr(operator, _name): f(float(self)))
numbers.Real.register(Deferred)
