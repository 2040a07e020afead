"""Memory pools and tuning of an AMD GPU (or of an NVIDIA GPU, if one is named).

    from pyflame.backend.rocm import get_memory_manager, get_pinned_pool, get_tuning_cache, warmup_memory_pool

Importing needs no device. Each call takes the name of a device. By default it is the current device if that is a GPU, otherwise 'rocm:0'.
DeviceError, with the reason and a remedy, if the device is not available.
"""
from .. import _C

# Bytes that a training step of a model of this size takes: parameters, gradients and Adam's moments, and a sample's activations.
_MODEL_BYTES = {"small": (64 << 20, 4 << 20), "medium": (512 << 20, 32 << 20), "large": (4 << 30, 128 << 20)}


def _device(device):
    name = device or _C.get_device()
    if device is None and name.split(":")[0] not in ("rocm", "cuda"):
        name = "rocm:0"
    _C.device_info(name)  # raises where it is not there
    return name


class MemoryManager:
    """The memory that PyFlame holds on a device: its counters, its limit, and a way to give back what is free. get_memory_manager() makes one.

    device: as in get_memory_manager(). It is looked for when a method is called: ValueError for an unknown name, DeviceError for one that is not available."""

    def __init__(self, device=None):
        self._name = device

    def clear_pool(self):
        """Gives memory that PyFlame holds and no tensor uses back to the driver. Tensors keep theirs. DeviceError if the device is not available."""
        _device(self._name)
        _C.empty_cache()

    def stats(self):
        """A dict of counters, most of them bytes: allocated, peak_allocated, cached, reserved, largest_hole and others. docs/memory.md says what each means."""
        return _C.memory_stats(_device(self._name))

    def report(self):
        """A readable text: what is live, what is cached, what other processes hold."""
        return _C.memory_report(_device(self._name))

    def set_fraction(self, fraction):
        """Limits PyFlame to this part of the device's memory (above 0, at most 1). More is an OutOfMemoryError."""
        _C.set_memory_fraction(fraction, _device(self._name))


class PinnedPool:
    """The page-locked memory of the host through which tensors are copied to and from a device. get_pinned_pool() makes one.

    device: as in get_pinned_pool(). It is looked for when a method is called: ValueError for an unknown name, DeviceError for one that is not available."""

    def __init__(self, device=None):
        self._name = device

    def warmup(self, sizes):
        """Pins memory now, for copies of these sizes in bytes (a list of numbers) that are in flight at the same time. At most 256 MiB
        are pinned, because there are never more in flight."""
        sizes = [int(s) for s in sizes]
        if any(s < 0 for s in sizes):
            raise ValueError(f"warmup: a size is negative; got {sizes}; expected bytes")
        _C._warm_up_pinned(sum(sizes), _device(self._name))


class TuningCache:
    """Remembers which implementation of an op was the fastest for each shape, on this device and with these libraries. It has no arguments (TypeError)."""

    def enable_exhaustive_search(self, enabled=True, budget_ms=60000):
        """For new shapes, every implementation that accepts the op is timed at the first run. Only those whose result agrees with the first
        one's can win. This process spends at most `budget_ms` milliseconds on it. False: only stored measurements are used."""
        _C._set_tune_budget_ms(float(budget_ms) if enabled else 0.0)

    def set_cache_file(self, path):
        """Keeps the measurements in this file (SQLite) instead of choices.sqlite in PYFLAME_CACHE_DIR."""
        import os

        _C._set_choices_file(os.fspath(path))

    @property
    def path(self):
        """The path of the database with the measured implementations, a str. pf.tuning.path() returns the same."""
        return _C._choices_file()


def get_tuning_cache():
    """The TuningCache of this process: the choices among implementations that were measured. All devices of the process share it."""
    return TuningCache()


def get_memory_manager(device=None):
    """The MemoryManager of a device. device: a name such as "rocm" or "rocm:1"; None: the default device if that is a GPU, else "rocm:0". Never raises: the
    methods do, where the device is unknown (ValueError) or not available (DeviceError)."""
    return MemoryManager(device)


def get_pinned_pool(device=None):
    """The PinnedPool of a device. device: a name such as "rocm" or "rocm:1"; None: the default device if that is a GPU, else "rocm:0". Never raises: its method
    does, where the device is unknown (ValueError) or not available (DeviceError)."""
    return PinnedPool(device)


def warmup_memory_pool(batch_size, model_size="medium", device=None, *, model=None, sample=None):
    """Allocates from the driver, once, about the memory that training takes, and returns the number of bytes. OutOfMemoryError if the device does not have that
    much.

    batch_size: how many samples a step has, at least 1.
    model: a Module, or a function that makes one, whose training step with Adam is planned (pf.memory.estimate); sample: a tensor like one sample, without the
    batch's dim. Without them it is a guess: model_size 'small' (64 MiB, and 4 MiB per sample), 'medium' (512 and 32 MiB) or 'large' (4 GiB and 128 MiB)."""
    if model is None and model_size not in _MODEL_BYTES:
        raise ValueError(f"warmup_memory_pool: no such model_size; got {model_size!r}; expected 'small', 'medium' or 'large'")
    if batch_size < 1:
        raise ValueError(f"warmup_memory_pool: batch_size is not positive; got {batch_size}; expected at least 1")
    if (model is None) != (sample is None):
        raise ValueError("warmup_memory_pool: model and sample belong together; got only one of them; expected both or none")
    name = _device(device)
    nbytes = _planned(model, sample, int(batch_size)) if model is not None else sum(b * n for b, n in zip(_MODEL_BYTES[model_size], (1, int(batch_size))))
    _C._warm_up_memory(nbytes, name)
    return nbytes


def _planned(model, sample, batch_size):
    from ..memory import estimate

    return estimate(model, lambda: _C.zeros(batch_size, *sample.shape, dtype=sample.dtype, device="null")).reserved
