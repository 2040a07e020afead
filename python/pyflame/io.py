"""Files. pf.save writes the tensors of a nested structure to one safetensors file, which other programs can read, and the structure itself
as JSON to its metadata. Saves are atomic: either the new file is complete, or the old one is unchanged."""
import json
import math
import os
import tempfile

from . import _C
from ._C import Tensor

_FORMAT = "pyflame-1"


def _path(op, f):
    try:
        return os.fspath(f)
    except TypeError:
        raise TypeError(f"{op}: not a file; got {type(f).__name__}; expected a path or an open binary file") from None


def _check_binary(op, data):
    if not isinstance(data, bytes):
        raise TypeError(f"{op}: the file is open for text; got {type(data).__name__}; expected a binary file; hint: open(path, 'rb') or 'wb'")
    return data


class _Writer:
    def __init__(self):
        self.tensors = {}

    def encode(self, obj, path):
        if isinstance(obj, Tensor):
            name = base = ".".join(path) or "tensor"
            k = 1
            while name in self.tensors or name == "__metadata__":
                name = f"{base}#{k}"
                k += 1
            self.tensors[name] = obj.detach()
            return {"$": "tensor", "name": name}
        if obj is None or isinstance(obj, (bool, str)):
            return obj
        if type(obj) is int:
            return obj
        if isinstance(obj, float):
            return float(obj) if math.isfinite(obj) else {"$": "float", "value": repr(float(obj))}
        if isinstance(obj, dict):
            if all(isinstance(k, str) for k in obj) and "$" not in obj:
                return {k: self.encode(v, path + [k]) for k, v in obj.items()}
            return {"$": "dict", "items": [[self.encode(k, path + ["key"]), self.encode(v, path + [str(k)])] for k, v in obj.items()]}
        if isinstance(obj, list):
            return [self.encode(v, path + [str(i)]) for i, v in enumerate(obj)]
        if isinstance(obj, tuple):
            return {"$": "tuple", "items": [self.encode(v, path + [str(i)]) for i, v in enumerate(obj)]}
        if isinstance(obj, _C.dtype):
            return {"$": "dtype", "name": obj.name}
        if type(obj).__module__ == "numpy" and hasattr(obj, "item") and getattr(obj, "ndim", 1) == 0:
            return self.encode(obj.item(), path)
        where = ".".join(path) or "the object itself"
        raise TypeError(f"save: cannot save {type(obj).__name__} at {where}; expected tensors, numbers, strings, None, and dicts, lists and tuples of them")


def _decode(node, tensors):
    if isinstance(node, list):
        return [_decode(v, tensors) for v in node]
    if not isinstance(node, dict):
        return node
    kind = node.get("$")
    if kind is None:
        return {k: _decode(v, tensors) for k, v in node.items()}
    if kind == "tensor":
        return tensors[node["name"]]
    if kind == "tuple":
        return tuple(_decode(v, tensors) for v in node["items"])
    if kind == "dict":
        return {_decode(k, tensors): _decode(v, tensors) for k, v in node["items"]}
    if kind == "float":
        return float(node["value"])
    if kind == "dtype":
        return getattr(_C, "bool_" if node["name"] == "bool" else node["name"])
    raise ValueError(f"unknown kind '{kind}'")


def save(obj, f):
    """Writes a nested structure of tensors, numbers, strings, dicts, lists and tuples to a file, atomically. f: a path, or a binary file that is
    open for writing, such as io.BytesIO.

    Any other value is a TypeError that names its place. If the disk is full, OSError; the previous file is then unchanged."""
    if hasattr(f, "write"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "file")
            save(obj, path)
            with open(path, "rb") as written:
                _copy("save", written, f)
        return
    path = _path("save", f)
    writer = _Writer()
    structure = writer.encode(obj, [])
    flat = isinstance(obj, dict) and all(isinstance(v, Tensor) for v in obj.values()) and list(writer.tensors) == list(obj)
    metadata = {"format": _FORMAT} if flat else {"format": _FORMAT, "structure": json.dumps(structure, allow_nan=False)}
    _C.save_safetensors(path, writer.tensors, metadata)


def _copy(op, source, target):
    while data := _check_binary(op, source.read(1 << 24)):
        try:
            target.write(data)
        except TypeError:
            _check_binary(op, "")


def _load_tensors(path, map_location):
    """(tensors, metadata). A file does not say where its tensors were, so a mapping or function is asked about 'cpu'."""
    if isinstance(map_location, dict):
        map_location = map_location.get("cpu", "cpu")
    if not callable(map_location):
        return _C.load_safetensors(path, map_location)
    tensors, metadata = _C.load_safetensors(path, "cpu")
    for name, t in tensors.items():
        place = map_location(t, "cpu")
        tensors[name] = t if place is None else place if isinstance(place, Tensor) else t.to(place)
    return tensors, metadata


def load(f, map_location=None, *, weights_only=True, mmap=None):
    """Reads a file of save, or any safetensors file (as a dict of tensors). f: a path, or a binary file that is open for reading; it is read to its end.

    map_location: where the tensors go: a device, a dict {'cpu': device}, or a function of (tensor, 'cpu') that returns the tensor, one on another
    device, or a device. weights_only and mmap are accepted and change nothing: a file holds no code.
    OSError if the file cannot be read, ValueError if it is damaged or has another format."""
    if hasattr(f, "read"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "file")
            with open(path, "wb") as copy:
                _copy("load", f, copy)
            return load(path, map_location)
    path = _path("load", f)
    tensors, metadata = _load_tensors(path, map_location)
    if "structure" not in metadata:
        return dict(tensors)
    if metadata.get("format") != _FORMAT:
        raise ValueError(f"load: '{path}' has another format; got '{metadata.get('format')}'; expected '{_FORMAT}'")
    try:
        return _decode(json.loads(metadata["structure"]), tensors)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as e:
        raise ValueError(f"load: '{path}' is damaged: its structure cannot be read ({type(e).__name__}: {e})") from None


def save_checkpoint(path, model=None, optimizer=None, scheduler=None, dataloader=None, extra=None):
    """Saves everything that a run needs to continue exactly: the states of model, optimizer, scheduler and loader, and the random state."""
    state = {"checkpoint": 1, "rng": _C.get_rng_state(), "extra": extra}
    for name, part in (("model", model), ("optimizer", optimizer), ("scheduler", scheduler), ("dataloader", dataloader)):
        if part is not None:
            state[name] = part.state_dict()
    save(state, path)


def load_checkpoint(path, model=None, optimizer=None, scheduler=None, dataloader=None):
    """Restores the state of save_checkpoint and returns its `extra`. ValueError or RuntimeError if a part is missing or does
    not fit; then nothing is changed."""
    state = load(path)
    if not isinstance(state, dict) or state.get("checkpoint") != 1:
        raise ValueError(f"load_checkpoint: '{os.fspath(path)}' is not a checkpoint; hint: read it with pyflame.load")
    parts = [(n, p) for n, p in (("optimizer", optimizer), ("model", model), ("scheduler", scheduler), ("dataloader", dataloader)) if p is not None]
    missing = [n for n, _ in parts if n not in state]
    if missing:
        raise ValueError(f"load_checkpoint: '{os.fspath(path)}' has no {', '.join(missing)}")
    if optimizer is not None:
        optimizer._match(state["optimizer"])  # refuses before the model is touched
    if model is not None:
        model.load_state_dict(state["model"])
    for name, part in parts:
        if name != "model":
            part.load_state_dict(state[name])
    _C.set_rng_state(state["rng"])
    return state["extra"]
