"""Training with DistributedDataParallel on one and on several GPUs of this host, in PyFlame and in PyTorch.

    python benchmarks/data_parallel.py [--gpus 2] [--json FILE]

GPT-2 124M in bfloat16, 16 x 1024 tokens a GPU, AdamW: tokens a second of all GPUs together. The MLP 784-256-128-10 in float32, 32 samples a GPU, Adam: microseconds a
step. On one GPU there is no DistributedDataParallel. Each figure is the median of `--turns` turns; a turn is a number of steps between two synchronisations, by
the wall clock of rank 0. `all_reduce`: GB/s of the bus (bytes by time, times 2 (n - 1) / n) by size, of calls that are queued one behind the other. The programs run one after the other, twice, and the better run of each counts. PyTorch's settings are its fastest of those that are
tried elsewhere here: fused optimizers, gradient_as_bucket_view.
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
TOKENS = 16 * 1024


def worker(name, turns, steps):
    """One rank; rank 0 prints {'gpt2': tokens a second, 'mlp': microseconds a step, 'loss': of the last turn of GPT-2, 'all_reduce': {bytes: (microseconds, GB/s)}}."""
    from compare_gpu import PyFlame, Torch, gpt2, mlp_classifier

    world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    device = f"cuda:{rank}"
    if name == "torch":
        import torch

        torch.cuda.set_device(rank)
        if world > 1:
            torch.distributed.init_process_group("nccl", device_id=torch.device(device))
        fw = Torch(device, "eager")
        ddp = lambda m: torch.nn.parallel.DistributedDataParallel(m, device_ids=[rank], gradient_as_bucket_view=True)  # noqa: E731
    else:
        import pyflame as pf

        if world > 1:
            pf.distributed.init_process_group(device="cuda")
        fw = PyFlame(device, "eager")
        ddp = pf.nn.parallel.DistributedDataParallel
    if world > 1:
        fw.module = ddp
    found = {"version": fw.version}
    for what, make, count in (("gpt2", gpt2, steps), ("mlp", mlp_classifier, 40 * steps)):
        step = make(fw)
        for _ in range(max(4, count // 2)):
            loss = step()
        fw.sync()
        times = []
        for _ in range(turns):
            begin = time.perf_counter()
            for _ in range(count):
                loss = step()
            fw.sync()
            times.append((time.perf_counter() - begin) / count)
        median = statistics.median(times)
        found[what] = TOKENS * world / median if what == "gpt2" else median * 1e6
        if what == "gpt2":
            found["loss"] = float(loss.item())
            found["peak_bytes"] = fw.peak()
        step = loss = None
        fw.fresh()
    if world > 1:
        found["all_reduce"] = {}
        for nbytes in (1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26, 1 << 28, 1 << 30):
            x, best = fw.m.zeros(nbytes // 4, dtype=fw.m.float32, device=device), 1e9
            for turn in range(6):
                begin = time.perf_counter()
                for _ in range(20):
                    fw.m.distributed.all_reduce(x)
                fw.sync()
                best = min(best, (time.perf_counter() - begin) / 20) if turn else best
            found["all_reduce"][nbytes] = (best * 1e6, nbytes * 2 * (world - 1) / world / best / 1e9)
    if rank == 0:
        print(json.dumps(found), flush=True)
    if world > 1:
        fw.m.distributed.destroy_process_group()


def run_ranks(program, words, world, timeout):
    """Runs a program as several ranks of this host. What rank 0 prints as its last JSON object; {"failed": why} where it prints none."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    ranks = [subprocess.Popen([sys.executable, str(program), *words], env={**os.environ, "RANK": str(r), "LOCAL_RANK": str(r), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
                              stdout=subprocess.PIPE if r == 0 else None, text=True) for r in range(world)]
    try:
        out, _ = ranks[0].communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        out = ""
    for r in ranks[1:]:
        try:
            r.wait(timeout=20 if out.strip() else 0.1)
        except subprocess.TimeoutExpired:
            pass
    for r in ranks:
        if r.poll() is None:
            r.kill()
    lines = [line for line in out.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"failed": f"exit codes {[r.returncode for r in ranks]}"}


def measure(name, world, args):
    return run_ranks(__file__, ["--worker", name, "--turns", str(args.turns), "--steps", str(args.steps)], world, args.timeout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="of GPT-2 in a turn; the MLP makes 40 times as many")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=90, help="seconds of one program")
    parser.add_argument("--only", action="append", choices=["pyflame", "torch"], help="repeatable")
    parser.add_argument("--json", help="a file for the result")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(args.worker, args.turns, args.steps)
    from machine import slug

    best = {}
    for _ in range(args.rounds):
        for name in args.only or ("pyflame", "torch"):
            for world in sorted({1, args.gpus}):
                found = measure(name, world, args)
                print(f"{name} on {world}: {json.dumps(found)}", flush=True)
                now = best.setdefault(f"{name}_{world}", found)
                if "failed" in now:
                    best[f"{name}_{world}"] = found
                elif "failed" not in found:
                    now["gpt2"], now["mlp"] = max(now["gpt2"], found["gpt2"]), min(now["mlp"], found["mlp"])
    for name in args.only or ("pyflame", "torch"):
        one, many = best[f"{name}_1"], best[f"{name}_{args.gpus}"]
        if "failed" not in one and "failed" not in many:
            print(f"{name}: GPT-2 {one['gpt2']:,.0f} tokens/s on one GPU, {many['gpt2']:,.0f} on {args.gpus} ({many['gpt2'] / one['gpt2'] / args.gpus:.1%} of {args.gpus} x); "
                  f"MLP {one['mlp']:.0f} us a step, {many['mlp']:.0f} ({many['mlp'] / one['mlp']:.2f} x)")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"benchmark": "data_parallel", "machine": slug(), "gpus": args.gpus, "tokens_a_gpu": TOKENS, "turns": args.turns, "steps": args.steps,
                                                       "rows": best}, indent=1) + "\n")


if __name__ == "__main__":
    main()
