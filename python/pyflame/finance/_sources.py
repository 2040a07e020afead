"""Where ticks come from: arrays, tables with columns, files. Everything ends as vectors of equal length, of NumPy or of PyFlame."""
import os
import re
import warnings

import numpy as np

from .. import _C
from .._C import Tensor

_NAMES = {
    "price": ("price", "close", "last"),
    "volume": ("volume", "size", "quantity", "qty"),
    "session": ("session",),
    "time": ("timestamp", "datetime", "time", "date"),
}


def ticks(op, data, volumes, sessions, timestamps, columns):
    """(prices, volumes, sessions or None, timestamps or None) of what a user passed."""
    if sessions is not None and timestamps is not None:
        raise ValueError(f"{op}: sessions and timestamps exclude each other; got both; expected one of them")
    if columns is not None and (not isinstance(columns, dict) or set(columns) - set(_NAMES)):
        raise ValueError(f"{op}: columns does not fit; got {columns!r}; expected a dict with some of the keys {', '.join(_NAMES)}")
    wanted = ["price", "volume"] + (["session", "time"] if _wants_times(op) and sessions is None and timestamps is None else [])
    found = {"session": sessions, "time": timestamps}
    if volumes is not None and (isinstance(data, (str, os.PathLike)) or _column_names(data) is not None):
        raise ValueError(f"{op}: the volumes come twice; got a table or a file, and volumes; expected prices and volumes, or one table")
    if isinstance(data, (str, os.PathLike)):
        table = read_file(op, os.fspath(data), columns or {}, wanted)
    elif volumes is None:
        table = table_columns(op, data, columns or {}, wanted)
    else:
        table = {"price": data, "volume": volumes}
    found.update({kind: value for kind, value in table.items() if found.get(kind) is None})
    if found["session"] is None and found["time"] is None and op.endswith("sessions"):
        raise ValueError(f"{op}: it is not known which session a tick belongs to; got no sessions and no timestamps; expected one of them, or a column of that name")
    vectors = [vector(op, kind, found[kind]) for kind in ("price", "volume", "session", "time")]
    for kind, values in zip(("volumes", "sessions", "timestamps"), vectors[1:]):
        if values is not None and len(values) != len(vectors[0]):
            raise ValueError(f"{op}: the lengths differ; got {len(vectors[0])} prices and {len(values)} {kind}; expected as many")
    if vectors[2] is not None:
        vectors[3] = None
    return vectors


def _wants_times(op):
    return op.endswith(("sessions", "clean_ticks"))


def vector(op, kind, values):
    """A vector that can be used as this kind: real numbers of prices and volumes; anything for sessions and times."""
    if values is None:
        return None
    if isinstance(values, Tensor):
        values = values.detach() if kind in ("price", "volume") else values.detach().cpu().numpy()
        numeric = kind not in ("price", "volume") or not (values.is_complex() or values.dtype == _C.bool_)
    else:
        values = np.asarray(values)
        if values.dtype == object and kind in ("price", "volume"):
            try:
                values = values.astype(np.float64)
            except (TypeError, ValueError):
                pass
        numeric = kind not in ("price", "volume") or values.dtype.kind in "iuf"
    if not numeric:
        raise TypeError(f"{op}: the {kind}s are not real numbers; got {values.dtype}; expected a floating or an integer dtype")
    if values.ndim != 1:
        raise ValueError(f"{op}: the {kind}s are not a vector; got shape {tuple(values.shape)}; expected one dim")
    return values


def is_integer(values):
    return not values.is_floating_point() if isinstance(values, Tensor) else values.dtype.kind in "iu"


def is_on(values, device):
    """Whether these are a tensor on the device."""
    return isinstance(values, Tensor) and values.device == _C.device(device)


