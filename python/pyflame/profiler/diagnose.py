"""`pyflame diagnose PID`: what a running process is bound by, from watching it for some seconds. See process.py for how it is watched."""
import json
import sys

from .._command_help import Parser
from .._entry import command
from ..benchmarking import gpu_metrics
from .process import Watcher, python_stacks
from .tables import _bytes

BUSY = 0.7  # of a core or a device: it is what limits the process
IDLE = 0.05
_MISSES = 20  # of the last cache in 1000 instructions; streams of memory have more
_SLOW = 0.7  # instructions in a cycle
_WAITS = {"read": "waits for data (read)", "poll": "waits for events (poll)", "sleep": "sleeps", "lock": "waits for other threads (locks)", "child": "waits for a child process", "write": "waits to write",
          "disk": "waits for the disk", "run": "runs", "stopped": "is stopped", "other": "waits in the kernel"}


def _gpu(o):
    """The load of the busiest GPU that the process has open, and of its memory; (None, None) without one."""
    means = []
    for samples in o.gpus.values():
        memory = [m for _, m in samples if m is not None]
        means.append((sum(b for b, _ in samples) / len(samples) / 100, sum(memory) / len(memory) / 100 if memory else None))
    return max(means, key=lambda m: m[0], default=(None, None))


def _memory_bound(o):
    """Why memory limits the CPU's work; empty if it does not, or if it is not known."""
    if o.major_faults > 20 * o.seconds:
        return f"{o.major_faults / o.seconds:.0f} pages a second come from the disk: the memory does not suffice (swapping, or files that are mapped)"
    if o.cpu and o.kernel > 0.3 * o.cpu and o.minor_faults > 100 * o.seconds:
        return f"{100 * o.kernel / o.cpu:.0f} % of its CPU time is in the kernel, with {o.minor_faults / o.seconds:.0f} new pages a second: memory is taken from the system and given back all the time"
    c = o.counters
    if c and c["instructions"] < _SLOW * c["cycles"] and c.get("misses", 0) > _MISSES / 1000 * c["instructions"]:
        return f"{c['instructions'] / c['cycles']:.2f} instructions in a cycle, and {1000 * c['misses'] / c['instructions']:.0f} misses of the last cache in 1000 instructions: the cores wait for memory"
    return ""


def _host_steps(o):
    steps = [f"See where: pyflame profile for a program that you start; py-spy top --pid {o.pid} for this one."]
    if o.gpus:
        steps.append("Give the GPU more work for each launch: larger batches, fused ops, fewer values read back.")
    busiest = max((cpu for _, cpu in o.threads.values()), default=0)
    if o.cpu > 0 and busiest > 0.8 * o.cpu:
        steps.append("One thread does nearly all of it: other processes or native threads could share it.")
    return steps


def _input(o):
    """Why the process waits for its input; empty if it does not."""
    workers = sum(o.children.values()) / o.seconds
    waiting = o.share("read", "disk")
    if workers >= BUSY and o.share("read", "poll", "lock", "child") > 0.5:
        return f"its worker processes use {workers:.1f} cores while it waits for them"
    if o.share("disk") > 0.3:
        return f"it waits for the disk in {100 * o.share('disk'):.0f} % of the samples"
    flows = o.bytes_read > 0 and o.reads > o.seconds
    if waiting > 0.3 and flows:
        where = o.files.most_common(1)[0][0] if o.files else "a file"
        return f"it waits for {where} in {100 * waiting:.0f} % of the samples, and {_bytes(round(o.bytes_read / o.seconds))} a second come"
    if o.share("poll") > 0.5 and o.bytes_read > 1000 * o.seconds:
        return f"it waits for events in {100 * o.share('poll'):.0f} % of the samples, and {_bytes(round(o.bytes_read / o.seconds))} a second come"
    return ""


def decide(o):
    """(verdict, sentence, what to do next): host-bound, input-bound, memory-bound, device-bound, idle or stopped."""
    cores, (busy, memory_busy) = o.cpu / o.seconds, _gpu(o)
    if o.share("stopped") > 0.5:
        return "stopped", "The process is stopped, by a signal or a debugger.", [f"kill -CONT {o.pid} lets it go on."]
    if busy is not None and busy >= BUSY:
        if memory_busy is not None and memory_busy >= BUSY:
            return "memory-bound", f"The GPU's memory limits it: the GPU is busy for {100 * busy:.0f} %, its memory for {100 * memory_busy:.0f} %.", ["Move fewer bytes: bfloat16, fused ops, torch.compile. pyflame report on a trace shows which kernels."]
        return "device-bound", f"The GPU is what limits it: it is busy for {100 * busy:.0f} %.", ["Record a trace and see which kernels take the time: pyflame report."]
    if waits := _input(o):
        if cores < BUSY or o.share("read", "disk") > 0.5:
            return "input-bound", f"It waits for its input: {waits}.", ["Make the input faster or prepare it ahead: more workers, larger reads, a cache, a faster disk.", "See who writes it: lsof -p PID names the other end of a pipe or socket."]
    if cores >= BUSY or o.share("run", "disk") >= BUSY:
        if why := _memory_bound(o):
            return "memory-bound", f"Memory limits it: {why}.", ["Keep memory and use it again instead of making new arrays; work in place and in blocks that fit the cache; use smaller types."]
        return "host-bound", f"The CPU is what limits it: it uses {cores:.2f} cores" + (f", and the GPU is busy for {100 * busy:.0f} %." if busy is not None else "."), _host_steps(o)
    if why := _memory_bound(o) if o.major_faults > 20 * o.seconds else "":
        return "memory-bound", f"Memory limits it: {why}.", ["Use less memory: smaller batches, fewer copies; or give the machine more."]
    if cores < IDLE:
        what = max((s for s in o.states if s != "run"), key=o.states.get, default="sleep")
        ends = f" ({o.files.most_common(1)[0][0]}, from which nothing comes)" if what == "read" and o.files else ""
        return "idle", f"It does nothing: its main thread {_WAITS[what]}{ends} in {100 * o.share(what):.0f} % of the samples.", ["If it should work, see what it waits for: py-spy dump --pid PID, or its log."]
    worst = max((s for s in o.states if s != "run"), key=o.states.get, default="other")
    return "mixed", f"No single thing limits it: it uses {cores:.2f} cores, and its main thread {_WAITS[worst]} in {100 * o.share(worst):.0f} % of the samples.", [
        "Watch it for longer (--seconds), or record what it does: pyflame profile."]


