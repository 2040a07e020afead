"""The memory of a profile by category, from the allocator's log: which blocks there were when, and what was in them."""
import gc
import gzip
import json
import weakref

from .. import _C
from .tables import _bytes

# PyTorch's categories, in the order of its files; "holes" are ours.
_TORCH = ("parameters", "optimizer state", "inputs", "workspace", "activations", "gradients", "autograd detail", "unknown")
CATEGORIES = ("parameters", "gradients", "optimizer state", "activations", "workspace", "unknown")
_COLORS = {"parameters": "#3b6fb6", "gradients": "#c8553d", "optimizer state": "#7a9e3f", "activations": "#e0a030", "workspace": "#8a6bb0", "unknown": "#888888", "holes": "#d8d8d8"}
_MOST_ENTRIES = 2_000_000
_POINTS = 2000  # of a picture


def _tensors_in(value):
    if isinstance(value, _C.Tensor):
        yield value
    elif isinstance(value, dict):
        for v in value.values():
            yield from _tensors_in(v)
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _tensors_in(v)


class MemoryRecorder:
    """Logs the allocators, and notes at steps and optimizers' steps which blocks hold parameters, gradients and optimizers' state."""

    def __init__(self):
        self._parameters = {}  # id: weak reference; tensors compare elementwise, so they cannot be in a set
        self._optimizers = weakref.WeakSet()
        self._handles = []
        self.notes = []  # (ns, {(device, address): (category, bytes)})
        self.baseline = {}

    def start(self):
        from ..optim import optimizer

        self._find_parameters()
        devices = ["cpu"] + [f"{kind}:{i}" for kind, count in (("rocm", _C.rocm_device_count()), ("cuda", _C.cuda_device_count())) for i in range(count)]
        self.baseline = {d: _C.memory_stats(d) for d in devices}
        _C._memory_trace_start(_MOST_ENTRIES)
        self.note()
        self._handles = [optimizer.register_optimizer_step_pre_hook(self._at_optimizer), optimizer.register_optimizer_step_post_hook(self._at_optimizer)]
        return self

    def stop(self):
        """The timelines by device."""
        for handle in self._handles:
            handle.remove()
        self._find_parameters()
        self.note()
        end = _C._profiler_now()
        entries = _C._memory_trace_stop()
        start = self.notes[0][0]
        return {d: timeline for d in self.baseline if (timeline := _timeline(d, self.baseline[d], [e for e in entries if e[4] == d], self.notes, start, end)).peak_bytes or d == "cpu"}

    def _find_parameters(self):
        from ..nn import Parameter

        self._parameters = {id(o): weakref.ref(o) for o in gc.get_objects() if issubclass(type(o), Parameter)}

    def _at_optimizer(self, optimizer, args, kwargs):
        self._optimizers.add(optimizer)
        self.note()

    def note(self):
        """What the blocks hold now. Tensors whose ops have not run yet have no block."""
        seen = {}

        def add(tensor, category):
            block = _C._block_of(tensor)
            if block is not None:
                device = str(tensor.device)
                seen.setdefault((device if device in self.baseline else "cpu", block[0]), (category, block[1]))

        parameters = [p for known in self._parameters.values() if (p := known()) is not None]
        for optimizer in list(self._optimizers):
            parameters += [p for group in optimizer.param_groups for p in group["params"]]
        for p in parameters:
            add(p, "parameters")
            if p.grad is not None:
                add(p.grad, "gradients")
        for optimizer in list(self._optimizers):
            for tensor in _tensors_in(dict(optimizer.state)):
                add(tensor, "optimizer state")
        self.notes.append((_C._profiler_now(), seen))


class _Block:
    __slots__ = ("bytes", "category", "start", "end")

    def __init__(self, bytes, category, start):
        self.bytes, self.category, self.start, self.end = bytes, category, start, None


def _blocks_of(device, entries, notes):
    """All blocks of tensors, with what they held last; those without a start were there before."""
    live, blocks = {}, []
    steps = sorted([(at, 1, seen) for at, seen in notes] + [(e[0], 0, e) for e in entries if e[5] == "tensors"], key=lambda s: s[:2])
    for at, is_note, what in steps:
        if is_note:
            for (where, address), (category, size) in what.items():
                if where != device:
                    continue
                if address not in live:
                    live[address] = _Block(size, category, None)
                    blocks.append(live[address])
                live[address].category = category
            continue
        _, address, size, *_ = what
        if size > 0:
            live[address] = _Block(size, None, at)
            blocks.append(live[address])
        else:
            block = live.pop(address, None)
            if block is None:  # it was there before, and nothing noted what it held
                block = _Block(-size, "unknown", None)
                blocks.append(block)
            block.end = at
    return blocks


def _timeline(device, baseline, entries, notes, start, end):
    changes = []  # (ns, category, bytes)
    blocks = _blocks_of(device, entries, notes)
    for b in blocks:
        category = b.category or "activations"
        changes.append((start if b.start is None else b.start, category, b.bytes))
        if b.end is not None:
            changes.append((b.end, category, -b.bytes))
    arena = baseline["arena"] + baseline.get("replays", 0)
    before = baseline["allocated"] - arena - sum(b.bytes for b in blocks if b.start is None)
    changes.append((start, "unknown", max(0, before)))
    used, cached = 0, baseline["cached"]
    changes += [(start, "workspace", 0), (start, "holes", cached + arena)]
    held = (0, cached + arena)  # workspace and holes
    for at, _, size, now_cached, _, use in entries:
        if use == "plan":
            used = size
        else:
            cached = now_cached
            arena += size if use != "tensors" else 0
        now = (min(used, arena), cached + arena - min(used, arena))
        changes += [(at, "workspace", now[0] - held[0]), (at, "holes", now[1] - held[1])]
        held = now
    return MemoryTimeline(device, start, end, sorted((c for c in changes if c[2] or c[0] == start), key=lambda c: c[0]))


