"""Measurements as the files of other software. TunableOp: https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/cuda/tunable/README.md"""
import re
from dataclasses import dataclass

from .database import problems

_OPERAND = re.compile(r"(\w+)\(([\d, ]*)\)(?: strides \(([\d, ]*)\))?")
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


def _numbers(text):
    return [int(x) for x in text.split(",") if x.strip()]


def _side(match):
    shape = _numbers(match[2])
    strides = _numbers(match[3]) if match[3] else [1] * len(shape)
    if not match[3]:
        for d in range(len(shape) - 2, -1, -1):
            strides[d] = strides[d + 1] * shape[d + 1]
    return shape, strides


def product_of(problem):
    """The Product of the text of a problem; None if it is not a product alone."""
    if " | " in problem or not problem.startswith("matmul("):
        return None
    operands = list(_OPERAND.finditer(problem[len("matmul("):]))
    if len(operands) != 3 or operands[0][1] not in _TYPES:
        return None
    (a, a_strides), (b, b_strides), (c, _) = map(_side, operands)
    transposed = (a_strides[-1] != 1, b_strides[-1] != 1)
    ld = (a_strides[-1] if transposed[0] else a_strides[-2], b_strides[-1] if transposed[1] else b_strides[-2])
    batch = 1
    for size in c[:-2]:
        batch *= size
    return Product(operands[0][1], batch, c[-2], c[-1], a[-1], transposed, ld)


def tunableop_row(product, solution, us):
    """A row of TunableOp's results. Its BLAS is column-major, so that B comes first and m and n change places."""
    letters = "".join("T" if t else "N" for t in reversed(product.transposed))
    batched = "StridedBatched" if product.batch > 1 else ""
    sizes = f"{letters.lower()}_{product.n}_{product.m}_{product.k}" + (f"_B_{product.batch}" if product.batch > 1 else "")
    lds = f"ld_{product.ld[1]}_{product.ld[0]}_{product.n}"
    return f"Gemm{batched}TunableOp_{_TYPES[product.dtype]}_{letters},{sizes}_{lds},Gemm_Hipblaslt_{solution},{us / 1000:.6g}"


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


def write(spec, validators, say):
    """Writes tunableop=FILE. Returns an exit code."""
    kind, _, path = spec.partition("=")
    if kind != "tunableop" or not path:
        say(f"no such export; got {spec!r}; expected tunableop=FILE")
        return 1
    lines, left = [], {}
    for t in problems():
        product, solution = product_of(t.problem), re.search(r":solution=(-?\d+)$", t.best.entry)
        if t.op != "matmul":
            continue
        if product is None or solution is None:
            why = "with other ops fused to them" if product is None else "whose fastest entry is no numbered kernel of hipBLASLt"
            left[why] = left.get(why, 0) + 1
            continue
        lines.append(tunableop_row(product, solution[1], t.best.us))
    head = _validators(validators)
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(line + "\n" for line in head + lines)
    say(f"{len(lines)} products are in {path}")
    for why, count in left.items():
        say(f"{count} products are not: those {why}")
    if not head:
        say("the file has no Validator lines, without which PyTorch ignores it; hint: --validators FILE with a results file that this PyTorch wrote")
    return 0
