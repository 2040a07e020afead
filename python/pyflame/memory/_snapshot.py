"""pf.memory.record and snapshot: what holds a device's memory, which line took it, and how it went over time."""
import gc
import json
import os
import subprocess
import sys
import tempfile

from .. import _C, _cells
from .._C import Tensor
from ..nn import Module
from ..nn.parameter import is_lazy
from ..optim import Optimizer
from . import _architecture, _machine, _text, stats

_POINTS = 2000  # of the curve


class record:
    """Begins to log which line takes which memory, on all devices; `most` changes over time are kept. stop() ends it, and so does the end of a `with`
    block; what was logged can be read until the next begin. It costs about a microsecond for each block that is taken.

    Raises ValueError where most is not a positive int.
    """

    def __init__(self, most=200_000):
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise ValueError(f"record: most is not a positive number; got {most!r}; expected at least 1")
        _C._start_memory_log(most)

    def stop(self):
        """Ends the log of allocations on all devices. What was logged stays until the next record begins."""
        _C._stop_memory_log()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()
        return False


def _of_type(objects, kind):
    """isinstance() would ask objects of any program for their class, and proxies answer with code of their own."""
    return [o for o in objects if issubclass(type(o), kind)]


def _named_by_modules(objects, note):
    modules = _of_type(objects, Module)
    below = {id(child) for m in modules for child in m._modules.values() if child is not None}
    names = {}
    for root in (m for m in modules if id(m) not in below):
        for name, p in root.named_parameters():
            names[id(p)] = f"{type(root).__name__}.{name}"
            note(p, "parameters", names[id(p)])
            if p.grad is not None:
                note(p.grad, "gradients", names[id(p)] + ".grad")
        for name, b in root.named_buffers():
            note(b, "buffers", f"{type(root).__name__}.{name}")
    return names


def _named_by_optimizers(objects, names, note):
    for optimizer in _of_type(objects, Optimizer):
        for p, state in optimizer.state.items():
            for key, value in state.items() if isinstance(state, dict) else ():
                if isinstance(value, Tensor):
                    note(value, "optimizer", f"{type(optimizer).__name__}.{key} of {names.get(id(p), 'a parameter')}")


def _named_by_variables(frame, note):
    while frame is not None:
        for name, value in list(frame.f_locals.items()):
            if isinstance(value, Tensor):
                note(value, "variables", f"{name} in {frame.f_code.co_name}")
        frame = frame.f_back


def _holders(device, frame):
    """{address: (bytes, kind, name)} of the tensors that Python holds. The first name counts."""
    found, objects = {}, gc.get_objects()

    def note(tensor, kind, name):
        address, nbytes, where = _C._storage_of(tensor)
        if address and where == device:
            found.setdefault(address, (nbytes, kind, name))

    names = _named_by_modules(objects, note)
    _named_by_optimizers(objects, names, note)
    _named_by_variables(frame, note)
    for t in _of_type(objects, Tensor):
        if is_lazy(t):  # it has no memory, and no shape to name
            continue
        note(t, "other tensors", f"{tuple(t.shape)} {str(t.dtype).rpartition('.')[2]}")
    return found


_UNHELD = "kept for the backward pass or by the engine"


def _blocks(log, holders):
    rows = []
    for address, nbytes, use, seconds, at in log["blocks"]:
        _, kind, name = holders.pop(address, (0, _UNHELD, "")) if use == "tensors" else (0, "arena" if use == "arena" else use, "values in between")
        rows.append({"bytes": nbytes, "kind": kind, "holder": name, "at": at, "seconds": round(seconds, 6)})
    rows += [{"bytes": n, "kind": kind, "holder": name, "at": "before the recording", "seconds": None} for n, kind, name in holders.values()]
    return sorted(rows, key=lambda r: -r["bytes"])


def _grouped(rows, key):
    found = {}
    for r in rows:
        g = found.setdefault(r[key], {key: r[key], "bytes": 0, "blocks": 0})
        g["bytes"] += r["bytes"]
        g["blocks"] += 1
    return sorted(found.values(), key=lambda g: -g["bytes"])


def _curve(changes, now):
    """[(seconds, bytes in use)]; of many points, the largest of each group."""
    level = now - sum(n for _, n in changes)
    points = []
    for seconds, nbytes in changes:
        level += nbytes
        points.append((round(seconds, 6), level))
    step = -(-len(points) // _POINTS) or 1
    return [max(points[i : i + step], key=lambda p: p[1]) for i in range(0, len(points), step)]


class Snapshot:
    """document: a dict for JSON, with device, stats, kinds, places, blocks and timeline. print() shows the largest; save(path) writes it as JSON, or as a
    page if the path ends in .html.

    Made by snapshot(). Raises KeyError for a document without one of these keys.
    """

    def __init__(self, document):
        self.document = document

    def save(self, path):
        """Writes JSON; for a path that ends in .html, a page. FileNotFoundError if the pyflame program, which makes the page, is not there."""
        path = os.fspath(path)
        if not path.endswith(".html"):
            with open(path, "w", encoding="utf-8") as f:
                json.dump(self.document, f, indent=1)
            return
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "snapshot.json")
            self.save(source)
            done = subprocess.run([_architecture._program(), "memory", "snapshot", source, "--html", path], capture_output=True, text=True)
        if done.returncode:
            raise OSError(f"snapshot: the page was not written; {done.stderr.strip()}")

    def __str__(self):
        d = self.document
        rows = [["bytes", "blocks", "held by"]] + [[_text.size(k["bytes"]), k["blocks"], k["kind"]] for k in d["kinds"]]
        places = [["bytes", "blocks", "taken at"]] + [[_text.size(p["bytes"]), p["blocks"], p["at"] or "(arena)"] for p in d["places"][:12]]
        head = f"memory of {d['device']}: {_text.size(d['stats']['allocated'])} in use"
        hint = "" if d["recorded"] else "\npf.memory.record() before would say which line took it"
        return f"{head}\n{_text.table(rows, right=(0, 1))}\n\n{_text.table(places, right=(0, 1))}{hint}"


def snapshot(device=None):
    """What is in a device's memory now, as a Snapshot: each block with its size, what holds it (a parameter, a gradient, an optimizer's state, a variable,
    the engine) and the line that took it, if pf.memory.record() had been called before; and the bytes in use over time since then.

    device: a name such as 'cpu' or 'cuda:0'; None: the current one. Raises ValueError for a name of no device, and DeviceError for a device that is not
    there.
    """
    name = _machine.name_of(device)
    _C.synchronize()
    s, log = stats(name), _cells.in_text(_C._memory_log(name))
    rows = _blocks(log, _holders(name, sys._getframe(1)))
    return Snapshot({
        "tool": "memory snapshot", "device": name, "stats": {k: v for k, v in s.items() if k != "device"}, "recorded": log["recorded"], "dropped": log["dropped"],
        "kinds": _grouped(rows, "kind"), "places": _grouped(rows, "at"), "blocks": rows, "timeline": _curve(log["changes"], s["allocated"]),
    })  # fmt: skip
