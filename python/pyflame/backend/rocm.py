"""Memory pools and tuning of an AMD GPU (or, where a device is named, of an NVIDIA one).

    from pyflame.backend.rocm import get_memory_manager, get_pinned_pool, get_tuning_cache, warmup_memory_pool

Importing needs no device. Each call names the device that it is about; without a name it is the current one where that is a GPU, otherwise
'rocm:0'. DeviceError, with the reason and what mends it, where the device is not there.
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
    """The device memory that PyFlame holds."""

    def __init__(self, device=None):
        self._name = device

    def clear_pool(self):
        """Gives cached memory back to the driver; live tensors stay."""
        _device(self._name)
        _C.empty_cache()

    def stats(self):
        """A dict, in bytes: allocated, peak_allocated, cached, reserved, largest_hole, ..."""
        return _C.memory_stats(_device(self._name))

    def report(self):
        """The same for people: what is live, what is cached, what other processes hold."""
        return _C.memory_report(_device(self._name))

    def set_fraction(self, fraction):
        """PyFlame may take this part of the device's memory, above 0 and up to 1; more is an OutOfMemoryError."""
        _C.set_memory_fraction(fraction, _device(self._name))


class PinnedPool:
    """Page-locked host memory through which copies to and from the device go."""

    def __init__(self, device=None):
        self._name = device

    def warmup(self, sizes):
        """Pins memory now for copies of these many bytes (a list of numbers) that are on their way at the same time: 256 MiB at most, as more
        never is."""
        sizes = [int(s) for s in sizes]
        if any(s < 0 for s in sizes):
            raise ValueError(f"warmup: a size is negative; got {sizes}; expected bytes")
        _C._warm_up_pinned(sum(sizes), _device(self._name))


class TuningCache:
    """Which implementation of an op was measured to be the fastest, for each shape, on this device with these libraries."""

    def enable_exhaustive_search(self, enabled=True, budget_ms=60000):
        """For shapes met from now on: every implementation that takes the op is timed at its first run and compared with the first one's
        result before it may win, within `budget_ms` milliseconds of this process. False: only what is on record is used."""
        _C._set_tune_budget_ms(float(budget_ms) if enabled else 0.0)

    def set_cache_file(self, path):
        """Keeps the records in this file (SQLite) instead of choices.sqlite in PYFLAME_CACHE_DIR."""
        import os

        _C._set_choices_file(os.fspath(path))

    @property
    def path(self):
        """The file of the records."""
        return _C._choices_file()


def get_tuning_cache():
    """The TuningCache of this process."""
    return TuningCache()


def get_memory_manager(device=None):
    """The MemoryManager of a device."""
    return MemoryManager(device)


def get_pinned_pool(device=None):
    """The PinnedPool of a device."""
    return PinnedPool(device)


def warmup_memory_pool(batch_size, model_size="medium", device=None):
    """Asks the driver once, now, for about what training takes: model_size 'small' (64 MiB and 4 MiB a sample), 'medium' (512 and 32 MiB)
    or 'large' (4 GiB and 128 MiB). OutOfMemoryError when the device does not have that much. Returns the bytes."""
    if model_size not in _MODEL_BYTES:
        raise ValueError(f"warmup_memory_pool: no such model_size; got {model_size!r}; expected 'small', 'medium' or 'large'")
    if batch_size < 1:
        raise ValueError(f"warmup_memory_pool: batch_size is not positive; got {batch_size}; expected at least 1")
    model, sample = _MODEL_BYTES[model_size]
    nbytes = model + sample * int(batch_size)
    _C._warm_up_memory(nbytes, _device(device))
    return nbytes
