"""Checkpoints that several processes write and any number of processes reads, by the names of torch.distributed.checkpoint.

A checkpoint is a folder: files of the safetensors format, one or none of each rank, and the index checkpoint.json, which says where in the files the parts of each tensor
are, and has everything that is not a tensor. The files of a save have names of their own; when rank 0 sees all of them, the index is replaced, by one rename; then the files of the checkpoint
before are removed. So at each moment the folder has the old checkpoint or the new one as a whole.
"""
from __future__ import annotations

import concurrent.futures
import json
import math
import os
import re
import secrets
import socket
import struct

from ... import _C, _refused
from ..._C import Tensor
from ..._grad_mode import no_grad
from ...io import _decode, _Writer
from .. import _objects, _state
from .._group import ProcessGroup
from .._sharding import sharding_of

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Any

    from . import state_dict as state_dict, stateful as stateful  # imported when they are first used
del TYPE_CHECKING

_FORMAT, _INDEX = "pyflame-sharded-1", "checkpoint.json"
_OURS = re.compile(r"[0-9a-f]{16}-[0-9]+\.safetensors(\.tmp\..*)?|checkpoint\.json\.tmp\..*")


class FileSystemWriter:
    """Names the folder of a checkpoint, in place of checkpoint_id: save(state_dict, storage_writer=FileSystemWriter(path)).

    path: a text or a path, kept as the attribute path. Other arguments change nothing. Making one never raises.
    """

    def __init__(self, path: str | os.PathLike[str], *args, **kwargs) -> None:
        self.path = path


class FileSystemReader(FileSystemWriter):
    """Names the folder of a checkpoint, in place of checkpoint_id: load(state_dict, storage_reader=FileSystemReader(path)).

    path: a text or a path, kept as the attribute path. Other arguments change nothing. Making one never raises; load() raises where the folder has no
    checkpoint.
    """


def _folder(op, checkpoint_id, storage):
    path = checkpoint_id if checkpoint_id is not None else getattr(storage, "path", None)
    if path is None:
        raise ValueError(f"{op}: nothing names a folder; got no checkpoint_id; expected the path of a folder")
    return os.fspath(path)


# ---- state dicts as paths and leaves


def _is_stateful(v):
    return not isinstance(v, (Tensor, dict, type)) and callable(getattr(v, "state_dict", None)) and callable(getattr(v, "load_state_dict", None))


def _is_nested(v):
    return isinstance(v, dict) or isinstance(v, (list, tuple)) and any(isinstance(x, (Tensor, dict, list)) or hasattr(x, "_as_part") for x in v)


def _children(v):
    return v.items() if isinstance(v, dict) else enumerate(v)


def _leaves(op, state_dict):
    """{path: (container, key, value)}: everything that is no container of tensors or dicts. Empty dicts are leaves. Of a DTensor the value is this process's part, in its memory."""
    found = {}

    def walk(container, prefix):
        for key, value in _children(container):
            path = f"{prefix}{key}"
            if _is_nested(value) and len(value):
                walk(value, path + ".")
                continue
            if not isinstance(value, Tensor) and hasattr(value, "_as_part"):  # a DTensor
                value = value._as_part(f"{op}: {path}")
            if path in found:
                raise ValueError(f"{op}: two entries have the same path; got {path}; expected different paths, which are the keys joined by dots")
            found[path] = (container, key, value)

    walk(state_dict, "")
    return found


def _checked(op, state_dict):
    if not isinstance(state_dict, dict):
        raise TypeError(f"{op}: state_dict is not a dict; got {type(state_dict).__name__}; expected a dict of tensors, values, containers, and objects with state_dict()")
    return {k: v.state_dict() if _is_stateful(v) else v for k, v in state_dict.items()}


# ---- saving


def _box(t):
    """(offsets, shape of the part, shape of the whole) of a tensor."""
    s = sharding_of(t)
    shape = tuple(t.shape)
    return ((0,) * len(shape), shape, shape) if s is None else (s.offsets, s.local_shape, s.global_shape)


