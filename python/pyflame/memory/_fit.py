"""pf.memory.fit and `pyflame fit`: what a model takes, on which GPUs it fits, and what to change where it does not."""
import dataclasses
import math

from . import _cards, _fit_sources, _machine, _text
from ._fit_sources import PARTS, Settings

KINDS = ("inference", "training")
FRACTION = 0.9  # of a GPU's memory; the rest is the driver's, the libraries' and what falls between blocks
_LABELS = {"activations": "activations, at the peak"}  # beside the other parts
_MOST_BATCH, _MOST_CONTEXT = 1 << 16, 1 << 22


@dataclasses.dataclass
class Fit:
    """The result of pf.memory.fit; print() shows it. needs: {kind: {part: bytes or None if not known}}; cards: those that were asked for.

    name: the model's. parameters: how many it has. settings: what was planned for: batch, context, dtype, precision, optimizer, checkpointing, and device, which is 'gpu' or 'cpu'. advice: {kind: lines
    about what to change, or how far it can go}, empty without a device. note: what to know about the weights, or ''. takes: those of 'batch' and 'context' that the plan depends on.

    It is a result, and its fields are not checked. Only a missing or unknown field is an error, a TypeError.
    """

    name: str
    parameters: int
    settings: Settings
    needs: dict
    cards: list
    advice: dict
    note: str
    takes: tuple = ()  # those of batch and context that the plan depends on

    def total(self, kind):
        """The bytes that a kind of run, 'inference' or 'training', needs in all: the sum of the known parts of needs[kind]. KeyError for another kind."""
        return sum(v or 0 for v in self.needs[kind].values())

    def fits(self, kind, memory_bytes):
        """Whether what a kind of run needs is within the usable part of memory_bytes."""
        return self.total(kind) <= FRACTION * memory_bytes

    def as_dict(self):
        """The plan as a dict of numbers, texts, lists and dicts, which json.dumps takes: model, parameters, settings, needs, usable_fraction, cards, advice
        and note.
        """
        cards = [{**c, "fits": {k: self.fits(k, c["memory_bytes"]) for k in self.needs}} for c in self.cards]
        needs = {k: {**parts, "total": self.total(k)} for k, parts in self.needs.items()}
        return {"model": self.name, "parameters": self.parameters, "settings": dataclasses.asdict(self.settings), "needs": needs, "usable_fraction": FRACTION, "cards": cards,
                "advice": self.advice, "note": self.note}  # fmt: skip

    def __str__(self):
        return _as_text(self)


