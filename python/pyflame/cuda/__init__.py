"""PyTorch's questions about the GPU, answered for the one that is there, AMD's or NVIDIA's. Without a GPU, questions how many there are and
what they hold have an answer, and commands such as synchronize() and empty_cache() do nothing, as in a PyTorch without one. What asks for a
property of a GPU, such as its name or its memory, or limits its memory, is a DeviceError with the reason."""
import contextlib

from .. import _C, _gpu, _refused
from .._generator import default_generator as default_generator
from .._generator import manual_seed as _manual_seed
from . import amp as amp, memory as memory, nvtx as nvtx, profiler as profiler, random as random, streams as streams
from .streams import (
    Event as Event,
    ExternalStream as ExternalStream,
    Stream as Stream,
    current_stream as current_stream,
    default_stream as default_stream,
    set_stream as set_stream,
    stream as stream,
)

CudaError = _C.DeviceError
OutOfMemoryError = _C.OutOfMemoryError
has_half = True


def is_available():
    """A bool: whether there is a GPU, of AMD or NVIDIA, whose driver PyFlame can use. Never raises."""
    return _gpu.count() > 0


def device_count():
    """The number of GPUs that this process can use, an int; 0 without one. Never raises."""
    return _gpu.count()


def current_device():
    """The number of the GPU that a name without a number means, an int from 0. DeviceError if there is none."""
    return int(_gpu.name_of().partition(":")[2])


def set_device(device):
    """Which of several GPUs a name without a number and x.cuda() mean. Tensors without device= are made where they were before, unless that is another GPU.

    device: a number, a name such as 'rocm:1', or a device. ValueError for what is no GPU's name, TypeError for another type; DeviceError without a GPU."""
    _gpu.select(_gpu.index_of(device))


class device:
    """A context in which this GPU is the one that a name without a number means. device: a number, a name such as 'rocm:1', or a device; None, and a negative
    number, change nothing. ValueError for what is no GPU's name, TypeError for another type. Without a GPU, entering it is a DeviceError for a number above 0."""

    def __init__(self, device):
        self.idx = -1 if device is None else _gpu.index_of(device)

    def __enter__(self):
        self._before = _gpu.index_of()
        if self.idx >= 0 and self.idx != self._before:
            _gpu.select(self.idx)
        return self

    def __exit__(self, *error):
        if _gpu.index_of() != self._before:
            _gpu.select(self._before)
        return False


def device_of(tensor):
    """A context in which the GPU of a tensor is the current one. For a tensor on the CPU nothing changes. TypeError for what is no tensor."""
    if not isinstance(tensor, _C.Tensor):
        raise TypeError(f"device_of: not a tensor; got {type(tensor).__name__}; expected a tensor")
    where = tensor.device
    return contextlib.nullcontext() if where.index is None else device(where.index)


def synchronize(device=None):
    """Returns when all work that was recorded is complete, on every device. An error of that work is raised. device: None, a number or
    a name; it is not used otherwise. ValueError for a name that no device has."""
    _gpu.check(device)
    _C.synchronize()


def manual_seed(seed):
    """Starts the random numbers anew from this seed, an int of 64 bits. It holds for all devices, which have one state. TypeError for what is no int."""
    _manual_seed(seed)


manual_seed_all = manual_seed


def seed():
    """Starts the random numbers anew from a seed that the operating system draws. It holds for all devices, which have one state."""
    default_generator.seed()


seed_all = seed


def initial_seed():
    """The seed, an int, from which manual_seed() or seed() started the random numbers last. All devices have the same."""
    return default_generator.initial_seed()


def get_rng_state(device=None):
    """The state of the random numbers, a tuple of two ints, which is one for all devices. set_rng_state() takes it. device is not used;
    ValueError for a name that no device has."""
    _gpu.check(device)
    return _C.get_rng_state()


def set_rng_state(new_state, device=None):
    """Continues the random numbers from a state that get_rng_state() returned. It holds for all devices. device is not used. TypeError for another value,
    ValueError for a name that no device has."""
    _gpu.check(device)
    _C.set_rng_state(tuple(new_state))


def get_rng_state_all():
    """A list with the state of the random numbers for each GPU. All have the same state; without a GPU the list is empty."""
    return [_C.get_rng_state() for _ in range(device_count())]


def set_rng_state_all(new_states):
    """Continues the random numbers from what get_rng_state_all() returned. The last state of the list counts; an empty list changes nothing. TypeError for what
    is no list, and for a state that is not a tuple of two ints of 0 or more."""
    for state in new_states[-1:]:
        set_rng_state(state)


def empty_cache():
    """Gives memory that PyFlame holds and no tensor uses back to the driver. Tensors keep theirs. Nothing is returned or raised without a GPU."""
    _C.empty_cache()


def ipc_collect():
    """Does nothing. Processes of PyFlame share no memory of a GPU, so that there is none to give back."""