class _Plan:
    """What each rank writes."""

    def __init__(self, op, state_dict, folder, group):
        self.group = group
        self.rank, n = (group.rank(), group.size()) if group else (0, 1)
        tensors, values = {}, {}
        for path, (_, _, v) in _leaves(op, _checked(op, state_dict)).items():
            if isinstance(v, Tensor):
                tensors[path] = v.detach()
            else:
                values[path] = _Writer().encode(v, path.split("."))
        said = {"id": secrets.token_hex(8), "tensors": {path: (*_box(t), t.dtype.name) for path, t in tensors.items()}, "values": values,
                "place": f"'{os.path.abspath(folder)}' on {socket.gethostname()}"}
        everyone = [said]
        if n > 1:
            everyone = [None] * n
            _objects.all_gather_object(everyone, said, group=group)
        self.id, self.places = everyone[0]["id"], [other["place"] for other in everyone]
        self.index = {"format": _FORMAT, "tensors": {}, "values": {}}
        self.mine = {}
        written = 0
        for other in reversed(everyone):
            self.index["values"].update(other["values"])
        for path, writers in _writers(op, everyone).items():
            entry = None
            for (offsets, shape, whole, dtype), ranks in writers.items():
                entry = entry or {"dtype": dtype, "shape": list(whole), "parts": []}
                if math.prod(shape) == 0:
                    continue
                rank = ranks[written % len(ranks)]  # copies are written by all ranks in turn
                written += len(ranks) > 1
                name = f"{path}@{','.join(map(str, offsets))}"
                entry["parts"].append({"file": self.file(rank), "name": name, "offsets": list(offsets), "shape": list(shape)})
                if rank == self.rank:
                    self.mine[name] = tensors[path]
            self.index["tensors"][path] = entry

        self.needed = {part["file"] for entry in self.index["tensors"].values() for part in entry["parts"]}

    def file(self, rank):
        return f"{self.id}-{rank}.safetensors"

    def name(self, rank):
        """The rank in the job of a rank of the group."""
        return self.group.ranks[rank] if self.group else 0


def _writers(op, everyone):
    """{path: {part: the ranks that have it}}. ValueError where ranks say different things of a tensor; every rank finds the same."""
    found = {}
    for rank, said in enumerate(everyone):
        for path, (offsets, shape, whole, dtype) in said["tensors"].items():
            parts = found.setdefault(path, {})
            for other in parts:
                if other[2:] != (tuple(whole), dtype):
                    raise ValueError(f"{op}: the ranks have different tensors; got {path} of {other[3]} {other[2]} and, on rank {rank}, of {dtype} {tuple(whole)}; expected one shape and dtype")
            parts.setdefault((tuple(offsets), tuple(shape), tuple(whole), dtype), []).append(rank)
    return found


def _together(op, group, failed):
    """Raises on all ranks where one of them failed. `failed`: what this rank says, or None."""
    everyone = [failed]
    if group and group.size() > 1:
        everyone = [None] * group.size()
        _objects.all_gather_object(everyone, failed, group=group)
    for r, text in enumerate(everyone):
        if text is not None:
            raise OSError(f"{op}: the checkpoint was not written; got on rank {group.ranks[r] if group else 0}: {text}; expected one folder that all ranks see and can write; the checkpoint before is unchanged")


def _failure(step, *args):
    """What was wrong in a step, as a text, or None. The other ranks wait to hear of it."""
    try:
        step(*args)
    except Exception as e:
        return str(e) or type(e).__name__
    return None


def _write_part(folder, plan):
    os.makedirs(folder, exist_ok=True)
    if plan.mine:
        _C.save_safetensors(os.path.join(folder, plan.file(plan.rank)), plan.mine, {"format": _FORMAT})


def _see_parts(folder, plan):
    """OSError unless rank 0 sees the file of each rank: hosts without a common disk have folders of one name that are not the same."""
    if plan.rank == 0:
        missing = [r for r in range(len(plan.places)) if plan.file(r) in plan.needed and not os.path.isfile(os.path.join(folder, plan.file(r)))]
        if missing:
            others = "; ".join(f"rank {plan.name(r)} wrote to {plan.places[r]}" for r in missing)
            raise OSError(f"not all parts are in {plan.places[0]}: {others}")


def _write_index(folder, plan):
    if plan.rank == 0:
        _C.write_file_atomically(os.path.join(folder, _INDEX), json.dumps(plan.index, allow_nan=False).encode())


def _write(op, folder, plan, group):
    """The files, which rank 0 then sees, then the index, then what is not needed any more goes."""
    try:
        _together(op, group, _failure(_write_part, folder, plan))
        _together(op, group, _failure(_see_parts, folder, plan))
    except OSError:
        _remove(os.path.join(folder, plan.file(plan.rank)))
        raise
    _together(op, group, _failure(_write_index, folder, plan))
    if plan.rank == 0:
        for name in os.listdir(folder):
            if _OURS.fullmatch(name) and name not in plan.needed:
                _remove(os.path.join(folder, name))


