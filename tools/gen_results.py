"""Pages with measured figures: README's section on speed, docs/install.md's on the first hour and on sizes, docs/language-models.md's on accuracy, docs/performance.md and its pictures, from tools/results/*.md and benchmarks/results. With
--check: fails when something is not what would be written.

A template's {{ expression }} is Python over the names of `Figures`: no measured figure is typed by hand, and tests/tools/test_gen_results.py
fails for one that is. A figure that was not measured ends the tool.
"""
import json
import pathlib
import re
import sys

from picture import INK, OURS, PALE, THEIRS, Picture

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
TEMPLATES = ROOT / "tools" / "results"
CPU, OTHER_CPU, GPU, DECODE_GPU = "amd-epyc-2-cores", "intel-xeon-2-cores", "nvidia-h100-80gb", "nvidia-h200"
END = "<!-- end of what `make docs` writes -->"
EXPRESSION = re.compile(r"\{\{(.+?)\}\}", re.S)

CPU_ROWS = [
    ("training step, GPT (4 layers, width 128, context 64, batch 12), AdamW", "gpt_train"),
    ("training step, MLP 784-256-128-10, batch 32, Adam (PyTorch: fused)", "mlp"),
    ("the same, PyTorch's default Adam", "mlp_default_adam"),
    ("training step, MLP 64-128-64-1 with SiLU and LayerNorm, batch 64", "mlp_silu_layer_norm"),
    ("60 tokens from that GPT with a key/value cache", "gpt_generate"),
    ("embedding and gather with their gradients, 32768×256, 4096 rows", "embedding_gather_step"),
    ("gelu(x·w + b) + r, 16 Mi float32", "gelu_16Mi"),
    ("softmax, 4096×1024", "softmax_4096x1024"),
    ("layer_norm, 4096×1024", "layer_norm_4096x1024"),
    ("cross_entropy, 4096×1024", "cross_entropy_4096x1024"),
    ("matmul 256³", "matmul_256"),
    ("matmul 1024³", "matmul_1024"),
    ("matmul 16×1024×1024", "matmul_16x1024x1024"),
    ("training step, LeNet-like network, 28², batch 64", "lenet"),
    ("training step, ResNet-18, 224², batch 8", "resnet18_train"),
    ("ResNet-18, inference", "resnet18_inference"),
]
# None: ResNet-50, which has a benchmark of its own.
GPU_ROWS = [
    ("training step, MLP 784-256-128-10, batch 32, Adam", "mlp_784_256_128_10_b32"),
    ("training step, MLP 64-128-64-1, SiLU and LayerNorm, batch 64, Adam", "mlp_64_128_64_1_silu_ln_b64"),
    ("GPT-2 124M training step, 16×1024, bfloat16", "gpt2_124M_b16x1024_bfloat16"),
    ("ResNet-50 training step, batch 64, bfloat16 ([another run](benchmarks/results/nvidia-h100-80gb/resnet50.json))", None),
    ("gelu(x·w + b) + r, 64 Mi float32", "gelu_chain_64Mi_float32"),
    ("softmax, 16384×4096 float32", "softmax_64Mi_float32"),
    ("layer_norm, 16384×4096 float32", "layer_norm_64Mi_float32"),
    ("sum of 64 Mi float32", "sum_64Mi_float32"),
    ("matmul 4096³ bfloat16 (cuBLASLt both)", "matmul_4096_bfloat16"),
    ("matmul 16×4096×4096 bfloat16", "matmul_16x4096x4096_bfloat16"),
    ("attention, causal, 8×16×4096×64 bfloat16 (cuDNN both)", "attention_8x16x4096x64"),
    ("the same, forward and backward; PyFlame in the same order of sums every time", "attention_8x16x4096x64_backward"),
    ("the same with `pf.use_deterministic_algorithms(False)`", "attention_8x16x4096x64_backward_any_order"),
    ("convolution 64×56², 64 of 3×3, batch 64, bfloat16, channels-last (cuDNN both)", "conv_64x56_64_3x3_s1"),
    ("the same, forward and backward", "conv_64x56_64_3x3_s1_backward"),
]
ACCURACY_ROWS = [("float32", "PyFlame, float32"), ("transformers", "transformers, float32"), ("packed", "PyFlame, packed"), ("llama.cpp", "llama.cpp, packed")]


