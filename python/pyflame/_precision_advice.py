"""Which dtype to compute in on which device, from the rates of the data sheets (src/pyflame/base/gpu_arch.cpp)."""
import dataclasses

from . import _C

_WORTH_IT = 1.5  # times the rate of float32 from which a narrower dtype is worth its range and its rounding
_FLOAT8 = {"ocp": (_C.float8_e4m3fn, _C.float8_e5m2), "fnuz": (_C.float8_e4m3fnuz, _C.float8_e5m2fnuz)}


@dataclasses.dataclass(frozen=True)
class PrecisionAdvice:
    """What amp.advise says. device: its name. training, inference: dtypes. float8: the two dtypes of 8-bit floats that its matrix cores multiply, or None.
    rates: TFLOP/s by dtype's name, of the data sheet, without sparsity. reasons: sentences. str() of it is a text to read."""

    device: str
    training: object
    inference: object
    float8: object
    rates: dict
    reasons: tuple

    def __str__(self):
        lines = [self.device, *(f"  {name:10} {rate:8.1f} TFLOP/s" for name, rate in self.rates.items()), f"  train in {self.training}, run in {self.inference}"]
        return "\n".join(lines + [f"  - {reason}" for reason in self.reasons])


def _of_cpu():
    reasons = ("A CPU computes in float32 here. 16-bit tensors halve the memory, and are converted for every op.",
               "Language models decode at the speed of memory: GGUF weights of 4 or 8 bits stay packed (pf.llm.load), which is faster than any float dtype.")
    return PrecisionAdvice("cpu", _C.float32, _C.float32, None, {}, reasons)


def _of_architecture(name):
    """The first GPU of the table with this architecture, such as gfx942 or sm_90; None where there is none."""
    wanted = name.strip().lower().partition(":")[0]  # features stand behind a colon: gfx942:sramecc+:xnack-
    return next((p for p in _C._gpu_products() if p["architecture"] == wanted), None)


def _product(device):
    from .memory import _cards

    name = str(device)
    if name.partition(":")[0] not in ("rocm", "cuda"):
        return _of_architecture(name) or _cards.find(name, "advise", "an architecture such as gfx942, or a device such as cpu or rocm:0")
    info = _C.device_info(name)
    here = [p for p in _C._gpu_products() if p["architecture"] == info["architecture"].partition(":")[0]]
    exact = [p for p in here if p["name"] in info["name"] or info["name"] in p["name"]]
    if not here:
        raise ValueError(f"advise: the table has no GPU of this architecture; got {info['name']} ({info['architecture']}); expected one of docs/doctor.md's table")
    return (exact or here)[0]


def _half(product, rates):
    """(dtype for 16-bit training, reasons); None where no 16-bit dtype is worth it."""
    f32, f16, bf16 = rates["float32"], rates.get("float16", 0), rates.get("bfloat16", 0)
    if bf16 >= _WORTH_IT * f32:
        reasons = [f"bfloat16 multiplies at {bf16 / f32:.1f} times the rate of float32 and has its range, so that no GradScaler is needed: pf.autocast(dtype=pf.bfloat16)."]
        if f16 > _WORTH_IT * bf16:
            reasons.append(f"float16 is {f16 / bf16:.1f} times as fast as bfloat16 on this GPU; its largest number is 65504, so train with pf.amp.GradScaler.")
        return _C.bfloat16, reasons
    if f16 >= _WORTH_IT * f32:
        return _C.float16, [f"float16 multiplies at {f16 / f32:.1f} times the rate of float32; its largest number is 65504, so train with pf.amp.GradScaler.", "There is no fast bfloat16 on this GPU."]
    return None, ["No 16-bit dtype multiplies much faster than float32 here; it halves the memory only."]


def advise(device=None):
    """amp.advise."""
    device = str(device if device is not None else _C.get_device())
    if device.partition(":")[0] in ("cpu", "null", "reference"):
        return _of_cpu()
    product = _product(device)
    rates = {name: rate for name, rate in product["tflops"].items() if rate}
    if "float32" not in rates:
        return PrecisionAdvice(product["name"], _C.float32, _C.float32, _FLOAT8.get(product["float8"]), {}, ("The rates of this GPU are not known; measure them: pyflame bench gemm.",))
    half, reasons = _half(product, rates)
    float8 = _FLOAT8.get(product["float8"]) if rates.get("float8") else None
    if float8:
        family = "fnuz formats of AMD's MI300, not the OCP's" if product["float8"] == "fnuz" else "OCP's formats"
        reasons.append(f"{float8[0].name} multiplies at {rates['float8'] / rates.get('bfloat16', rates['float32']):.1f} times the rate of bfloat16 ({family}): pf.float8.convert_to_float8_training for large linear layers.")
    else:
        reasons.append("The matrix cores take no 8-bit floats: scaled_mm decodes them first, which saves memory and no time." if product["matrix_cores"] != "none" else "There are no matrix cores.")
    if rates.get("float64", 0) and rates["float64"] < rates["float32"] / 8:
        reasons.append(f"float64 has {rates['float32'] / rates['float64']:.0f} times less arithmetic than float32.")
    reasons.append("Language models decode at the speed of memory: GGUF weights of 4 or 8 bits stay packed (pf.llm.load).")
    return PrecisionAdvice(product["name"], half or _C.float32, half or _C.float32, float8, rates, tuple(reasons))
