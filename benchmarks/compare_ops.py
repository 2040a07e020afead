#!/usr/bin/env python3
"""PyFlame against PyTorch, op by op: the rows of op_work.py.

Each framework has one process. For each row they take turns; a turn is the same number of calls for both, at least --seconds long by
PyTorch's clock. On a GPU the calls of a turn are queued and waited for once; on the CPU each call is waited for. A ratio is PyTorch's
median time over PyFlame's: above 1 PyFlame is faster.

Both compute convolutions of float32 as such, or with --tf32 both may round them to TF32, which is PyTorch's default on NVIDIA's GPUs and not PyFlame's.
Deterministic algorithms are as each framework begins: on in PyFlame, off in PyTorch.

    .bench-venv/bin/python benchmarks/compare_ops.py                       # all rows on the CPU
    .bench-venv/bin/python benchmarks/compare_ops.py --only 'sort*' --turns 9 --json results.json
    python benchmarks/compare_ops.py --device cuda
"""
import argparse
import fnmatch
import json
import os
import statistics
import subprocess
import sys
import time

import machine
import op_work


class Framework:
    """torch or pyflame under the few names in which they differ."""

    def __init__(self, kind, device, threads, tf32):
        os.environ.setdefault("PYFLAME_NUM_THREADS", str(threads))
        self.kind, self.gpu = kind, device != "cpu"
        if kind == "torch":
            import torch as m

            m.set_num_threads(threads)
            m.set_default_device(device)
            m.backends.cudnn.allow_tf32 = tf32
        else:
            import pyflame as m

            m.set_device(device)
            m.set_float32_conv_precision("high" if tf32 else "highest")
        self.m = m
        m.manual_seed(0)

    def wait(self):
        if self.kind == "pyflame":
            self.m.synchronize()
        elif self.gpu:
            self.m.cuda.synchronize()

    def submit(self):
        """Ends one call: nothing of it may be fused with the next one or dropped as unused."""
        if self.kind == "pyflame":
            self.m.cut() if self.gpu else self.m.synchronize()


def worker(kind, device, threads, tf32):
    fw, current, call, train = Framework(kind, device, threads, tf32), None, None, False
    print(json.dumps(fw.m.__version__), flush=True)
    for line in sys.stdin:
        name, calls = json.loads(line)
        try:
            if name != current:
                call = None
                make, _, train = op_work.ROWS[name]
                call, current = make(fw.m), name
            fw.wait()
            start = time.perf_counter()
            with fw.m.set_grad_enabled(train):
                for _ in range(calls):
                    out = call()
                    fw.submit()
            fw.wait()
            del out
            answer = {"seconds": (time.perf_counter() - start) / calls}
        except Exception as e:
            current, answer = None, {"error": f"{type(e).__name__}: {str(e).splitlines()[0][:150]}"}
        print(json.dumps(answer), flush=True)


class Peer:
    def __init__(self, kind, args):
        env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_=str(8 << 30), MALLOC_TOP_PAD_=str(64 << 20))
        command = [sys.executable, os.path.abspath(__file__), "--worker", kind, "--device", args.device, "--threads", str(args.threads), *["--tf32"] * args.tf32]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.version = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the worker ended with exit code {self.process.wait()}")
        return json.loads(line)

    def ask(self, name, calls):
        self.process.stdin.write(json.dumps([name, calls]) + "\n")
        self.process.stdin.flush()
        return self.read()


def measure(name, peers, args):
    """The times of one row in milliseconds, or the error of the framework that cannot run it."""
    first = {}
    for kind, peer in peers.items():
        for _ in range(2):  # the first call allocates and compiles
            answer = peer.ask(name, 1)
            if "error" in answer:
                return {"row": name, "error": f"{kind}: {answer['error']}"}
        first[kind] = answer["seconds"]
    calls = max(1, min(10000, int(args.seconds / max(first["torch"], 1e-6))))
    times = {kind: [] for kind in peers}
    for turn in range(args.warmup + args.turns):
        for kind in list(peers)[:: 1 if turn % 2 else -1]:
            time.sleep(0.02)  # the idle threads of the other side have gone to sleep by then
            answer = peers[kind].ask(name, calls)
            if "error" in answer:
                return {"row": name, "error": f"{kind}: {answer['error']}"}
            if turn >= args.warmup:
                times[kind].append(answer["seconds"] * 1e3)
    median = {kind: statistics.median(t) for kind, t in times.items()}
    return {"row": name, "calls": calls, "median_ms": median, "ratio": median["torch"] / median["pyflame"], "times_ms": times}


def show(result):
    if "error" in result:
        return print(f"{result['row']:32} {result['error']}", flush=True)
    cells = []
    for kind, times in result["times_ms"].items():
        low, _, high = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
        cells.append(f"{result['median_ms'][kind]:.3f} [{low:.3f} {high:.3f}]")
    print(f"{result['row']:32} {cells[0]:>28} {cells[1]:>28} {result['ratio']:7.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", choices=["torch", "pyflame"], help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=machine.cores())
    parser.add_argument("--tf32", action="store_true", help="convolutions of float32 may be rounded to TF32")
    parser.add_argument("--turns", type=int, default=7, help="timed turns of each framework")
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.05, help="the least length of a turn")
    parser.add_argument("--only", nargs="*", default=["*"], help="patterns of rows")
    parser.add_argument("--json", help="write the results here")
    args = parser.parse_args()
    if args.worker:
        return worker(args.worker, args.device, args.threads, args.tf32)
    names = [n for n, (_, gpu, _) in op_work.ROWS.items() if any(fnmatch.fnmatch(n, p) for p in args.only) and (gpu or args.device == "cpu")]
    if not names:
        parser.error(f"no row has such a name; got {' '.join(args.only)}; expected some of {', '.join(op_work.ROWS)}")
    peers = {kind: Peer(kind, args) for kind in ("torch", "pyflame")}
    versions = {kind: peer.version for kind, peer in peers.items()}
    print(f"{args.device}, {args.threads} threads, {args.turns} turns, {versions}; milliseconds: median [quartiles]")
    print(f"{'row':32} {'PyTorch':>28} {'PyFlame':>28} {'ratio':>7}")
    results = []
    for name in names:
        results.append(measure(name, peers, args))
        show(results[-1])
    ratios = [r["ratio"] for r in results if "ratio" in r]
    mean = statistics.geometric_mean(ratios) if ratios else None
    if ratios:
        print(f"geometric mean of {len(ratios)} ratios: {mean:.2f}; lowest {min(ratios):.2f}")
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"machine": {"cpu": machine.cpu(), "cores": machine.cores()}, "device": args.device, "threads": args.threads,
                       "turns": args.turns, "tf32": args.tf32, "versions": versions, "geometric_mean": mean, "results": results}, f, indent=1)
            f.write("\n")
    return 1 if len(ratios) < len(results) else 0


if __name__ == "__main__":
    sys.exit(main())