def load(machine, name):
    return json.loads((RESULTS / machine / f"{name}.json").read_text())


class Figures:
    """The names that a template may use. Times are in milliseconds unless said otherwise."""

    def __init__(self):
        self.cpu_file, self.overhead, self.size = load(CPU, "compare_torch"), load(CPU, "overhead"), load(CPU, "installed_size")
        self.onnx_file, self.hour, self.clone = load(CPU, "compare_onnx"), load(CPU, "first_hour"), load(CPU, "first_hour_clone")
        self.packages, self.accuracy = load(CPU, "packages"), load(CPU, "llm_accuracy")
        self.first_token = load(CPU, "llm_first_token")
        self.first_token_rows = {r["way"]: r["seconds"] for r in self.first_token["rows"]}
        self.database, self.repeats, self.repeats_gpu = load(CPU, "tuning_database"), load(CPU, "bench_repeats"), load(DECODE_GPU, "bench_repeats")
        self.repeats_matmul = load(DECODE_GPU, "bench_repeats_matmul")
        self.ops_cpu, self.ops_intel, self.ops_gpu = load(CPU, "compare_ops"), load(OTHER_CPU, "compare_ops"), load(DECODE_GPU, "compare_ops")
        self.decode_file, self.serving_file = load(DECODE_GPU, "llm_decode_8b"), load(DECODE_GPU, "compare_serving")
        self.drawn_file, self.long_file = load(DECODE_GPU, "llm_decode_8b_drawn"), load(DECODE_GPU, "serving_long_prompts")
        self.float8_file, self.prompts_file, self.long_context = (load(DECODE_GPU, name) for name in ("llm_decode_8b_fp8", "llm_prompts_8b", "llm_decode_8b_32k"))
        self.warm_up_rows = {warm: [r for r in load(DECODE_GPU, "llm_warm_up")["rows"] if r["warm_up"] == warm] for warm in (False, True)}
        self.batching_file = load(DECODE_GPU, "compare_serving_transformers")
        self.gpu_file, self.gpu_resnet = load(GPU, "compare_torch"), load(GPU, "resnet50")
        by_name = lambda f: {r["workload"]: r for r in f["results"]}  # noqa: E731
        self.cpu, self.gpu = by_name(self.cpu_file), by_name(self.gpu_file)
        self.intel_file = load(OTHER_CPU, "compare_torch")
        self.intel = by_name(self.intel_file)
        self.ns = {name: b["ns_per_op"] for name, b in self.overhead["benchmarks"].items()}
        self.steps = self.overhead["training_steps"]

    def names(self):
        return {**{n: getattr(self, n) for n in dir(self) if not n.startswith("_")}, "max": max, "min": min, "len": len, "round": round}

    # ---- how figures are written

    @staticmethod
    def num(x, digits=2):
        return f"{x:.{digits}f}"

    @staticmethod
    def ms(x):
        return f"{x:.1f} ms" if x >= 10 else f"{x:.2f} ms"

    @staticmethod
    def gpu_ms(x):
        return f"{x:.1f} ms" if x >= 10 else f"{x:.3f} ms"

    @staticmethod
    def percent(x):
        return f"{100 * x:.0f} %"

    @staticmethod
    def mb(x):
        return f"{x / 1e6:.1f} MB"

    # ---- tables

    def both_ms(self, row):
        """PyTorch's time and PyFlame's."""
        return f"{self.ms(row['median_ms']['torch'])} and {self.ms(row['median_ms']['pyflame'])}, a ratio of {row['ratio']:.2f}"

    def drawn_most(self):
        """By how many percent, at most, drawing the tokens makes a step of the engine longer."""
        steps = {(r["sequences"], r["temperature"]): r["ms"] for r in self.drawn_file["rows"] if "temperature" in r}
        return max(100 * (ms / steps[count, 0.0] - 1) for (count, temperature), ms in steps.items() if temperature)

    def ratios(self, prefix):
        return [r["ratio"] for name, r in self.cpu.items() if name.startswith(prefix)]

    def span(self, prefix):
        r = self.ratios(prefix)
        return f"{min(r):.2f} to {max(r):.2f}"

    def cpu_table(self):
        lines = ["| work | PyTorch | PyFlame | ratio | torch.compile over PyFlame |", "|---|---|---|---|---|"]
        for title, name in CPU_ROWS:
            r = self.cpu[name]
            ours, compiled = r["median_ms"]["pyflame"], r["median_ms"].get("compile")
            lines.append(f"| {title} | {self.ms(r['median_ms']['torch'])} | {self.ms(ours)} | {r['ratio']:.2f} | {f'{compiled / ours:.2f}' if compiled else ''} |")
        return "\n".join(lines)

    def gpu_table(self):
        lines = ["| work | PyTorch | PyFlame | ratio | torch.compile over PyFlame | CUDA graph over PyFlame |", "|---|---|---|---|---|---|"]
        for title, name in GPU_ROWS:
            ms = self.gpu[name]["median_ms"] if name else {k: f["step_ms"] for k, f in self.gpu_resnet["frameworks"].items()}
            cells = [f"{ms[k] / ms['pyflame']:.{1 if ms[k] >= 10 * ms['pyflame'] else 2}f}" if k in ms else "" for k in ("torch", "compile", "graph")]
            lines.append(f"| {title} | {self.gpu_ms(ms['torch'])} | {self.gpu_ms(ms['pyflame'])} | {' | '.join(cells)} |")
        return "\n".join(lines)

    def onnx_table(self):
        lines = ["| model | ONNX Runtime | PyFlame | ratio |", "|---|--:|--:|--:|"]
        for r in self.onnx_file["results"]:
            us = {kind: f"{1000 * ms:.0f} µs" if ms < 1 else self.ms(ms) for kind, ms in r["median_ms"].items()}
            lines.append(f"| {r['row']} | {us['onnxruntime']} | {us['pyflame']} | {r['ratio']:.2f} |")
        return "\n".join(lines)

    def float8_table(self):
        """Decoding with 8-bit weights beside bfloat16."""
        rows = {(r["weights"], r["sequences"]): r["tokens_per_s"] for r in self.float8_file["rows"]}
        lines = ["| texts at a time | bfloat16 | 8-bit floats | ratio |", "|--:|--:|--:|--:|"]
        return "\n".join(lines + [f"| {n} | {rows['bfloat16', n]:,.0f} | {rows['fp8', n]:,.0f} | {rows['fp8', n] / rows['bfloat16', n]:.2f} |" for kind, n in rows if kind == "fp8"])

    def prompts_table(self):
        """Reading prompts beside PyTorch."""
        ours, theirs = ({(r["prompts"], r["length"]): r for r in self.prompts_file["rows"] if r["program"] == p} for p in ("pyflame prompts", "torch eager"))
        lines = ["| prompts | PyTorch eager | PyFlame | ratio | arithmetic, PyFlame |", "|---|--:|--:|--:|--:|"]
        return "\n".join(lines + [f"| {n} of {length:,} tokens | {theirs[n, length]['tokens_per_s']:,.0f} | {r['tokens_per_s']:,.0f} | {r['tokens_per_s'] / theirs[n, length]['tokens_per_s']:.2f} | {r['TFLOP_per_s']:.0f} TFLOP/s |" for (n, length), r in ours.items()])

    def decode_table(self):
        """Tokens a second while texts are written, by program and number of texts."""
        rows = {(r["program"], r["sequences"]): r for r in self.decode_file["rows"]}
        counts = sorted({count for _, count in rows})
        lines = ["| texts at a time | PyTorch eager | PyFlame's engine | bytes a second, engine |", "|--:|--:|--:|--:|"]
        for n in counts:
            engine = rows["pyflame engine", n]
            lines.append(f"| {n} | {rows['torch eager', n]['tokens_per_s']:,.0f} | {engine['tokens_per_s']:,.0f} | {engine['GB_per_s'] / 1000:.1f} TB |")
        return "\n".join(lines)

    def beside_llama_cpp(self):
        """Tokens a second of both programs, by the number of texts."""
        rows = {(r["program"], r["sequences"]): r["tokens_per_s"] for r in self.serving_file["decode"]}
        lines = ["| texts at a time | llama.cpp | PyFlame | ratio |", "|--:|--:|--:|--:|"]
        for n in sorted({count for _, count in rows}):
            theirs, ours = rows["llama.cpp", n], rows["pyflame", n]
            lines.append(f"| {n} | {theirs:,.0f} | {ours:,.0f} | {ours / theirs:.2f} |")
        return "\n".join(lines)

    def serving_table(self):
        """Requests that arrive all at once: what each program wrote in a second, and how long a text waited for a token."""
        lines = ["| program | output tokens a second | all written after | between tokens, median | 99th percentile |", "|---|--:|--:|--:|--:|"]
        served = {r["program"]: r for r in self.serving_file["serving"]}
        rows = [("PyFlame, likeliest tokens", served["pyflame"]["all_at_once"]), ("PyFlame, tokens drawn at temperature 1", served["pyflame"]["all_at_once_drawn"]),
                ("llama.cpp's server", served["llama.cpp"]["all_at_once"])]
        for r in self.batching_file["serving"]:
            rows.append(("PyFlame, the other run", r["all_at_once"]) if r["program"] == "pyflame" else (f"transformers {r['version']}, generate_batch", r))
        for name, r in rows:
            waits = [f"{r['itl_ms'][p]:.1f} ms" if "itl_ms" in r else "" for p in ("p50", "p99")]
            lines.append(f"| {name} | {r['output_tokens_per_second']:,.0f} | {r['seconds']:.1f} s | {' | '.join(waits)} |")
        return "\n".join(lines)

    def long_prompts_table(self):
        """What texts wait for a token while long prompts are read, by the most tokens of a step."""
        lines = ["| tokens of a step | between tokens beside prompts, median | 99th percentile | ratio | the same without prompts, median | 99th percentile | first token of a prompt, median |", "|--:|--:|--:|--:|--:|--:|--:|"]
        for r in self.long_file["long"]:
            beside, alone = r["beside_ms"], r["alone_ms"]
            lines.append(f"| {r['step_tokens']} | {beside['p50']:.1f} ms | {beside['p99']:.1f} ms | {beside['p99'] / beside['p50']:.1f} | {alone['p50']:.1f} ms | {alone['p99']:.1f} ms | {r['first_token_ms']['p50'] / 1000:.2f} s |")
        return "\n".join(lines)

    @staticmethod
    def ops_count(file):
        return sum("ratio" in r for r in file["results"])

    @staticmethod
    def ops_slow(file):
        """The rows at less than 0.8 of PyTorch's speed, with their ratios."""
        rows = sorted((r["ratio"], r["row"]) for r in file["results"] if "ratio" in r and r["ratio"] < 0.8)
        return ", ".join(f"`{name}` {ratio:.2f}" for ratio, name in rows)

    def onnx_digits(self):
        return f"{max(r['difference'] for r in self.onnx_file['results']):.0e}".replace("e-0", "e-")

    def slower(self, results, write):
        """The workloads whose ratio, as it is written, is below 1."""
        rows = sorted((r["median_ms"]["torch"] / r["median_ms"]["pyflame"], name, r) for name, r in results.items())
        lines = ["| workload | PyTorch | PyFlame | ratio |", "|---|---|---|---|"]
        lines += [f"| `{name}` | {write(r['median_ms']['torch'])} | {write(r['median_ms']['pyflame'])} | {ratio:.2f} |" for ratio, name, r in rows if f"{ratio:.2f}" < "1.00"]
        return "\n".join(lines) if len(lines) > 2 else "None."

    def memory_table(self):
        rows = (("GPT training step", "gpt_train"), ("ResNet-18 training step", "resnet18_train"), ("ResNet-18, inference", "resnet18_inference"),
                ("LeNet-like training step", "lenet"), ("MLP training step", "mlp"), ("gelu(x·w + b) + r", "gelu_16Mi"))
        lines = ["| work | PyTorch | PyFlame |", "|---|--:|--:|"]
        lines += [f"| {title} | {self.cpu[n]['peak_mib']['torch']:.0f} MiB | {self.cpu[n]['peak_mib']['pyflame']:.0f} MiB |" for title, n in rows]
        return "\n".join(lines)

    def host_table(self):
        parts = ("zero_grad", "forward", "backward", "optimizer", "step")
        lines = ["| µs of the calling thread | " + " | ".join(parts[:-1]) + " | whole step |", "|---|" + "--:|" * len(parts)]
        for title, name in (("MLP 784-256-128-10", "mlp_classifier"), ("MLP 64-128-64-1, SiLU, LayerNorm", "mlp_regression")):
            lines.append(f"| {title} | " + " | ".join(f"{self.steps['us'][name][p]:.1f}" for p in parts) + " |")
        return "\n".join(lines)

    @staticmethod
    def hour_table(hour):
        """What a new user waits for, step by step."""
        cpu = all("cpu_seconds" in r for r in hour["steps"])
        lines = ["| step | what is typed | seconds |" + " of processors |" * cpu, "|---|---|--:|" + "--:|" * cpu]
        titles = {"clone": "a clone", "bootstrap": "what a build needs", "install": "install", "tensor": "first tensor", "training": "first training", "gpu": "first GPU error message",
                  "profile": "first profile", "packages": "packages of language models", "model": "a model", "answer": "its first answer", "own_op": "first own op"}
        return "\n".join(lines + [f"| {titles[r['step']]} | {r['what']} | {r['seconds']:.1f} |" + (f" {r['cpu_seconds']:.1f} |" if cpu else "") for r in hour["steps"]])

    @staticmethod
    def hour_in_all(hour):
        seconds = sum(r["seconds"] for r in hour["steps"])
        return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"

    def package_table(self):
        """Each package and image: what is downloaded, and what it takes."""
        lines = ["| what | file | installed |", "|---|--:|--:|"]
        return "\n".join(lines + [f"| {r['what']} | {self.mb(r['file_bytes']) if 'file_bytes' in r else ''} | {self.mb(r['installed_bytes'])} |" for r in self.packages["rows"]])

    def accuracy_table(self):
        """What each program's logits of a language model differ from those of float32 weights."""
        rows = self.accuracy["programs"]
        small = lambda x: f"{x:.0e}".replace("e-0", "e-") if 0 < x < 1e-3 else f"{x:.2g}"  # noqa: E731
        lines = ["| | largest difference of a logit | mean | same likeliest token | KL, mean | KL, most | perplexity |", "|---|--:|--:|--:|--:|--:|--:|"]
        lines += [f"| {title} | {small(r['largest_difference'])} | {small(r['mean_difference'])} | {self.percent(r['top_1_agreement'])} | {small(r['kl_mean'])} | {small(r['kl_most'])} | {r['perplexity']:.2f} |"
                  for name, title in ACCURACY_ROWS for r in [rows[name]]]
        return "\n".join(lines)

    def accuracy_answers(self):
        return "\n".join(["| | answer |", "|---|---|"] + [f"| {title} | {self.accuracy['programs'][name]['answer']} |" for name, title in ACCURACY_ROWS])

    def accuracy_cpu(self, name):
        return f"{self.accuracy['programs'][name]['cpu_ms_per_token']:.0f} ms"

    def accuracy_margin(self, name):
        return f"{self.accuracy['programs'][name]['margin']:.2f}"

    def other_images(self):
        """Images of others, as their users or makers reported them."""
        gb = lambda row, name: f"{row[name]:.1f} GB" if name in row else ""  # noqa: E731
        lines = ["| image | to download | on the disk | reported in |", "|---|--:|--:|---|"]
        return "\n".join(lines + [f"| {r['image']} | {gb(r, 'download_gb')} | {gb(r, 'installed_gb')} | [{'/'.join(r['source'].split('/')[3:])}]({r['source']}) |" for r in self.packages["others"]])

    # ---- sentences about what older result files do not have

    def python_sentence(self):
        us = self.steps.get("us_per_recorded_op")
        if us is None:
            return ""
        return (f"From Python, an op with gradients costs {us:.2f} µs, including its share of the look-up and the run"
                + (f"; from C++ {self.ns['cached_window_fused_grad'] / 1000:.2f} µs." if "cached_window_fused_grad" in self.ns else "."))

    def bandwidth_sentence(self):
        b = self.overhead.get("bandwidth")
        if b is None:
            return ""
        rate, best = b["gb_per_s"], max(b["gb_per_s"]["copy"], b["gb_per_s"]["memcpy"])
        return (f" In one process, alternately, fastest of {b['turns']} runs: the loop {rate['gelu_chain']:.0f} GB/s, a copy {rate['copy']:.0f} GB/s, the C library's memcpy "
                f"{rate['memcpy']:.0f} GB/s. So the loop reaches {rate['gelu_chain'] / best:.0%} of the faster of the two.")

    def linked(self, prefix):
        return next(size for name, size in self.size["linked_libraries"].items() if name.startswith(prefix))

    # ---- arithmetic

    def rate(self, arrays, mi, milliseconds):
        """GB/s of so many arrays of `mi` Mi float32."""
        return arrays * mi * 2**20 * 4 / milliseconds * 1e-6