def sampled_range(values, count):
    """(lowest, highest) of about `count` values that lie evenly, as floats; NaN if one is."""
    some = values[::max(1, len(values) // count)]
    if isinstance(some, Tensor):
        return tuple(_C.stack([x.to(_C.float64) for x in (some.min(), some.max())]).tolist())
    return float(some.min()), float(some.max())


# What the op that adds takes as it is; the rest is converted.
_TAKEN = {_C.float64: ("float64", "float32"), _C.int64: ("int64", "int32")}


def on_device(values, device, dtype):
    """A chunk as a tensor on the device that the op takes: of this dtype, or of the one with half as many bits."""
    if isinstance(values, Tensor):
        values = values.to(device)
        return values if str(values.dtype).rpartition(".")[2] in _TAKEN[dtype] else values.to(dtype)
    if values.dtype == np.uint64 and dtype == _C.int64 and len(values) and values.max() >= 2**63:
        _refuse_uint64(values)
    name = values.dtype.name if values.dtype.isnative and values.dtype.name in _TAKEN[dtype] else _TAKEN[dtype][0]
    values = np.require(values, name, ["C", "A"])
    shared = _C.from_numpy(values if values.flags.writeable else np.asarray(_Writable(values)))  # no copy; nothing writes to it
    return shared.to(device)


class _Writable:
    """An array of the same memory that may be written, because a tensor has to be."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def _refuse_uint64(values):
    raise OverflowError(f"VolumeProfileAnalyzer: a volume is too large; got {int(values.max())}; expected integers below 2**63; hint: pass float64 volumes")


def reordered(values, order):
    if isinstance(values, Tensor):
        return values.index_select(0, _C.tensor(order, device=values.device))
    return values[order]


def parts(keys):
    """(names of the sessions, where each begins, the order that puts the ticks of a session together, or None if they are together and ascending)."""
    keys = np.asarray(keys)
    if len(keys) == 0:
        return [], [], None
    change = keys[1:] != keys[:-1]
    order = None
    if np.any(keys[1:] < keys[:-1]):
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        change = keys[1:] != keys[:-1]
    begins = np.concatenate([[0], np.flatnonzero(change) + 1])
    return [x.item() if keys.dtype.kind in "iufU" else x for x in keys[begins]], begins.tolist(), order


def as_times(op, times):
    """Times as datetime64; what is missing becomes NaT."""
    times = np.asarray(times)
    if times.dtype.kind == "M":
        return times
    if times.dtype.kind in "iu":
        return times.astype(np.int64).astype("datetime64[s]")
    if times.dtype.kind == "f":
        known = np.isfinite(times)
        found = (np.where(known, times, 0.0) * 1000.0).round().astype(np.int64).astype("datetime64[ms]")
        found[~known] = np.datetime64("NaT")
        return found
    try:
        return times.astype("datetime64[ns]")
    except ValueError as error:
        raise ValueError(f"{op}: a timestamp cannot be read: {error}; expected the form 2024-09-16 09:35:00.268") from None


def spans(op, times, length):
    """The begin of the span that each time lies in, as datetime64."""
    if isinstance(length, str):
        match = re.fullmatch(r"\s*(\d+)\s*([Dhms])\s*", length)
        span = np.timedelta64(int(match[1]), match[2]) if match else None
    else:
        span = length
    if not isinstance(span, np.timedelta64) or not span > np.timedelta64(0):
        raise ValueError(f"{op}: session_length does not fit; got {length!r}; expected text such as '1 D', '1 h', '30 m' or '10 s', or a timedelta64 above 0")
    times = as_times(op, times)
    if np.any(np.isnat(times)):
        raise ValueError(f"{op}: a timestamp is missing; got NaT at tick {int(np.argmax(np.isnat(times)))}; expected a time for each tick")
    unit = np.datetime_data(span.dtype)[0]
    counted = times.astype(f"datetime64[{unit}]").astype(np.int64)  # rounded down
    step = span.astype(f"timedelta64[{unit}]").astype(np.int64)
    return (counted // step * step).astype(f"datetime64[{unit}]")


def choose(op, names, columns, wanted):
    """{kind: name} for the kinds that are there; prices and volumes have to be."""
    lower = {str(n).lower(): n for n in reversed(names)}
    chosen = {}
    for kind in wanted:
        if kind in columns:
            if columns[kind] not in names:
                raise ValueError(f"{op}: there is no column '{columns[kind]}'; got the columns {', '.join(map(str, names))}")
            chosen[kind] = columns[kind]
            continue
        name = next((lower[n] for n in _NAMES[kind] if n in lower), None)
        if name is not None:
            chosen[kind] = name
        elif kind in ("price", "volume"):
            raise ValueError(f"{op}: no column is the {kind}; got the columns {', '.join(map(str, names))}; expected one of {', '.join(_NAMES[kind])}; hint: columns={{'{kind}': 'its name'}}")
    return chosen


def _column_names(table):
    """The names of the columns of a DataFrame, an Arrow table or a dict; None if it is not a table."""
    for attribute in ("column_names", "columns"):
        if hasattr(table, attribute):
            return getattr(table, attribute)
    return table.keys() if hasattr(table, "keys") else None


def table_columns(op, table, columns, wanted):
    """Columns by name of a DataFrame, an Arrow table or a dict, through the array protocol."""
    names = _column_names(table)
    if names is None:
        raise ValueError(f"{op}: there are no volumes; got {type(table).__name__} alone; expected prices and volumes, a table with columns, or the path of a file")
    return {kind: np.asarray(table[name]) for kind, name in choose(op, list(names), columns, wanted).items()}


def read_file(op, path, columns, wanted):
    """Columns of a CSV or Parquet file; its name's ending says which."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"{op}: no such file; got '{path}'; expected a CSV or Parquet file")
    if path.lower().endswith((".parquet", ".pq")):
        return read_parquet(op, path, columns, wanted)
    if path.lower().endswith((".csv", ".txt")):
        return read_csv(op, path, columns, wanted)
    raise ValueError(f"{op}: unknown format; got '{path}'; expected a name that ends in .csv, .txt, .parquet or .pq")


def read_parquet(op, path, columns, wanted):
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"{op}: the package pyarrow, which reads Parquet, is not installed; got '{path}'; hint: pip install pyarrow") from error
    chosen = choose(op, pyarrow.parquet.read_schema(path).names, columns, wanted)
    table = pyarrow.parquet.read_table(path, columns=list(chosen.values()))
    return {kind: table[name].to_numpy() for kind, name in chosen.items()}


def read_csv(op, path, columns, wanted):
    """Columns of a file whose first line has their names and whose separator is the comma. Empty numbers become NaN, whole volumes int64."""
    with open(path, encoding="utf-8-sig") as file:
        names = [n.strip().strip('"') for n in file.readline().rstrip("\r\n").split(",")]
    chosen = choose(op, names, columns, wanted)
    kinds = sorted(chosen, key=lambda kind: names.index(chosen[kind]))
    dtype = [(kind, np.float64 if kind in ("price", "volume") else "U40") for kind in kinds]
    at = {kind: names.index(chosen[kind]) for kind in kinds}
    settings = dict(dtype=dtype, delimiter=",", skiprows=1, usecols=list(at.values()), ndmin=1, encoding="utf-8", comments=None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that there are no rows: an error of ours says so
            try:
                rows = np.loadtxt(path, **settings)
            except ValueError:  # some fields may be empty, which only a slower reader takes
                rows = np.loadtxt(path, **settings, converters={at[kind]: lambda text: float(text.strip() or "nan") for kind in ("price", "volume")})
    except (ValueError, IndexError) as error:
        raise ValueError(f"{op}: '{path}' cannot be read: {error}; expected rows of numbers under the names {', '.join(chosen.values())}") from None
    found = {kind: np.ascontiguousarray(rows[kind]) for kind in kinds}
    return {**found, "volume": whole(found["volume"])}


def whole(volumes):
    """Volumes as int64 if they are whole numbers that a float64 holds exactly."""
    if volumes.dtype.kind == "f" and np.all(np.abs(volumes) < 2**53) and np.all(volumes == np.floor(volumes)):
        return volumes.astype(np.int64)
    return volumes
