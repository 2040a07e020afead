"""docs/amd-model.md: what each kernel would take on an MI300X and an RX 7900 XTX if nothing but the GPU's peaks limited it. With --check:
fails when the page is not what would be written.

It is arithmetic, not a measurement: bytes and operations of the benchmarks' sizes against the peaks that `pyflame occupancy --list` has,
and the registers and occupancy of the code objects that tests/kernels/budgets.json holds. No AMD GPU has a part in it.
"""
import argparse
import json
import math
import pathlib
import sys

import kernel_code

PAGE = kernel_code.ROOT / "docs" / "amd-model.md"
GPUS = (("gfx942", "AMD Instinct MI300X"), ("gfx1100", "AMD Radeon RX 7900 XTX"))
RATE = {"float32": "fp32_tflops", "bfloat16": "bf16_tflops"}
SIZE = {"float32": 4, "bfloat16": 2}
Mi = 1 << 20


class Work:
    """One launch of a kernel: what it must read and write, and the operations it must do."""

    def __init__(self, title, kernel, dtype, moved, flops):
        self.title, self.kernel, self.dtype, self.moved, self.flops = title, f"{kernel}_{dtype}", dtype, moved, flops


def stream(title, kernel, dtype, reads, writes, flops):
    """`reads` and `writes`: elements for each of 64 Mi."""
    return Work(title, kernel, dtype, 64 * Mi * SIZE[dtype] * (reads + writes), 64 * Mi * flops)


def product(title, kernel, dtype, m, n, k):
    return Work(f"{title} {m} × {n} × {k}", kernel, dtype, SIZE[dtype] * (m * k + k * n + m * n), 2 * m * n * k)


def convolution(title, kernel, n, c, out, size, window, stride=1):
    """float32; `size`: height and width of the input."""
    there = size // stride
    return Work(f"{title} {n} × {c} × {size}², {out} filters {window}²", kernel, "float32", 4 * (n * c * size**2 + out * c * window**2 + n * out * there**2),
                2 * n * out * there**2 * c * window**2)