class MemoryTimeline:
    """The bytes of each category over time, on one device.

    times: nanoseconds of the steady clock. sizes: for each time a dict of category to bytes, from this time on. The categories are parameters, gradients, optimizer state,
    activations (all other tensors), workspace (of the programs that run: intermediates and what kernels need), unknown (from before the recording), and
    holes (what the allocator holds and nobody uses)."""

    def __init__(self, device, start, end, changes):
        self.device, self.times, self.sizes = device, [], []
        now = dict.fromkeys((*CATEGORIES, "holes"), 0)
        for at, category, size in changes:
            now[category] += size
            if not self.times or at != self.times[-1]:
                self.times.append(at)
                self.sizes.append(None)
            self.sizes[-1] = dict(now)
        if self.times[-1] < end:
            self.times.append(end)
            self.sizes.append(dict(now))

    @property
    def _totals(self):
        return [sum(s[c] for c in CATEGORIES) for s in self.sizes]

    @property
    def peak_bytes(self):
        """The most bytes in use at a time, without holes."""
        return max(self._totals)

    @property
    def peak(self):
        """{category: bytes} when the most bytes were in use."""
        totals = self._totals
        return self.sizes[totals.index(max(totals))]

    def text(self):
        """One line: the peak by category."""
        parts = ", ".join(f"{name} {_bytes(size)}" for name, size in self.peak.items() if size and name != "holes")
        return f"Peak memory on {self.device}: {_bytes(self.peak_bytes)} ({parts}); holes {_bytes(self.peak['holes'])}"

    def counters(self, start):
        """Curves for a trace."""
        for at, size in zip(self.times, self.sizes):
            yield {"ph": "C", "name": f"memory of {self.device} by category", "pid": 0, "ts": (at - start) / 1e3, "args": size}

    def export(self, path):
        """Writes it as JSON or as a page, by the name's end."""
        path = str(path)
        if path.endswith((".json", ".json.gz")):
            rows = [[0, *(s.get(c, 0) for c in _TORCH), s["holes"]] for s in self.sizes]
            with gzip.open(path, "wt") if path.endswith(".gz") else open(path, "w") as file:
                json.dump([self.times, rows], file)
        elif path.endswith(".html"):
            with open(path, "w") as file:
                file.write(_page(self))
        else:
            raise ValueError(f"export_memory_timeline: unknown kind of file; got '{path}'; expected a name that ends with .json, .json.gz or .html")


def _points(timeline):
    """At most _POINTS times and sizes; of neighbours the largest."""
    totals = timeline._totals
    n = len(totals)
    if n <= _POINTS:
        return list(zip(timeline.times, timeline.sizes))
    cuts = [n * i // _POINTS for i in range(_POINTS + 1)]
    chosen = [max(range(a, b), key=totals.__getitem__) for a, b in zip(cuts, cuts[1:])]
    return [(timeline.times[i], timeline.sizes[i]) for i in chosen]


def _page(timeline):
    """One file without outside references: the categories stacked over time, and the peak as a table."""
    width, height = 1100, 420
    points = _points(timeline)
    first, last = points[0][0], max(points[-1][0], points[0][0] + 1)
    names = [c for c in (*CATEGORIES, "holes") if any(s[c] for _, s in points)]
    top = max(sum(s[c] for c in names) for _, s in points) or 1
    top = min(top, 2 * timeline.peak_bytes or top)  # holes may be many times as large as what is in use
    x = lambda at: (at - first) / (last - first) * width  # noqa: E731
    y = lambda size: max(0, height - size / top * height)  # noqa: E731
    floor, areas = [0] * len(points), []
    for name in names:
        upper = [below + s[name] for below, (_, s) in zip(floor, points)]
        line = lambda values: [(x(at), y(v)) for i, ((at, _), v) in enumerate(zip(points, values)) for at in ((at, points[i + 1][0]) if i + 1 < len(points) else (at,))]  # noqa: E731
        steps = line(upper) + line(floor)[::-1]
        areas.append(f'<polygon fill="{_COLORS[name]}" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in steps)}"><title>{name}</title></polygon>')
        floor = upper
    peak = timeline.peak
    rows = "".join(f'<tr><td><span style="background:{_COLORS[c]}"></span>{c}</td><td>{_bytes(peak[c])}</td></tr>' for c in names)
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Memory timeline of {timeline.device}</title>
<style>body{{font:15px sans-serif;margin:2em;color:#222;background:#fff}} svg{{max-width:100%;border:1px solid #ccc}} td{{padding:.2em 1.5em .2em 0}} td+td{{text-align:right}}
span{{display:inline-block;width:.9em;height:.9em;margin-right:.5em}}</style>
<h1>Memory of {timeline.device}</h1><p>Peak {_bytes(timeline.peak_bytes)} in use; {(last - first) / 1e6:.1f} ms; the top of the picture is {_bytes(top)}, and holes beyond it are cut off.</p>
<svg viewBox="0 0 {width} {height}" role="img" aria-label="Bytes by category over time">{"".join(areas)}</svg>
<h2>At the peak</h2><table>{rows}</table></html>
"""