def _remove(path):
    try:
        os.unlink(path)
    except OSError:  # it was not written, or another program removed it; a later save removes what is left
        pass


class _Later:
    """The thread that writes what async_save() took. Its collectives have a group of their own, so that they do not mix with those of the program."""

    executor, waiting, groups = None, None, {}


def _finished():
    """Waits for the save that is under way, which may write to the same folder. Who called async_save() hears its errors."""
    if _Later.waiting is not None:
        concurrent.futures.wait([_Later.waiting])


def _no_planner(op, planner):
    if planner is not None:
        raise NotImplementedError(f"{op}: planner is not available; got {type(planner).__name__}; expected None; hint: change the state dict before the call")


def save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None, storage_writer: FileSystemWriter | None = None, planner: None = None, process_group: ProcessGroup | None = None, no_dist: bool = False) -> None:
    """Writes a state dict to a folder. All processes of the group call it.

    state_dict: nested dicts and lists of tensors, numbers, strings and None; its values may be objects with state_dict(). Of a DTensor, and of a tensor that is a part of a larger one
    (fully_shard, tensor parallel layers), each rank writes its part; copies are written once. What is not a tensor is that of the lowest rank that has it.
    checkpoint_id: the folder, one that all processes see and can write; it is made if it is not there. storage_writer: an object whose attribute path is the folder, where checkpoint_id is None.
    process_group: the processes that write; None: all. no_dist: this process is the only one. planner: None; NotImplementedError for others.
    OSError on every rank where one cannot write, or where rank 0 does not see what one wrote, as on hosts without a common disk; the checkpoint before is then unchanged. ValueError: ranks have different shapes or dtypes of a tensor, or a DTensor is Partial()."""
    _no_planner("checkpoint.save", planner)
    folder = _folder("checkpoint.save", checkpoint_id, storage_writer)
    group = None if no_dist else _state.resolved("checkpoint.save", process_group)
    _finished()
    _write("checkpoint.save", folder, _Plan("checkpoint.save", state_dict, folder, group), group)


def async_save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None, storage_writer: FileSystemWriter | None = None, planner: None = None, process_group: ProcessGroup | None = None, no_dist: bool = False) -> concurrent.futures.Future[None]:
    """save() that copies the tensors, returns at once, and writes on a thread. Returns a concurrent.futures.Future, whose result() waits and raises what was wrong.
    A second call, or save(), waits for the first one. The end of the process waits as well. The arguments are those of distributed.checkpoint.save."""
    op = "checkpoint.async_save"
    _no_planner(op, planner)
    folder = _folder(op, checkpoint_id, storage_writer)
    group = None if no_dist else _state.resolved(op, process_group)
    _finished()
    plan = _Plan(op, state_dict, folder, group)
    plan.mine = {name: t.cpu().clone() for name, t in plan.mine.items()}
    _C.synchronize()
    own = None
    if group and group.size() > 1:
        own = _Later.groups.get(id(group), (None, None))
        if own[0] is not group or own[1]._group is None:
            everyone = _state.group.WORLD  # new_group() would need all processes of the job, also those that are not of the group
            own = _Later.groups[id(group)] = (group, ProcessGroup(op, group.ranks, everyone.rank(), everyone.store, f"checkpoint {plan.id}", group._timeout))
            everyone._children.append(own[1])
        own = own[1]
    if _Later.executor is None:
        _Later.executor = concurrent.futures.ThreadPoolExecutor(1, "pyflame checkpoint")
    _Later.waiting = _Later.executor.submit(_write, op, folder, plan, own)
    return _Later.waiting


# ---- loading


