"""Measurements as the files of other software: results of TunableOp, the override files of hipBLASLt and rocBLAS, aiter's table of tuned products, and MIOpen's find-db.

TunableOp: https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/cuda/tunable/README.md. hipBLASLt: UserDrivenTuningParser.cpp of its library. rocBLAS: the
programmer's guide on rocblas-gemm-tune, and https://github.com/ROCm/rocm-libraries/issues/9985 on the numbers in its file. aiter:
aiter/configs/bf16_tuned_gemm.csv. MIOpen: miopen.py."""
import os
import re
from dataclasses import dataclass

from . import miopen_export
from .database import operands, problems, rows

# The columns of hipBLASLt's override file that it reads, in its order.
OVERRIDE = ("transA", "transB", "batch_count", "m", "n", "k", "a_type", "b_type", "c_type", "compute_type", "solution_index")
# The columns of rocBLAS's override file (ROCBLAS_TENSILE_GEMM_OVERRIDE_PATH), as rocblas-gemm-tune writes it.
ROCBLAS_OVERRIDE = ("transA", "transB", "M", "N", "batch_count", "K", "alpha", "beta", "lda", "ldb", "ldc", "input_type", "output_type", "compute_type", "solution_index")
RESERVED = 10  # numbers that rocBLAS keeps for itself: its kernel -11 is the first one of Tensile, which is 1 in the file
HIPBLASLT, ROCBLAS = "gpu.blas", "rocm.rocblas"  # the entries whose configurations are numbered kernels
_OVERRIDE_TYPES = {"float32": "f32_r", "float64": "f64_r", "float16": "f16_r", "bfloat16": "bf16_r"}
_AITER = ("gfx", "cu_num", "M", "N", "K", "bias", "dtype", "outdtype", "scaleAB", "bpreshuffle", "libtype", "solidx", "splitK", "us", "kernelName", "err_ratio", "tflops", "bw")

_TYPES = {"float32": "float", "float64": "double", "float16": "Half", "bfloat16": "BFloat16"}


@dataclass
class Product:
    """C [batch, m, n] = A [batch, m, k] B [batch, k, n], by rows; transposed: the operand's columns are contiguous; ld: elements between rows (or columns)."""

    dtype: str
    batch: int
    m: int
    n: int
    k: int
    transposed: tuple
    ld: tuple


def product_of(problem):
    """The Product of the text of a problem; None if it is not a product alone."""
    if " | " in problem or not problem.startswith("matmul("):
        return None
    found = operands(problem)
    if len(found) != 3 or found[0][0] not in _TYPES:
        return None
    (dtype, a, a_strides), (_, _, b_strides), (_, c, _) = found
    transposed = (a_strides[-1] != 1, b_strides[-1] != 1)
    ld = (a_strides[-1] if transposed[0] else a_strides[-2], b_strides[-1] if transposed[1] else b_strides[-2])
    batch = 1
    for size in c[:-2]:
        batch *= size
    return Product(dtype, batch, c[-2], c[-1], a[-1], transposed, ld)


def tunableop_row(product, solution, us, library="Hipblaslt"):
    """A row of TunableOp's results. Its BLAS is column-major, so that B comes first and m and n change places."""
    letters = "".join("T" if t else "N" for t in reversed(product.transposed))
    batched = "StridedBatched" if product.batch > 1 else ""
    sizes = f"{letters.lower()}_{product.n}_{product.m}_{product.k}" + (f"_B_{product.batch}" if product.batch > 1 else "")
    lds = f"ld_{product.ld[1]}_{product.ld[0]}_{product.n}"
    return f"Gemm{batched}TunableOp_{_TYPES[product.dtype]}_{letters},{sizes}_{lds},Gemm_{library}_{solution},{us / 1000:.6g}"


def dense(p):
    """Whether no row (or column) of the operands is padded: some files cannot say distances."""
    return p.ld == ((p.m if p.transposed[0] else p.k), (p.k if p.transposed[1] else p.n))


