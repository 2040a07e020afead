"""Times of collectives, in the columns of rccl-tests: `pyflame run --nproc 2 -m pyflame.distributed.bench`.

time: in microseconds, of the slowest rank: the median of the calls; on GPUs the mean of calls that are queued one behind the other, in the best of five turns. algbw: bytes by time. busbw: algbw by the share of the bytes that each rank must send, so
that it does not depend on the number of ranks: 2(n-1)/n for all_reduce, (n-1)/n for all_gather, reduce_scatter and alltoall, 1 for broadcast. #wrong:
elements that are not what they should be. size and count are those of the whole: of the output of all_gather, of the input of the others.
"""
import argparse
import json
import sys
import time
from dataclasses import dataclass

import pyflame as pf
import pyflame.distributed as dist
from pyflame.benchmarking import results
from pyflame.benchmarking.records import add_options, of_options

from .._command_help import Parser
from .._entry import command

_NAMES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall")


def _bytes(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    number, unit = (text[:-1], units[text[-1].upper()]) if text[-1:].upper() in units else (text, 1)
    if not number.isdigit() or int(number) == 0:
        raise argparse.ArgumentTypeError(f"not a size; got {text}; expected bytes such as 1024, 64K or 1G")
    return int(number) * unit


def _case(name, count, device):
    """(the call, what it writes, its input, the value that each rank expects) for float32 tensors."""
    n, r = dist.get_world_size(), dist.get_rank()
    part = max(1, count // n)
    if name == "all_reduce":
        x = pf.ones(count, device=device)
        return lambda: dist.all_reduce(x), x, lambda: x.fill_(1.0), n
    if name == "broadcast":
        x = pf.full((count,), float(r), device=device)
        return lambda: dist.broadcast(x, 0), x, lambda: x.fill_(float(r)), 0
    if name == "all_gather":
        out, x = pf.zeros(part * n, device=device), pf.ones(part, device=device)
        return lambda: dist.all_gather_into_tensor(out, x), out, lambda: out.zero_(), 1
    if name == "reduce_scatter":
        out, x = pf.zeros(part, device=device), pf.ones(part * n, device=device)
        return lambda: dist.reduce_scatter_tensor(out, x), out, lambda: out.zero_(), n
    out, x = pf.zeros(part * n, device=device), pf.ones(part * n, device=device)
    return lambda: dist.all_to_all_single(out, x), out, lambda: out.zero_(), 1


@dataclass
class _Row:
    """A line of the table: what was measured, and its figures."""

    name: str
    size: int  # bytes
    ranks: int
    seconds: float
    wrong: int

    def figures(self):
        """With the names of the table's columns."""
        speed = self.size / self.seconds / 1e9
        redop, root = ("sum" if "reduce" in self.name else "none"), (0 if self.name == "broadcast" else -1)
        return {"size": self.size, "count": self.size // 4, "type": "float", "redop": redop, "root": root, "time_us": self.seconds * 1e6, "algbw_gbs": speed,
                "busbw_gbs": speed * _factor(self.name, self.ranks), "wrong": self.wrong}

    def __str__(self):
        f = self.figures()
        return (f" {f['size']:>12} {f['count']:>12} {f['type']:>8} {f['redop']:>6} {f['root']:>6} {f['time_us']:>10.1f} {f['algbw_gbs']:>8.2f} {f['busbw_gbs']:>8.2f} {f['wrong']:>7}")

    def record(self, device, transport, iterations):
        """Its Result."""
        f = self.figures()
        text = f"{f['time_us']:.1f} us, algbw {f['algbw_gbs']:.2f} GB/s, busbw {f['busbw_gbs']:.2f} GB/s, {self.wrong} wrong; transport {transport}"
        return results.of("collective", f"{self.name} {self.size} bytes, {self.ranks} ranks", device, {**f, "ranks": self.ranks}, text, [f"transport={transport}", f"iters={iterations}"], fn=main)


def _transport():
    group = dist.group.WORLD
    ways = ", ".join(sorted(set(group.transports()) - {"itself"})) or "none"
    return f"host ({ways})" if group.name() == "host" else group.name()


def _factor(name, n):
    return {"all_reduce": 2 * (n - 1) / n, "broadcast": 1.0}.get(name, (n - 1) / n)


def _measure(name, size, device, repeat):
    """(median seconds of the slowest rank, wrong elements of all ranks)."""
    call, out, reset, want = _case(name, size // 4, device)
    if not device.startswith("cpu"):
        return _measure_queued(call, out, reset, want, repeat)
    times = []
    for _ in range(repeat + 1):  # the first one is not counted
        reset()
        pf.synchronize()
        dist.barrier()
        begin = time.perf_counter()
        call()
        pf.synchronize()
        times.append(time.perf_counter() - begin)
    return _of_all_ranks(sorted(times[1:])[repeat // 2], out, want)


def _of_all_ranks(seconds, out, want):
    """(seconds of the slowest rank, wrong elements of all ranks)."""
    wrong = pf.tensor(float((out != float(want)).sum().item()), dtype=pf.float64, device="cpu")
    slowest = pf.tensor(seconds, dtype=pf.float64, device="cpu")
    dist.all_reduce(wrong)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item(), int(wrong.item())


def _measure_queued(call, out, reset, want, repeat):
    """The same for a GPU, which works behind the host: turns of `repeat` calls between two synchronisations."""
    for _ in range(3):  # the first calls make connections
        call()
    times = []
    for _ in range(5):
        pf.synchronize()
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(repeat):
            call()
        pf.synchronize()
        times.append((time.perf_counter() - begin) / repeat)
    reset()
    call()
    return _of_all_ranks(min(times), out, want)


@command()
def main(words=None):
    p = Parser(prog="python -m pyflame.distributed.bench", description="Times of collectives, in the columns of rccl-tests.")
    p.add_argument("--collective", choices=_NAMES, action="append", help="which ones; repeatable (default: all)")
    p.add_argument("-b", "--minbytes", type=_bytes, default=1 << 10)
    p.add_argument("-e", "--maxbytes", type=_bytes, default=64 << 20)
    p.add_argument("-f", "--stepfactor", type=int, default=4)
    p.add_argument("-n", "--iters", type=int, default=20)
    p.add_argument("--device", default="cpu")
    p.add_argument("--json", action="store_true", help="print the record of each line as a JSON object instead of the table")
    add_options(p)
    args = p.parse_args(words)
    if args.stepfactor < 2 or args.iters < 1 or args.minbytes < 4:
        p.error("a factor below 2, no iterations, or less than one element of 4 bytes")
    dist.init_process_group(device=args.device)
    args.device = pf.get_device()
    n, first = dist.get_world_size(), dist.get_rank() == 0
    records = of_options(args) if first else None
    wrong_in_all = 0
    for name in args.collective or _NAMES:
        if first and not args.json:
            print(f"# {name}: {n} ranks, transport {_transport()}, tensors on {args.device}")
            print(f"#{'size':>12} {'count':>12} {'type':>8} {'redop':>6} {'root':>6} {'time':>10} {'algbw':>8} {'busbw':>8} {'#wrong':>7}")
            print(f"#{'(B)':>12} {'(elements)':>12} {'':>8} {'':>6} {'':>6} {'(us)':>10} {'(GB/s)':>8} {'(GB/s)':>8} {'':>7}")
        size = args.minbytes
        while size <= args.maxbytes:
            seconds, wrong = _measure(name, size, args.device, args.iters)
            wrong_in_all += wrong
            if first:
                row = _Row(name, size, n, seconds, wrong)
                record = row.record(args.device, _transport(), args.iters) if args.json or records is not None else None
                print(json.dumps(record.to_dict()) if args.json else row, flush=True)
                if records is not None:
                    records.add(record)
            size *= args.stepfactor
    dist.destroy_process_group()
    return 1 if wrong_in_all else 0


if __name__ == "__main__":
    sys.exit(main())
