"""Processes that compute together, by the names and with the semantics of torch.distributed.

A program calls init_process_group(), which finds its rank and the others by the variables of `pyflame run`, torchrun, SLURM, Open MPI or MPICH. Without
such variables the process is the only one: every function works there and moves nothing, so one script runs everywhere. Tensors on the CPU go through
shared memory within a host and through TCP between hosts; the values of a reduction are combined in the order of the ranks, so results have the same bits
in each run. Tensors on GPUs go through NCCL or RCCL.

Where the calls of the ranks differ, each of them raises. An error in the arguments of one rank is raised there alone. Let it end the process: a program that
catches it and goes on can receive, in its next call, what the others sent in the one that failed.
"""
import atexit
import os
from importlib import import_module

from .. import _refused
from . import _state
from ._collectives import (
    P2POp as P2POp,
    all_gather as all_gather,
    all_gather_into_tensor as all_gather_into_tensor,
    all_reduce as all_reduce,
    all_to_all as all_to_all,
    all_to_all_single as all_to_all_single,
    barrier as barrier,
    batch_isend_irecv as batch_isend_irecv,
    broadcast as broadcast,
    gather as gather,
    irecv as irecv,
    isend as isend,
    monitored_barrier as monitored_barrier,
    recv as recv,
    reduce as reduce,
    reduce_scatter as reduce_scatter,
    reduce_scatter_tensor as reduce_scatter_tensor,
    scatter as scatter,
    send as send,
)
from ._group import ProcessGroup as ProcessGroup, Work as Work
from ._objects import (
    all_gather_object as all_gather_object,
    broadcast_object_list as broadcast_object_list,
    gather_object as gather_object,
    scatter_object_list as scatter_object_list,
)
from ._state import (
    GroupMember as GroupMember,
    ReduceOp as ReduceOp,
    destroy_process_group as destroy_process_group,
    get_backend as get_backend,
    get_global_rank as get_global_rank,
    get_group_rank as get_group_rank,
    get_node_local_rank as get_node_local_rank,
    get_process_group_ranks as get_process_group_ranks,
    get_rank as get_rank,
    get_world_size as get_world_size,
    group as group,
    init_process_group as init_process_group,
    is_available as is_available,
    is_initialized as is_initialized,
    new_group as new_group,
)
from ._store import Store as Store, TCPStore as TCPStore

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:  # names that are imported when they are first used
    from . import check as check, checkpoint as checkpoint, device_mesh as device_mesh, fsdp as fsdp, nn as nn, optim as optim, tensor as tensor
    from .device_mesh import DeviceMesh as DeviceMesh, init_device_mesh as init_device_mesh
del TYPE_CHECKING

_ADVICE = "process groups, their collectives, fsdp, tensor.parallel, checkpoint and optim are; a program that needs more runs in PyTorch"
FileStore, HashStore, PrefixStore = (_refused.cls(f"distributed.{name}", _ADVICE) for name in ("FileStore", "HashStore", "PrefixStore"))
_everything_else = _refused.module("distributed", _ADVICE)
_all_gather_base, _reduce_scatter_base = all_gather_into_tensor, reduce_scatter_tensor


def is_nccl_available() -> bool:
    """Whether there is a GPU and its library of collectives, NCCL or RCCL."""
    from .. import _C

    return any(count() and _C._communicator_library(kind)[0] for kind, count in (("cuda", _C.cuda_device_count), ("rocm", _C.rocm_device_count)))


def is_mpi_available() -> bool:
    """False: no collective goes through MPI. The variables of its launchers are read by init_process_group(). Never raises."""
    return False


def is_gloo_available() -> bool:
    """True: the backend 'gloo' is taken for 'host', which does its work."""
    return True


def is_torchelastic_launched() -> bool:
    """Whether torchrun or `pyflame run` started this process, by the variable TORCHELASTIC_RUN_ID: a bool. Never raises."""
    return "TORCHELASTIC_RUN_ID" in os.environ


atexit.register(_state.at_exit)


def __getattr__(name):
    if name in ("fsdp", "nn", "tensor", "optim", "checkpoint", "device_mesh", "check"):  # they need pyflame.nn, which needs this package
        return import_module("." + name, __name__)
    if name in ("DeviceMesh", "init_device_mesh"):
        return getattr(import_module(".device_mesh", __name__), name)
    if name in ("rpc", "elastic", "algorithms", "pipelining"):
        raise AttributeError(f"module 'pyflame.distributed' has no attribute '{name}'")
    return _everything_else(name)
