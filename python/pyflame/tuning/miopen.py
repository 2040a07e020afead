"""MIOpen's databases of convolutions: its find-db, a text with the times of solvers (*.ufdb.txt, *.fdb.txt), and its perf-db, which names a tuned solver without a time (an SQLite
file with the tables config and perf_db, or a text, *.udb.txt, *.db.txt).

A line of a find-db is KEY=SOLVER:MILLISECONDS,WORKSPACE,ALGORITHM;SOLVER:..., and in older files ALGORITHM:SOLVER,MILLISECONDS,WORKSPACE,... The key is
C-H-W-KERNEL-K-H-W-N-PADDING-STRIDE-DILATION-BIAS-LAYOUT-DTYPE-DIRECTION[_gGROUPS], where C, H and W in front are of the tensor that is read: of gradients (B, W) that is the
gradient of the result. Sources: src/conv/problem_description.cpp, src/db_record.cpp, src/include/miopen/perf_field.hpp and src/solver.cpp of https://github.com/ROCm/MIOpen."""
import contextlib
import os
import re
import sqlite3
import urllib.parse

from . import convolutions
from .convolutions import Convolution

ENTRY = "gpu.dnn"  # the implementation whose configurations are MIOpen's solutions
ORDERS = {"NCHW": "contiguous", "NHWC": "channels_last"}  # as the configurations name them
# MIOpen's numbers of solvers, which its interface tells, and their names, which are in its files. A number is not given to another solver later. They are of MIOpen 3.3.
_SOLVERS = {
    "Direct": {
        1: "ConvAsm3x3U", 2: "ConvAsm1x1U", 3: "ConvAsm1x1UV2", 5: "ConvAsm5x10u2v2f1", 6: "ConvAsm5x10u2v2b1", 7: "ConvAsm7x7c3h224w224k64u2v2p3q3f1",
        8: "ConvOclDirectFwd11x11", 9: "ConvOclDirectFwdGen", 11: "ConvOclDirectFwd", 13: "ConvOclDirectFwd1x1", 16: "ConvAsmBwdWrW3x3", 17: "ConvAsmBwdWrW1x1",
        18: "ConvOclBwdWrW2<1>", 19: "ConvOclBwdWrW2<2>", 20: "ConvOclBwdWrW2<4>", 21: "ConvOclBwdWrW2<8>", 22: "ConvOclBwdWrW2<16>", 23: "ConvOclBwdWrW2NonTunable",
        24: "ConvOclBwdWrW53", 25: "ConvOclBwdWrW1x1", 85: "ConvDirectNaiveConvFwd", 86: "ConvDirectNaiveConvBwd", 87: "ConvDirectNaiveConvWrw",
    },
    "ImplicitGEMM": {
        26: "ConvHipImplicitGemmV4R1Fwd", 31: "ConvHipImplicitGemmV4R1WrW", 54: "ConvHipImplicitGemmV4R4Fwd", 55: "ConvHipImplicitGemmBwdDataV1R1",
        56: "ConvHipImplicitGemmBwdDataV4R1", 57: "ConvHipImplicitGemmBwdDataV1R1Xdlops", 60: "ConvHipImplicitGemmBwdDataV4R1Xdlops", 61: "ConvHipImplicitGemmV4R4WrW",
        62: "ConvAsmImplicitGemmV4R1DynamicFwd", 63: "ConvAsmImplicitGemmV4R1DynamicFwd_1x1", 64: "ConvHipImplicitGemmForwardV4R4Xdlops",
        65: "ConvAsmImplicitGemmV4R1DynamicBwd", 66: "ConvAsmImplicitGemmV4R1DynamicWrw", 72: "ConvAsmImplicitGemmGTCDynamicWrwXdlops",
        73: "ConvHipImplicitGemmWrwV4R4Xdlops", 74: "ConvAsmImplicitGemmGTCDynamicFwdXdlops", 80: "ConvHipImplicitGemmForwardV4R5Xdlops",
        81: "ConvHipImplicitGemmForwardV4R4Xdlops_Padded_Gemm", 82: "ConvAsmImplicitGemmGTCDynamicBwdXdlops", 83: "ConvHipImplicitGemmWrwV4R4Xdlops_Padded_Gemm",
        98: "ConvMlirIgemmFwd", 99: "ConvMlirIgemmBwd", 100: "ConvMlirIgemmWrW", 103: "ConvMlirIgemmFwdXdlops", 104: "ConvMlirIgemmBwdXdlops",
        105: "ConvMlirIgemmWrWXdlops", 107: "ConvAsmImplicitGemmGTCDynamicFwdXdlopsNHWC", 108: "ConvAsmImplicitGemmGTCDynamicBwdXdlopsNHWC",
        110: "ConvAsmImplicitGemmGTCDynamicWrwXdlopsNHWC", 114: "ConvCkIgemmFwdV6r1DlopsNchw", 127: "ConvAsmImplicitGemmGTCDynamicFwdDlopsNCHWC",
        128: "ConvHipImplicitGemmFwdXdlops", 129: "ConvHipImplicitGemmBwdXdlops", 137: "ConvHipImplicitGemmGroupFwdXdlops", 155: "ConvHipImplicitGemmGroupBwdXdlops",
        156: "ConvHipImplicitGemmGroupWrwXdlops",
    },
    "GEMM": {
        88: "GemmFwd1x1_0_1", 90: "GemmFwd1x1_0_2", 91: "GemmFwdRest", 95: "GemmBwd1x1_stride2", 96: "GemmBwd1x1_stride1", 97: "GemmBwdRest", 101: "GemmWrw1x1_stride1",
        102: "GemmWrwUniversal",
    },
}
# Number: (name, algorithm).
NAMES = {number: (name, algorithm) for algorithm, names in _SOLVERS.items() for number, name in names.items()}
_NUMBERS = {name: number for number, (name, _) in NAMES.items()}
_TRANSFORMS = re.compile("Wino|^fft$")  # PyFlame takes none of them: their errors grow with the largest value, not with the terms of each sum

