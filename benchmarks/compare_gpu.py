"""PyFlame against PyTorch on one GPU: `compare_torch.py --device cuda` runs this.

Four processes on the same GPU take turns: PyTorch eager, torch.compile, a CUDA graph of PyTorch's whole step (small training steps only)
and PyFlame. A turn is the same number of calls for each, between two synchronisations, by the wall clock; so the host's cost counts where
the GPU waits for it. It lasts TURN_S at least: a GPU that changes from one process to another needs 0.16 ms, which is nobody's cost.
Every workload runs warm turns first. PyTorch's settings are its fastest: fused optimizers, cudnn.benchmark, channels-last
where that is faster, no gradient where none is needed; float32 products without TF32 on both sides. PyFlame's results have the same bits in
every run, which PyTorch's gradient of attention has not; rows `_any_order` are with `pyflame.use_deterministic_algorithms(False)`.

The copy bandwidth is measured in the same run (PyTorch's own copy of 256 MiB), and streaming workloads say their share of it.
"""
import json
import math
import os
import statistics
import subprocess
import sys
import time
import traceback


class Torch:
    def __init__(self, device, kind):
        import torch

        self.m, self.nn, self.F, self.device, self.kind = torch, torch.nn, torch.nn.functional, device, kind
        torch.set_default_device(device)
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = True
        self.version = torch.__version__

    def sync(self):
        self.m.cuda.synchronize()

    def cut(self):
        pass

    def deterministic(self, mode):
        pass  # as it comes

    def fresh(self):
        self.m.cuda.empty_cache()
        self.m.cuda.reset_peak_memory_stats()
        self.m._dynamo.reset()

    def peak(self):
        return self.m.cuda.max_memory_allocated()

    def adam(self, params, **kw):
        # A captured step keeps the optimizer's step count on the device.
        return self.m.optim.Adam(params, fused=True, capturable=self.kind == "graph", **kw)

    def adamw(self, params, **kw):
        return self.m.optim.AdamW(params, fused=True, capturable=self.kind == "graph", **kw)

    def function(self, f):
        return self.m.compile(f) if self.kind == "compile" else f

    def module(self, model):
        return self.m.compile(model) if self.kind == "compile" else model

    def step(self, f):
        """A whole training step, as this column runs it."""
        if self.kind != "graph":
            return f
        side = self.m.cuda.Stream()
        side.wait_stream(self.m.cuda.current_stream())
        with self.m.cuda.stream(side):
            for _ in range(3):
                f()
        self.m.cuda.current_stream().wait_stream(side)
        graph = self.m.cuda.CUDAGraph()
        with self.m.cuda.graph(graph):
            out = f()

        def replay():
            graph.replay()
            return out

        return replay


class PyFlame:
    def __init__(self, device, kind):
        import pyflame

        self.m, self.nn, self.F, self.device, self.kind = pyflame, pyflame.nn, pyflame.nn.functional, device, kind
        pyflame.set_device(device)
        pyflame.manual_seed(0)
        self.version = pyflame.__version__

    def sync(self):
        self.m.synchronize()

    def cut(self):
        self.m.cut()  # calls that could be fused with each other would say nothing about one call

    def deterministic(self, mode):
        self.m.use_deterministic_algorithms(mode)

    def fresh(self):
        self.m.empty_cache()
        self.m.reset_peak_memory()

    def peak(self):
        return self.m.memory_stats()["peak_allocated"]

    def adam(self, params, **kw):
        return self.m.optim.Adam(params, **kw)

    def adamw(self, params, **kw):
        return self.m.optim.AdamW(params, **kw)

    def function(self, f):
        return f

    def module(self, model):
        return model

    def step(self, f):
        return f


def dtype_of(fw, name):
    return getattr(fw.m, name)


# ---------------------------------------------------------------- small training steps: the host's cost
def train_step(fw, model, opt, loss_of):
    model = fw.module(model)

    def step():
        opt.zero_grad(set_to_none=True)
        loss = loss_of(model)
        loss.backward()
        opt.step()
        return loss

    return fw.step(step)


def mlp_classifier(fw):
    nn = fw.nn
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    opt = fw.adam(model.parameters(), lr=1e-3)
    x, y = fw.m.randn(32, 784), fw.m.randint(0, 10, (32,))
    return train_step(fw, model, opt, lambda m: fw.F.cross_entropy(m(x), y))


def mlp_regression(fw):
    nn = fw.nn
    model = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.LayerNorm(128), nn.Linear(128, 64), nn.SiLU(), nn.LayerNorm(64), nn.Linear(64, 1))
    opt = fw.adam(model.parameters(), lr=1e-3)
    x, y = fw.m.randn(64, 64), fw.m.randn(64, 1)
    return train_step(fw, model, opt, lambda m: fw.F.mse_loss(m(x), y))