def is_initialized():
    """A bool: whether there is a GPU, as is_available(). The GPU itself is opened when it is first used."""
    return is_available()


def init():
    """Does nothing. A GPU is opened when a tensor is first made on it, or when a question needs its driver."""


def _stats(device):
    _gpu.check(device)
    return _C.memory_stats(_gpu.name_of(device)) if is_available() else {}


def memory_allocated(device=None):
    """The bytes of the tensors that live on a GPU, an int. device: a number or a name; None is the current GPU. Without a GPU it is 0. ValueError for a name
    that no device has and, with a GPU, for another device's name; then also DeviceError for a GPU that is not there."""
    return _stats(device).get("allocated", 0)


def max_memory_allocated(device=None):
    """The most bytes of live tensors since the start, or since reset_peak_memory_stats(), an int. device, and the errors for it, are those of
    memory_allocated(). 0 without a GPU."""
    return _stats(device).get("peak_allocated", 0)


def memory_reserved(device=None):
    """The bytes that PyFlame holds of a GPU's memory, an int: those of tensors, and those that it keeps for the next ones. device, and the errors for it, are
    those of memory_allocated(). 0 without a GPU."""
    return _stats(device).get("reserved", 0)


def max_memory_reserved(device=None):
    """The most bytes of a GPU's memory that PyFlame held since the start, or since reset_peak_memory_stats(), an int. device, and the errors for it, are those of
    memory_allocated(). 0 without a GPU."""
    return _stats(device).get("peak_reserved", 0)


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def reset_peak_memory_stats(device=None):
    """The peaks of max_memory_allocated() and max_memory_reserved() begin again with the bytes of now. device, and the errors for it, are those of
    memory_allocated(). Without a GPU it does nothing."""
    _gpu.check(device)
    if is_available():
        _C.reset_peak_memory(_gpu.name_of(device))


reset_max_memory_allocated = reset_max_memory_cached = reset_accumulated_memory_stats = reset_peak_memory_stats


def memory_stats(device=None):
    """Counters of the memory of the GPU, a dict of ints by PyTorch's names where there are any, and by those of pf.memory_stats(). device, and the errors for it,
    are those of memory_allocated(). Empty without a GPU."""
    stats = _stats(device)
    names = {"allocated_bytes.all.current": "allocated", "allocated_bytes.all.peak": "peak_allocated", "reserved_bytes.all.current": "reserved",
             "reserved_bytes.all.peak": "peak_reserved", "active_bytes.all.current": "allocated", "active_bytes.all.peak": "peak_allocated",
             "inactive_split_bytes.all.current": "split", "segment.all.current": "segments", "num_device_alloc": "allocations", "num_alloc_retries": "retries", "num_ooms": "failures"}
    return {**{theirs: stats[ours] for theirs, ours in names.items() if ours in stats}, **stats}


def memory_summary(device=None, abbreviated=False):
    """A str of lines that say where the memory of a GPU is: the bytes of live tensors, those that are cached, and others. DeviceError without a GPU."""
    return _C.memory_report(_gpu.name_of(device))


def mem_get_info(device=None):
    """(free bytes, all bytes) of the GPU's memory; free of all processes. DeviceError if there is none."""
    from ..memory import _machine

    return _machine.room(_gpu.name_of(device))


def set_per_process_memory_fraction(fraction, device=None):
    """Sets the part of a GPU's memory that PyFlame may take. fraction: a number above 0, up to 1; ValueError for another. DeviceError without a GPU."""
    _C.set_memory_fraction(fraction, _gpu.name_of(device))


def get_per_process_memory_fraction(device=None):
    """The part of the GPU's memory that PyFlame may take; 1 if nothing limits it. DeviceError if there is no GPU."""
    name = _gpu.name_of(device)
    limit = _C.memory_stats(name)["limit"]
    return limit / mem_get_info(name)[1] if limit else 1.0


def memory_snapshot(mempool_id=None):
    """The segments of the current GPU's memory with their blocks, a list of dicts as PyTorch's. pf.memory.snapshot() also says what holds each of them. Empty
    without a GPU. mempool_id is not used; never raises."""
    from ..memory import _as_pytorch

    return _as_pytorch.segments(_gpu.name_of()) if is_available() else []


def _record_memory_history(enabled="all", *args, max_entries=200_000, **kwargs):
    """Notes from now on which line took which memory (pf.memory.record); None ends it."""
    from ..memory import record

    if enabled is None or enabled is False:
        _C._stop_memory_log()
    else:
        record(min(int(max_entries), 1 << 24))


def _memory_history(path=None):
    from ..memory import _as_pytorch

    name = _gpu.name_of() if is_available() else _C.get_device()
    return _as_pytorch.snapshot(name) if path is None else _as_pytorch.dump(path, name)