def override_rows(product, solution):
    """The line of names and the line of values of hipBLASLt's override file. Its BLAS counts by columns, as TunableOp's does."""
    kind = _OVERRIDE_TYPES[product.dtype]
    second, first = ("T" if t else "N" for t in product.transposed)
    compute = "f64_r" if product.dtype == "float64" else "f32_r"
    values = (first, second, product.batch, product.n, product.m, product.k, kind, kind, kind, compute, solution)
    return [",".join(OVERRIDE), ",".join(map(str, values))]


def rocblas_row(product, solution):
    """A row of rocBLAS's override file. solution: as rocblas_gemm_ex_get_solutions numbers it, below -RESERVED where it is a kernel of Tensile, which the file counts from 1."""
    kind = _OVERRIDE_TYPES[product.dtype]
    second, first = ("T" if t else "N" for t in product.transposed)
    compute = "f64_r" if product.dtype == "float64" else "f32_r"
    values = (first, second, product.n, product.m, product.batch, product.k, 1, 0, product.ld[1], product.ld[0], product.n, kind, kind, compute, -int(solution) - RESERVED)
    return ",".join(map(str, values))


def aiter_row(product, solution, us, device):
    """A row of aiter's table, for out[M, N] = a[M, K] @ weight[N, K].T. device: (architecture, compute units). err_ratio, the part of the elements that are wrong, is 0: an unsound
    result is never the best one."""
    kind = f"torch.{product.dtype}"
    size = 4 if product.dtype == "float32" else 2
    flops, moved = 2 * product.m * product.n * product.k, size * (product.m * product.k + product.n * product.k + product.m * product.n)
    values = (*device, product.m, product.n, product.k, False, kind, kind, False, False, "hipblaslt", solution, 0, f"{us:.4f}", "", 0.0, f"{flops / us / 1e6:.2f}", f"{moved / us / 1e3:.2f}")
    return ",".join(map(str, values))


def _validators(path):
    """The lines by which TunableOp recognizes the environment: of a file that it wrote, or of the PyTorch that is installed. Empty if there are none."""
    if path:
        with open(path, encoding="utf-8") as f:
            return [line.strip() for line in f if line.startswith("Validator,")]
    try:
        import torch

        return [f"Validator,{key},{value}" for key, value in torch.cuda.tunable.get_validators()]
    except (ImportError, AttributeError, RuntimeError, AssertionError):
        return []


def _revision(path):
    """The first line of an override file that hipBLASLt wrote (HIPBLASLT_TUNING_FILE): it ignores the file of another revision. Empty if there is none."""
    if not path:
        return []
    with open(path, encoding="utf-8", errors="replace") as f:
        return [line.strip() for line in f if "Git Version: " in line][:1]


def _gpu():
    """(architecture, compute units) of the AMD GPU for aiter's table, or None."""
    from .. import _C

    if not _C.rocm_is_available():
        return None
    info = _C.rocm_get_device_info(0)
    return info["architecture"].split(":")[0], info["compute_units"]


def _tunableop_file(found, validators):
    head = _validators(validators)
    lines = [tunableop_row(p, solution, row.us, "Rocblas" if _library(row) == ROCBLAS else "Hipblaslt") for p, solution, row in found]
    return [*head, *lines], [] if head else ["the file has no Validator lines, without which PyTorch ignores it; hint: --validators FILE with a results file that this PyTorch wrote"], {}


def _override_file(found, validators):
    lines, left = _revision(validators), {}
    notes = [] if lines else ["the file has no line 'Git Version: …', without which hipBLASLt calls it one of another version; hint: --validators FILE with a file that this hipBLASLt wrote (HIPBLASLT_TUNING_FILE)"]
    for p, solution, row in found:
        if _library(row) != HIPBLASLT or int(solution) <= 0 or not dense(p):
            why = _OF_ROCBLAS if _library(row) != HIPBLASLT else "whose operands have padded rows" if int(solution) > 0 else "whose kernel has no number above 0, which hipBLASLt takes for none"
            left[why] = left.get(why, 0) + 1
            continue
        lines += override_rows(p, solution)
    return lines, notes, left