class _Planner:
    """Totals of plans, each computed once."""

    def __init__(self, source, kind):
        self.source, self.kind, self.known = source, kind, {}

    def __call__(self, settings):
        if settings not in self.known:
            self.known[settings] = sum(v or 0 for v in self.source.plan(self.kind, settings).values())
        return self.known[settings]

    def largest(self, settings, field, most, room):
        """The largest value of a field with which it fits, to 2 %; 0 if none does."""
        total = lambda n: self(dataclasses.replace(settings, **{field: n}))  # noqa: E731
        low, high = 0, 1
        while high <= most and total(high) <= room:
            low, high = high, 2 * high
        high = min(high, most + 1)
        while high - low > max(1, low // 50):
            middle = (low + high) // 2
            low, high = (middle, high) if total(middle) <= room else (low, middle)
        return low


def _changes(kind, source, s):
    """[(what to change, the settings with it)], the gentlest first."""
    found = []
    add = lambda text, **fields: found.append((text, fields))  # noqa: E731
    if kind == "training":
        if s.precision == "float32" and not isinstance(source, _fit_sources.OfWeights):
            add("--precision mixed", precision="mixed")
        if not s.checkpointing and source.has_context:
            add("--checkpointing", checkpointing=True)
    elif s.dtype == "float32":
        add("--dtype bfloat16", dtype="bfloat16")
    if s.batch > 1 and source.has_batch:
        add("--batch 1", batch=1)
    if source.has_context and s.context > 512:
        add(f"--context {s.context // 2}", context=s.context // 2)
    if kind == "training":
        if s.precision != "bfloat16":
            add("--precision bfloat16", precision="bfloat16")
        if s.optimizer != "sgd":
            add("--optimizer sgd", optimizer="sgd")
    return found


def _offload(source, settings, total, room):
    """A line about weights in host memory, for a model that pf.llm may load, with the settings as they are. One layer's room is for the copies of matrices."""
    if not isinstance(source, _fit_sources.OfArchitecture):
        return []
    layer, layers = source.layer_bytes(source.plan("inference", settings)["weights"]), source.sizes.layers
    count = min(layers, -(-(total + layer - int(room)) // layer)) if layer else 0
    if not count:
        return []
    left, moved = total - (count - 1) * layer, math.ceil(count * layer / (1 << 30) * 100) / 100
    return [f"cpu_offload_gb={moved:g} (pf.llm.load, pyflame serve): {_text.size(left)}, {'fits' if left <= room else 'does not fit'}; each step copies these weights to the GPU"]


def _advice(planner, source, settings, card):
    """Lines about one GPU: how far it can go, or which changes make it fit."""
    room, lines = FRACTION * card["memory_bytes"], []
    if planner(settings) <= room:
        for field, most, has in (("batch", _MOST_BATCH, source.has_batch), ("context", _MOST_CONTEXT, source.has_context)):
            if has:
                lines.append(f"the largest {field} that fits: {planner.largest(settings, field, most, room):,}")
        return lines
    together, words = settings, []
    for text, fields in _changes(planner.kind, source, settings):
        alone = planner(dataclasses.replace(settings, **fields))
        lines.append(f"{text}: {_text.size(alone)}, {'fits' if alone <= room else 'does not fit'}")
        if planner(together) > room:
            together = dataclasses.replace(together, **fields)
            words.append(text)
    total = planner(together)
    if len(words) > 1:
        lines.append(f"{' '.join(words)}: {_text.size(total)}, {'fits' if total <= room else 'does not fit'}")
    if settings.device == "cpu":
        return lines
    if planner.kind == "inference":
        lines += _offload(source, settings, planner(settings), room)
    if total > room:
        least = -(-total // int(room))
        lines.append(f"with all of these it needs the memory of {least} such GPUs" if words else f"it needs the memory of {-(-total // int(room))} such GPUs")
    return lines


def fit(model, *, device=None, batch=1, context=None, dtype="stored", precision="mixed", optimizer="adamw", checkpointing=False, kinds=KINDS):
    """What a model takes for inference and for training, as a Fit: which GPUs of the table it fits on, and what to change where it does not. Nothing is
    loaded, and nothing is allocated.

    model: a folder with config.json (with or without weights), a GGUF file, the name of an installed package with one of these, other files of weights
    (their size alone is known), or 'FILE.py:function'.
    device: the name of a GPU, its bytes, such as '24GiB', or 'cpu' for this machine's memory; None: all GPUs of the table, without advice. A GGUF file's weights in blocks
    count as pf.llm.load keeps them there.
    batch, context: sequences, and tokens in each; context is the model's own unless given, and at most 4096 then.
    dtype: of the weights in inference: 'stored' (bfloat16 where there are no weights), 'float32', 'bfloat16', 'float16'.
    precision: of training: 'float32', 'mixed' (float32 weights, products in bfloat16) or 'bfloat16'. checkpointing: blocks are recomputed.
    optimizer: the name of a class of pf.optim, in any case, made with lr=1e-3; or a function of the parameters that returns one. kinds: those of 'inference' and 'training' that are planned.

    OSError or ValueError if the model cannot be read."""
    _check(batch, context, dtype, precision)
    source = _fit_sources.source_of(model)
    if dtype == "stored" and source.stored_bytes is None:
        dtype = "bfloat16"
    settings = Settings(batch, context or min(source.context or 2048, 4096), dtype, precision, optimizer, checkpointing, "cpu" if device == "cpu" else "gpu")
    needs = {kind: source.plan(kind, settings) for kind in kinds}
    cards = _cards.with_memory() if device is None else [_card(device)]
    advice = {kind: _advice(_Planner(source, kind), source, settings, cards[0]) for kind in kinds} if device is not None else {}
    takes = tuple(name for name, has in (("batch", source.has_batch), ("context", source.has_context)) if has)
    return Fit(source.name, source.parameters, settings, needs, cards, advice, source.note, takes)


def _card(device):
    if device == "cpu":
        return {"name": "CPU", "architecture": "", "memory_bytes": _machine.host_memory()[1], "bandwidth_gbs": 0}
    if isinstance(device, str) and not device.strip()[:1].isdigit():
        return _cards.find(device)
    nbytes = _text.bytes_of(device)
    return {"name": _text.size(nbytes), "architecture": "", "memory_bytes": nbytes, "bandwidth_gbs": 0}


def _check(batch, context, dtype, precision):
    for name, value in (("batch", batch), ("context", context)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ValueError(f"fit: {name} is not a positive number; got {value!r}; expected at least 1")
    for name, value, known in (("dtype", dtype, ("stored", "float32", "bfloat16", "float16")), ("precision", precision, ("float32", "mixed", "bfloat16"))):
        if value not in known:
            raise ValueError(f"fit: unknown {name}; got {value!r}; expected one of {', '.join(known)}")


def _as_text(f):
    s, kinds = f.settings, list(f.needs)
    about = {"inference": f"weights as {s.dtype}", "training": f"{s.precision}, {s.optimizer}" + (", checkpointing" if s.checkpointing else "")}
    sizes = [f"{name} {getattr(s, name)}" for name in f.takes]
    lines = ["; ".join([f"{f.name}: {f.parameters:,} parameters", *sizes, *(f"{k}: {about[k]}" for k in kinds)]), ""]
    rows = [["GiB", *kinds]]
    rows += [[_LABELS.get(part, part), *(_text.gib(f.needs[k][part]) for k in kinds)] for part in PARTS]
    rows.append(["total", *(_text.gib(f.total(k)) for k in kinds)])
    lines += [_text.table(rows, right=range(1, 1 + len(kinds))), ""]
    if f.note:
        lines += [f.note, ""]
    lines.append(f"Where it fits, with {FRACTION:.0%} of the memory usable:")
    lines.append(_text.table(_card_rows(f, kinds), right=(0,)))
    for kind, said in f.advice.items():
        lines += ["", f"{kind}:"] + [f"  {line}" for line in said]
    return "\n".join(lines)


def _card_rows(f, kinds):
    sizes = {}
    for c in f.cards:
        sizes.setdefault(c["memory_bytes"], []).append(c["name"])
    word = lambda k, b: ("fits" if f.fits(k, b) else "no") + f", {f.total(k) / b:.0%}" * (f.total(k) < 10 * b)  # noqa: E731
    rows = [["GiB", *kinds, "GPUs" if f.settings.device == "gpu" else ""]]
    for nbytes, names in sizes.items():
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        rows.append([f"{nbytes / (1 << 30):g}", *(word(k, nbytes) for k in kinds), shown])
    return rows
