"""The memory of devices: limits, counters, plans of what a training needs, and what fits.

    pf.memory.configure(fraction=0.9)           # at any time, also before the device is used
    pf.memory.stats()                           # total, allocated, reserved, free, ...
    pf.memory.estimate(model, batch)            # what a training step will need, without allocating it

Each call takes the name of a device; the default is the current one. The functions of pf.cuda and pf.accelerator about memory ask the same
allocator. docs/memory.md is the guide.
"""
import gc as _gc

from .. import _C
from . import _machine

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:  # names that are imported when they are first used
    from ._estimate import Estimate as Estimate, estimate as estimate
    from ._batch_size import BatchSize as BatchSize, find_batch_size as find_batch_size
    from ._policy import CheckpointPolicy as CheckpointPolicy, checkpoint_policy as checkpoint_policy
    from ._monitor import Monitor as Monitor, monitor as monitor
    from ._snapshot import Snapshot as Snapshot, record as record, snapshot as snapshot
    from ._fit import Fit as Fit, fit as fit
del TYPE_CHECKING

_LATER = {
    "estimate": "_estimate", "Estimate": "_estimate",
    "find_batch_size": "_batch_size", "BatchSize": "_batch_size",
    "checkpoint_policy": "_policy", "CheckpointPolicy": "_policy",
    "monitor": "_monitor", "Monitor": "_monitor",
    "snapshot": "_snapshot", "Snapshot": "_snapshot", "record": "_snapshot",
    "fit": "_fit", "Fit": "_fit",
}  # fmt: skip


def configure(*, fraction=None, limit=None, split_size=None, pinned=None, guards=None, poison=None, device=None):
    """Sets how memory is used. What is None stays as it is. May be called at any time: a device that is not open yet is not opened, and gets its
    settings when it is first used. device: the one that is meant; None means all GPUs of this process, or the CPU if there is none.

    fraction: the part of the device's memory that PyFlame may take, above 0 and up to 1 (no limit).
    limit: the same in bytes; 0: no limit. fraction and limit replace each other; if both are given, the smaller one holds.
    split_size: free blocks of more bytes are not split, so that small tensors do not break up what large ones need; 0: all are. GPUs only.
    pinned: bytes of pinned host memory that are kept ready for copies. GPUs only.
    guards, poison: the debug allocator, on all devices, for memory that is taken from now on (docs/debugging.md). With guards, an op that accesses memory outside of
    its buffers, or freed memory, is a RuntimeError that names it. With poison, reading memory that nothing has written is one. It is slow.

    Without a GPU and without device=, split_size and pinned have nothing to act on, so that a program runs anywhere. ValueError for a value out of its range, or for one that the device does not have. A request above the limit is an OutOfMemoryError."""
    values = {"fraction": fraction, "limit": limit, "split_size": split_size, "pinned": pinned}
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float, type(None))) or (isinstance(value, float) and name != "fraction"):
            raise TypeError(f"configure: {name} is not a number; got {value!r}; expected {'a float' if name == 'fraction' else 'bytes as an int'}")
        if value is not None and name != "fraction" and value < 0:
            raise ValueError(f"configure: {name} is negative; got {value}; expected bytes")
    for name, value in (("guards", guards), ("poison", poison)):
        if value is not None and not isinstance(value, bool):
            raise TypeError(f"configure: {name} is not a bool; got {value!r}; expected True or False")
    if guards is not None or poison is not None:
        if device is not None:
            raise ValueError(f"configure: guards and poison are of all devices; got device={device!r}; expected none")
        _C._configure_debug_memory(guards, poison, None)
    names = _machine.accelerators() if device is None else [_machine.name_of(device)]
    for name in names or ["cpu"]:
        _configure_one(name, fraction, limit, *((split_size, pinned) if names else (None, None)))


def _configure_one(name, fraction, limit, split_size, pinned):
    if fraction is not None and name.split(":")[0] in _machine.ON_HOST:
        if not 0 < fraction <= 1:
            raise ValueError(f"configure: fraction is not a fraction; got {fraction}; expected more than 0 and at most 1")
        part = 0 if fraction == 1 else int(fraction * _machine.host_memory()[1])
        limit = min(filter(None, (part, limit)), default=0)
        fraction = None
    _C._configure_memory(name, fraction, limit, split_size, pinned)


def stats(device=None):
    """What is in a device's memory, as a dict of bytes:

    total: of the device; on the CPU the machine's, or the limit of this control group.
    allocated: live tensors and what programs compute in between (arena).
    reserved: what this process holds of the device: allocated, and free blocks that are kept for reuse (cached).
    free: what is free of all processes. On AMD it is the smaller of the answers of HIP and of the kernel driver.
    others: held by other processes, libraries and the driver.
    utilisation: the part of total that is in use by anybody, 0 to 1.
    fragmentation: the part of reserved that is free but lies beside live blocks, so that it cannot be given back, 0 to 1. 0 on the CPU.
    limit: what configure() set; 0: none.

    There are also device (its name), cached, arena, kept (results that depend on parameters alone), peak_allocated, allocations and, except on the CPU, peak_reserved, split, largest_hole, segments, retries,
    failures, tensors and replays. The device 'null' has addresses and no memory: total and free are 0. DeviceError if the device is absent."""
    name = _machine.name_of(device)
    s = _C.memory_stats(name)
    free, total = _machine.room(name)
    reserved = s.get("reserved", s["allocated"] + s["cached"])
    found = {
        "device": name,
        "total": total,
        "allocated": s["allocated"],
        "reserved": reserved,
        "free": free,
        "others": max(0, total - free - reserved),
        "utilisation": (total - free) / total if total else 0.0,
        "fragmentation": s.get("split", 0) / reserved if reserved else 0.0,
    }
    return {**s, **found}


def trim(device=None):
    """Gives back all memory that nothing uses: collects Python's garbage, completes what is pending, and returns cached blocks and the arena to the
    driver or the operating system. Returns the number of bytes by which the device's reserved memory became less.

    device: a name such as 'cpu' or 'cuda:0'; None: the current one. Raises ValueError for a name of no device, and DeviceError for a device that is not
    there.
    """
    name = _machine.name_of(device)
    before = _reserved(name)
    _gc.collect()
    _C.synchronize()
    _C.empty_cache()
    return max(0, before - _reserved(name))


def _reserved(name):
    s = _C.memory_stats(name)
    return s.get("reserved", s["allocated"] + s["cached"])


def report(device=None):
    """Where a device's memory is, as text: what is live and for what, what is cached, what others hold.

    device: a name such as 'cpu' or 'cuda:0'; None: the current one. Raises ValueError for a name of no device, and DeviceError for a device that is not
    there.
    """
    return _C.memory_report(_machine.name_of(device))


def reset_peak(device=None):
    """Sets the peaks in a device's statistics to what is allocated and reserved now, so that later peaks are of what follows. device: as in memory.stats.

    Raises ValueError for a name of no device, and DeviceError for a device that is not there.
    """
    _C.reset_peak_memory(_machine.name_of(device))


def products():
    """The GPUs that PyFlame knows, as a list of dicts: name, architecture, memory_bytes and bandwidth_gbs (0 if unknown)."""
    return _C._gpu_products()


def __getattr__(name):
    if name in _LATER:
        from importlib import import_module

        value = getattr(import_module("." + _LATER[name], __name__), name)
        globals()[name] = value
        return value
    from .._misspelt import missing

    raise missing(__name__, name)


def __dir__():
    return sorted(n for n in set(globals()) | set(_LATER) if not n.startswith("_"))
