"""What the machine says about its memory: the host's, and a GPU's as the kernel driver sees it."""
import os

from .. import _C, _gpu

ON_HOST = ("cpu", "reference")  # devices in the host's memory
_KIB = 1 << 10


def name_of(device):
    """A device's name, such as 'cpu' or 'rocm:0'; None is the current device."""
    return _C.get_device() if device is None else str(_C.device(device))


def accelerators():
    """The names of all GPUs of the type that pf.cuda stands for. It opens none of them."""
    kind = _gpu.kind()
    return [f"{kind}:{i}" for i in range(_gpu.count())] if kind else []


def _number(path):
    """The number in a file; None if there is none, or it says 'max'."""
    try:
        with open(path, encoding="ascii", errors="replace") as f:
            return int(f.read().strip())
    except (OSError, ValueError):
        return None


def _meminfo(root):
    values = {}
    with open(os.path.join(root, "proc/meminfo"), encoding="ascii", errors="replace") as f:
        for line in f:
            key, _, rest = line.partition(":")
            values[key] = int(rest.split()[0]) * _KIB
    return values


# (limit, usage) of this process's control group, in the versions 2 and 1 of Linux's interface.
_GROUPS = (("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
           ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"))  # fmt: skip


def host_memory(root="/"):
    """(free bytes, all bytes) of the host. A control group's limit counts if it is below the machine's memory."""
    values = _meminfo(root)
    total, free = values["MemTotal"], values.get("MemAvailable", values["MemFree"])
    for limit_file, usage_file in _GROUPS:
        limit, usage = _number(os.path.join(root, limit_file)), _number(os.path.join(root, usage_file))
        if limit is not None and limit < total:
            total = limit
            free = min(free, max(0, limit - (usage or 0)))
    return free, total


def driver_used(pci, root="/"):
    """Bytes of a GPU's memory that are in use by all processes, from the kernel driver of AMD's GPUs; None if it does not say."""
    return _number(os.path.join(root, "sys/bus/pci/devices", pci.lower(), "mem_info_vram_used")) if pci else None


def room(name, root="/"):
    """(free bytes, all bytes) of a device, counting all processes."""
    kind = name.split(":")[0]
    if kind == "null":
        return 0, 0
    if kind in ON_HOST:
        return host_memory(root)
    info = _C.device_info(name)
    free, total = info["free_memory"], info["total_memory"]
    used = driver_used(info.get("pci"), root)
    # HIP's figure may leave other processes out; the driver's is of the whole card, which says nothing of one part of a divided card.
    if used is not None and used <= total:
        free = min(free, total - used)
    return free, total