def attention(what, kernel, head, products, tensors):
    """bfloat16, causal: half of the scores; `tensors`: of the size of the queries, read and written."""
    batch, heads, length = 8, 16, 4096
    return Work(f"causal attention {what}, {batch} × {heads} × {length} × {head}", f"{kernel}_{head}", "bfloat16", tensors * 2 * batch * heads * length * head,
                products * 2 * batch * heads * length**2 * head // 2)


def works():
    for dtype in ("float32", "bfloat16"):
        yield stream("gelu(x·w + b) + r, 64 Mi", "loop_chain", dtype, 2, 1, 30)
    yield stream("x − mean(x), 64 Mi, rows of 1024", "loop_centred_group", "float32", 1, 1, 2)
    yield stream("softmax, 64 Mi, rows of 1024", "softmax_group", "float32", 1, 1, 20)
    yield stream("copy, 64 Mi", "loop_copy", "float32", 1, 1, 0)
    for m, n, k in ((32, 256, 784), (32, 128, 256), (64, 128, 64)):
        yield product("linear of a small MLP", "matmul_small", "float32", m, n, k)
    for n in (4096, 8192):
        yield product("matmul", "matmul_units_large", "bfloat16", n, n, n)
    for title, n, k in (("attention in", 2304, 768), ("attention out", 768, 768), ("MLP in", 3072, 768), ("MLP out", 768, 3072), ("vocabulary", 50304, 768)):
        yield product(f"GPT-2, {title}", "matmul_units_large", "bfloat16", 16384, n, k)
    for head in (64, 128):
        yield attention("forward", "attention_forward", head, 2, 4)
        yield attention("backward, keys and values", "attention_keys_grad", head, 4, 7)
        yield attention("backward, queries", "attention_queries_grad", head, 3, 6)
    for c, out, size, window in ((64, 64, 56, 3), (256, 64, 56, 1), (128, 128, 28, 3), (256, 256, 14, 3), (512, 512, 7, 3)):
        yield convolution("ResNet-50", "conv_large", 64, c, out, size, window)


class Decoder:
    """A Llama whose steps write one token for one text. `bits`: of a weight, scales included."""

    def __init__(self, title, bits, context, layers=32, hidden=4096, keys=1024, inner=14336, vocabulary=128256, published=None):
        self.title, self.published = title, published or {}
        weights = layers * (2 * hidden * hidden + 2 * hidden * keys + 3 * hidden * inner) + vocabulary * hidden
        self.moved = weights * bits / 8 + 2 * 2 * layers * keys * context  # keys and values have 16 bits


SEVEN = {"keys": 4096, "inner": 11008, "vocabulary": 32000}
DECODERS = (
    Decoder("8 billion, bfloat16", 16, 550),
    Decoder("8 billion, Q8_0", 8.5, 550),
    Decoder("8 billion, Q4_K_M", 4.89, 64, published={"gfx1100": "106 (llama.cpp, pull request 26284)"}),
    Decoder("7 billion, Q4_0", 4.5, 64, **SEVEN, published={"gfx1100": "129 to 144 with HIP, 167 to 177 with Vulkan (llama.cpp, issue 20934)"}),
)
# The part of the peak that kernels reach which only read. MI300X: arXiv 2510.27583. RX 7900 XTX: assumed. H200: 4.3 of 4.8 TB/s.
REACHED = {"gfx942": 0.81, "gfx1100": 0.85}
MEASURED, MEASURED_BANDWIDTH = kernel_code.ROOT / "benchmarks" / "results" / "nvidia-h200" / "llm_decode_8b.json", 4.3e12


def writing(peaks):
    """The section with predicted tokens per second."""
    row = next(r for r in json.loads(MEASURED.read_text())["rows"] if r["program"] == "pyflame" and r["sequences"] == 1)
    rest = row["ms"] * 1e-3 - DECODERS[0].moved / MEASURED_BANDWIDTH
    lines = ["", "## Writing text: a prediction", "",
             "A step of a language model that writes one token for one text reads all weights and the text's keys and values once. The table predicts tokens per",
             "second by `1 / (bytes / bandwidth + rest)`. The bandwidth is " + " and ".join(f"{REACHED[gfx]:.0%} of the peak of the {name.removeprefix('AMD ')}" for gfx, name in GPUS) + ": the first was",
             "published (arXiv 2510.27583), the second is assumed. The rest is what small kernels and the gaps between kernels take. It was measured on an H200",
             f"([file](../{MEASURED.relative_to(kernel_code.ROOT)})): a step of {row['ms']:.2f} ms, of which {DECODERS[0].moved / MEASURED_BANDWIDTH * 1e3:.2f} ms would read the bytes at 4.3 TB/s, so the rest is {rest * 1e3:.2f} ms.",
             "**No part of this was measured on an AMD GPU**, and a kernel that is limited by arithmetic, as unpacking 4-bit weights may be, is slower.", "",
             "| Llama of | bytes of a step | " + " | ".join(f"{name.removeprefix('AMD ')}: at the peak | predicted | published" for _, name in GPUS) + " |", "|---|--:|" + "--:|--:|---|" * len(GPUS)]
    for d in DECODERS:
        cells = [d.title, quantity(d.moved, "B")]
        for gfx, _ in GPUS:
            peak = peaks[gfx]["bandwidth_gbs"] * 1e9
            cells += [f"{peak / d.moved:,.0f}", f"{1 / (d.moved / (REACHED[gfx] * peak) + rest):,.0f}", d.published.get(gfx, "none found")]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, "", "For the MI300X, published figures are of many texts at a time, or of larger models on eight GPUs: AMD's page of vLLM has 131 tokens per second for one",
            "text of Llama-3.1-70B in 8-bit floats on eight MI300X, which is 22 % of what their memory allows."]


def quantity(x, unit, base=1000):
    steps = ("", "k", "M", "G", "T") if base == 1000 else ("", "Ki", "Mi", "Gi", "Ti")
    step = min(int(math.log(x, base)), len(steps) - 1) if x >= 1 else 0
    return "0" if x == 0 else f"{x / base**step:.3g} {steps[step]}{unit}"


def microseconds(seconds):
    return f"{seconds * 1e6:,.0f}" if seconds >= 1e-4 else f"{seconds * 1e6:.3g}"