class _Files:
    """The files of a checkpoint: their headers, and bytes of their tensors."""

    def __init__(self, folder):
        self.folder, self.headers = folder, {}

    def _header(self, path, f):
        if path not in self.headers:
            size = os.fstat(f.fileno()).st_size
            (length,) = struct.unpack("<Q", f.read(8))
            if length > size - 8:
                raise ValueError(f"a header of {length} bytes in a file of {size}")
            self.headers[path] = (json.loads(f.read(length)), 8 + length, size)
        return self.headers[path]

    def find(self, part, dtype):
        """(path, where in it the bytes of a part begin, bytes of a row along its first dim). ValueError if the file is not as the index says."""
        path = os.path.join(self.folder, os.path.basename(part["file"]))
        try:
            with open(path, "rb") as f:
                header, base, size = self._header(path, f)
            begin, end = header[part["name"]]["data_offsets"]
            shape = list(part["shape"])
            if header[part["name"]]["shape"] != shape or not 0 <= begin <= end <= size - base or (end - begin) != math.prod(shape) * dtype.itemsize:
                raise ValueError(f"another shape or size of {part['name']}")
        except (OSError, ValueError, KeyError, TypeError, struct.error) as e:
            raise ValueError(f"checkpoint.load: the checkpoint is damaged; got '{path}': {type(e).__name__}: {e}; expected the file that its index names") from None
        return path, base + begin, (end - begin) // (shape[0] if shape else 1)

    def rows(self, part, dtype, first, n):
        """Rows of a part along its first dim: [n, ...]. `first` and n are 0 and 1 for a number."""
        path, begin, row = self.find(part, dtype)
        data = bytearray(n * row)
        with open(path, "rb") as f:
            f.seek(begin + first * row)
            if f.readinto(data) != len(data):
                raise ValueError(f"checkpoint.load: the checkpoint is damaged; got '{path}', which became shorter while it was read; expected a file that nobody writes")
        return _C.frombuffer(data, dtype=dtype).reshape(n, *part["shape"][1:]) if part["shape"] else _C.frombuffer(data, dtype=dtype).reshape(())