def fill(template, figures):
    names = figures.names()

    def value(match):
        try:
            return str(eval(match.group(1).strip(), {"__builtins__": {}}, names))  # our own templates
        except Exception as e:
            raise SystemExit(f"gen_results: {{{{{match.group(1)}}}}}: {type(e).__name__}: {e}") from e

    return EXPRESSION.sub(value, template)


# ---- pictures


def bytes_picture(f):
    """Arrays that gelu(x·w + b) + r moves, op by op and fused."""
    p = Picture(760, 262, "Arrays moved by gelu(x·w + b) + r: 11 op by op, 5 fused")
    unit, left = 46, 130
    p.text(20, 30, "gelu(x·w + b) + r: arrays that go through memory", bold=True)
    p.text(20, 62, "op by op", bold=True, colour=THEIRS)
    steps = (("x·w", ("x", "w"), "t1"), ("+ b", ("t1", "b"), "t2"), ("gelu", ("t2",), "t3"), ("+ r", ("t3", "r"), "out"))
    x = left
    for title, reads, write in steps:
        for name in reads:
            p.box(x, 46, unit - 4, 26, THEIRS, 0.35)
            p.text(x + (unit - 4) / 2, 64, name, anchor="middle", size=13)
            x += unit
        p.box(x, 46, unit - 4, 26, THEIRS)
        p.text(x + (unit - 4) / 2, 64, write, colour="#ffffff", anchor="middle", size=13)
        x += unit
        p.text(x - (len(reads) + 1) * unit / 2 - 2, 92, title, colour=PALE, anchor="middle", size=13)
    r = f.cpu["gelu_16Mi"]
    p.text(left, 118, f"11 arrays of 64 MiB; PyTorch eager took {f.ms(r['median_ms']['torch'])}", colour=PALE)
    p.text(20, 162, "one window", bold=True, colour=OURS)
    x = left
    for name in ("x", "w", "b", "r", "out"):
        p.box(x, 146, unit - 4, 26, OURS, 1.0 if name == "out" else 0.35)
        p.text(x + (unit - 4) / 2, 164, name, colour="#ffffff" if name == "out" else INK, anchor="middle", size=13)
        x += unit
    p.text(left, 192, "one loop; t1, t2, t3 stay in the first-level cache", colour=PALE, size=13)
    p.text(left, 218, f"5 arrays of 64 MiB; PyFlame took {f.ms(r['median_ms']['pyflame'])}", colour=PALE)
    p.text(20, 246, "pale: read, full: written", colour=PALE, size=12)
    return p.done()