def _aiter_file(found, validators):
    gpu, lines, left = _gpu(), [",".join(_AITER)], {}
    notes = [] if gpu else ["no AMD GPU is here, so the columns gfx and cu_num are empty; hint: fill them in, because aiter looks for its own GPU"]
    for p, solution, row in found:
        why = (_OF_ROCBLAS if _library(row) != HIPBLASLT else "that are batched" if p.batch > 1 else "of float64" if p.dtype == "float64" else "that are not a @ weight.T with rows that are not padded"
               if p.transposed != (False, True) or not dense(p) else "")
        if why:
            left[why] = left.get(why, 0) + 1
            continue
        lines.append(aiter_row(p, solution, row.us, gpu or ("", "")))
    return lines, notes, left


def _rocblas_file(found, validators):
    lines, left = [",".join(ROCBLAS_OVERRIDE)], {}
    for p, solution, row in found:
        why = "whose fastest kernel is one of hipBLASLt" if _library(row) != ROCBLAS or int(solution) > 0 else "whose kernel is none of Tensile, which the file cannot name" if int(solution) >= -RESERVED else ""
        if why:
            left[why] = left.get(why, 0) + 1
            continue
        lines.append(rocblas_row(p, solution))
    return lines, [], left


_OF_ROCBLAS = "whose fastest kernel is one of rocBLAS"


def _library(row):
    return row.entry.partition(":")[0]


_PRODUCTS = {"tunableop": _tunableop_file, "hipblaslt": _override_file, "rocblas": _rocblas_file, "aiter": _aiter_file}


KINDS = (*_PRODUCTS, "miopen")


def _products():
    """([(Product, number of its kernel, measurement)], {why others cannot be written: how many}) of what was measured."""
    found, left = [], {}
    for t in problems():
        product, solution = product_of(t.problem), re.search(r":solution=(-?\d+)$", t.best.entry)
        if t.op != "matmul":
            continue
        if product is None or solution is None:
            why = "with other ops fused to them" if product is None else "whose fastest entry is no numbered kernel of hipBLASLt or rocBLAS"
            left[why] = left.get(why, 0) + 1
            continue
        found.append((product, solution[1], t.best))
    return found, left


def _file(kind, validators):
    """(lines, what they are of, their number, notes, {why others are left out: how many})."""
    if kind == "miopen":
        lines, left = miopen_export.lines(rows())
        return lines, "convolutions", len(lines), miopen_export.NOTES if lines else (), left
    found, left = _products()
    lines, notes, cannot = _PRODUCTS[kind](found, validators)
    return lines, "products", len(found) - sum(cannot.values()), notes, left | cannot


def wrong(spec, validators):
    """Why --export and --validators cannot be followed, before anything is measured; None: they can."""
    kind, _, path = spec.partition("=")
    if kind not in KINDS or not path:
        return f"no such export; got {spec!r}; expected {', '.join(k + '=FILE' for k in KINDS)}"
    if validators and not os.path.isfile(validators):
        return f"the file of --validators does not exist; got {validators!r}; expected a file with lines about versions"
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(folder) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
        return f"the file of --export cannot be written; got {path!r}; expected a file in a folder that exists and can be written"
    return None


def write(spec, validators, say):
    """Writes KIND=FILE, of which nothing is wrong(). Returns an exit code."""
    kind, _, path = spec.partition("=")
    lines, what, count, notes, left = _file(kind, validators)
    try:
        with open(path, "w", encoding="utf-8") as f:
            f.writelines(line + "\n" for line in lines)
    except OSError as e:  # a full disk
        say(f"the file of --export cannot be written: {e.strerror}; got {path!r}")
        return 1
    say(f"{count} {what} are in {path}")
    for why, number in left.items():
        say(f"{number} {what} are not: those {why}")
    for note in notes:
        say(note)
    return 0
