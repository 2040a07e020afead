"""all_reduce between two processes of this host on CPUs, beside memcpy of as many bytes in each of them.

    python benchmarks/all_reduce_cpu.py [--json FILE]

Both processes copy, then both reduce, in turns, so that memcpy shares the memory with that of the other process as all_reduce does. Each has one thread and, where there are
enough, a processor of its own. A turn is as many calls as copy 64 MiB, at most 64. A time is the mean of the two processes, in microseconds a call; figures are medians over the turns, with
quartiles. bandwidth: bytes by time, as a share of that of memcpy: the median over the turns of memcpy's time by all_reduce's. Times of the processor (`cpu`) say what the
work costs where other programs run as well. Each transport has processes of its own: direct reads and writes of the other's memory, rings in shared memory, TCP.
"""
import argparse
import ctypes
import json
import os
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
TRANSPORTS = {"direct": {}, "shared memory": {"PYFLAME_DIRECT_MEMORY": "0"}, "TCP": {"PYFLAME_SHARED_MEMORY": "0"}}
SIZES = (64 << 10, 1 << 20, 64 << 20)


def per_call(call, calls):
    """Microseconds a call: by the clock, and of the processor."""
    wall, cpu = time.perf_counter(), time.thread_time()
    for _ in range(calls):
        call()
    return (time.perf_counter() - wall) / calls * 1e6, (time.thread_time() - cpu) / calls * 1e6


def worker(turns, sizes):
    """One rank; rank 0 prints {'transport': ..., 'rows': [a row for each size]}."""
    import pyflame as pf
    import pyflame.distributed as dist

    rank = int(os.environ["RANK"])
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) > 1:
        os.sched_setaffinity(0, {processors[rank]})
    dist.init_process_group()
    memcpy = ctypes.CDLL(None).memcpy
    memcpy.argtypes, memcpy.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t], ctypes.c_void_p
    rows = []
    for nbytes in sizes:
        x, source, target = (pf.full((nbytes // 4,), float(rank + 1)) for _ in range(3))
        dist.all_reduce(x)
        if not bool((x == 3.0).all()):
            raise SystemExit(f"all_reduce of {nbytes} bytes: the sum is wrong; got {x[:4].tolist()}; expected 3")
        x.zero_()  # sums of zeros stay what they are
        to, at = target.data_ptr(), source.data_ptr()
        calls = max(1, min(64, (64 << 20) // nbytes))
        times = []
        for _ in range(turns + 1):
            dist.barrier()
            copied = per_call(lambda to=to, at=at, nbytes=nbytes: memcpy(to, at, nbytes), calls)
            dist.barrier()
            times.append((*copied, *per_call(lambda x=x: dist.all_reduce(x), calls)))
        both = [None] * dist.get_world_size()
        dist.all_gather_object(both, times[1:])
        rows.append(row(nbytes, calls, [[statistics.mean(values) for values in zip(*turn)] for turn in zip(*both)]))
    if rank == 0:
        print(json.dumps({"transport": dist.group.WORLD.transports()[1], "rows": rows}), flush=True)
    dist.destroy_process_group()


def quartiles(values):
    return [float(f"{v:.5g}") for v in statistics.quantiles(values, n=4, method="inclusive")]


def row(nbytes, calls, turns):
    """Of turns: [memcpy, memcpy's processor, all_reduce, all_reduce's processor] in microseconds a call."""
    found = {"bytes": nbytes, "calls": calls}
    for i, name in enumerate(("memcpy", "memcpy_cpu", "all_reduce", "all_reduce_cpu")):
        low, middle, high = quartiles([t[i] for t in turns])
        found[f"{name}_us"], found[f"{name}_us_quartiles"] = middle, [low, high]
    for name, i in (("share", 0), ("share_cpu", 1)):
        low, middle, high = quartiles([t[i] / t[i + 2] for t in turns])
        found[name], found[f"{name}_quartiles"] = middle, [low, high]
    return found


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=21)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes of a tensor, multiples of 4")
    parser.add_argument("--only", action="append", choices=list(TRANSPORTS), help="a transport; repeatable")
    parser.add_argument("--timeout", type=float, default=600, help="seconds of one transport")
    parser.add_argument("--json", metavar="FILE", help="a file for the result")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.turns < 2:
        parser.error(f"--turns: got {args.turns}; expected at least 2")
    if bad := [n for n in args.sizes if n < 4 or n % 4]:
        parser.error(f"--sizes: got {bad[0]}; expected multiples of 4 above 0")
    return args


def main():
    args = parsed()
    if args.worker:
        return worker(args.turns, args.sizes)
    from data_parallel import run_ranks
    from machine import cores, cpu, slug

    os.environ["PYFLAME_NUM_THREADS"] = "1"
    found = {}
    for transport in args.only or TRANSPORTS:
        for name in ("PYFLAME_DIRECT_MEMORY", "PYFLAME_SHARED_MEMORY"):
            os.environ.pop(name, None)
        os.environ.update(TRANSPORTS[transport])
        one = run_ranks(__file__, ["--worker", "--turns", str(args.turns), "--sizes", *map(str, args.sizes)], 2, args.timeout)
        if "failed" in one:
            raise SystemExit(f"{transport}: {one['failed']}")
        if one["transport"] != transport:
            print(f"{transport}: this system does not allow it; the processes use {one['transport']}", flush=True)
            continue
        found[transport] = one["rows"]
        for r in one["rows"]:
            low, high = r["share_quartiles"]
            print(f"{transport:<14} {r['bytes']:>10} bytes: memcpy {r['memcpy_us']:>10.1f} us, all_reduce {r['all_reduce_us']:>10.1f} us; {r['share']:.1%} of memcpy's bandwidth "
                  f"({low:.1%} to {high:.1%}); by the processor's time {r['share_cpu']:.1%}", flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"benchmark": "all_reduce_cpu", "machine": slug(), "cpu": cpu(), "cores": cores(), "ranks": 2, "turns": args.turns, "transports": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
