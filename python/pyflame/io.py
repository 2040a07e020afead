"""Files. pf.save writes the tensors of a nested structure to one safetensors file, which other programs can read, and the structure itself
as JSON to its metadata. Saves are atomic: either the new file is complete, or the old one is unchanged. pf.load also reads the files of
other programs (_foreign_files.py)."""
from __future__ import annotations

import errno
import json
import math
import os
import tempfile

from . import _C, _foreign_files
from ._C import Tensor
from ._error_names import named as _named

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, IO, Literal, overload

    from ._annotations import Device

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


def check_whole(op, tensor):
    """RuntimeError if a tensor is a part of a larger one, which a file of one process must not be taken for."""
    s = getattr(tensor, "_sharding", None)
    if not isinstance(tensor, Tensor) or s is not None and any(g.size() > 1 for g in s.groups):
        raise RuntimeError(f"{op}: the tensor is a part of a larger one; got a part on each rank; expected a whole tensor; hint: full_tensor(), or distributed.checkpoint.save")


class _Writer:
    def __init__(self):
        self.tensors = {}

    def encode(self, obj, path):
        if isinstance(obj, Tensor) or hasattr(obj, "_as_part"):  # also a DTensor, which is refused
            check_whole("save", obj)
            name = base = ".".join(path) or "tensor"
            k = 1
            while name in self.tensors or name == "__metadata__":
                name = f"{base}#{k}"
                k += 1
            if hasattr(obj, "_without_elements"):
                raise ValueError(f"save: a tensor has no shape yet; got {type(obj).__name__} at {base}; expected ordinary tensors; "
                                 "hint: call the lazy module with an input first")  # fmt: skip
            self.tensors[name] = obj.detach()
            return {"$": "tensor", "name": name}
        if obj is None or isinstance(obj, (bool, str)):
            return obj
        if type(obj) is int:
            return obj
        if isinstance(obj, float):
            return float(obj) if math.isfinite(obj) else {"$": "float", "value": repr(float(obj))}
        if isinstance(obj, complex):
            return {"$": "complex", "parts": [self.encode(obj.real, path), self.encode(obj.imag, path)]}
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
        if type(obj).__name__ == "ndarray" and type(obj).__module__ == "numpy" and obj.ndim:
            return {"$": "array", "tensor": self.encode(_C.tensor(obj, device="cpu"), path)}
        if type(obj).__module__ == "numpy" and hasattr(obj, "item") and getattr(obj, "ndim", 1) == 0:
            return self.encode(obj.item(), path)
        _not_data(obj, path)


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
    if kind == "array":
        return _decode(node["tensor"], tensors).cpu().numpy()
    if kind == "tuple":
        return tuple(_decode(v, tensors) for v in node["items"])
    if kind == "dict":
        return {_decode(k, tensors): _decode(v, tensors) for k, v in node["items"]}
    if kind == "float":
        return float(node["value"])
    if kind == "complex":
        return complex(*(_decode(v, tensors) for v in node["parts"]))
    if kind == "dtype":
        return getattr(_C, "bool_" if node["name"] == "bool" else node["name"])
    raise ValueError(f"unknown kind '{kind}'")


def _not_data(obj, path):
    where = ".".join(path) or "the object itself"
    hint = "; hint: save its state_dict()" if hasattr(obj, "state_dict") else ""
    raise TypeError(f"save: cannot save {type(obj).__name__} at {where}; expected tensors, numbers, strings, None, and dicts, lists and tuples of them{hint}")


def _write_atomically(path, write, op="save"):
    """write(file) writes a temporary file beside path, which then takes its place. op: what errors begin with."""
    folder, name = os.path.split(os.path.abspath(path))
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{name}.", delete=False) as temporary:
            try:
                write(temporary)
                temporary.flush()
                os.fsync(temporary.fileno())
                os.chmod(temporary.name, 0o666 & ~_umask())
                os.replace(temporary.name, path)
            except BaseException:
                os.unlink(temporary.name)
                raise
    except OSError as e:
        raise type(e)(f"{op}: cannot write '{path}': {e.strerror or e}") from None


def _umask():
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def save(obj: object, f: str | os.PathLike[str] | IO[bytes], *, format: str = "safetensors") -> None:
    """Writes a nested structure of tensors, numbers, strings, dicts, lists and tuples to a file, atomically. f: a path, or a binary file that is
    open for writing, such as io.BytesIO.

    format: 'safetensors', or 'pt' for a file that torch.load reads.
    Any other value is a TypeError that names its place, and a tensor of a lazy module without a shape a ValueError. If the disk is full, OSError; the
    previous file is then unchanged."""
    if format not in ("safetensors", "pt"):
        raise ValueError(f"save: unknown format; got {format!r}; expected 'safetensors' or 'pt'")
    if hasattr(f, "write"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "file")
            save(obj, path, format=format)
            with open(path, "rb") as written:
                _copy("save", written, f)
        return
    if format == "pt":
        from . import _torch_file

        _write_atomically(_path("save", f), lambda archive: _torch_file.write(obj, archive, _not_data))
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


