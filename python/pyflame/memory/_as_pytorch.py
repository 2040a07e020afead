"""A device's memory in the form of PyTorch's snapshots, which its viewers read."""
import pickle

from .. import _C


def _frames(at):
    """'train.py:12 in step' as PyTorch's frames; none if the line is not known."""
    place, _, name = at.partition(" in ")
    file, _, line = place.rpartition(":")
    return [{"filename": file, "line": int(line), "name": name}] if file and line.isdigit() else []


def segments(name):
    """A list of the segments that the allocator has from the driver, each with its blocks in the order of their addresses. The CPU has none."""
    lines = {address: at for address, _, _, _, at in _C._memory_log(name)["blocks"]}
    device = int(name.partition(":")[2] or 0)
    found = []
    for start, nbytes, small, parts in _C._memory_segments(name):
        blocks, address = [], start
        for size, used in parts:
            blocks.append({"address": address, "size": size, "requested_size": size if used else 0, "state": "active_allocated" if used else "inactive",
                           "frames": _frames(lines.get(address, ""))})  # fmt: skip
            address += size
        taken = sum(size for size, used in parts if used)
        found.append({"device": device, "address": start, "total_size": nbytes, "allocated_size": taken, "active_size": taken, "requested_size": taken, "stream": 0,
                      "segment_type": "small" if small else "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks})  # fmt: skip
    return found


def snapshot(name):
    """What torch.cuda.memory._snapshot() returns, without the trace of events: that is in pf.memory.snapshot()."""
    _C.synchronize()
    return {"segments": segments(name), "device_traces": [[]], "allocator_settings": {}, "external_annotations": []}


def dump(path, name):
    """Writes it as torch.cuda.memory._dump_snapshot does."""
    with open(path, "wb") as f:
        pickle.dump(snapshot(name), f)
