"""Collectives of Python objects, which are pickled. Unpickling runs code of the sender: use them among processes of one job only."""
from __future__ import annotations

import ctypes
import pickle

from ._collectives import _peer, _run, _single, counted
from ._group import taking_part
from ._state import is_outside, resolved

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Any

    from .._annotations import Device
    from ._group import ProcessGroup


@taking_part()
def _loaded(data):
    return pickle.loads(data)


def _address(buffer):
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer)) if len(buffer) else 0


@taking_part()
def _exchange(op, group, to):
    """Bytes to each rank; returns what came of each."""
    n = group.size()
    in_sizes = (ctypes.c_uint64 * n)(*map(len, to))
    out_sizes = (ctypes.c_uint64 * n)()
    _run(op, group, op, lambda said: group._group.exchange(said, ctypes.addressof(in_sizes), [8] * n, ctypes.addressof(out_sizes), [8] * n), None, False)
    data, came = bytearray(b"".join(to)), bytearray(sum(out_sizes))
    _run(op, group, op, lambda said: group._group.exchange(said, _address(data), list(in_sizes), _address(came), list(out_sizes)), None, False)
    parts, begin = [], 0
    for size in out_sizes:
        parts.append(bytes(came[begin : begin + size]))
        begin += size
    return parts


@counted
def all_gather_object(object_list: list[Any], obj: Any, group: ProcessGroup | None = None) -> None:
    """Writes the object of each rank to the list, by rank. Returns None.

    object_list: a list with an entry for each rank of the group, on every rank; ValueError for another length. obj: this rank's, which can be pickled; an
    error of pickle is raised otherwise. group: None: all processes.
    """
    if is_outside(group):
        return
    group = resolved("all_gather_object", group)
    n = group.size() if group else 1
    if len(object_list) != n:
        raise ValueError(f"all_gather_object: object_list has another length; got {len(object_list)}; expected {n}")
    if n == 1:
        object_list[0] = obj
        return
    object_list[:] = map(_loaded, _exchange("all_gather_object", group, [pickle.dumps(obj)] * group.size()))


@counted
def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None, group: ProcessGroup | None = None,
                  group_dst: int | None = None) -> None:
    """Writes the object of each rank to the list that rank dst gives.

    obj: this rank's, which can be pickled. object_gather_list: on rank dst a list with an entry for each rank of the group; elsewhere it is not looked at. dst: a rank of the
    job. group_dst: a rank of the group, instead of dst. Without both it is the group's first. group: None: all processes. ValueError: dst is not of the group, the list does not fit."""
    if is_outside(group):
        return
    group = resolved("gather_object", group)
    if _single(group):
        if object_gather_list is None or len(object_gather_list) != 1:
            raise ValueError(f"gather_object: object_gather_list does not fit; got {object_gather_list and len(object_gather_list)}; expected a list of 1 on rank dst=0")
        object_gather_list[:1] = [obj]
        return
    root = _peer("gather_object", group, dst, "dst", group_dst)
    if group.rank() == root and (object_gather_list is None or len(object_gather_list) != group.size()):
        raise ValueError(f"gather_object: object_gather_list does not fit; got {object_gather_list and len(object_gather_list)}; expected a list of {group.size()} on rank dst={group.ranks[root]}")
    parts = _exchange(f"gather_object(dst={group.ranks[root]})", group, [pickle.dumps(obj) if r == root else b"" for r in range(group.size())])
    if group.rank() == root:
        object_gather_list[:] = map(_loaded, parts)


@counted
def broadcast_object_list(object_list: list[Any], src: int | None = None, group: ProcessGroup | None = None, device: Device | None = None,
                          group_src: int | None = None) -> None:
    """Gives every rank the objects that the list has on rank src.

    object_list: a list, whose entries are replaced; on rank src they can be pickled. src: a rank of the job. group_src: a rank of the group, instead of src. Without both it is the
    group's first. group: None: all processes. device is accepted for PyTorch's programs and changes nothing. ValueError: src is not of the group."""
    group = resolved("broadcast_object_list", group)
    if _single(group):
        return
    root = _peer("broadcast_object_list", group, src, "src", group_src)
    said = pickle.dumps(list(object_list)) if group.rank() == root else b""
    parts = _exchange(f"broadcast_object_list(src={group.ranks[root]}) of {len(object_list)} objects", group, [said] * group.size())
    object_list[:] = _loaded(parts[root])


@counted
def scatter_object_list(scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None, src: int | None = None,
                        group: ProcessGroup | None = None, group_src: int | None = None) -> None:
    """Writes to the first entry of each rank's list its object of the list that rank src gives.

    scatter_object_output_list: a list with one entry or more. scatter_object_input_list: on rank src a list with an object for each rank of the group, which can be pickled; elsewhere
    it is not looked at. src: a rank of the job. group_src: a rank of the group, instead of src. Without both it is the group's first. group: None: all processes.
    ValueError: src is not of the group, a list does not fit."""
    if is_outside(group):
        return
    group = resolved("scatter_object_list", group)
    if not scatter_object_output_list:
        raise ValueError("scatter_object_list: scatter_object_output_list has no entry; got 0; expected at least one")
    if _single(group):
        if scatter_object_input_list is None or len(scatter_object_input_list) != 1:
            raise ValueError(f"scatter_object_list: scatter_object_input_list does not fit; got {scatter_object_input_list and len(scatter_object_input_list)}; expected a list of 1 on rank src=0")
        scatter_object_output_list[0] = scatter_object_input_list[0]
        return
    root, n = _peer("scatter_object_list", group, src, "src", group_src), group.size()
    if group.rank() == root and (scatter_object_input_list is None or len(scatter_object_input_list) != n):
        raise ValueError(f"scatter_object_list: scatter_object_input_list does not fit; got {scatter_object_input_list and len(scatter_object_input_list)}; expected a list of {n} on rank src={group.ranks[root]}")
    to = [pickle.dumps(o) for o in scatter_object_input_list] if group.rank() == root else [b""] * n
    scatter_object_output_list[0] = _loaded(_exchange(f"scatter_object_list(src={group.ranks[root]})", group, to)[root])
