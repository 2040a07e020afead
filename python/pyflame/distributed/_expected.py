"""What a path between two ranks should give, by what /sys, NVML and a copy that is measured say of it."""
import ctypes
import pathlib
import re
import socket
import struct
import time

from .. import _C
from ._group import _host

_ENOUGH = 0.5  # of what a path gives: protocols, and copies at both ends, take the rest
_NVLINK = {1: 20.0, 2: 25.0, 3: 25.0, 4: 25.0, 5: 50.0}  # GB/s of a link in one direction, by its version
_XGMI = 11  # the type of such a link in /sys/class/kfd
_SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH


def _read(path):
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""


def _first_number(path):
    found = re.match(r"-?[0-9.]+", _read(path))
    return float(found[0]) if found else None


def copy_gb_s(nbytes):
    """GB/s of a copy of this many bytes by one thread: the median of 5."""
    source, target = ctypes.create_string_buffer(nbytes), ctypes.create_string_buffer(nbytes)
    times = []
    for _ in range(6):  # the first one gets the memory
        begin = time.perf_counter()
        ctypes.memmove(target, source, nbytes)
        times.append(time.perf_counter() - begin)
    return nbytes / sorted(times[1:])[2] / 1e9


def network_gb_s(address, sys=pathlib.Path("/sys")):
    """GB/s of the network card that has an IPv4 address; None where nothing says it."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for _, name in socket.if_nameindex():
            try:
                found = socket.inet_ntoa(fcntl.ioctl(s.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))[20:24])  # SIOCGIFADDR
            except OSError:
                continue
            if found == address:
                speed = _first_number(sys / "class/net" / name / "speed")  # Mbit/s, -1 where the card does not know
                return speed / 8e3 if speed and speed > 0 else None
    return None


def pcie(pci, sys=pathlib.Path("/sys")):
    """{'gb_s', 'now', 'most'} of the PCIe link of a device; None where /sys does not say it. 'now' and 'most': (GT/s, lanes)."""
    folder = sys / "bus/pci/devices" / pci.lower()
    now, most = ((_first_number(folder / f"{which}_link_speed"), _first_number(folder / f"{which}_link_width")) for which in ("current", "max"))
    if not now[0] or not now[1] or now[1] > 32:  # a link that is down has the width 0 or 255
        return None
    return {"gb_s": now[0] * now[1] * (0.8 if now[0] <= 5 else 128 / 130) / 8, "now": now, "most": most}


def xgmi(pci, sys=pathlib.Path("/sys")):
    """{PCI address: GB/s} of the AMD GPUs to which a GPU has xGMI links, as the driver says."""
    nodes, found = {}, {}
    for folder in (sys / "class/kfd/kfd/topology/nodes").glob("*"):
        properties = dict(line.split() for line in _read(folder / "properties").splitlines() if len(line.split()) == 2)
        place = int(properties.get("location_id", 0))
        if place:
            nodes[folder.name] = (folder, f"{int(properties.get('domain', 0)):04x}:{place >> 8 & 255:02x}:{place >> 3 & 31:02x}.{place & 7}")
    for folder, address in nodes.values():
        if address != pci.lower():
            continue
        for link in (folder / "io_links").glob("*"):
            properties = dict(line.split() for line in _read(link / "properties").splitlines() if len(line.split()) == 2)
            if int(properties.get("type", 0)) == _XGMI and properties.get("node_to") in nodes and int(properties.get("max_bandwidth", 0)):
                found[nodes[properties["node_to"]][1]] = int(properties["max_bandwidth"]) / 1e3
    return found


class _Pci(ctypes.Structure):
    _fields_ = [("legacy", ctypes.c_char * 16), ("domain", ctypes.c_uint), ("bus", ctypes.c_uint), ("device", ctypes.c_uint), ("ids", ctypes.c_uint * 2), ("address", ctypes.c_char * 32)]


def nvlink(pci):
    """{PCI address, or 'switch': GB/s} of what the NVLinks of a GPU lead to, by NVML."""
    found = {}
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return found
    handle = ctypes.c_void_p()
    if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByPciBusId_v2(pci.encode(), ctypes.byref(handle)):
        return found
    for link in range(18):
        active, version, kind, other = ctypes.c_uint(0), ctypes.c_uint(0), ctypes.c_int(-1), _Pci()
        if library.nvmlDeviceGetNvLinkState(handle, link, ctypes.byref(active)) or not active.value or library.nvmlDeviceGetNvLinkVersion(handle, link, ctypes.byref(version)):
            continue
        to = "switch"
        if library.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link, ctypes.byref(kind)) or kind.value != _SWITCH:
            if library.nvmlDeviceGetNvLinkRemotePciInfo_v2(handle, link, ctypes.byref(other)):
                continue
            to = f"{other.domain:04x}:{other.bus:02x}:{other.device:02x}.0"
        if version.value in _NVLINK:
            found[to] = found.get(to, 0.0) + _NVLINK[version.value]
    return found


def facts(group, device, nbytes):
    """What this rank knows of its end of a path. It is read after the transfers, because links that are idle may be slower."""
    device = _C.device(str(device))
    found = {"host": _host(), "copy_gb_s": copy_gb_s(nbytes), "network_gb_s": network_gb_s(group.store._connection.getsockname()[0]), "pci": None}
    pci = _C.device_info(device).get("pci") if device.type in ("cuda", "rocm") else None
    if pci:
        pci = re.sub(r"^0000(?=[0-9a-f]{4}:)", "", pci.lower())
        found.update(pci=pci, pcie=pcie(pci), direct=nvlink(pci) if device.type == "cuda" else xgmi(pci), direct_name="NVLink" if device.type == "cuda" else "xGMI")
    return found


def _gpus(a, b):
    if not a["pci"] or not b["pci"]:
        return None, "one end is no GPU whose place is known", ""
    direct = a["direct"].get(b["pci"]) or min(a["direct"].get("switch", 0), b["direct"].get("switch", 0))
    if direct:
        return direct, a["direct_name"], "look at NCCL_DEBUG=INFO, which names the path that the library takes, and at NCCL_P2P_DISABLE"
    if not a["pcie"] or not b["pcie"]:
        return None, "/sys does not say how fast the PCIe link is", ""
    slower = min(a["pcie"], b["pcie"], key=lambda link: link["gb_s"])
    (speed, lanes), most = slower["now"], slower["most"]
    name = f"PCIe of {speed:g} GT/s with {lanes:g} lanes"
    if most[1] and lanes < most[1] or most[0] and speed < most[0]:
        return slower["gb_s"], name, f"look at the slot, because the GPU has {most[0]:g} GT/s and {most[1]:g} lanes"
    return slower["gb_s"], name, "look at NCCL_DEBUG=INFO, and at the IOMMU and ACS, which send what goes between two GPUs through the processor"


def _path(a, b, transport):
    """(GB/s or None, the name of the path or why it is unknown, what to look at)."""
    one_host = bool(a["host"]) and a["host"] == b["host"]
    if transport not in ("direct", "shared memory", "TCP"):
        return _gpus(a, b) if one_host else (None, "nothing says how GPUs of two hosts are linked", "")
    if a["pci"] or b["pci"]:
        return None, "tensors of GPUs go through the host's memory", ""
    if transport in ("direct", "shared memory"):  # of a message, each byte is copied into the ring and out of it
        return min(a["copy_gb_s"], b["copy_gb_s"]) / 2, "two copies in memory", "look at other programs on these processors, and at `pyflame run --bind`"
    if one_host:
        return None, "nothing says how fast TCP within a host is; shared memory is faster: look at PYFLAME_SHARED_MEMORY, and whether the ranks are in one container", ""
    if a["network_gb_s"] and b["network_gb_s"]:
        return min(a["network_gb_s"], b["network_gb_s"]), "the network card", "look at other traffic, at the cable, and at the speed of the switch"
    return None, "the network card does not say how fast it is", ""


def judge(path, a, b, nbytes):
    """Adds 'expected_gb_s' and 'verdict' to an entry of a report. a, b: the facts of its two ranks."""
    gives, name, look = _path(a, b, path["transport"])
    path["expected_gb_s"] = None
    if gives is None:
        path["verdict"] = f"unknown: {name}"
        return
    seconds, latency = nbytes / gives / 1e9, path["latency_us"] / 1e6
    path["expected_gb_s"] = nbytes / (seconds + latency) / 1e9
    share = path["bandwidth_gb_s"] / path["expected_gb_s"]
    if seconds < latency:
        path["verdict"] = f"unknown: a message of {nbytes} bytes shows the latency; hint: more --bytes"
    elif share >= _ENOUGH:
        path["verdict"] = "as expected"
    else:
        path["verdict"] = f"{share:.0%} of what {name} gives: {look}".replace("%", " %")
