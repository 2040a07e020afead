"""The default group of the process, and what programs ask about groups."""
from __future__ import annotations

import datetime
import operator
import os
import urllib.parse

from .. import _C
from ._environment import Place, place_of_process
from ._group import ProcessGroup
from ._store import TCPStore

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .._annotations import Device, Timeout

_TIMEOUT = 600.0
# In the errors of src/pyflame/distributed/group.cpp and of _device.py that another rank is to blame for.
_BLAMES = ("is gone; its process ended", "are gone; their processes ended", "gave up; it said: ")
_BACKENDS = ("host", "gloo", "nccl", "rccl", "mpi", "ucc")


def blames_another_rank(text):
    """Whether an error says that another rank has ended or failed."""
    return any(words in text for words in _BLAMES)


class ReduceOp:
    """The reductions: each value of the result is combined of the values of all ranks, in the order of the ranks. Another name is an AttributeError."""

    SUM, AVG, PRODUCT, MIN, MAX = "sum", "avg", "product", "min", "max"


class _World:
    default, made = None, {}  # made: how many groups new_group() made, of each kind
    ended = set()  # the names of the stores of groups that were destroyed
    place = Place()


class _GroupType(type):
    @property
    def WORLD(cls):
        """The group of all processes, or None before init_process_group()."""
        return _World.default


group = _GroupType("group", (), {"__doc__": "WORLD: the ProcessGroup of all processes, or None before init_process_group(). It is read from the class: distributed.group.WORLD."})
GroupMember = _GroupType("GroupMember", (), {"__doc__": "WORLD, and NON_GROUP_MEMBER, what new_group() returns to a process that is not of the group.", "NON_GROUP_MEMBER": object()})


def seconds_of(op, timeout):
    """A timeout in seconds: a timedelta or a number; None is 600 s."""
    if timeout is None:
        return _TIMEOUT
    value = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else timeout
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e8:
        raise ValueError(f"{op}: timeout is not a time; got {timeout!r}; expected a timedelta, or seconds above 0")
    return float(value)


def _backend(op, backend):
    if backend is None:
        return
    for part in str(backend).lower().split(","):
        name = part.rpartition(":")[2]
        if name not in _BACKENDS[:4]:
            raise ValueError(f"{op}: backend is not available; got {backend!r}; expected 'host' (also by the name 'gloo') or 'nccl' ('rccl'), or None")


def is_available() -> bool:
    """Always True: the collectives are part of the package, and a world of one process needs no library. Never raises."""
    return True


def is_initialized() -> bool:
    """Whether init_process_group() was called, and destroy_process_group() was not called since: a bool. Never raises."""
    return _World.default is not None


def _place(op, init_method, rank, world_size):
    """Where this process is: by the arguments, and for what they leave open by the variables."""
    if init_method not in (None, "env://"):
        url = urllib.parse.urlparse(init_method)
        if url.scheme != "tcp" or not url.hostname or url.port is None:
            raise ValueError(f"{op}: init_method is not available; got {init_method!r}; expected 'env://' or 'tcp://HOST:PORT'")
    if rank >= 0 and world_size > 0:
        place = Place(rank, world_size, rank, os.environ.get("MASTER_ADDR"), None, "the arguments rank and world_size")
        if os.environ.get("LOCAL_RANK", "").isdigit():
            place.local_rank = int(os.environ["LOCAL_RANK"])
        if os.environ.get("MASTER_PORT", "").isdigit():
            place.port = int(os.environ["MASTER_PORT"])
    elif rank >= 0 or world_size > 0:
        place = place_of_process(op)
        if rank >= 0 and place.world_size == 1 or world_size > 0 and place.world_size != world_size:
            raise ValueError(f"{op}: rank and world_size belong together; got rank={rank}, world_size={world_size} and {place.source}; expected both")
    else:
        place = place_of_process(op)
    if place.rank >= place.world_size:
        raise ValueError(f"{op}: rank is out of range; got {place.rank}; expected 0 to {place.world_size - 1}")
    if init_method not in (None, "env://"):
        place.address, place.port = url.hostname, url.port
    if place.world_size > 1 and (place.address is None or place.port is None):
        missing = [name for name, value in (("MASTER_ADDR", place.address), ("MASTER_PORT", place.port)) if value is None]
        raise ValueError(f"{op}: nothing says where rank 0 is; got no {' and no '.join(missing)}; expected both, or init_method='tcp://HOST:PORT'")
    if place.world_size > 1 and not 0 < place.port < 65536:
        raise ValueError(f"{op}: the port of rank 0 is out of range; got {place.port}; expected 1 to 65535; hint: MASTER_PORT")
    return place