def load(f: str | os.PathLike[str] | IO[bytes], map_location: Device | dict[str, Any] | Callable[[Tensor, str], Any] | None = None, *,
         weights_only: object = True, mmap: object = None) -> Any:
    """Reads a file with tensors. What it is, its first bytes say:

    - a file of save: the structure that was saved; any other safetensors file: a dict of tensors. A tensor that the file's metadata names as
      the same as another one (tied weights) is there under both names;
    - a file of torch.save (both formats): its structure of tensors, parameters, numbers, text and containers; tensors that shared memory
      share it. A TorchScript archive: the dict of its weights. Nothing in the file is executed; anything that is not data is a ValueError
      that says what it is;
    - GGUF: a dict of tensors; blocks of few bits become float32. load_gguf has the metadata too;
    - NumPy's npy: a tensor; npz: a dict of tensors. uint16 becomes int32, uint32 and uint64 int64; arrays of an npz that cannot be tensors (text,
      objects, uint64 with numbers from 2**63 on) are left out, with a warning;
    - a folder with model.safetensors or pytorch_model.bin, or an index of several such files: a dict of tensors.

    f: a path, or a binary file that is open for reading; it is read to its end.
    map_location: where the tensors go: a device, a dict {location: device}, or a function of (tensor, location) that returns the tensor, one on
    another device, or a device. Only a file of torch.save says where its tensors were; for all others the location is 'cpu'. weights_only and mmap
    are accepted and change nothing: no file can run code.
    FileNotFoundError if it is not there, OSError if it cannot be read, ValueError if it is damaged or has another format."""
    if hasattr(f, "read"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "file")
            with open(path, "wb") as copy:
                _copy("load", f, copy)
            return load(path, map_location)
    path = _path("load", f)
    if not os.path.exists(path):
        raise FileNotFoundError(errno.ENOENT, "load: no such file; expected a file or a folder of tensors", path)  # its text ends with the path
    if os.path.isdir(path):
        return _foreign_files.load_folder(path, lambda part: load(part, map_location))
    if str(path).endswith(".index.json"):
        return _foreign_files.load_shards(path, lambda part: load(part, map_location))
    kind = _C.kind_of_file(path)
    if kind != "safetensors":
        return _foreign_files.load(kind, path, map_location)
    with _named("load", "load_safetensors"):
        tensors, metadata = _foreign_files.load_safetensors(path, map_location)
    if "structure" not in metadata:
        return dict(tensors)
    if metadata.get("format") != _FORMAT:
        raise ValueError(f"load: '{path}' has another format; got '{metadata.get('format')}'; expected '{_FORMAT}'")
    try:
        return _decode(json.loads(metadata["structure"]), tensors)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as e:
        raise ValueError(f"load: '{path}' is damaged: its structure cannot be read ({type(e).__name__}: {e})") from None


if TYPE_CHECKING:

    @overload
    def load_gguf(path: str | os.PathLike[str], device: Device | None = None, packed: Literal[False] = False) -> tuple[dict[str, Tensor], dict[str, Any]]: ...

    @overload
    def load_gguf(path: str | os.PathLike[str], device: Device | None = None, packed: bool = False) -> tuple[dict[str, Any], dict[str, Any]]: ...


def load_gguf(path: str | os.PathLike[str], device: Device | None = None, packed: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads a GGUF file (versions 2 and 3): (dict of tensors, dict of metadata). Tensors of F32, F16, BF16, F64 and integers keep their dtype;
    Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4 become float32. Shapes are outermost dim first.

    device: where the tensors are made; None: the current device. packed: matrices, and stacks of matrices, of types that quantized_linear takes stay in the file's blocks: a tuple of their rows, a
    uint8 tensor, the name of their type and the number of their columns. pf.load reads a GGUF file, too, as any other: without metadata and blocks.
    OSError; ValueError for a damaged file; NotImplementedError for other types of blocks."""
    return _C._read_gguf(_path("load_gguf", path), device, packed)


def save_checkpoint(path: str | os.PathLike[str], model: Any = None, optimizer: Any = None, scheduler: Any = None, dataloader: Any = None,
                    extra: object = None) -> None:
    """Saves everything that a run needs to continue exactly: the states of model, optimizer, scheduler and loader, and the random state.

    path: the file. model, optimizer, scheduler, dataloader: what has a state_dict(), or None for nothing. extra: further values, such as the number of the epoch;
    load_checkpoint returns them.

    OSError where the file cannot be written. TypeError for a path that is no path, and for values in extra that cannot be saved, such as functions.
    """
    state = {"checkpoint": 1, "rng": _C.get_rng_state(), "extra": extra}
    for name, part in (("model", model), ("optimizer", optimizer), ("scheduler", scheduler), ("dataloader", dataloader)):
        if part is not None:
            state[name] = part.state_dict()
    save(state, path)


def load_checkpoint(path: str | os.PathLike[str], model: Any = None, optimizer: Any = None, scheduler: Any = None, dataloader: Any = None) -> Any:
    """Restores the state of save_checkpoint and returns its `extra`. ValueError or RuntimeError if a part is missing or does
    not fit; then nothing is changed.

    path: the file that save_checkpoint wrote. model, optimizer, scheduler, dataloader: what gets its state back, in place; None: that part of the file is not used.
    """
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
