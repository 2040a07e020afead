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
import gc
import json
import os
import statistics
import subprocess
import sys
import time


import cpu_work
import machine


def resident(key):
    """Bytes of this process's memory: VmRSS now, VmHWM at most."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith(key + ":"))


def worker(kind, threads):
    """One workload of one framework: a turn for each line that comes."""
    fw = cpu_work.PyFlame(threads) if kind == "pyflame" else cpu_work.Torch(threads, kind == "compile")
    print(json.dumps({"version": fw.version}), flush=True)
    before, step = resident("VmRSS"), None
    for line in sys.stdin:
        name, calls = json.loads(line)
        step = step or cpu_work.WORK[name][0](fw)
        fw.sync()
        start = time.perf_counter()
        for _ in range(calls):
            out = step()
        fw.sync()
        seconds = (time.perf_counter() - start) / calls
        float(out.reshape(-1)[0].item())  # really done
        print(json.dumps([seconds, resident("VmHWM") - before]), flush=True)


class Peer:
    def __init__(self, kind, threads):
        env = dict(os.environ, OMP_NUM_THREADS=str(threads), PYFLAME_NUM_THREADS=str(threads), MALLOC_MMAP_MAX_="0",
                   MALLOC_TRIM_THRESHOLD_=str(8 << 30), MALLOC_TOP_PAD_=str(64 << 20))
        self.p = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker", kind, "--threads", str(threads)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.version = self.ask(None)["version"]

    def end(self):
        self.p.stdin.close()
        self.p.wait()

    def ask(self, command):
        if command is not None:
            self.p.stdin.write(json.dumps(command) + "\n")
            self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            raise SystemExit(f"the worker ended with exit code {self.p.wait()}")
        return json.loads(line)


class Columns:
    """The processes of one workload, which take turns."""

    def __init__(self, name, args):
        self.name = name
        _, self.calls, self.target, others = cpu_work.WORK[name]
        kinds = ["torch", "pyflame"] + [k for k in others if args.compile]
        self.peers = {k: Peer(k, args.threads) for k in kinds}
        self.times, self.peak = {k: [] for k in kinds}, {}
        for turn in range(args.warmup + args.turns):
            for k in kinds if turn % 2 == 0 else kinds[::-1]:
                time.sleep(0.05)  # idle threads of the other side's pool have gone to sleep by then
                seconds, self.peak[k] = self.peers[k].ask([name, self.calls])
                if turn >= args.warmup:
                    self.times[k].append(seconds * 1e3)
        for peer in self.peers.values():
            peer.end()

    def result(self):
        median = {k: statistics.median(v) for k, v in self.times.items()}
        quartiles = {k: statistics.quantiles(v, n=4) if len(v) > 1 else [v[0]] * 3 for k, v in self.times.items()}
        return {"workload": self.name, "calls": self.calls, "median_ms": median, "quartiles_ms": quartiles, "ratio": median["torch"] / median["pyflame"],
                "target": self.target, "peak_mib": {k: round(v / 2**20, 1) for k, v in self.peak.items()}, "times_ms": self.times}


def show(r):
    cells = [f"{r['median_ms'][k]:.3f} [{r['quartiles_ms'][k][0]:.3f} {r['quartiles_ms'][k][2]:.3f}]" if k in r["median_ms"] else "" for k in ("torch", "compile", "pyflame")]
    memory = f"{r['peak_mib']['torch']:.0f} / {r['peak_mib']['pyflame']:.0f}"
    print(f"{r['workload']:26} {cells[0]:>24} {cells[1]:>24} {cells[2]:>24} {r['ratio']:6.2f} {r['target'] or '':>6} {memory:>12}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", choices=["torch", "compile", "graph", "pyflame"], help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="cuda: the workloads of compare_gpu.py on the first GPU")
    parser.add_argument("--threads", type=int, default=machine.cores())
    parser.add_argument("--turns", type=int, default=15, help="timed turns of each framework")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="workloads (default: all)")
    parser.add_argument("--compile", action="store_true", help="on the CPU: a column for torch.compile as well (minutes; needs a C++ compiler)")
    parser.add_argument("--no-compile", action="store_true", help="with a GPU: leave the torch.compile column out")
    parser.add_argument("--json", help="write the results here")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target ratio is missed")
    args = parser.parse_args()
    work = cpu_work.WORK
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

    print(f"{args.threads} threads, {args.turns} turns; milliseconds: median [quartiles]; the last column is MiB at most, PyTorch's and PyFlame's")
    print(f"{'workload':26} {'PyTorch eager':>24} {'torch.compile':>24} {'PyFlame':>24} {'ratio':>6} {'target':>6} {'memory':>12}")
    results, versions = [], {}
    for name in args.only or work:
        columns = Columns(name, args)
        versions = {k: p.version for k, p in columns.peers.items()} | versions
        results.append(columns.result())
        show(results[-1])
        if args.json:  # what is measured is kept, whatever comes
            os.makedirs(os.path.dirname(os.path.abspath(args.json)), exist_ok=True)
            with open(args.json, "w") as f:
                json.dump({"machine": {"cpu": machine.cpu(), "cores": machine.cores()}, "threads": args.threads, "turns": args.turns,
                           "versions": versions, "geometric_mean": statistics.geometric_mean(r["ratio"] for r in results), "results": results}, f, indent=1)
                f.write("\n")
    print(f"geometric mean of the ratios: {statistics.geometric_mean(r['ratio'] for r in results):.2f}; versions {versions}")
    missed = [r["workload"] for r in results if r["target"] and r["ratio"] < r["target"]]
    if missed:
        print("targets missed: " + ", ".join(missed))
    return 1 if args.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