def init_process_group(backend: str | None = None, init_method: str | None = None, timeout: Timeout | None = None, world_size: int = -1, rank: int = -1,
                       store: Any = None, group_name: str = "", pg_options: Any = None, device_id: Device | None = None, device: Device | None = None) -> None:
    """Connects this process with the others of its job, and makes the group of all of them.

    backend: 'host' or None; 'gloo', 'nccl' and 'rccl' are the same. Tensors of a GPU go through NCCL or RCCL where each rank has it, whatever the name; otherwise through the host's memory, which is said once. init_method:
    'env://' (the variables of torchrun, `pyflame run`, SLURM, Open MPI or MPICH) or 'tcp://HOST:PORT' of rank 0. timeout: of this call and of each
    collective, a timedelta or seconds; 600 s by default. rank and world_size: in place of the variables. device: the default device from now on; 'cuda' and 'rocm' without a number are
    the GPU whose number is the rank among the processes of this host (LOCAL_RANK). The GPUs are then connected here, rather than by the first collective.
    ValueError names the variables that are missing where others are set. RuntimeError names the ranks that did not come within the timeout.

    store and pg_options are refused (ValueError). group_name changes nothing. device_id: the same as device.
    """
    op = "init_process_group"
    if _World.default is not None:
        raise RuntimeError(f"{op}: there is a group already; got a second call; expected destroy_process_group() before it")
    if store is not None or pg_options is not None:
        raise ValueError(f"{op}: store and pg_options are not available; got one of them; expected init_method and the variables")
    _backend(op, backend)
    seconds = seconds_of(op, timeout)
    place = _place(op, init_method, rank, world_size)
    made = None
    if place.world_size > 1:
        made = TCPStore(place.address, place.port, is_master=place.rank == 0, timeout=seconds, wait_for_workers=False, _ended=_World.ended)
    try:
        default = ProcessGroup(op, range(place.world_size), place.rank, made, "world", seconds)
    except BaseException:
        if made:
            made.close()
        raise
    _World.default, _World.place, _World.made = default, place, {}
    _C._set_job(place.rank, place.world_size)
    where = device if device is not None else device_id
    if where is not None:
        _use_device(op, where, default, place)


