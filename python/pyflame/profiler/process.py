"""Watches a running process from outside for some seconds, through /proc and the devices' load. The process is not changed and not stopped."""
import collections
import ctypes
import os
import pathlib
import platform
import re
import shutil
import struct
import subprocess
import time
from dataclasses import dataclass, field

from ..benchmarking import gpu_metrics

INTERVAL = 0.02  # seconds between two samples
_MOST_THREADS = 128
_TICK = os.sysconf("SC_CLK_TCK")
# What a thread does in a system call that it waits in, by number: (what, whether the first argument is a file).
_CALLS = {"x86_64": {0: "read", 17: "read", 19: "read", 45: "read", 47: "read", 7: "poll", 23: "poll", 232: "poll", 270: "poll", 271: "poll", 281: "poll", 35: "sleep", 230: "sleep",
                     202: "lock", 61: "child", 1: "write", 44: "write", 74: "disk", 75: "disk"},
          "aarch64": {63: "read", 65: "read", 67: "read", 207: "read", 212: "read", 22: "poll", 72: "poll", 73: "poll", 101: "sleep", 115: "sleep", 98: "lock", 260: "child", 64: "write",
                      82: "disk", 83: "disk"}}.get(platform.machine(), {})
# The same from the kernel's function, where the call may not be read.
_FUNCTIONS = (("pipe_read", "read"), ("sk_wait", "read"), ("stream_read", "read"), ("recv", "read"), ("poll", "poll"), ("select", "poll"), ("nanosleep", "sleep"), ("futex", "lock"), ("do_wait", "child"),
              ("pipe_write", "write"), ("folio", "disk"), ("io_schedule", "disk"), ("page", "disk"))


@dataclass
class Observation:
    """What was seen of one process. Times are in seconds."""

    pid: int
    command: str
    seconds: float = 0.0
    cpu: float = 0.0  # of all its threads
    kernel: float = 0.0  # the part in the kernel
    children: dict = field(default_factory=dict)  # command: seconds of CPU, of processes below it
    threads: dict = field(default_factory=dict)  # number: (name, seconds of CPU)
    states: collections.Counter = field(default_factory=collections.Counter)  # of the main thread, by sample: run, read, poll, sleep, lock, child, write, disk, stopped, other
    files: collections.Counter = field(default_factory=collections.Counter)  # what the main thread read when it waited
    bytes_read: int = 0
    reads: int = 0
    minor_faults: int = 0
    major_faults: int = 0
    preempted: int = 0  # involuntary switches
    resident: int = 0
    gpus: dict = field(default_factory=dict)  # name: [(busy %, memory busy % or None)]
    xcds: dict = field(default_factory=dict)  # name of an AMD GPU: [what gpu_metrics.state says of the clocks of its XCDs], each once
    counters: dict = None  # cycles, instructions, misses; None: this machine or user cannot count
    stacks: list = field(default_factory=list)  # of py-spy: the innermost functions of the main thread

    def share(self, *states):
        """Of the main thread's samples."""
        return sum(self.states[s] for s in states) / max(1, sum(self.states.values()))


def _text(path):
    try:
        return pathlib.Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _stat(path):
    """Name, state, and the fields after it, of a stat file; None if there is none."""
    text = _text(path)
    if ")" not in text:
        return None
    name = text[text.index("(") + 1:text.rindex(")")]
    fields = text[text.rindex(")") + 2:].split()
    return name, fields[0], fields


def _number(text, key):
    found = re.search(rf"^{key}:\s*(\d+)", text, re.MULTILINE)
    return int(found.group(1)) if found else 0


