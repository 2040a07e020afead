"""The changes that are tried. Each is data: what it adds to the settings file, how exact it is, and why it should gain."""
import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass, field

from ..benchmarking.compare import WORTH

LEVELS = {1: "environment", 2: "settings of the engine", 3: "rewrites of the model", 4: "measured kernels", 5: "kernels of plug-ins"}

LEAST_GAIN = 1 + WORTH
MOST_WORKERS = 16
WORKERS_A_CORE = 4  # each takes time to start, and memory
NEAR = 0.9  # of the memory: who takes more is near the limit
WORK = ("GEMM", "convolution", "attention")  # the categories in which FLOPs are counted


@dataclass
class Candidate:
    """changes: tables as in a settings file. precision: a key of gate.ROUNDING; None: the same bits. gain: how many times as fast the program should be."""

    name: str
    level: int
    changes: dict
    reason: str
    precision: str = None
    gain: float = 1.0
    prepare: str = ""  # what must be done once before it is tried: 'measure'
    rewrite: str = ""  # the rewrite that it switches on
    incomparable: tuple = ()  # kinds of records that have other shapes with it
    when: str = ""  # without a program's figures: when it is tried

    @property
    def exactness(self):
        return "exact" if self.precision is None else f"within the tolerance of {self.precision}"


@dataclass
class Facts:
    """What a profile and an explanation say of the program. Shares are parts of the time, 0 to 1; all that is not known is 0."""

    device: str = "cpu"
    verdict: str = ""
    shares: dict = field(default_factory=dict)
    idle: float = 0.0  # of the device
    reads: int = 0  # of values, in the whole program
    steps: int = 0
    capacity: int = 0  # bytes of memory that the program may take
    peak: int = 0  # bytes that it took at most
    retries: int = 0  # how often the allocator freed its caches to go on
    recomputation: dict = field(default_factory=dict)  # resources.recomputation
    convolutions: int = 0  # 2-d ones of the program's module
    channels_last: bool = False  # the program has put them in this order itself
    accumulation: dict = field(default_factory=dict)  # resources.Accumulation.found
    waiting: float = 0.0  # for loaders without workers, of the program's time
    busy: float = 1.0  # the part of the waiting in which a core worked
    advice: list = field(default_factory=list)

    @property
    def gpu(self):
        return self.device.startswith(("cuda", "rocm"))

    def share(self, *categories):
        return min(1.0, sum(self.shares.get(c, 0.0) for c in categories))


def gain(share, speedup):
    """Of the whole, if `share` of it becomes `speedup` times as fast."""
    return 1 / max(1 - share * (1 - 1 / speedup), 0.01)


def merged(tables, changes):
    """The tables with the changes. Lists of names are joined."""
    result = {table: dict(values) for table, values in tables.items()}
    for table, values in changes.items():
        into = result.setdefault(table, {})
        for name, value in values.items():
            before = into.get(name)
            into[name] = [*before, *(v for v in value if v not in before)] if isinstance(value, list) and isinstance(before, list) else value
    return result


def _environment(facts, program):
    """What `pyflame env` recommends for this machine's AMD GPU."""
    if not facts.device.startswith("rocm") or program is None:
        return []
    found = subprocess.run([program, "env", "--json"], capture_output=True, text=True)
    exports = json.loads(found.stdout).get("exports", []) if found.returncode == 0 else []
    return [Candidate(f"environment_{e['name'].lower()}", 1, {"environment": {e["name"]: str(e["value"])}}, e.get("reason", "pyflame env recommends it"), "float32", 1.01)
            for e in exports if os.environ.get(e["name"]) != str(e["value"])]


def _cores():
    return len(os.sched_getaffinity(0))


def _workers(facts):
    """Workers of loaders that have none. A program that waits for the share w of its time computes for 1 - w. With n workers a batch comes each w / n, so a
    step takes the longer one of w / n and 1 - w. Workers that work for the part b of their time keep n b cores busy, and one core is left to the program. A GPU
    that works while the host waits is not faster than its own work."""
    w, cores = facts.waiting, _cores()
    if w <= 0 or cores < 2:
        return []
    n = max(1, min(int((cores - 1) / max(facts.busy, 0.01)), WORKERS_A_CORE * cores, MOST_WORKERS, math.ceil(w / max(1 - w, 0.01))))
    expected = 1 / max(1 - w, w / n)
    if facts.gpu and facts.shares:
        expected = min(expected, gain(facts.idle, math.inf))
    if expected < LEAST_GAIN:
        return []
    return [Candidate("loader_workers", 2, {"engine": {"loader_workers": n}}, f"the program waits for batches in {w:.0%} of its time; {n} worker{'s' if n > 1 else ''} would make them meanwhile", None, expected,
                      when="tried if the program waits for batches: workers make them meanwhile")]