# ---------------------------------------------------------------- streaming ops: bandwidth
STREAM = 64 << 20


def elementwise_chain(fw, dtype):
    x, w, b, r = (fw.m.randn(STREAM).to(dtype_of(fw, dtype)) for _ in range(4))
    f = fw.function(lambda: fw.F.gelu(x * w + b) + r)
    return without_grad(fw, f)


def without_grad(fw, f):
    def call():
        with fw.m.no_grad():
            out = f()
        fw.cut()
        return out

    return call


def rows(fw, what, dtype="float32", width=4096):
    x = fw.m.randn(STREAM // width, width).to(dtype_of(fw, dtype))
    if what == "layer_norm":
        w, b = fw.m.randn(width).to(x.dtype), fw.m.randn(width).to(x.dtype)
        f = lambda: fw.F.layer_norm(x, (width,), w, b)  # noqa: E731
    else:
        f = {"softmax": lambda: fw.F.softmax(x, -1), "sum": lambda: x.sum(), "sum_rows": lambda: x.sum(1), "sum_columns": lambda: x.sum(0),
             "transpose": lambda: x.t().contiguous(), "copy": lambda: x.clone()}[what]
    return without_grad(fw, fw.function(f))


# ---------------------------------------------------------------- products
def product(fw, m, n, k, dtype):
    a, b = fw.m.randn(m, k).to(dtype_of(fw, dtype)), fw.m.randn(n, k).to(dtype_of(fw, dtype))
    return without_grad(fw, fw.function(lambda: fw.F.linear(a, b)))


def linear_gelu(fw, m, n, k, dtype):
    a, b, bias = (fw.m.randn(*s).to(dtype_of(fw, dtype)) for s in ((m, k), (n, k), (n,)))
    return without_grad(fw, fw.function(lambda: fw.F.gelu(fw.F.linear(a, b, bias))))


def attention(fw, b, h, t, d, backward, any_order=False):
    q, k, v, g = (fw.m.randn(b, h, t, d).to(fw.m.bfloat16) for _ in range(4))
    if not backward:
        return without_grad(fw, fw.function(lambda: fw.F.scaled_dot_product_attention(q, k, v, is_causal=True)))
    for x in (q, k, v):
        x.requires_grad_()

    def call():
        fw.deterministic(not any_order)
        y = fw.F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y.backward(g)
        fw.deterministic(True)  # for the workloads that follow
        out = q.grad
        q.grad = k.grad = v.grad = None
        return out

    return call


def convolution(fw, c, size, k, kernel, stride, backward, layout="channels_last", batch=64, dtype="bfloat16"):
    """The same layout for both: channels-last, which is where PyTorch is fastest, or as tensors lie that nobody has laid out."""
    make = lambda *shape: fw.m.randn(*shape).to(dtype_of(fw, dtype)).to(memory_format=getattr(fw.m, layout))  # noqa: E731
    x, w = make(batch, c, size, size), make(k, c, kernel, kernel)
    if not backward:
        return without_grad(fw, fw.function(lambda: fw.F.conv2d(x, w, stride=stride, padding=kernel // 2)))
    x.requires_grad_()
    w.requires_grad_()

    def call():
        y = fw.F.conv2d(x, w, stride=stride, padding=kernel // 2)
        y.backward(y.detach())
        out = x.grad
        x.grad = w.grad = None
        return out

    return call


# ---------------------------------------------------------------- models
def gpt2(fw, batch=16, block=1024):
    from cpu_work import make_gpt

    model = make_gpt(fw, vocab=50304, n_layer=12, n_head=12, n_embd=768, block=block).to(fw.m.bfloat16)
    opt = fw.adamw(model.parameters(), lr=1e-4)
    x, y = fw.m.randint(0, 50257, (batch, block)), fw.m.randint(0, 50257, (batch, block))
    return train_step(fw, model, opt, lambda m: fw.F.cross_entropy(m(x).view(-1, 50304), y.view(-1)))


def gbytes(n, itemsize):
    return n * STREAM * itemsize / 1e9


# name: (builder, calls a turn, target ratio over eager, columns beside eager, GB moved or None, TFLOP or None)
WORK = {
    "mlp_784_256_128_10_b32": (mlp_classifier, 200, 10.0, ("compile", "graph"), None, None),
    "mlp_64_128_64_1_silu_ln_b64": (mlp_regression, 200, 10.0, ("compile", "graph"), None, None),
    "gelu_chain_64Mi_float32": (lambda fw: elementwise_chain(fw, "float32"), 20, None, ("compile",), gbytes(5, 4), None),
    "gelu_chain_64Mi_bfloat16": (lambda fw: elementwise_chain(fw, "bfloat16"), 20, None, ("compile",), gbytes(5, 2), None),
    "copy_64Mi_float32": (lambda fw: rows(fw, "copy"), 20, None, (), gbytes(2, 4), None),
    "transpose_64Mi_float32": (lambda fw: rows(fw, "transpose"), 20, None, ("compile",), gbytes(2, 4), None),
    "softmax_64Mi_float32": (lambda fw: rows(fw, "softmax"), 20, None, ("compile",), gbytes(2, 4), None),
    "softmax_64Mi_bfloat16": (lambda fw: rows(fw, "softmax", "bfloat16"), 20, None, ("compile",), gbytes(2, 2), None),
    "layer_norm_64Mi_float32": (lambda fw: rows(fw, "layer_norm"), 20, None, ("compile",), gbytes(2, 4), None),
    "layer_norm_64Mi_1024_bfloat16": (lambda fw: rows(fw, "layer_norm", "bfloat16", 1024), 20, None, ("compile",), gbytes(2, 2), None),
    "sum_64Mi_float32": (lambda fw: rows(fw, "sum"), 20, None, ("compile",), gbytes(1, 4), None),
    "sum_rows_64Mi_float32": (lambda fw: rows(fw, "sum_rows"), 20, None, ("compile",), gbytes(1, 4), None),
    "sum_columns_64Mi_float32": (lambda fw: rows(fw, "sum_columns"), 20, None, ("compile",), gbytes(1, 4), None),
}
for _n, _calls in ((512, 200), (1024, 100), (2048, 50), (4096, 20), (8192, 5)):
    for _dtype in ("bfloat16", "float32"):
        WORK[f"matmul_{_n}_{_dtype}"] = (lambda fw, n=_n, d=_dtype: product(fw, n, n, n, d), _calls if _dtype == "bfloat16" else max(3, _calls // 8),
                                         1.2 if _n <= 512 else 0.97, (), None, 2 * _n**3 / 1e12)
for _m in (1, 4, 16, 64):
    WORK[f"matmul_{_m}x4096x4096_bfloat16"] = (lambda fw, m=_m: product(fw, m, 4096, 4096, "bfloat16"), 200, 1.0, (), None, 2 * _m * 4096**2 / 1e12)
WORK["linear_gelu_16384x3072x768_bfloat16"] = (lambda fw: linear_gelu(fw, 16384, 3072, 768, "bfloat16"), 50, None, ("compile",), None, 2 * 16384 * 3072 * 768 / 1e12)
for _d in (64, 128):
    _flop = 4 * 8 * 16 * 4096 * 4096 * _d / 2 / 1e12  # causal: half of the products
    WORK[f"attention_8x16x4096x{_d}"] = (lambda fw, d=_d: attention(fw, 8, 16, 4096, d, False), 10, 1.0, (), None, _flop)
    WORK[f"attention_8x16x4096x{_d}_backward"] = (lambda fw, d=_d: attention(fw, 8, 16, 4096, d, True), 5, 1.0, (), None, 3.5 * _flop)
    WORK[f"attention_8x16x4096x{_d}_backward_any_order"] = (lambda fw, d=_d: attention(fw, 8, 16, 4096, d, True, True), 5, 1.0, (), None, 3.5 * _flop)
for _c, _s, _k, _r, _t in ((3, 224, 64, 7, 2), (64, 56, 64, 1, 1), (64, 56, 64, 3, 1), (128, 28, 128, 3, 1), (256, 14, 1024, 1, 1), (512, 7, 512, 3, 1)):
    for _layout in ("channels_last", "contiguous_format"):
        for _back in (False, True):
            _last = _layout == "channels_last"
            WORK[f"conv_{_c}x{_s}_{_k}_{_r}x{_r}_s{_t}{'_backward' if _back else ''}{'' if _last else '_nchw'}"] = (
                lambda fw, a=(_c, _s, _k, _r, _t, _back, _layout): convolution(fw, *a), 20, 0.97 if _last else None, (), None,
                (3 if _back else 1) * 2 * 64 * _k * _c * _r * _r * (_s // _t) ** 2 / 1e12)
WORK["gpt2_124M_b16x1024_bfloat16"] = (gpt2, 3, 1.15, ("compile",), None, None)


# Kernels are compiled in the background, libraries search: nothing is timed before this long after a workload's first call.
SETTLE_S = 1.5
# Seconds of PyTorch's turn at least.
TURN_S = 0.025


def worker(kind, device):
    fw = (PyFlame if kind == "pyflame" else Torch)(device, kind)
    print(json.dumps({"version": fw.version}), flush=True)
    name, step = None, None
    for line in sys.stdin:
        wanted, calls = json.loads(line)
        try:
            first = None
            if wanted != name:
                step = None
                fw.fresh()
                begin = time.perf_counter()
                name, step = wanted, WORK[wanted][0](fw)
                step()
                fw.sync()
                first = time.perf_counter() - begin
                while time.perf_counter() - begin < SETTLE_S:
                    step()
                    fw.sync()
            fw.sync()
            start = time.perf_counter()
            for _ in range(calls):
                step()
            fw.sync()
            print(json.dumps({"seconds": (time.perf_counter() - start) / calls, "first": first, "peak": fw.peak()}), flush=True)
        except Exception as e:  # noqa: BLE001 - said in the table, and the other columns go on
            name, step = None, None
            traceback.print_exc()
            print(json.dumps({"error": f"{type(e).__name__}: {str(e).splitlines()[0][:200] if str(e) else ''}"}), flush=True)


class Peer:
    def __init__(self, kind, device):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compare_torch.py")
        self.p = subprocess.Popen([sys.executable, script, "--device", device, "--worker", kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = self.read()["version"]

    def read(self):
        line = self.p.stdout.readline()
        if not line:
            raise SystemExit(f"the worker ended with exit code {self.p.wait()}")
        return json.loads(line)

    def ask(self, command):
        self.p.stdin.write(json.dumps(command) + "\n")
        self.p.stdin.flush()
        return self.read()


def device_facts():
    import torch

    p = torch.cuda.get_device_properties(0)
    return {"device": p.name, "memory": p.total_memory, "torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}


def compare(name, peers, args):
    _, calls, target, columns, gb, tflop = WORK[name]
    kinds = ["torch", *[c for c in columns if c in peers], "pyflame"]
    times, first, peak, errors = {k: [] for k in kinds}, {}, {}, {}
    for turn in range(args.warmup + args.turns):
        for kind in kinds if turn % 2 == 0 else kinds[::-1]:
            if kind in errors:
                continue
            r = peers[kind].ask([name, calls])
            if "error" in r:
                errors[kind] = r["error"]
                continue
            if turn < args.warmup and kind == "torch":
                calls = max(calls, math.ceil(TURN_S / r["seconds"]))
            first.setdefault(kind, r["first"])
            peak[kind] = r["peak"]
            if turn >= args.warmup:
                times[kind].append(r["seconds"] * 1e3)
    median = {k: statistics.median(v) for k, v in times.items() if v}
    spread = {k: statistics.quantiles(v, n=4) if len(v) > 1 else [v[0]] * 3 for k, v in times.items() if v}
    ours = median.get("pyflame")
    result = {"workload": name, "median_ms": median, "quartiles_ms": spread, "first_s": first, "peak_bytes": peak, "errors": errors, "target": target,
              "ratio": {k: v / ours for k, v in median.items() if k != "pyflame"} if ours else {}}
    if ours and gb:
        result["gb_per_s"] = {k: gb / v * 1e3 for k, v in median.items()}
    if ours and tflop:
        result["tflop_per_s"] = {k: tflop / v * 1e3 for k, v in median.items()}
    return result


def show(result):
    m, r = result["median_ms"], result["ratio"]
    rate = result.get("gb_per_s") or result.get("tflop_per_s") or {}
    unit = "GB/s" if "gb_per_s" in result else "TFLOP/s"
    cell = lambda k: f"{m[k]:.4f}" if k in m else "-"  # noqa: E731
    line = f"{result['workload']:38} {cell('torch'):>9} {cell('compile'):>9} {cell('graph'):>9} {cell('pyflame'):>9} {r.get('torch', 0):6.2f}"
    if rate:
        line += f"   {rate.get('torch', 0):7.0f} {rate.get('pyflame', 0):7.0f} {unit}"
    for kind, error in result["errors"].items():
        line += f"\n    {kind}: {error}"
    print(line, flush=True)


def main(args):
    if args.worker:
        return worker(args.worker, args.device)
    names = args.only or list(WORK)
    kinds = ["torch", "pyflame"] + sorted({c for n in names for c in WORK[n][3]} - ({"compile"} if args.no_compile else set()))
    peers = {k: Peer(k, args.device) for k in kinds}
    print(f"PyTorch {peers['torch'].version}, PyFlame {peers['pyflame'].version}, {args.turns} turns; ms by median, ratio: eager over PyFlame")
    print(f"{'workload':38} {'eager':>9} {'compile':>9} {'graph':>9} {'pyflame':>9} {'ratio':>6}")
    results = []
    for name in names:
        results.append(compare(name, peers, args))
        show(results[-1])
        if args.json:
            os.makedirs(os.path.dirname(os.path.abspath(args.json)), exist_ok=True)
            with open(args.json, "w", encoding="utf-8") as f:
                json.dump({"device": device_facts(), "turns": args.turns, "versions": {k: p.version for k, p in peers.items()}, "results": results}, f, indent=1)
                f.write("\n")
    missed = [r["workload"] for r in results if r["target"] and r["ratio"].get("torch", 0) < r["target"]]
    if missed:
        print("targets missed: " + ", ".join(missed))
    return 1 if args.check and missed else 0