_DIRECTIONS = {"F": "conv2d", "B": "conv2d_grad_input", "W": "conv2d_grad_weight"}
ALGORITHMS = {"conv2d": "miopenConvolutionFwdAlgo", "conv2d_grad_input": "miopenConvolutionBwdDataAlgo", "conv2d_grad_weight": "miopenConvolutionBwdWeightsAlgo"}
_DTYPES = {"FP32": "float32", "FP16": "float16", "BF16": "bfloat16"}
_TEXTS = (".ufdb.txt", ".fdb.txt", ".udb.txt", ".db.txt")
_KEY = re.compile(rb"[1-9][0-9]*(?:-[1-9][0-9]*){2,3}-[1-9][0-9]*x[0-9x]+-[^=]*=")
_MOST_LINE, _MOST_SOLVERS, _MOST_ROWS = 1 << 16, 64, 500_000
_HEAD = 1024  # bytes that tell the format


def reader_of(path):
    """The function that reads a file of MIOpen, by the file's name and its beginning; None for another file."""
    with open(path, "rb") as f:
        head = f.read(_HEAD)
    if head.startswith(b"SQLite format 3\0"):
        return read_sqlite
    return read_text if os.fspath(path).endswith(_TEXTS) or _KEY.match(head) else None


def _number(text, what, least=0):
    if not re.fullmatch("[0-9]{1,10}", text) or int(text) < least:
        raise ValueError(f"{what} is no whole number from {least} upwards; got {text[:40]!r}")
    return int(text)


def _pair(text, what, least=0):
    parts = text.split("x")
    if len(parts) != 2:
        raise ValueError(f"{what} has {len(parts)} numbers; got {text[:40]!r}; expected 2")
    return tuple(_number(part, what, least) for part in parts)


def _checked(op, read, made, n, kernel, padding, stride, dilation, bias, groups, dtype, layout):
    """The Convolution whose read and made tensors have (channels, height, width) in the sense of the forward one for conv2d, and the other way round for gradients."""
    if dtype not in _DTYPES:
        raise ValueError(f"a dtype that PyFlame does not give MIOpen; got {dtype[:40]!r}; expected one of {', '.join(_DTYPES)}")
    if layout not in ("NCHW", "NHWC"):
        raise ValueError(f"an order of dims that PyFlame does not give MIOpen; got {layout[:40]!r}; expected NCHW or NHWC for all tensors")
    if bias != 0:
        raise ValueError("a convolution with a bias; expected one alone")
    (c, *size), (k, *out) = (read, made) if op == "conv2d" else (made, read)
    found = Convolution(op, n, c, k, tuple(size), kernel, stride, padding, dilation, groups, _DTYPES[dtype], layout)
    convolutions.check(found)
    if tuple(out) != found.out:
        raise ValueError(f"sizes that do not fit each other; got a result of {'x'.join(map(str, out))}; expected {'x'.join(map(str, found.out))}")
    return found


