"""Checks the paths between processes before a long run: `pyflame run --nproc 2 -m pyflame.distributed.check`.

Each two ranks send each other a pattern that both can compute, and compare every byte. Then all ranks add numbers whose sum is known exactly. A path that loses or changes bytes, as
faulty peer-to-peer transfers between GPUs do, is named with its ranks; a rank that does not answer is named after the timeout. latency: half of the median round trip of 8 bytes, in
microseconds. bandwidth: bytes of a message by half of the median round trip of it, in GB/s (10^9 bytes). It is compared with what the path should give: the PCIe link or the NVLink or xGMI links of
the GPUs, two copies in the memory of a host, or the network card. Exit code 1 if anything is wrong; a path that is only slow changes no exit code.
"""
import json
import sys
import time

import pyflame as pf
import pyflame.distributed as dist

from .._command_help import Parser
from .._entry import command
from . import _expected
from ._state import resolved


_BYTES, _GPU_BYTES = 16 << 20, 64 << 20  # of a message: enough that the path takes longer than its latency


def _pattern(sender, receiver, count, device):
    """int32 numbers that differ between pairs, directions and places."""
    return ((pf.arange(count, dtype=pf.int64) * 2654435761 + sender * 40503 + receiver * 9973 + 17) % 2147483629).to(pf.int32).to(device)


def _receive(tensor, peer, group):
    dist.recv(tensor, group=group, group_src=peer)