def evidence(o):
    """Lines on what was seen."""
    lines = [f"CPU: {o.cpu / o.seconds:.2f} cores, {100 * o.kernel / o.cpu if o.cpu else 0:.0f} % of it in the kernel; {len(o.threads)} threads"]
    busiest = sorted(o.threads.values(), key=lambda t: -t[1])[:3]
    if len(o.threads) > 1 and o.cpu:
        lines.append("busiest threads: " + ", ".join(f"{name} {100 * cpu / o.seconds:.0f} %" for name, cpu in busiest))
    states = ", ".join(f"{_WAITS[s]} {100 * o.share(s):.0f} %" for s, _ in o.states.most_common(4))
    lines.append(f"main thread, by {sum(o.states.values())} samples: {states}")
    if o.files:
        lines.append("reads from " + ", ".join(name for name, _ in o.files.most_common(3)))
    lines.append(f"input: {_bytes(round(o.bytes_read / o.seconds))} a second in {o.reads / o.seconds:.0f} reads")
    lines.append(f"memory: {_bytes(o.resident)} resident; {o.minor_faults / o.seconds:.0f} new pages and {o.major_faults / o.seconds:.0f} pages from the disk a second")
    if o.counters:
        c = o.counters
        lines.append(f"counters: {c['instructions'] / c['cycles']:.2f} instructions in a cycle, {1000 * c.get('misses', 0) / c['instructions']:.1f} misses of the last cache in 1000 instructions")
    else:
        lines.append("counters: not available here, so a core that waits for memory looks like one that computes")
    if workers := {name: cpu for name, cpu in o.children.items() if cpu > IDLE * o.seconds}:
        lines.append("processes below it: " + ", ".join(f"{name} {100 * cpu / o.seconds:.0f} %" for name, cpu in sorted(workers.items(), key=lambda w: -w[1])[:5]))
    for name, samples in o.gpus.items():
        memory = [m for _, m in samples if m is not None]
        lines.append(f"GPU {name}: busy {sum(b for b, _ in samples) / len(samples):.0f} %" + (f", its memory {sum(memory) / len(memory):.0f} %" if memory else "") + " (of all processes)")
        known = [x for x in o.xcds.get(name, ()) if "xcd_clocks_mhz" in x]
        if known and (text := gpu_metrics.sentence(max(known, key=lambda x: x["xcd_clock_spread_mhz"]))):
            lines.append(f"GPU {name}: {text}, in the sample where they lie farthest apart")
    return lines + [f"Python: {line}" for line in o.stacks]


def _show(document, stream):
    print(f"{document['verdict']}: {document['sentence']}\n", file=stream)
    print(f"process    {document['pid']}: {document['command'][:100]}\nwatched    {document['seconds']:.1f} s\n", file=stream)
    print("Evidence", *(f"- {line}" for line in document["evidence"]), "", "What to do", *(f"- {line.replace('PID', str(document['pid']))}" for line in document["next"]), sep="\n", file=stream)


@command()
def main():
    p = Parser(prog="pyflame diagnose", add_help=False)
    p.add_argument("pid", type=int)
    p.add_argument("--seconds", type=float, default=5)
    p.add_argument("--json", action="store_true")
    args = p.parse_args()
    say = (lambda left: print(f"\rpyflame diagnose: watching process {args.pid}, {left:.0f} s more \x1b[K", end="", file=sys.stderr, flush=True)) if sys.stderr.isatty() else None
    try:
        o = Watcher(args.pid).watch(args.seconds, say)
        o.stacks = python_stacks(args.pid)
    except (ProcessLookupError, PermissionError) as e:
        print(f"pyflame: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if say:
            print("\r\x1b[K", end="", file=sys.stderr)
    verdict, sentence, steps = decide(o)
    document = {"schema": "pyflame.diagnose/1", "verdict": verdict, "sentence": sentence, "pid": o.pid, "command": o.command, "seconds": o.seconds, "evidence": evidence(o), "next": steps,
                "observed": vars(o) | {"states": dict(o.states), "files": dict(o.files)}}
    if args.json:
        print(json.dumps(document, indent=2))
    else:
        _show(document, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