def parse(key):
    """The Convolution of a key. ValueError with what is wrong."""
    parts = key.split("-")
    at = next((i for i, part in enumerate(parts) if "x" in part), 0)
    if at == 4:
        raise ValueError("a convolution of volumes; expected one of images, which is what PyFlame gives MIOpen")
    if at != 3 or len(parts) not in (15, 17):
        raise ValueError(f"not a key of a convolution; got {key[:80]!r}; expected C-H-W-KERNEL-K-H-W-N-PADDING-STRIDE-DILATION-BIAS-LAYOUT-DTYPE-DIRECTION")
    end = re.fullmatch("([FBW])(?:_g([0-9]+))?", parts[-1])
    if not end:
        raise ValueError(f"a direction or an addition that is not taken over; got {parts[-1][:40]!r}; expected F, B or W, and _g with the number of groups")
    orders = parts[12:-2]
    layout = orders[0] if len(set(orders)) == 1 else "-".join(orders)
    sizes = [_number(part, "a size", 1) for part in (*parts[:3], *parts[4:8])]
    return _checked(_DIRECTIONS[end[1]], tuple(sizes[:3]), tuple(sizes[3:6]), sizes[6], _pair(parts[3], "the kernel", 1), _pair(parts[8], "the padding"),
                    _pair(parts[9], "the stride", 1), _pair(parts[10], "the dilation", 1), _number(parts[11], "the bias"), _number(end[2] or "1", "the number of groups", 1), parts[-2], layout)


def key(c):
    """The key of a Convolution."""
    direction = next(letter for letter, op in _DIRECTIONS.items() if op == c.op)
    image, result = (c.c, *c.size), (c.k, *c.out)
    read, made = (image, result) if c.op == "conv2d" else (result, image)
    dtype = next(name for name, ours in _DTYPES.items() if ours == c.dtype)
    pairs = ("x".join(map(str, pair)) for pair in (c.padding, c.stride, c.dilation))
    parts = (*read, "x".join(map(str, c.kernel)), *made, c.n, *pairs, 0, *([c.layout] if c.layout == "NCHW" else [c.layout] * 3), dtype, direction)
    return "-".join(map(str, parts)) + (f"_g{c.groups}" if c.groups > 1 else "")


def _candidate(solver, c):
    if _TRANSFORMS.search(solver):
        raise ValueError(f"{solver} computes with a transform, which PyFlame takes from no library: its errors grow with the largest value")
    if solver not in _NUMBERS:
        raise ValueError(f"no solver of convolutions of images by this name is known here; got {solver[:80]!r}")
    return f"{ENTRY}:solution={_NUMBERS[solver]},{ORDERS[c.layout]}"


def _measured(identifier, values, c):
    """(solver, microseconds) of a value of a find-db."""
    fields = values.split(",")
    if identifier.startswith("miopen"):  # the older form
        if len(fields) < 3:
            raise ValueError(f"a solver without its time and workspace; got {values[:80]!r}")
        solver, algorithm, (time, workspace) = fields[0], identifier, fields[1:3]
    else:
        if len(fields) != 3:
            raise ValueError(f"not the values of a solver; got {values[:80]!r}; expected MILLISECONDS,WORKSPACE,ALGORITHM")
        solver, (time, workspace, algorithm) = identifier, fields
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?(e[+-]?[0-9]{1,2})?", time) or not 0 < float(time) < 1e9:
        raise ValueError(f"a time of {solver[:80]} that is no number of milliseconds above 0; got {time[:40]!r}")
    if not re.fullmatch("[0-9]{1,18}", workspace):
        raise ValueError(f"a workspace of {solver[:80]} that is no number of bytes; got {workspace[:40]!r}")
    if not algorithm.startswith(ALGORITHMS[c.op]):
        raise ValueError(f"an algorithm of {solver[:80]} for another direction; got {algorithm[:80]!r}; expected {ALGORITHMS[c.op]}…")
    return solver, 1000 * float(time), int(workspace)


class _Reader:
    """Collects (place, Convolution, candidate, microseconds, workspace), and what is left out with its place."""

    def __init__(self, path):
        self.path, self.found, self.left, self.seen = path, [], [], set()

    def full(self, place):
        if len(self.found) + len(self.left) < _MOST_ROWS:
            return False
        self.left.append(f"{self.path}:{place}: this row and what follows is not read; expected {_MOST_ROWS} solvers at most")
        return True

    def leave(self, place, why):
        self.left.append(f"{self.path}:{place}: {why}")

    def add(self, place, c, solver, us=None, workspace=None):
        candidate = _candidate(solver, c)
        if (c, candidate) in self.seen:
            raise ValueError(f"{solver} is named for this convolution a second time")
        self.seen.add((c, candidate))
        self.found.append((f"{self.path}:{place}", c, candidate, us, workspace))