def _use_device(op, where, default, place):
    """Makes a device the default one, and connects the GPUs of all ranks if it is one."""
    where = str(where)
    if where in ("cuda", "rocm"):
        count = getattr(_C, f"{where}_device_count")()
        if place.local_rank >= count > 0:
            raise ValueError(f"{op}: there are fewer GPUs than processes of this host; got LOCAL_RANK={place.local_rank} and {count} GPU{'s' * (count > 1)}; expected a GPU for each; hint: device='{where}:0' shares one, through the host's memory")
        where = f"{where}:{place.local_rank}"
    _C.set_device(where)
    if default.size() > 1 and where != "cpu":
        from . import _device

        _device.of(op, default, _C.empty((1,), device=where))


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Ends the connections of a group; without one, of all groups. Without a group that was made, it does nothing.

    group: what new_group() returned, or None. Afterwards a call with the group is a RuntimeError. TypeError: no group.
    """
    if group is None or group is _World.default:
        end()
    elif isinstance(group, ProcessGroup):
        group.close()
        if _World.default is not None and group in _World.default._children:
            _World.default._children.remove(group)
    elif group is not GroupMember.NON_GROUP_MEMBER:
        raise TypeError(f"destroy_process_group: group is not a process group; got {type(group).__name__}; expected what new_group() returned, or None")


def end():
    """Ends all connections."""
    default, _World.default, _World.place = _World.default, None, Place()
    if default is not None:
        for g in [*default._children, default]:
            g.close()
        if default.store:
            _World.ended.add(default.store.name)
            default.store.close()


def _in_child():
    """After a fork: the parent's connections are the parent's. The child knows its rank, and its collectives raise."""
    if _World.default is not None and _World.default.store:
        _World.default.store.close(_forked=True)


os.register_at_fork(after_in_child=_in_child)


def at_exit():
    """Ends calls that wait on other threads. The connections end with the process, so that the others hear of its end, and a launcher does, at the same time."""
    if _World.default is not None:
        for g in [*_World.default._children, _World.default]:
            g.stop()


def is_outside(group):
    """Whether this process is not one of the group. Collectives of such a process do nothing, as in PyTorch."""
    return group is GroupMember.NON_GROUP_MEMBER or isinstance(group, ProcessGroup) and group.rank() < 0


def resolved(op, group):
    """The group to use; None when this process is the only one, or not one of the group."""
    if is_outside(group):
        return None
    if group is None:
        group = _World.default
        if group is None:
            if place_of_process(op).world_size > 1:
                raise RuntimeError(f"{op}: this process is one of several, and does not know the others; got no process group; expected init_process_group() before it")
            return None
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"{op}: group is not a process group; got {type(group).__name__}; expected what new_group() returned, or None")
    if group.size() > 1 and group._group is None:
        raise RuntimeError(f"{op}: the group was destroyed; expected a group that is in use")
    return group


def new_group(ranks: Sequence[int] | None = None, timeout: Timeout | None = None, backend: str | None = None, pg_options: Any = None,
              use_local_synchronization: bool = False, group_desc: str | None = None, device_id: Any = None) -> Any:
    """A group of these ranks, or of all. Every process of the job calls it, with the same ranks, also those that are not of the group; they get
    GroupMember.NON_GROUP_MEMBER.

    ranks: a list of different numbers; None: all. timeout: of each collective, a timedelta or seconds; None: that of the whole job. backend: as in
    init_process_group(). use_local_synchronization: only the processes of the group call it; nothing happens in others. pg_options, group_desc and
    device_id are accepted for PyTorch's programs and change nothing.
    TypeError for ranks that are no list of numbers; ValueError for an empty list, for ranks that are not of the job or come twice, for another backend, and for
    a timeout that is not a time above 0. On every process: ValueError where the processes give different ranks, or one of them makes another call; RuntimeError
    where one does not come within the timeout.
    """
    op = "new_group"
    _backend(op, backend)
    default = resolved(op, None)
    size = default.size() if default else 1
    ranks = range(size) if ranks is None else ranks
    ranks = list(ranks) if hasattr(ranks, "__iter__") else ranks
    if not isinstance(ranks, list) or any(isinstance(r, bool) or not hasattr(r, "__index__") for r in ranks):
        raise TypeError(f"{op}: ranks are not a list of numbers; got {ranks!r}; expected numbers from 0 to {size - 1}")
    ranks = sorted(operator.index(r) for r in ranks)
    if len(set(ranks)) != len(ranks) or any(not 0 <= r < size for r in ranks) or not ranks:
        raise ValueError(f"{op}: ranks are not ranks of this job; got {ranks}; expected different numbers from 0 to {size - 1}")
    seconds = seconds_of(op, timeout) if timeout is not None or default is None else default._timeout
    if default is None:
        return ProcessGroup(op, ranks, 0, None, "", seconds)
    kind = "group"
    if use_local_synchronization:
        kind = f"group of {ranks} "
        if default.rank() not in ranks:
            return GroupMember.NON_GROUP_MEMBER
    elif default.size() > 1:
        from ._collectives import _run

        _run(op, default, f"{op}({ranks})", lambda *said: default._group.barrier(*said), None, False)  # raises on all where the ranks differ
    _World.made[kind] = _World.made.get(kind, 0) + 1
    made = ProcessGroup(op, ranks, default.rank(), default.store, f"{kind}{_World.made[kind]}", seconds)
    if made.rank() < 0:
        return GroupMember.NON_GROUP_MEMBER
    default._children.append(made)
    return made


def _asked(op, group):
    """The group that is asked about: that of the whole job for None, which is None without one."""
    if group is not None and not isinstance(group, ProcessGroup):
        raise TypeError(f"{op}: group is not a process group; got {type(group).__name__}; expected what new_group() returned, or None")
    return group or _World.default


def get_rank(group: ProcessGroup | None = None) -> int:
    """The rank of this process in the group: 0 where it is the only one, -1 where it is not one of the group.

    group: what new_group() returned; None: all of the job. TypeError for something else."""
    if group is GroupMember.NON_GROUP_MEMBER:
        return -1
    group = _asked("get_rank", group)
    return group.rank() if group else 0


def get_world_size(group: ProcessGroup | None = None) -> int:
    """The number of processes of the group: 1 before init_process_group(), -1 where this process is not one of the group.

    group: what new_group() returned; None: all of the job. TypeError for something else."""
    if group is GroupMember.NON_GROUP_MEMBER:
        return -1
    group = _asked("get_world_size", group)
    return group.size() if group else 1


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The rank among the processes of this host, an int: LOCAL_RANK, or the variable of SLURM, Open MPI or MPICH in its place. Where the launcher sets no
    such variable it is the rank in the job, and 0 in the only process.

    fallback_rank is accepted for PyTorch's programs and changes nothing. ValueError: some variables of a launcher are set, and others are missing or no
    numbers.
    """
    return _World.place.local_rank if _World.default else place_of_process("get_node_local_rank").local_rank