class _Counting:
    """Cycles, instructions and misses of the last cache, of the process and its new threads, if the kernel lets us count."""

    _EVENTS = {"cycles": 0, "instructions": 1, "misses": 3}
    _CALL = {"x86_64": 298, "aarch64": 241}.get(platform.machine())

    def __init__(self, pid):
        self._files = []
        if self._CALL is None:
            return
        libc = ctypes.CDLL(None, use_errno=True)
        for tid in sorted(map(int, os.listdir(f"/proc/{pid}/task")))[:_MOST_THREADS]:
            for name, number in self._EVENTS.items():
                # struct perf_event_attr: type, size, config, sample, formats, flags (inherit, without the kernel and the hypervisor)
                attr = struct.pack("<IIQQQQQ", 0, 112, number, 0, 0, 0, 1 << 1 | 1 << 5 | 1 << 6).ljust(112, b"\0")
                fd = libc.syscall(self._CALL, ctypes.create_string_buffer(attr, 112), tid, -1, -1, 0)
                if fd >= 0:
                    self._files.append((name, fd))

    def read(self):
        totals = collections.Counter()
        for name, fd in self._files:
            try:
                totals[name] += struct.unpack("<Q", os.read(fd, 8))[0]
            except OSError:
                pass
            os.close(fd)
        self._files = []
        return dict(totals) if totals.get("cycles") and totals.get("instructions") else None