def _record(into, place, line, has_times):
    key_of_line, equals, values = line.partition("=")
    entries = values.split(";")
    try:
        if not equals:
            raise ValueError(f"a line without a key; got {line[:80]!r}")
        c = parse(key_of_line)
        if len(entries) > _MOST_SOLVERS:
            raise ValueError(f"a row of {len(entries)} solvers; expected {_MOST_SOLVERS} at most")
    except ValueError as e:
        into.leave(place, e)
        return
    for entry in entries:
        identifier, colon, rest = entry.partition(":")
        try:
            if not colon:
                raise ValueError(f"a solver without values; got {entry[:80]!r}")
            into.add(place, c, *(_measured(identifier, rest, c) if has_times else (identifier,)))
        except ValueError as e:
            into.leave(place, e)


def read_text(path):
    """What a find-db or a perf-db as text holds: ([(place, Convolution, candidate, microseconds, bytes of workspace)], [what is left out, with its place])."""
    into, has_times = _Reader(path), not os.fspath(path).endswith((".udb.txt", ".db.txt"))
    with open(path, encoding="utf-8", errors="replace") as f:
        number = 0
        while line := f.readline(_MOST_LINE):
            number += 1
            if into.full(number):
                break
            if len(line) == _MOST_LINE and not line.endswith("\n"):
                into.leave(number, f"a line of more than {_MOST_LINE} characters")
                while len(line) == _MOST_LINE and not line.endswith("\n"):
                    line = f.readline(_MOST_LINE)
            elif line.strip():
                _record(into, number, line.rstrip("\r\n"), has_times)
    return into.found, into.left


_COLUMNS = ("spatial_dim", "in_channels", "in_h", "in_w", "fil_h", "fil_w", "out_channels", "batchsize", "pad_h", "pad_w", "conv_stride_h", "conv_stride_w", "dilation_h", "dilation_w",
            "bias", "group_count", "layout", "data_type", "direction")
_WORDS = ("layout", "data_type", "direction")
_STEPS, _MOST_TURNS = 100_000, 20_000


def _of_config(row):
    """The Convolution of a row of the table config, which has the size of the tensor that is read alone."""
    v = dict(zip(_COLUMNS, row))
    if wrong := next((name for name in _COLUMNS if not isinstance(v[name], str if name in _WORDS else int)), None):
        raise ValueError(f"the column {wrong} is not of its type")
    if v["spatial_dim"] != 2:
        raise ValueError("a convolution of volumes; expected one of images, which is what PyFlame gives MIOpen")
    if v["direction"] not in _DIRECTIONS:
        raise ValueError(f"no such direction; got {v['direction']!r}; expected F, B or W")
    op = _DIRECTIONS[v["direction"]]
    read, kernel, padding, stride, dilation = ((v[f"{name}_h"], v[f"{name}_w"]) for name in ("in", "fil", "pad", "conv_stride", "dilation"))
    if min(stride) < 1:
        raise ValueError(f"a stride that is not above 0; got {stride}")
    if op == "conv2d":
        made = [(s + 2 * p - d * (k - 1) - 1) // t + 1 for s, k, t, p, d in zip(read, kernel, stride, padding, dilation)]
    elif max(stride) > 1:
        raise ValueError(f"a gradient with a stride, of which the table does not tell the image's size; got {stride}")
    else:
        made = [s - 2 * p + d * (k - 1) for s, k, p, d in zip(read, kernel, padding, dilation)]
    return _checked(op, (v["in_channels"], *read), (v["out_channels"], *made), v["batchsize"], kernel, padding, stride, dilation, v["bias"], v["group_count"], v["data_type"], v["layout"])


def _limited(db):
    """Ends a query after so many steps of SQLite: a view in the file can count forever."""
    turns = iter(range(_MOST_TURNS))
    db.set_progress_handler(lambda: next(turns, None) is None, _STEPS)


def _column(name):
    """A column of the table config in a query: short, and of its type."""
    return f"substr(c.{name}, 1, 40)" if name in _WORDS else f"CASE typeof(c.{name}) WHEN 'integer' THEN c.{name} END"


def read_sqlite(path):
    """What a perf-db in SQLite holds, as read_text() returns it; there are no times."""
    into = _Reader(path)
    try:
        with contextlib.closing(sqlite3.connect(f"file:{urllib.parse.quote(os.path.abspath(path))}?mode=ro", uri=True)) as db:
            _limited(db)
            query = f"SELECT p.rowid, substr(p.solver, 1, 200), {', '.join(map(_column, _COLUMNS))} FROM perf_db p JOIN config c ON p.config = c.id"
            for row_id, solver, *row in db.execute(query):
                if into.full(row_id):
                    break
                try:
                    into.add(row_id, _of_config(row), str(solver))
                except ValueError as e:
                    into.leave(row_id, e)
    except sqlite3.Error as e:
        into.leave("database", f"this is no perf-db of MIOpen: {e}; expected its tables config and perf_db")
    return into.found, into.left