def step_picture(f):
    """What becomes of an op."""
    p = Picture(760, 204, "An op is recorded; its window is cut, looked up or planned, and run")
    us = lambda ns: f"{ns / 1000:.2f} µs"  # noqa: E731
    boxes = (("record", "append words to", "the window's key"), ("cut", "a read, backward(),", "step(), a limit"),
             ("look up", "the key's hash,", "then the key itself"), ("run", "memory at once, then", "kernel after kernel"))
    wide, gap = 156, 32
    for i, (title, one, two) in enumerate(boxes):
        x = 20 + i * (wide + gap)
        p.box(x, 20, wide, 74, OURS, 0.15)
        p.text(x + wide / 2, 42, title, bold=True, anchor="middle")
        p.text(x + wide / 2, 62, one, anchor="middle", size=13)
        p.text(x + wide / 2, 80, two, anchor="middle", size=13)
        if i:
            p.arrow(x - gap + 2, x, 57)
    p.text(20 + wide / 2, 114, f"{us(f.ns['record_add'])} an op", colour=PALE, anchor="middle", size=13)
    p.text(740, 114, f"all four: {us(f.ns['cached_window_unfusable'])} an op of a window of 100", colour=PALE, anchor="end", size=13)
    p.box(20 + 2 * (wide + gap) - 80, 132, 424, 52, THEIRS, 0.15)
    p.text(528, 153, "plan: only a window that was never seen", bold=True, anchor="middle")
    p.text(528, 173, f"fuse, choose kernels, lay out memory: {us(f.ns['plan_fresh_shape_unfusable'])} an op", anchor="middle", size=13)
    return p.done()


