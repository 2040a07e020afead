"""The types of results with names: pf.return_types.max is the type of pf.max(x, dim)."""
from . import _C

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:  # the names that __getattr__ finds
    from . import _named_tuples

    aminmax = _named_tuples.MinMax
    cummax = _named_tuples.ValuesIndices
    cummin = _named_tuples.ValuesIndices
    frexp = _named_tuples.Frexp
    histogram = _named_tuples.Histogram
    kthvalue = _named_tuples.ValuesIndices
    max = _named_tuples.ValuesIndices
    median = _named_tuples.ValuesIndices
    min = _named_tuples.ValuesIndices
    mode = _named_tuples.ValuesIndices
    nanmedian = _named_tuples.ValuesIndices
    sort = _named_tuples.ValuesIndices
    topk = _named_tuples.ValuesIndices
del TYPE_CHECKING

_ARGUMENTS = {"topk": (1,), "kthvalue": (1,), "aminmax": (), "frexp": (), "histogram": (1,)}  # after a tensor of one element; otherwise (0,), a dim
_NAMES = ("aminmax", "cummax", "cummin", "frexp", "histogram", "kthvalue", "max", "median", "min", "mode", "nanmedian", "sort", "topk")


def __getattr__(name):
    if name not in _NAMES:
        raise AttributeError(f"module 'pyflame.return_types' has no attribute '{name}'")
    import pyflame

    globals()[name] = kind = type(getattr(pyflame, name)(_C.zeros(1, device="cpu"), *_ARGUMENTS.get(name, (0,))))
    return kind