def _size(number):
    return f"{number / 2**30:.2f} GiB" if number >= 2**28 else f"{number / 2**20:.2f} MiB"


def _recomputation(facts):
    """Recomputation off, where all intermediates fit; on, where memory is so short that the allocator has to free its caches to go on. FLOPs are those of
    products, convolutions and attention, so their share of the time changes with them."""
    share = facts.share(*WORK) if facts.shares else 1.0
    off, on, limit = facts.recomputation.get("off"), facts.recomputation.get("on"), NEAR * facts.capacity
    if off and off["flops"] > 1 and facts.peak + off["saves"] <= limit:
        why = f"recomputation adds {off['flops'] - 1:.0%} to the FLOPs of a step, and all intermediates fit: {_size(facts.peak + off['saves'])} of {_size(facts.capacity)}"
        return [Candidate("no_recomputation", 2, {"engine": {"gradient_checkpointing": False}}, why, "float32", gain(share, off["flops"]),
                          when="tried if the program recomputes although all intermediates fit")]
    if on and on["modules"] and facts.retries and facts.peak >= limit:
        # At most the time in which the device is idle is won, and the work grows.
        expected = 1 / (1 - facts.idle + share * (on["flops"] - 1))
        why = f"the allocator freed its caches {facts.retries} times to go on at {_size(facts.peak)} of {_size(facts.capacity)}; to recompute {len(on['modules'])} blocks saves {_size(on['saves'])} for {on['flops'] - 1:.0%} more FLOPs"
        return [Candidate("recomputation", 2, {"engine": {"gradient_checkpointing": on["modules"]}}, why, "float32", expected,
                          when="tried if the allocator had to free its caches to go on: the fewest blocks that make room are recomputed")] if expected >= LEAST_GAIN else []
    return []


def most_merged(batches, peak, capacity):
    """How many of the batches of an optimizer step fit into one: the largest divisor of their number, if all memory grew with the batch."""
    return next((k for k in range(batches, 1, -1) if batches % k == 0 and peak * k <= NEAR * capacity), 1)


def _merged_batches(facts):
    """Fewer and larger batches of an optimizer step. The work is the same; the kernels that are started, and what the device waits for them, become fewer."""
    batches = facts.accumulation.get("batches", 1)
    k = most_merged(batches, facts.peak, facts.capacity) if facts.accumulation.get("trainer") else 1
    if k < 2:
        return []
    why = f"an optimizer step accumulates the gradients of {batches} batches; {k} of them as one take at most {_size(k * facts.peak)} of {_size(facts.capacity)}, and start {1 / k:.0%} of the kernels"
    return [Candidate("merged_batches", 2, {"engine": {"merged_batches": k}}, why, "float32", gain(max(0.0, facts.idle - facts.waiting), k), incomparable=("output",),
                      when="tried if Trainer accumulates gradients, and several of the batches fit as one")]


def _layout(facts):
    """Images in channels-last order from the input on. The engine chooses the order itself, but no chain begins with a 1x1, a depthwise or a float32 convolution."""
    if not facts.convolutions or facts.channels_last:
        return []
    return [Candidate("channels_last", 2, {"engine": {"channels_last": True}}, f"{facts.convolutions} convolutions could have images in channels-last order from the input on", "float32",
                      gain(facts.share("convolution"), 1.1), when="tried if convolutions take time, and the program has not chosen the order itself")]