def row(work, budgets, peaks):
    cells = [work.title, f"`{work.kernel}`", quantity(work.moved, "B", 1024), quantity(work.flops, "FLOP")]
    for gfx, _ in GPUS:
        budget, peak = budgets[work.kernel][gfx], peaks[gfx]
        # Products of half types are counted at the matrix units' rate only where the code has their instructions.
        rate = peak[RATE[work.dtype]] if budget["matrix"] or work.dtype == "float32" else peak["fp32_tflops"]
        memory, compute = work.moved / peak["bandwidth_gbs"] * 1e-9, work.flops / rate * 1e-12
        cells += [f"{budget['vgpr']}", f"{budget['waves_per_simd']}", microseconds(max(memory, compute)), "memory" if memory >= compute else "arithmetic"]
    return "| " + " | ".join(cells) + " |"


def page(budgets, peaks, compiler):
    every = list(works())
    absent = sorted({w.kernel for w in every if w.kernel not in budgets})
    if absent:
        raise SystemExit(f"gen_amd_model: no budget for {', '.join(absent)}; `make kernel-budgets` first, or fix the list of works")
    names = [name for _, name in GPUS]
    lines = ["<!-- Generated by tools/gen_amd_model.py from tests/kernels/budgets.json and the table of architectures. -->",
             "# A model of the kernels on AMD GPUs", "",
             "**This is a model, not a measurement.** Nothing here ran on an AMD GPU. The table has, for each kernel at the sizes of the benchmarks: the",
             "bytes that it must move, the operations that it must do, the registers and the occupancy of its code object, and the shortest time that",
             "the GPU's peaks allow. This time is bytes over bandwidth, or operations over peak rate, whichever is longer. A real run takes longer; how",
             "much longer has to be measured.", "",
             "The registers of a kernel say how many of its waves fit on a SIMD; for a kernel of yours it is", "",
             "```bash run", "pyflame occupancy --arch gfx942 --vgpr 170 --block 256", "```", "",
             f"The code objects were made by {compiler}. The peaks are those of the data sheets:", "",
             "| | bandwidth | float32 | bfloat16, matrix cores |", "|---|---|---|---|"]
    lines += [f"| {name} ({gfx}) | {peaks[gfx]['bandwidth_gbs']:,.0f} GB/s | {peaks[gfx]['fp32_tflops']:g} TFLOP/s | {peaks[gfx]['bf16_tflops']:g} TFLOP/s |" for gfx, name in GPUS]
    lines += ["", "VGPRs are per lane. Waves are the waves that fit on a SIMD; LDS that a launch adds (as for attention) is not counted. \"bound\" says which of the",
              "two times is longer.", "",
              "| work | kernel | bytes | operations | " + " | ".join(f"{name.rsplit('AMD ', 1)[-1]}: VGPRs | waves | µs | bound" for name in names) + " |",
              "|---|---|" + "--:|--:|" + "--:|--:|--:|---|" * len(GPUS)]
    lines += [row(w, budgets, peaks) for w in every]
    lines += writing(peaks)
    lines += ["", "## All kernels", "", "All kernels with a budget, also those that no benchmark uses:", "",
              "| kernel | " + " | ".join(f"{gfx}: VGPRs | LDS | waves | load, store | matrix" for gfx, _ in GPUS) + " |", "|---|" + "--:|--:|--:|--:|---|" * len(GPUS)]
    for name, archs in sorted(budgets.items()):
        cells = [f"`{name}`"]
        for gfx, _ in GPUS:
            b = archs[gfx]
            cells += [str(b["vgpr"]), str(b["lds"]), str(b["waves_per_simd"]), f"{b['load']}, {b['store']} B", "yes" if b["matrix"] else ""]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main(arguments):
    parser = argparse.ArgumentParser(description="Writes docs/amd-model.md")
    parser.add_argument("--check", action="store_true", help="only say whether the page is current")
    parser.add_argument("--pyflame", default=str(pathlib.Path(sys.executable).parent / "pyflame"), help="the pyflame program")
    a = parser.parse_args(arguments)
    known = kernel_code.architectures(a.pyflame)
    peaks = {gfx: next(p for p in known[gfx]["peaks"] if p["product"] == name) for gfx, name in GPUS}
    committed = json.loads(kernel_code.BUDGETS.read_text())
    text = page(committed["kernels"], peaks, committed["compiler"])
    if a.check:
        if not PAGE.is_file() or PAGE.read_text() != text:
            print(f"{PAGE.relative_to(kernel_code.ROOT)} is not current; run `make docs`", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