def get_backend(group: ProcessGroup | None = None) -> str:
    """What moves the bytes of tensors on GPUs: 'nccl' (also where RCCL does) once the group has connected its GPUs; otherwise 'host'.

    group: what new_group() returned; None: all of the job. TypeError for something else."""
    from ._device import library

    if group is GroupMember.NON_GROUP_MEMBER:
        return "host"
    group = _asked("get_backend", group)
    return "nccl" if group is not None and library(group) else "host"


def get_process_group_ranks(group: ProcessGroup | None = None) -> list[int]:
    """The ranks in the job of the processes of a group: a list of int, by their rank in the group; [0] without a group.

    group: what new_group() returned on a process of it; None: all of the job. Never raises for these.
    """
    group = group or _World.default
    return list(group.ranks) if group else [0]


def get_global_rank(group: ProcessGroup | None, group_rank: int) -> int:
    """The rank in the job of a rank of the group, an int.

    group: None: all of the job. group_rank: from 0 to the group's size - 1; ValueError otherwise.
    """
    ranks = get_process_group_ranks(group)
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"get_global_rank: not a rank of the group; got {group_rank}; expected 0 to {len(ranks) - 1}")
    return ranks[group_rank]


def get_group_rank(group: ProcessGroup | None, global_rank: int) -> int:
    """The rank in the group of a rank of the job, an int.

    group: None: all of the job. global_rank: the rank of one of its processes; ValueError otherwise.
    """
    ranks = get_process_group_ranks(group)
    if global_rank not in ranks:
        raise ValueError(f"get_group_rank: not a process of the group; got rank {global_rank}; expected one of {ranks}")
    return ranks.index(global_rank)