def _engine(facts):
    found = []
    if facts.reads >= max(2, facts.steps // 2):
        found.append(Candidate("defer_reads", 2, {"engine": {"defer_reads": True}}, f"the program reads {facts.reads} values, and each read waits for the device", None,
                               gain(facts.idle, 3) if facts.gpu else 1.02))
    found += [*_workers(facts), *_recomputation(facts), *_merged_batches(facts), *_layout(facts)]
    if facts.gpu:
        found += [Candidate("float32_products_high", 2, {"engine": {"float32_matmul_precision": "high"}}, "float32 products may use the matrix cores with shorter operands", "tf32", gain(facts.share("GEMM"), 3)),
                  Candidate("float32_convolutions_high", 2, {"engine": {"float32_conv_precision": "high"}}, "float32 convolutions may use the matrix cores with shorter operands", "tf32", gain(facts.share("convolution"), 3)),
                  Candidate("gpu_graphs", 2, {"environment": {"PYFLAME_GPU_GRAPHS": "1"}}, "programs are replayed as GPU graphs, which takes less of the host's time", None, gain(facts.idle, 1.5)),
                  Candidate("convolution_search", 2, {"environment": {"PYFLAME_CONV_SEARCH_MS": "500"}}, "the convolution library is tried out for longer", "float32", gain(facts.share("convolution"), 1.1)),
                  Candidate("any_order", 2, {"engine": {"deterministic": False}}, "kernels that add in any order may be taken", "float32", gain(facts.share("attention", "reduction"), 1.1))]
    else:
        cores = len(os.sched_getaffinity(0))
        found += [Candidate(f"threads_{n}", 2, {"engine": {"num_threads": n}}, f"{n} of {cores} threads: less to wait for where ops are small", "float32", 1.01) for n in sorted({1, cores // 2} - {0, cores})]
    return found


def _describe(rewrite):
    text = rewrite.describe
    return text() if callable(text) else text


_PROMISES = {"finite_fills"}  # rewrites that rely on what only the user can promise of all inputs (docs/rewrites.md)


def _rewrites(facts):
    try:
        from .. import rewrites
    except ImportError:
        return []
    return [Candidate(f"rewrite_{r.name}", 3, {"engine": {"rewrites": [r.name]}}, _describe(r), None if r.exact else "float32", 1.05, rewrite=r.name) for r in rewrites.registry() if not getattr(r, "enabled", False) and r.name not in _PROMISES]


def _kernels(facts, folder):
    file = os.path.join(folder, "tuned.sqlite")
    return [Candidate("measured_kernels", 4, {"engine": {"tuning_file": file}}, "implementations are timed for the program's own shapes (pyflame tune)", "float32", gain(facts.share("GEMM", "convolution", "attention"), 1.05), "measure")]


def _plugins(facts, folder, modules):
    """Entries that these modules register, measured beside all others."""
    if not modules:
        return []
    file = os.path.join(folder, "plugins.sqlite")  # not that of _kernels, which must hold without the modules
    return [Candidate("plugin_kernels", 5, {"environment": {"PYFLAME_PLUGINS": modules}, "engine": {"tuning_file": file}}, f"entries of {modules} are timed beside all others for the program's own shapes", "float32",
                      gain(facts.share("GEMM", "convolution", "attention"), 1.1), "measure")]


def candidates(level, facts, folder, pyflame=None, plugins=""):
    """All up to this level that could matter for the program, the largest expected gain first. pyflame: the path of the program, or None; plugins: modules
    that register entries, with commas between them."""
    folder = os.path.abspath(folder)
    found = [*_environment(facts, pyflame), *_engine(facts), *_rewrites(facts), *_kernels(facts, folder), *_plugins(facts, folder, plugins)]
    if facts.shares:  # the profile says that some of them can change next to nothing
        found = [c for c in found if c.gain >= LEAST_GAIN]
    return sorted((c for c in found if c.level <= level), key=lambda c: (-c.gain, c.level, c.name))


def table(found):
    """Lines for people."""
    lines = [f"{'expected':>8}  {'level':5} {'name':28} {'result':34} why"]
    return [*lines, *(f"{c.gain:8.2f}  {c.level:<5} {c.name:28} {c.exactness:34} {c.reason}" for c in found)]


# ---- facts


def _shares(document):
    return {c["name"]: c["share"] for c in document.get("categories", [])}


def facts_of(report, head):
    """report: the document of `pyflame report`, or None; head: of the program's record."""
    devices = [d for d in head["devices"] if d.startswith(("cuda", "rocm"))]
    facts = Facts((devices or ["cpu"])[0], reads=sum(n for *_, n in head["reads"]), steps=head["steps"], waiting=head.get("waiting", 0.0), busy=head.get("busy", 1.0), recomputation=head.get("recomputation", {}), accumulation=head.get("accumulation", {}), convolutions=head.get("convolutions", 0), channels_last=head.get("channels_last", False), **head.get("memory", {}))
    if report:
        facts.verdict, facts.shares = report.get("verdict", ""), _shares(report)
        facts.advice = [a.get("title", "") for a in report.get("advice", [])]
        facts.idle = facts.share("idle", "launch-bound")
    return facts


def profile_command(folder, file, module, arguments, pyflame=None):
    return [sys.executable, "-m", "pyflame.profiler", "--out", folder, "--seconds", "20", "--no-stacks", *(["--pyflame", pyflame] if pyflame else []), *(["--module", module] if module else []), "--", *([file] if file else []), *arguments]
