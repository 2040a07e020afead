"""Measurements of other software as suggestions. What a file says is tried first, and counts only after it computed the right result and was timed here.

Formats: results of TunableOp (PyTorch), the override files of hipBLASLt (HIPBLASLT_TUNING_OVERRIDE_FILE) and rocBLAS (ROCBLAS_TENSILE_GEMM_OVERRIDE_PATH), the tables
of aiter (*_tuned_gemm.csv), and MIOpen's find-db and perf-db (miopen.py)."""
import csv
from dataclasses import dataclass, replace

from ..benchmarking import gemms
from . import convolutions, exchange, miopen

_AITER = {"torch.bfloat16": "bfloat16", "torch.float16": "float16", "torch.float32": "float32"}


@dataclass
class Suggestion:
    """A candidate that a file names. line: its place, as FILE:NUMBER. problem: a product (Gemm) or a Convolution. us, workspace: the microseconds and bytes that the file says, or None."""

    line: str
    problem: object
    candidate: str
    us: float = None
    workspace: int = None


def _solution(number, library=exchange.HIPBLASLT):
    if not number.lstrip("-").isdigit():
        raise ValueError(f"the number of a solution is no whole number; got {number!r}")
    return f"{library}:solution={number}"


def _dense(gemm):
    """The distances between rows (or columns) of both operands where nothing is padded."""
    return (gemm.m if gemm.layout[0] == "T" else gemm.k), (gemm.k if gemm.layout[1] == "T" else gemm.n)


def _tunableop(fields):
    gemm = gemms.parse(",".join(fields[:2]))
    sizes = fields[1].split("_")
    if "ld" in sizes:
        second, first, _ = map(int, sizes[sizes.index("ld") + 1:sizes.index("ld") + 4])
        if (first, second) != _dense(gemm):
            raise ValueError(f"a product of matrices with padded rows; got leading dimensions {first} and {second}; expected {' and '.join(map(str, _dense(gemm)))}")
    if len(fields) < 3:
        raise ValueError("a row without a solution; hint: pyflame tune --problems FILE tunes a list of products")
    name = fields[2]
    library = next((entry for prefix, entry in (("Gemm_Hipblaslt_", exchange.HIPBLASLT), ("Gemm_Rocblas_", exchange.ROCBLAS)) if name.startswith(prefix)), None)
    if library is None:
        what = "the library's own choice, which is measured in any case" if name == "Default" else f"{name} is no kernel of hipBLASLt or rocBLAS, which are the libraries that PyFlame calls"
        raise ValueError(what)
    return gemm, _solution(name.rsplit("_", 1)[1], library)


def _rocblas(row):
    """A row of rocBLAS's override file. Its numbers are those of Tensile, from 1; rocblas_gemm_ex_get_solutions has them below -RESERVED."""
    if row["input_type"] != row["output_type"]:
        raise ValueError(f"operands of two dtypes; got {row['input_type']} and {row['output_type']}; expected one")
    if float(row["alpha"]) != 1 or float(row["beta"]) != 0:
        raise ValueError(f"a product with factors; got alpha {row['alpha']} and beta {row['beta']}; expected 1 and 0")
    gemm = gemms._from_blas(row["M"], row["N"], row["K"], row["input_type"], row["transA"], row["transB"], row["batch_count"])
    if (int(row["ldb"]), int(row["lda"])) != _dense(gemm):
        raise ValueError(f"a product of matrices with padded rows; got leading dimensions {row['ldb']} and {row['lda']}; expected {' and '.join(map(str, _dense(gemm)))}")
    if not row["solution_index"].isdigit() or row["solution_index"] == "0":
        raise ValueError(f"the number of a solution is no whole number from 1 upwards; got {row['solution_index']!r}")
    return gemm, _solution(str(-int(row["solution_index"]) - exchange.RESERVED), exchange.ROCBLAS)


def _override(row):
    """A row by the names of hipBLASLt's columns. Its files have a line of names before each row, with columns in between that do not matter here."""
    if row["a_type"] != row["b_type"]:
        raise ValueError(f"operands of two dtypes; got {row['a_type']} and {row['b_type']}; expected one")
    return gemms._from_blas(row["m"], row["n"], row["k"], row["a_type"], row["transA"], row["transB"], row["batch_count"]), _solution(row["solution_index"])