# ---- the files

def outputs(figures):
    """Path -> text."""
    performance = "<!-- Generated by tools/gen_results.py from tools/results/performance.md and benchmarks/results. -->\n"
    performance += fill((TEMPLATES / "performance.md").read_text(encoding="utf-8"), figures)
    return {ROOT / "README.md": with_sections(ROOT / "README.md", ["readme"], figures),
            ROOT / "docs" / "install.md": with_sections(ROOT / "docs" / "install.md", ["first_hour", "packages"], figures),
            ROOT / "docs" / "language-models.md": with_sections(ROOT / "docs" / "language-models.md", ["llm_accuracy"], figures),
            ROOT / "docs" / "performance.md": performance,
            ROOT / "docs" / "images" / "bytes.svg": bytes_picture(figures), ROOT / "docs" / "images" / "step.svg": step_picture(figures)}


def with_sections(page, templates, figures):
    """The page's text, with what each template gives between its two comments."""
    text = page.read_text(encoding="utf-8")
    for template in templates:
        begin = f"<!-- from tools/results/{template}.md by `make docs` -->"
        before, rest = text.split(begin)
        after = rest.partition(END)[2]
        text = f"{before}{begin}\n{fill((TEMPLATES / f'{template}.md').read_text(encoding='utf-8'), figures)}{END}{after}"
    return text


def main(arguments):
    stale = []
    for path, text in outputs(Figures()).items():
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        if "--check" in arguments:
            stale.append(str(path.relative_to(ROOT)))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"{', '.join(stale)}: not what benchmarks/results and tools/results give; run `make docs`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