def _round_trips(first, peer, group, tensor, repeat):
    """Seconds of the median round trip. `first`: this rank sends first."""
    times = []
    for _ in range(repeat + 1):  # the first one is not counted
        begin = time.perf_counter()
        for sends in (first, not first):
            if sends:
                dist.send(tensor, group=group, group_dst=peer)
            else:
                _receive(tensor, peer, group)
        pf.synchronize()
        times.append(time.perf_counter() - begin)
    return sorted(times[1:])[repeat // 2]


def _pair(group, rank, peer, nbytes, repeat, device):
    """What this rank finds about its path to another one."""
    count, first = max(1, nbytes // 4), rank < peer
    own, got, want = _pattern(rank, peer, count, device), pf.zeros(count, dtype=pf.int32, device=device), _pattern(peer, rank, count, device)
    for sends in (first, not first):
        if sends:
            dist.send(own, group=group, group_dst=peer)
        else:
            _receive(got, peer, group)
    wrong = (got != want).nonzero()
    latency = _round_trips(first, peer, group, pf.zeros(2, dtype=pf.int32, device=device), repeat) / 2
    seconds = _round_trips(first, peer, group, own, max(1, repeat // 4)) / 2
    return {"from": group.ranks[peer], "to": group.ranks[rank], "transport": group.name() if group.name() != "host" and pf.device(str(device)).type != "cpu" else group.transports()[peer], "wrong": int(wrong.shape[0]), "first_wrong": int(wrong[0, 0].item()) if wrong.shape[0] else None,
            "elements": count, "latency_us": latency * 1e6, "bandwidth_gb_s": own.nbytes / seconds / 1e9}


def check_paths(group=None, *, nbytes=1 << 20, repeat=20, device="cpu"):
    """Checks each path between two ranks of a group, and a sum over all. All ranks call it, and get the same result.

    nbytes: of a message. repeat: round trips that are timed. device: where the tensors are.
    Returns {'ranks', 'device', 'paths': [{'from', 'to', 'transport', 'wrong' (elements that came otherwise), 'first_wrong', 'elements', 'latency_us', 'bandwidth_gb_s',
    'expected_gb_s' (what such a message gets on this path; None where nothing says it), 'verdict'}], 'sums_wrong': {rank: elements}}. ValueError: nbytes or repeat is not above 0. RuntimeError: a rank does not come within the group's timeout, or ended."""
    op = "check_paths"
    for name, value in (("nbytes", nbytes), ("repeat", repeat)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{op}: {name} is not a number above 0; got {value!r}; expected such as {1 << 20 if name == 'nbytes' else 20}")
    group = resolved(op, group)
    if group is None or group.size() == 1:
        return {"ranks": 1, "device": str(device), "paths": [], "sums_wrong": {}}
    rank, n, mine = group.rank(), group.size(), []
    if pf.device(str(device)).type != "cpu":
        dist.all_reduce(pf.zeros(1, device=device), group=group)  # all ranks connect their GPUs; a message between two of them would not
    for a in range(n):
        for b in range(a + 1, n):
            dist.barrier(group)  # one pair at a time, so that times are those of one path
            if rank in (a, b):
                mine.append(_pair(group, rank, a + b - rank, nbytes, repeat, device))
    count = max(1, nbytes // 4)
    numbers = (pf.arange(count) % 251).to(pf.float32).to(device)  # sums below 2**24 are exact
    total = numbers * float(rank + 1)
    dist.all_reduce(total, group=group)
    wrong = int((total != numbers * (n * (n + 1) / 2)).sum().item())
    everyone = [None] * n
    dist.all_gather_object(everyone, (mine, wrong, _expected.facts(group, device, nbytes)), group=group)
    paths = sorted((path for found, _, _ in everyone for path in found), key=lambda p: (p["from"], p["to"]))
    facts = dict(zip(group.ranks, (f for _, _, f in everyone)))
    for path in paths:
        _expected.judge(path, facts[path["from"]], facts[path["to"]], nbytes)
    return {"ranks": n, "device": str(device), "paths": paths, "sums_wrong": {str(group.ranks[r]): w for r, (_, w, _) in enumerate(everyone) if w}}


def _text(report):
    lines = [f"{report['ranks']} ranks, tensors on {report['device']}", f"{'from':>5} {'to':>5}  {'transport':<14} {'latency us':>11} {'GB/s':>8}  {'wrong elements':<14}  bandwidth"]
    for p in report["paths"]:
        wrong = f"{p['wrong']} of {p['elements']}, the first at {p['first_wrong']}" if p["wrong"] else "0"
        lines.append(f"{p['from']:>5} {p['to']:>5}  {p['transport']:<14} {p['latency_us']:>11.1f} {p['bandwidth_gb_s']:>8.2f}  {wrong:<14}  {p['verdict']}")
    lines += [f"the sum over all ranks is wrong on rank {r}: {w} elements" for r, w in report["sums_wrong"].items()]
    return "\n".join(lines)


def is_good(report):
    """Whether nothing in a report of check_paths() is wrong. Paths that are slow are no error: times depend on what else runs."""
    return not report["sums_wrong"] and not any(p["wrong"] for p in report["paths"])


def _launch(args):
    """Runs this module in several processes: `pyflame doctor --comm`."""
    from .run import main as run

    if args.launch == "gpu" and not max(pf.cuda.device_count(), pf.rocm_device_count()):
        print("pyflame doctor: there is no GPU, so two processes on the CPU check their paths; hint: `pyflame doctor` says why there is none, --nproc N takes another number", file=sys.stderr)
        args.launch = "2"
    nbytes = args.bytes or (_GPU_BYTES if args.launch == "gpu" else _BYTES)
    words = ["--bytes", str(nbytes), "--repeat", str(args.repeat), "--timeout", str(args.timeout), "--device", "gpu" if args.launch == "gpu" else "cpu", *(["--json"] if args.json else [])]
    return run(["--nproc", args.launch, "--no-prefix", "-m", "pyflame.distributed.check", *words])


@command()
def main(words=None):
    p = Parser(prog="python -m pyflame.distributed.check", description="Checks the paths between processes.")
    p.add_argument("--bytes", type=int, help="of a message; the default is 64 MiB for tensors of GPUs and 16 MiB for others")
    p.add_argument("--repeat", type=int, default=20, help="round trips that are timed")
    p.add_argument("--device", default="cpu", help="cpu, cuda, rocm, or gpu: the one of the last two that is there")
    p.add_argument("--timeout", type=float, default=60.0, help="seconds after which a rank that does not answer is named")
    p.add_argument("--json", action="store_true")
    p.add_argument("--launch", metavar="N", help="starts N processes that check; gpu: one for each GPU")
    args = p.parse_args(words)
    if args.bytes is not None and args.bytes < 1 or args.repeat < 1:
        p.error("--bytes and --repeat are above 0")
    if args.launch:
        return _launch(args)
    device = args.device if args.device != "gpu" else "cuda" if pf.cuda.device_count() else "rocm"
    dist.init_process_group(timeout=args.timeout, device=device)
    report = check_paths(nbytes=args.bytes or (_BYTES if device == "cpu" else _GPU_BYTES), repeat=args.repeat, device=pf.get_device())
    if dist.get_rank() == 0:
        print(json.dumps(report) if args.json else _text(report))
    dist.barrier()
    dist.destroy_process_group()
    return 0 if is_good(report) else 1


if __name__ == "__main__":
    sys.exit(main())
