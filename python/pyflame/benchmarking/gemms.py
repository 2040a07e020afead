"""Lists of matrix products in the forms in which tools write them."""
import re
from dataclasses import dataclass

DTYPES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "float": "float32", "double": "float64", "half": "float16", "float32": "float32", "float64": "float64",
          "float16": "float16", "bfloat16": "bfloat16", "i8": "int8", "int8": "int8", "fp8": "float8_e4m3fn", "f8": "float8_e4m3fn", "bf8": "float8_e5m2",
          "f8_fnuz": "float8_e4m3fnuz", "bf8_fnuz": "float8_e5m2fnuz", "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2",
          "float8_e4m3fnuz": "float8_e4m3fnuz", "float8_e5m2fnuz": "float8_e5m2fnuz"}
_TUNABLE = re.compile(r"^Gemm(?:AndBias|StridedBatched)?TunableOp_(\w+?)_([NT])([NT])$")
_PARAMETERS = re.compile(r"^[nt]{2}_(\d+)_(\d+)_(\d+)(?:_B_(\d+))?(?:_ld_.*)?$")


@dataclass(frozen=True)
class Gemm:
    """[batch of] out[m, n] = a[m, k] @ b[k, n], by rows. layout: two letters, T where an operand lies transposed in memory."""

    m: int
    n: int
    k: int
    dtype: str = "bfloat16"
    layout: str = "NN"
    batch: int = 1

    def __str__(self):
        return f"gemm {self.batch}x{self.m}x{self.n}x{self.k} {self.dtype} {self.layout}" if self.batch > 1 else f"gemm {self.m}x{self.n}x{self.k} {self.dtype} {self.layout}"

    @property
    def flops(self):
        return 2 * self.batch * self.m * self.n * self.k


def _dtype(word):
    name = DTYPES.get(word.strip().lower().removesuffix("_r"))
    if name is None:
        raise ValueError(f"a dtype that products are not measured for; got {word.strip()!r}; expected one of {', '.join(sorted(set(DTYPES.values())))}")
    return name


def _from_blas(m, n, k, dtype, first, second, batch):
    """BLAS counts by columns: its C[m, n] is our out[n, m], so that the operands change places, each with its own transposition."""
    return Gemm(int(n), int(m), int(k), _dtype(dtype), second.upper() + first.upper(), int(batch or 1))


def _bench_line(text):
    """A command of hipblaslt-bench or rocblas-bench."""
    words = dict(re.findall(r"(?:^|\s)--?([A-Za-z_]+)[ =](\S+)", text))
    need = {key: words.get(key) for key in ("m", "n", "k", "a_type")}
    if missing := [key for key, value in need.items() if value is None]:
        raise ValueError(f"a command without {', '.join('--' + key if len(key) > 1 else '-' + key for key in missing)}")
    return _from_blas(need["m"], need["n"], need["k"], need["a_type"], words.get("transA") or words.get("transposeA") or "N", words.get("transB") or words.get("transposeB") or "N",
                      words.get("batch_count"))


def _yaml_line(text):
    """An entry of rocBLAS's or hipBLASLt's YAML lists: - { rocblas_function: ..., M: 1, ... }"""
    words = {key.lower(): value for key, value in re.findall(r"([A-Za-z_]+)\s*:\s*\"?([^,\"}\s]+)", text)}
    try:
        return _from_blas(words["m"], words["n"], words["k"], words["a_type"], words.get("transa", "N"), words.get("transb", "N"), words.get("batch_count"))
    except KeyError as missing:
        raise ValueError(f"an entry without {missing}") from None


def _tunable_row(fields):
    """A row of TunableOp: GemmTunableOp_float_NT,nt_M_N_K or nt_M_N_K_ld_.., and what follows."""
    operation, sizes = _TUNABLE.match(fields[0]), _PARAMETERS.match(fields[1])
    if not operation or not sizes:
        raise ValueError(f"a row of TunableOp that is not understood; got {','.join(fields[:2])}")
    m, n, k, batch = sizes.groups()
    return _from_blas(m, n, k, operation.group(1), operation.group(2), operation.group(3), batch)


def parse(text):
    """A Gemm from one line: M,N,K[,dtype[,layout]] by rows, a command of hipblaslt-bench or rocblas-bench, an entry of their YAML lists, or a row of TunableOp's
    CSV. None for lines that hold no problem (empty, comments, validators). ValueError with what is wrong."""
    text = text.strip()
    if not text or text.startswith(("#", "Validator,")):
        return None
    if "-bench" in text:
        return _bench_line(text)
    if text.startswith(("-", "{")):
        return _yaml_line(text)
    fields = [f.strip() for f in re.split(r"[,x]" if re.match(r"^\d+x\d+x\d+", text) else ",", text)]
    if "TunableOp_" in fields[0] and len(fields) >= 2:
        return _tunable_row(fields)
    if len(fields) < 3 or not all(re.fullmatch(r"[1-9]\d*", f) for f in fields[:3]):
        raise ValueError(f"not a product; got {text[:80]!r}; expected M,N,K[,dtype[,layout]], a line of hipblaslt-bench or rocblas-bench, or a row of TunableOp's CSV")
    layout = fields[4].upper() if len(fields) > 4 else "NN"
    if not re.fullmatch("[NT]{2}", layout):
        raise ValueError(f"no such layout; got {layout!r}; expected NN, NT, TN or TT")
    return Gemm(*map(int, fields[:3]), _dtype(fields[3]) if len(fields) > 3 else "bfloat16", layout)


def read(path):
    """([Gemm], [what was not understood, with its line]) of a file. A problem that occurs again is left out."""
    found, refused = [], []
    with open(path, encoding="utf-8", errors="replace") as f:
        for number, line in enumerate(f, 1):
            try:
                gemm = parse(line)
            except ValueError as e:
                refused.append(f"{path}:{number}: {e}")
                continue
            if gemm is not None and gemm not in found:
                found.append(gemm)
    return found, refused
