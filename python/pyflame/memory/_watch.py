"""`pyflame memory monitor`: who holds the memory of the machine and of its GPUs. AMD's GPUs are read from the kernel driver's files, so that looking opens
no device and takes no memory of it."""
import json
import os
import time

from .. import _C
from . import _machine, _text


def _names(folder):
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _line(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read().strip()
    except OSError:
        return ""


def _properties(path):
    return {k: int(v) for k, _, v in (line.partition(" ") for line in _line(path).splitlines()) if v.strip().isdigit()}


def _users(root):
    """{PCI address: [(process id, its name, bytes)]} of AMD's GPUs, the largest first."""
    nodes, kfd = {}, os.path.join(root, "sys/class/kfd/kfd")
    for node in _names(os.path.join(kfd, "topology/nodes")):
        folder = os.path.join(kfd, "topology/nodes", node)
        p, at = _line(os.path.join(folder, "gpu_id")), _properties(os.path.join(folder, "properties"))
        if p.isdigit() and int(p) and "location_id" in at:
            where = at["location_id"]
            nodes[p] = f"{at.get('domain', 0):04x}:{where >> 8 & 255:02x}:{where >> 3 & 31:02x}.{where & 7}"
    found = {}
    for pid in _names(os.path.join(kfd, "proc")):
        for gpu_id, pci in nodes.items():
            held = _machine._number(os.path.join(kfd, "proc", pid, "vram_" + gpu_id))
            if held:
                found.setdefault(pci, []).append((int(pid), _line(os.path.join(root, "proc", pid, "comm")), held))
    return {pci: sorted(users, key=lambda u: -u[2]) for pci, users in found.items()}


def _amd(root):
    users, folder = _users(root), os.path.join(root, "sys/bus/pci/devices")
    for pci in _names(folder):
        total = _machine._number(os.path.join(folder, pci, "mem_info_vram_total"))
        if total:
            used = _machine.driver_used(pci, root) or 0
            held = [{"pid": pid, "name": name, "bytes": nbytes} for pid, name, nbytes in users.get(pci, [])]
            yield {"device": f"AMD {pci}", "total": total, "free": max(0, total - used), "processes": held}


def look(root="/"):
    """What is free and who holds what, as a list of dicts: device, total, free, utilisation, processes (AMD only)."""
    free, total = _machine.host_memory(root)
    found = [{"device": "host", "total": total, "free": free, "processes": []}, *_amd(root)]
    for i in range(_C.cuda_device_count() if root == "/" else 0):
        free, total = _machine.room(f"cuda:{i}")
        found.append({"device": f"cuda:{i}", "total": total, "free": free, "processes": []})
    for d in found:
        d["utilisation"] = (d["total"] - d["free"]) / d["total"] if d["total"] else 0.0
    return found


def _as_text(devices):
    rows = []
    for d in devices:
        who = ", ".join(f"{p['name'] or '?'} ({p['pid']}) {_text.size(p['bytes'])}" for p in d["processes"][:4])
        rows.append([d["device"], _text.size(d["total"] - d["free"]), "of", _text.size(d["total"]), f"{d['utilisation']:.0%}", who])
    return _text.table(rows, right=(1, 3, 4))


def watch(interval, count, as_json=False):
    """Prints what look() sees, `count` times or until Ctrl-C. Returns the exit code."""
    seen = 0
    while True:
        devices = look()
        if as_json:
            print(json.dumps({"time": time.time(), "devices": devices}), flush=True)
        else:
            print(time.strftime("%H:%M:%S"), flush=True)
            print(_as_text(devices), flush=True)
        seen += 1
        if count and seen >= count:
            return 0
        time.sleep(interval)