class Watcher:
    """Watches `pid` for some seconds. Raises ProcessLookupError if it is not there, PermissionError if it may not be read."""

    def __init__(self, pid, proc="/proc", drm="/sys/class/drm"):
        self._root, self._pid = pathlib.Path(proc), pid
        self._proc = self._root / str(pid)
        self._drm = pathlib.Path(drm)
        stat = _stat(self._proc / "stat")
        if stat is None or stat[1] in "ZX":
            what = "there is no such process" if stat is None else "the process has ended"
            raise ProcessLookupError(f"diagnose: {what}; got {pid}; expected one that runs; hint: pgrep -af python")
        if not _text(self._proc / "io"):
            raise PermissionError(f"diagnose: the process may not be read; got {pid}; expected one of this user, and a system that allows it; hint: sudo")

    def watch(self, seconds, progress=None):
        """An Observation. Ends early if the process does. progress: called with the seconds that are left."""
        o = Observation(self._pid, self._command())
        before, begin = self._totals(), time.monotonic()
        cards, counting = self._cards(), _Counting(self._pid)
        while (left := begin + seconds - time.monotonic()) > 0 and self._sample(o):
            if len(cards) and sum(o.states.values()) % 5 == 0:
                self._sample_gpus(o, cards)
            if progress:
                progress(left)
            time.sleep(min(INTERVAL, left))
        o.seconds = max(time.monotonic() - begin, 1e-3)
        after = self._totals() or before
        self._differences(o, before, after)
        o.counters = counting.read()
        return o

    def _command(self):
        words = _text(self._proc / "cmdline").replace("\0", " ").strip()
        return words or _stat(self._proc / "stat")[0]

    # ---- totals, at the begin and the end

    def _totals(self):
        own = _stat(self._proc / "stat")
        if own is None:
            return None
        io, status = _text(self._proc / "io"), _text(self._proc / "status")
        threads = {}
        for path in list((self._proc / "task").glob("*"))[:_MOST_THREADS]:
            if found := _stat(path / "stat"):
                threads[int(path.name)] = (found[0], (int(found[2][11]) + int(found[2][12])) / _TICK)
        f = own[2]
        return {"cpu": (int(f[11]) + int(f[12])) / _TICK, "kernel": int(f[12]) / _TICK, "minor": int(f[7]), "major": int(f[9]), "rchar": _number(io, "rchar"), "reads": _number(io, "syscr"),
                "threads": threads, "children": self._below(), "preempted": _number(status, "nonvoluntary_ctxt_switches"), "resident": _number(status, "VmRSS") * 1024}

    def _below(self):
        """Seconds of CPU of the processes below it, by number: (command, seconds)."""
        parents, found = {}, {}
        for path in self._root.glob("[0-9]*"):
            if stat := _stat(path / "stat"):
                parents.setdefault(int(stat[2][1]), []).append((int(path.name), stat))
        queue = [self._pid]
        while queue:
            for pid, (name, _, f) in parents.get(queue.pop(), ()):
                found[pid] = (name, (int(f[11]) + int(f[12])) / _TICK)
                queue.append(pid)
        return found

    def _differences(self, o, before, after):
        for name, key in (("cpu", "cpu"), ("kernel", "kernel"), ("bytes_read", "rchar"), ("reads", "reads"), ("minor_faults", "minor"), ("major_faults", "major"), ("preempted", "preempted")):
            setattr(o, name, max(0, after[key] - before[key]))
        o.resident = after["resident"]
        none = ("", 0.0)
        o.threads = {tid: (name, cpu - before["threads"].get(tid, none)[1]) for tid, (name, cpu) in after["threads"].items()}
        for pid, (name, cpu) in after["children"].items():
            label = f"{name} ({pid})"
            o.children[label] = cpu - before["children"].get(pid, none)[1]

    # ---- samples

    def _sample(self, o):
        """What the main thread does now. False: the process has ended."""
        stat = _stat(self._proc / "task" / str(self._pid) / "stat") or _stat(self._proc / "stat")
        if stat is None or stat[1] in "ZX":
            return False
        what = {"R": "run", "T": "stopped", "t": "stopped", "D": "disk"}.get(stat[1]) or self._wait(o)
        o.states[what] += 1
        return True

    def _wait(self, o):
        words = _text(self._proc / "syscall").split()
        if words and words[0].lstrip("-").isdigit():
            what = _CALLS.get(int(words[0]), "other")
            if what == "read":
                o.files[self._file(int(words[1], 16))] += 1
            return what
        function = _text(self._proc / "wchan")
        return next((what for part, what in _FUNCTIONS if part in function), "other")

    def _file(self, number):
        try:
            return os.readlink(self._proc / "fd" / str(number))
        except OSError:
            return f"file {number}"

    # ---- GPUs

    def _cards(self):
        """The GPUs that the process has open: (name, a function that gives busy and memory busy in percent, and what is known of the clocks of the XCDs)."""
        try:
            opened = {os.readlink(self._proc / "fd" / f) for f in os.listdir(self._proc / "fd")}
        except OSError:
            return []
        cards = []
        if any(p.startswith(("/dev/kfd", "/dev/dri/render")) for p in opened):
            for card in sorted(self._drm.glob("card[0-9]*/device")):
                if (card / "gpu_busy_percent").exists():
                    cards.append((f"AMD {card.parent.name}", lambda card=card: (_percent(card / "gpu_busy_percent"), _percent(card / "mem_busy_percent"), gpu_metrics.state(card))))
        if any(p.startswith("/dev/nvidia") and p[11:12].isdigit() for p in opened):
            cards += _nvidia_cards(sorted(int(p[11:]) for p in opened if re.fullmatch(r"/dev/nvidia\d+", p)))
        return cards

    @staticmethod
    def _sample_gpus(o, cards):
        for name, read in cards:
            *busy, xcds = read()
            if busy[0] is not None:
                o.gpus.setdefault(name, []).append(tuple(busy))
                if xcds and xcds not in o.xcds.get(name, ()):
                    o.xcds.setdefault(name, []).append(xcds)


def _percent(path):
    text = _text(path).strip()
    return float(text) if text.isdigit() else None


def _nvidia_cards(numbers):
    from ..benchmarking.environment import _Nvml

    library = _Nvml().library
    if library is None:
        return []

    def read(number):
        handle, both = ctypes.c_void_p(), (ctypes.c_uint * 2)()
        if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(number), ctypes.byref(handle)) or library.nvmlDeviceGetUtilizationRates(handle, both):
            return None, None, {}
        return float(both[0]), float(both[1]), {}

    return [(f"NVIDIA {n}", lambda n=n: read(n)) for n in numbers]


def python_stacks(pid, times=5):
    """The innermost functions of the main thread, by py-spy, most frequent first; none if py-spy is not there, or may not read the process."""
    program = shutil.which("py-spy")
    found = collections.Counter()
    for _ in range(times if program else 0):
        try:
            done = subprocess.run([program, "dump", "--pid", str(pid)], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            break
        frames = re.findall(r"^    (\S.*)$", done.stdout.partition("MainThread")[2], re.MULTILINE)
        if done.returncode or not frames:
            break
        found[frames[0]] += 1
        time.sleep(0.05)
    return [f"{frame} ({count} of {sum(found.values())} samples)" for frame, count in found.most_common(3)]
