"""The table of GPUs (src/pyflame/base/gpu_arch.cpp) by what people call them."""
from .. import _C
from . import _machine, _text


def with_memory():
    """The GPUs with memory of their own, one of each name and size, the smallest first."""
    seen = {(p["name"], p["memory_bytes"]): p for p in _C._gpu_products() if p["memory_bytes"]}
    return sorted(seen.values(), key=lambda p: (p["memory_bytes"], p["name"]))


def _plain(name):
    return "".join(c for c in name.lower() if c.isalnum())


def find(name, op="memory", otherwise="bytes such as 24GiB"):
    """The GPU of the table with this name, or the first one with this part of a name: 'MI300X', 'rx 7900 xtx'. ValueError, which says what else `op` takes."""
    wanted, cards = _plain(name), with_memory()
    if not wanted:
        raise ValueError(f"{op}: the name of a GPU is empty; expected one such as MI300X")
    exact = [c for c in cards if _plain(c["name"]).endswith(wanted)]
    close = exact or [c for c in cards if wanted in _plain(c["name"])]
    if not close:
        raise ValueError(f"{op}: no such GPU in the table; got {name!r}; expected a name such as MI300X, 'RX 7900 XTX' or 'H100 PCIe', or {otherwise}")
    return close[0]


def memory_of(where):
    """The bytes of a GPU's name, of a device that is here, or of a size."""
    if not isinstance(where, str):
        return _text.bytes_of(where)
    kind = where.partition(":")[0]
    if kind in ("cpu", "rocm", "cuda"):
        return _machine.room(_machine.name_of(where))[1]
    if where.strip()[:1].isdigit():
        return _text.bytes_of(where)
    return find(where)["memory_bytes"]