def _aiter(row):
    if row["libtype"] != "hipblaslt":
        raise ValueError(f"a kernel of {row['libtype']}; expected one of hipblaslt, which is the library that PyFlame calls")
    if row["bias"] == "True" or row["scaleAB"] == "True" or row.get("bpreshuffle") == "True":
        raise ValueError("a product with a bias, scales or shuffled weights; expected a product alone")
    if row["dtype"] not in _AITER or row["outdtype"] != row["dtype"]:
        raise ValueError(f"dtypes that are not taken over; got {row['dtype']} and {row['outdtype']}; expected one of {', '.join(_AITER)} for both")
    # out[M, N] = a[M, K] @ weight[N, K].T
    return gemms.Gemm(int(row["M"]), int(row["N"]), int(row["K"]), _AITER[row["dtype"]], "NT"), _solution(row["solidx"])


def _row(fields, head):
    if head is not None:
        return (_aiter if "libtype" in head else _rocblas if "input_type" in head else _override)(dict(zip(head, fields)))
    if "TunableOp_" in fields[0]:
        return _tunableop(fields)
    if len(fields) >= 11 and fields[0] in ("N", "T") and fields[1] in ("N", "T"):
        return _override(dict(zip(exchange.OVERRIDE, fields)))
    raise ValueError(f"not a row that is understood; got {','.join(fields)[:80]!r}; expected results of TunableOp, the overrides of hipBLASLt or rocBLAS, or aiter's table")


def read(path):
    """([Suggestion], [what cannot be taken over, with its line]) of a file."""
    reader = miopen.reader_of(path)
    if reader is None:
        return _read_table(path)
    found, left = reader(path)
    return [Suggestion(*row) for row in found], left


def _read_table(path):
    """What read() returns, of a file with a product in each row."""
    found, left, head, seen = [], [], None, {}
    with open(path, encoding="utf-8", errors="replace", newline="") as f:
        for number, fields in enumerate(csv.reader(f), 1):
            fields = [x.strip() for x in fields]
            if not any(fields) or fields[0].startswith("#") or fields[0] == "Validator" or (number == 1 and len(fields) == 1):
                continue  # hipBLASLt's file begins with its version
            if {"libtype", "solidx", "M", "N", "K"} <= set(fields) or {"transA", "transB", "m", "n", "k"} <= set(fields) or {"transA", "transB", "M", "N", "K", "input_type"} <= set(fields):
                head = fields
                continue
            line = f"{path}:{number}"
            try:
                gemm, candidate = _row(fields, head)
            except (ValueError, KeyError, IndexError) as e:
                left.append(f"{line}: {f'a column is missing: {e}' if isinstance(e, KeyError) else e}")
                continue
            if gemm in seen and seen[gemm] != candidate:
                left.append(f"{line}: another row names {seen[gemm]} for the same product; both are measured")
            seen[gemm] = candidate
            found.append(Suggestion(line, gemm, candidate))
    return found, left


def _problems_of(row):
    """The product, or the Convolution in each layout that its operands have, of a measurement of one alone."""
    if row.op == "matmul":
        p = exchange.product_of(row.problem)
        return [gemms.Gemm(p.m, p.n, p.k, p.dtype, "".join("NT"[t] for t in p.transposed), p.batch)] if p else []
    p = convolutions.problem_of(row.problem)
    return [replace(p.convolution, layout=layout) for layout in p.given] if p and row.op == p.convolution.op else []


def by_problem(rows):
    """{product or Convolution: its rows of the tuning database}."""
    found = {}
    for row in rows:
        for problem in _problems_of(row):
            found.setdefault(problem, []).append(row)
    return found


def outcome(suggestion, known):
    """What became of a suggestion: (word, sentence). Words: fastest, slower, unsound, unknown. known: what by_problem() returns."""
    mine = known.get(suggestion.problem, [])
    row = next((r for r in mine if r.entry == suggestion.candidate), None)
    if row is None:
        return "unknown", "it was not measured: another implementation computes this here, or the budget ended"
    if not row.sound:
        return "unsound", f"refused: {row.note}"
    best = min((r for r in mine if r.sound), key=lambda r: r.us)
    if best.entry == row.entry:
        return "fastest", f"{row.us:.1f} us, the fastest"
    return "slower", f"{row.us:.1f} us; {best.entry} takes {best.us:.1f} us"


def report(paths, rows):
    """The text that says what became of each row of the files."""
    lines, counts, known = [], {}, by_problem(rows)
    for path in paths:
        found, left = read(path)
        for s in found:
            word, sentence = outcome(s, known)
            counts[word] = counts.get(word, 0) + 1
            lines.append(f"{s.line}: {s.problem}, {s.candidate.partition(':')[2]}: {sentence}")
        lines += left
        counts["left out"] = counts.get("left out", 0) + len(left)
    return "\n".join([*lines, "rows: " + ", ".join(f"{n} {word}" for word, n in counts.items() if n)])
