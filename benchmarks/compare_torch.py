#!/usr/bin/env python3
"""PyFlame against PyTorch on the same work: same model source, same threads, interleaved, medians and spread.

Each framework lives in a process of its own that waits for commands, so that neither one's thread pool or allocator disturbs the other;
the parent gives them short turns alternately. Memory is warm on both sides: every workload runs `warmup` turns before the first timed one,
and the C library is told to keep freed memory (MALLOC_* below), so that page faults are nobody's gain.

    make compare-torch                  # makes the environment and runs everything
    python benchmarks/compare_torch.py --only mlp gpt_train --turns 15 --json results.json

PyTorch runs its fastest eager settings: fused Adam(W), inference_mode, a preallocated key/value cache, scaled_dot_product_attention.
A ratio is PyTorch's median time over PyFlame's: above 1 PyFlame is faster.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time


# ---------------------------------------------------------------- the work, once for both frameworks
def make_gpt(fw, vocab=65, n_layer=4, n_head=4, n_embd=128, block=64):
    nn, functional = fw.nn, fw.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1 = nn.LayerNorm(n_embd)
            self.qkv = nn.Linear(n_embd, 3 * n_embd)
            self.proj = nn.Linear(n_embd, n_embd)
            self.ln_2 = nn.LayerNorm(n_embd)
            self.fc = nn.Linear(n_embd, 4 * n_embd)
            self.out = nn.Linear(4 * n_embd, n_embd)

        def heads(self, x):
            b, t, _ = x.shape
            q, k, v = self.qkv(x).split(n_embd, dim=2)
            return [z.view(b, t, n_head, n_embd // n_head).transpose(1, 2) for z in (q, k, v)]

        def forward(self, x, cache=None, position=0):
            b, t, _ = x.shape
            q, k, v = self.heads(self.ln_1(x))
            if cache is None:
                y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                y = fw.cached_attention(q, k, v, cache, position)
            x = x + self.proj(y.transpose(1, 2).reshape(b, t, n_embd))
            return x + self.out(functional.gelu(self.fc(self.ln_2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = nn.Embedding(vocab, n_embd)
            self.wpe = nn.Embedding(block, n_embd)
            self.blocks = nn.ModuleList([Block() for _ in range(n_layer)])
            self.ln_f = nn.LayerNorm(n_embd)
            self.head = nn.Linear(n_embd, vocab)

        def forward(self, index, caches=None, position=0):
            t = index.shape[1]
            x = self.wte(index) + self.wpe(fw.positions(position, t))
            for i, b in enumerate(self.blocks):
                x = b(x, None if caches is None else caches[i], position)
            return self.head(self.ln_f(x))

    return GPT()


class Torch:
    name = "torch"

    def __init__(self, threads):
        import torch

        self.m = torch
        self.nn = torch.nn
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        self.version = torch.__version__

    def adam(self, params, fused=True, **kw):
        return self.m.optim.Adam(params, fused=fused, **kw)

    def adamw(self, params, **kw):
        return self.m.optim.AdamW(params, fused=True, **kw)

    def sync(self):
        pass

    def positions(self, start, count):
        return self.m.arange(start, start + count)

    def make_cache(self, heads, length, size):
        return self.m.zeros(1, heads, length, size), self.m.zeros(1, heads, length, size)

    def cached_attention(self, q, k, v, cache, position):
        end = position + q.shape[2]
        cache[0][:, :, position:end] = k
        cache[1][:, :, position:end] = v
        return self.nn.functional.scaled_dot_product_attention(q, cache[0][:, :, :end], cache[1][:, :, :end],
                                                               is_causal=q.shape[2] > 1)


class PyFlame:
    name = "pyflame"

    def __init__(self, threads):
        os.environ.setdefault("PYFLAME_NUM_THREADS", str(threads))
        import pyflame

        self.m = pyflame
        self.nn = pyflame.nn
        pyflame.manual_seed(0)
        self.version = pyflame.__version__

    def adam(self, params, fused=True, **kw):
        return self.m.optim.Adam(params, **kw)

    def adamw(self, params, **kw):
        return self.m.optim.AdamW(params, **kw)

    def sync(self):
        self.m.synchronize()

    def positions(self, start, count):
        return self.m.arange(start, start + count)

    def make_cache(self, heads, length, size):
        return self.m.zeros(1, heads, length, size), self.m.zeros(1, heads, length, size)

    def cached_attention(self, q, k, v, cache, position):
        end = position + q.shape[2]
        cache[0][:, :, position:end] = k
        cache[1][:, :, position:end] = v
        return self.nn.functional.scaled_dot_product_attention(q, cache[0], cache[1], is_causal=True, kv_length=end)


def work_mlp(fw, fused=True):
    nn = fw.nn
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    opt = fw.adam(model.parameters(), fused=fused, lr=1e-3)
    x, y = fw.m.randn(32, 784), fw.m.randint(0, 10, (32,))

    def step():
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return step


def work_gpt_train(fw):
    model = make_gpt(fw)
    opt = fw.adamw(model.parameters(), lr=1e-3)
    x, y = fw.m.randint(0, 65, (12, 64)), fw.m.randint(0, 65, (12, 64))

    def step():
        logits = model(x)
        loss = fw.nn.functional.cross_entropy(logits.view(-1, 65), y.view(-1))
        opt.zero_grad()
        loss.backward()
        fw.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        return loss

    return step


def work_gpt_generate(fw):
    model = make_gpt(fw)
    model.eval()
    prompt = fw.m.randint(0, 65, (1, 4))

    def tokens():  # greedy, 60 tokens after a prompt of 4; reads every token, as a user who streams does
        with fw.m.inference_mode():
            caches = [fw.make_cache(4, 64, 32) for _ in range(4)]
            index, position = prompt, 0
            for _ in range(60):
                logits = model(index, caches, position)
                position += index.shape[1]
                index = fw.m.tensor([[int(logits[0, -1].argmax().item())]])
        return index

    return tokens


def work_gelu(fw):
    n = 16 << 20
    x, w, b, r = (fw.m.randn(n) for _ in range(4))

    def step():
        with fw.m.no_grad():
            return fw.nn.functional.gelu(x * w + b) + r

    return step


#        name            builder                               calls a turn, target ratio
WORK = {
    "mlp": (work_mlp, 200, 1.5),
    "mlp_default_adam": (lambda fw: work_mlp(fw, fused=False), 200, None),
    "gpt_train": (work_gpt_train, 5, 1.2),
    "gpt_generate": (work_gpt_generate, 2, None),
    "gelu_16Mi": (work_gelu, 3, 2.0),
}


# ---------------------------------------------------------------- the two processes
def worker(kind, threads):
    fw = (Torch if kind == "torch" else PyFlame)(threads)
    print(json.dumps({"version": fw.version}), flush=True)
    steps = {}
    for line in sys.stdin:
        name, calls = json.loads(line)
        if name not in steps:
            steps.clear()  # one workload's memory at a time
            steps[name] = WORK[name][0](fw)
        step = steps[name]
        fw.sync()
        start = time.perf_counter()
        for _ in range(calls):
            out = step()
        fw.sync()
        seconds = (time.perf_counter() - start) / calls
        float(out.reshape(-1)[0].item())  # really done
        print(json.dumps(seconds), flush=True)


class Peer:
    def __init__(self, kind, threads):
        env = dict(os.environ, OMP_NUM_THREADS=str(threads), PYFLAME_NUM_THREADS=str(threads), MALLOC_MMAP_MAX_="0",
                   MALLOC_TRIM_THRESHOLD_=str(8 << 30), MALLOC_TOP_PAD_=str(64 << 20))
        self.p = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker", kind, "--threads", str(threads)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.version = self.ask(None)["version"]

    def ask(self, command):
        if command is not None:
            self.p.stdin.write(json.dumps(command) + "\n")
            self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            raise SystemExit(f"the worker ended with exit code {self.p.wait()}")
        return json.loads(line)


def machine():
    model = ""
    try:
        with open("/proc/cpuinfo") as f:
            model = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), "")
    except OSError:
        pass
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", choices=["torch", "compile", "graph", "pyflame"], help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="cuda: the workloads of compare_gpu.py on the first GPU")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--turns", type=int, default=15, help="timed turns of each framework")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="workloads (default: all)")
    parser.add_argument("--no-compile", action="store_true", help="with a GPU: leave the torch.compile column out")
    parser.add_argument("--json", help="write the results here")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target ratio is missed")
    args = parser.parse_args()
    work = WORK
    if args.device != "cpu":
        import compare_gpu

        work = compare_gpu.WORK
    unknown = sorted(set(args.only or ()) - set(work))
    if unknown:
        parser.error(f"no such workload; got {', '.join(unknown)}; expected some of {', '.join(work)}")
    if args.device != "cpu":
        return compare_gpu.main(args)
    if args.worker:
        return worker(args.worker, args.threads)

    peers = {"torch": Peer("torch", args.threads), "pyflame": Peer("pyflame", args.threads)}
    print(f"PyTorch {peers['torch'].version}, PyFlame {peers['pyflame'].version}, {args.threads} threads, {args.turns} turns")
    print(f"{'workload':18} {'torch ms':>20} {'pyflame ms':>20} {'ratio':>7} {'target':>7}")
    results, missed = [], []
    for name in args.only or WORK:
        _, calls, target = WORK[name]
        times = {k: [] for k in peers}
        for turn in range(args.warmup + args.turns):
            order = list(peers) if turn % 2 == 0 else list(peers)[::-1]
            for k in order:
                time.sleep(0.05)  # idle threads of the other side's pool have gone to sleep by then
                t = peers[k].ask([name, calls])
                if turn >= args.warmup:
                    times[k].append(t * 1e3)
        med = {k: statistics.median(v) for k, v in times.items()}
        iqr = {k: statistics.quantiles(v, n=4) if len(v) > 1 else [v[0]] * 3 for k, v in times.items()}
        ratio = med["torch"] / med["pyflame"]
        shown = {k: f"{med[k]:.3f} [{iqr[k][0]:.3f} {iqr[k][2]:.3f}]" for k in peers}
        print(f"{name:18} {shown['torch']:>20} {shown['pyflame']:>20} {ratio:7.2f} {target or '':>7}", flush=True)
        results.append({"workload": name, "median_ms": med, "quartiles_ms": iqr, "ratio": ratio, "target": target, "times_ms": times})
        if target and ratio < target:
            missed.append(name)
    if args.json:
        os.makedirs(os.path.dirname(os.path.abspath(args.json)), exist_ok=True)
        with open(args.json, "w") as f:
            json.dump({"machine": machine(), "threads": args.threads, "turns": args.turns, "calls": {n: WORK[n][1] for n in WORK},
                       "versions": {k: p.version for k, p in peers.items()}, "results": results}, f, indent=1)
            f.write("\n")
    if missed:
        print("targets missed: " + ", ".join(missed))
    return 1 if args.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
