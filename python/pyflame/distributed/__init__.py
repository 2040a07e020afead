"""Names of torch.distributed. Training with several processes comes later: this process is the only one."""
from .. import _refused

_ADVICE = "training with several processes comes later; run one process"
ProcessGroup, Work, Store, TCPStore, FileStore = (_refused.cls(f"distributed.{name}", _ADVICE) for name in ("ProcessGroup", "Work", "Store", "TCPStore", "FileStore"))
_everything_else = _refused.module("distributed", _ADVICE)


class ReduceOp:
    """The names of reductions."""

    SUM, AVG, PRODUCT, MIN, MAX = "sum", "avg", "product", "min", "max"


class group:
    """The group of all processes."""

    WORLD = None


def is_available():
    """No: training with several processes comes later."""
    return False


def is_initialized():
    """No."""
    return False


is_nccl_available = is_gloo_available = is_mpi_available = is_torchelastic_launched = is_initialized


def get_rank(group=None):
    """0: this process is the only one."""
    return 0


get_node_local_rank = get_rank


def get_world_size(group=None):
    """1: this process is the only one."""
    return 1


def barrier(*args, **kwargs):
    """Nothing: there is nobody to wait for."""


def destroy_process_group(group=None):
    """Nothing."""


def __getattr__(name):
    if name in ("fsdp", "nn", "tensor", "rpc", "optim", "elastic", "checkpoint", "algorithms", "device_mesh"):
        raise AttributeError(f"module 'pyflame.distributed' has no attribute '{name}'")
    return _everything_else(name)