class _Properties:
    """What device_info says, by PyTorch's names."""

    def __init__(self, info):
        self.name, self.total_memory = info["name"], info["total_memory"]
        self.multi_processor_count, self.gcnArchName = info["compute_units"], info["architecture"]
        self.warp_size = info.get("wave_size", 32)
        self.major, self.minor = _capability(info["architecture"])

    def __repr__(self):
        return f"_CudaDeviceProperties(name='{self.name}', gcnArchName='{self.gcnArchName}', total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count})"


def _capability(architecture):
    """(major, minor) of 'sm_90', and of 'gfx942' or 'gfx1100' as (9, 4) and (11, 0)."""
    if architecture.startswith("gfx"):
        digits = architecture[3:].partition(":")[0]
        return int(digits[:-2]), int(digits[-2], 16)
    digits = "".join(c for c in architecture if c.isdigit())
    return (int(digits[:-1]), int(digits[-1])) if len(digits) > 1 else (0, 0)


def get_device_properties(device=None):
    """What the driver says of a GPU: an object with name, total_memory (bytes), multi_processor_count, gcnArchName, warp_size, major and minor. DeviceError without a GPU."""
    return _Properties(_C.device_info(_gpu.name_of(device)))


def get_device_name(device=None):
    """The name of a GPU as its driver gives it, a str. device: a number or a name; None is the current GPU. DeviceError without one."""
    return _C.device_info(_gpu.name_of(device))["name"]


def get_device_capability(device=None):
    """(major, minor) of the architecture: of NVIDIA's compute capability, or of AMD's gfx number. DeviceError if there is none."""
    return _capability(_C.device_info(_gpu.name_of(device))["architecture"])


def get_arch_list():
    """Always an empty list: no kernels are compiled ahead for an architecture, but each for the GPU that is there."""
    return []


def is_bf16_supported(including_emulation=True):
    """A bool: whether there is a GPU. Every GPU that PyFlame uses computes in bfloat16; including_emulation is not used. Never raises."""
    return is_available()


def can_device_access_peer(device, peer_device):
    """Always False: a kernel reads the memory of its own GPU only, and tensors move between GPUs by copies. The arguments are not used; never raises."""
    return False


def is_current_stream_capturing():
    """Always False. Programs that repeat are recorded and replayed as GPU graphs without being asked, so that a program never captures one."""
    return False


def get_memory_info(device=None):
    """(free bytes, all bytes) of the GPU's memory. DeviceError if there is none."""
    return mem_get_info(device)


def is_tf32_supported():
    """A bool: whether there is a GPU, on which set_float32_matmul_precision('high') may make float32 products faster and less exact."""
    return is_available()


_GRAPHS = "programs that repeat are replayed as GPU graphs without being asked"
CUDAGraph = _refused.cls("cuda.CUDAGraph", _GRAPHS)
graph = _refused.cls("cuda.graph", _GRAPHS)
make_graphed_callables = _refused.function("cuda.make_graphed_callables", _GRAPHS)

_POOLS = "memory of the GPU has one cache for all streams; cuda.memory_stats() shows it, and cuda.empty_cache() gives back what is free"
MemPool, CUDAPluggableAllocator = (_refused.cls(f"cuda.{name}", _POOLS) for name in ("MemPool", "CUDAPluggableAllocator"))
use_mem_pool, change_current_allocator, graph_pool_handle = (_refused.function(f"cuda.{name}", _POOLS) for name in ("use_mem_pool", "change_current_allocator", "graph_pool_handle"))

_SENSORS = "`pyflame profile` samples clocks, power and temperature; rocm-smi and nvidia-smi show them"
clock_rate, list_gpu_processes, memory_usage, power_draw, temperature, utilization = (
    _refused.function(f"cuda.{name}", _SENSORS) for name in ("clock_rate", "list_gpu_processes", "memory_usage", "power_draw", "temperature", "utilization"))


class _Runtime:
    """CUDA's functions that programs call around a region for NVIDIA's profiler; nobody reads the marks."""

    def cudaProfilerStart(self):  # noqa: N802
        return 0

    def cudaProfilerStop(self):  # noqa: N802
        return 0


def cudart():
    """An object whose cudaProfilerStart() and cudaProfilerStop() do nothing: pyflame.profiler.profile records a run."""
    return _Runtime()


def get_sync_debug_mode():
    """Always 0, which means that nothing is reported. pyflame.explain() names each point at which a program waits for the device."""
    return 0


def set_sync_debug_mode(debug_mode):
    """Does nothing; debug_mode is not used or checked, and nothing is raised. pyflame.explain() names each point at which a program waits for the device."""


def _lazy_init():
    """Does nothing, like init()."""


def __getattr__(name):
    if name.endswith("Tensor") and not name.startswith("_"):
        from .. import _old_types

        return _old_types.of_name(name, gpu=True)
    from .._misspelt import missing

    raise missing(__name__, name)