def _read_index(op, folder):
    path = os.path.join(folder, _INDEX)
    try:
        with open(path, "rb") as f:
            index = json.load(f)
    except FileNotFoundError:
        raise FileNotFoundError(f"{op}: there is no checkpoint; got no file '{path}'; expected a folder that checkpoint.save wrote") from None
    except ValueError as e:
        raise ValueError(f"{op}: the checkpoint is damaged; got '{path}': {e}; expected its index") from None
    if not isinstance(index, dict) or index.get("format") != _FORMAT:
        raise ValueError(f"{op}: the checkpoint has another format; got '{path}'; expected '{_FORMAT}'")
    try:
        for entry in index["tensors"].values():
            _dtype(entry["dtype"])
            numbers = [entry["shape"], *(part[k] for part in entry["parts"] for k in ("offsets", "shape"))]
            if any(len(n) != len(entry["shape"]) or not all(type(x) is int and x >= 0 for x in n) for n in numbers) or not all(type(part[k]) is str for part in entry["parts"] for k in ("file", "name")):
                raise ValueError("parts of other dims")
        {path: _decode(v, {}) for path, v in index["values"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as e:
        raise ValueError(f"{op}: the checkpoint is damaged; got '{path}': {type(e).__name__}: {e}; expected its index") from None
    return index


def _dtype(name):
    found = getattr(_C, "bool_" if name == "bool" else name)
    if not isinstance(found, _C.dtype):
        raise ValueError(f"no dtype '{name}'")
    return found


def _common(entry, shape, offsets):
    """(part, begin, end) in the whole tensor, of what a part of this shape at `offsets` has in common with the parts in the files."""
    for part in entry["parts"]:
        begin = [max(a, b) for a, b in zip(offsets, part["offsets"])]
        end = [min(a + n, b + m) for a, n, b, m in zip(offsets, shape, part["offsets"], part["shape"])]
        if all(a < b for a, b in zip(begin, end)):
            yield part, begin, end


def _check_there(files, path, entry, shape, offsets):
    """ValueError unless the files have all of a part, before anything is changed."""
    found = 0
    for part, begin, end in _common(entry, shape, offsets):
        files.find(part, _dtype(entry["dtype"]))
        found += math.prod(b - a for a, b in zip(begin, end))
    if found != math.prod(shape):
        raise ValueError(f"checkpoint.load: the checkpoint is damaged; got {found} of {math.prod(shape)} elements of {path}; expected parts that make the whole tensor")


def _fill(files, entry, t, offsets):
    """Writes what a tensor, which begins at `offsets` in the whole one, has in the parts of the files."""
    dtype = _dtype(entry["dtype"])
    for part, begin, end in _common(entry, tuple(t.shape), offsets):
        if not begin:
            t.copy_(files.rows(part, dtype, 0, 1))
            continue
        source, target = files.rows(part, dtype, begin[0] - part["offsets"][0], end[0] - begin[0]), t
        for dim, (a, b) in enumerate(zip(begin, end)):
            target = target.narrow(dim, a - offsets[dim], b - a)
            source = source if dim == 0 else source.narrow(dim, a - part["offsets"][dim], b - a)
        target.copy_(source)


def load(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None, storage_reader: FileSystemReader | None = None, planner: None = None, process_group: ProcessGroup | None = None, no_dist: bool = False) -> None:
    """Reads a checkpoint into a state dict, in place: tensors get its values, other values are replaced, and objects with load_state_dict() get their state. Each process
    reads what it has parts of; the number of processes that wrote does not matter.

    checkpoint_id: the folder. storage_reader: an object whose attribute path is the folder, where checkpoint_id is None. process_group: the processes that read; None: all. no_dist:
    this process is the only one. planner: None; NotImplementedError for others.

    A DTensor gets its values in its own memory, however it is placed, and stays the same object. Entries of the checkpoint that state_dict does not have are left out. ValueError lists what the checkpoint lacks or has in another shape; then nothing is changed.
    FileNotFoundError: there is no checkpoint."""
    op = "checkpoint.load"
    _no_planner(op, planner)
    folder = _folder(op, checkpoint_id, storage_reader)
    _finished()
    if not no_dist:
        _state.resolved(op, process_group)
    index = _read_index(op, folder)
    whole = _checked(op, state_dict)
    leaves = _leaves(op, whole)
    wrong = []
    for path, (_, _, v) in leaves.items():
        if isinstance(v, Tensor):
            entry = index["tensors"].get(path)
            if entry is None:
                wrong.append(f"{path} is not there")
            elif tuple(entry["shape"]) != _box(v)[2]:
                wrong.append(f"{path} has shape {tuple(entry['shape'])}, here {_box(v)[2]}")
        elif path not in index["values"]:
            below = [k for kind in ("tensors", "values") for k in index[kind] if k.startswith(path + ".")]
            if not (isinstance(v, dict) and not v and not below):
                wrong.append(f"{path} is empty here, and there it has {below[0]}" if below else f"{path} is not there")
    if wrong:
        raise ValueError(f"{op}: the state does not fit the checkpoint; got {'; '.join(wrong)}; expected '{folder}' to have what state_dict has; hint: checkpoint.state_dict.get_state_dict() makes the state of an optimizer that made no step yet")
    files = _Files(folder)
    for path, (_, _, v) in leaves.items():
        if isinstance(v, Tensor):
            _check_there(files, path, index["tensors"][path], tuple(v.shape), _box(v)[0])
    with no_grad():
        for path, (container, key, v) in leaves.items():
            if isinstance(v, Tensor):
                _fill(files, index["tensors"][path], v.detach(), _box(v)[0])
            elif path in index["values"] and not isinstance(container, tuple):
                container[key] = _decode(index["values"][path], {})
    for key, v in state_dict.items():
        if _is_stateful(v):
            v.load_state_dict(whole[key])
        else:
            state_dict[key] = whole[key]


def load_whole(checkpoint_id: str | os.PathLike[str]) -> dict[str, Any]:
    """The whole checkpoint as {path: tensor or value}, in one process, without a model. Paths are the keys joined by dots; tensors are on the CPU.

    checkpoint_id: the path of a folder that save() wrote; FileNotFoundError for another one. TypeError for what is no path."""
    folder = _folder("checkpoint.load_whole", checkpoint_id, None)
    index, files = _read_index("checkpoint.load_whole", folder), _Files(folder)
    found = {path: _decode(v, {}) for path, v in index["values"].items()}
    for path, entry in index["tensors"].items():
        _check_there(files, path, entry, tuple(entry["shape"]), (0,) * len(entry["shape"]))
        found[path] = _C.empty(tuple(entry["shape"]), dtype=_dtype(entry["dtype"]), device="cpu")
        _fill(files, entry, found[path], (0,) * len(entry["shape"]))
    return found


_ADVICE = "save, load, async_save and checkpoint.state_dict are"
_everything_else = _refused.module("distributed.checkpoint", _ADVICE)


def __getattr__(name):
    if name in ("state_dict", "stateful"):
        from importlib import import_module

        return import_module("." + name, __name__)
    return _everything_else(name)


__all__ = ["FileSystemReader", "FileSystemWriter", "async_save", "load", "load_whole", "save"]
