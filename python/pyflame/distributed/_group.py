"""Process groups: how the processes of a group find and connect each other, and how a call of a collective runs."""
from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import secrets
import socket
import sys
import threading
import time

from .. import _C
from ._store import Store, only_loopback

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .._annotations import Timeout

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD = os.path.dirname(contextlib.__file__) + os.sep


@contextlib.contextmanager
def taking_part():
    """Errors raised within are of a call in which this rank took part: the other ranks know of it."""
    try:
        yield
    except BaseException as e:
        e._took_part = True
        raise


def _is_of_program(file):
    """Whether a file is neither the package's nor the standard library's."""
    if file.startswith((_PACKAGE, "<frozen ")):
        return False
    return not file.startswith(_STANDARD) or "site-packages" in file or "dist-packages" in file


def line_of_caller():
    """FILE:LINE of the innermost frame of the program: decorators and context managers, such as contextlib's, may lie between."""
    frame = sys._getframe(1)
    while frame and not _is_of_program(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "?"


def said_of(op, signature, text, seconds, dtype=None):
    """What the core is told of a call: what the ranks compare, what errors say, and what profiles show."""
    return signature, text, seconds, op.partition("(")[0], str(dtype).rpartition(".")[2] if dtype else "", dtype.itemsize if dtype else 1


def _host():
    """What two processes share that can map each other's memory files."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as f:
            return f"{f.read().strip()} {os.readlink('/proc/self/ns/pid')} {os.getuid()}"
    except OSError:
        return ""


def _is_on(variable):
    text = os.environ.get(variable) or "1"
    if text.lower() in ("1", "true", "on", "yes"):
        return True
    if text.lower() in ("0", "false", "off", "no"):
        return False
    raise ValueError(f"{variable}: not a valid value; got '{text}'; expected 0 or 1")


def _memory_file(size):
    """A memory file for the rings of this rank, or -1 where there is none. Its bytes are taken now, so that a lack of memory is no bus error later."""
    if not _is_on("PYFLAME_SHARED_MEMORY") or not hasattr(os, "memfd_create"):
        return -1
    fd = -1
    try:
        fd = os.memfd_create("pyflame ranks", os.MFD_CLOEXEC)
        os.ftruncate(fd, _C._Group.memory_bytes(size))
        os.posix_fallocate(fd, 0, _C._Group.memory_bytes(size))
        return fd
    except OSError:
        if fd >= 0:
            os.close(fd)
        return -1


class _Meeting:
    """The processes of a group connect: three sockets for each pair, and memory that they share on one host."""

    def __init__(self, op, store, prefix, rank, names, timeout):
        self.op, self.store, self.prefix, self.rank, self.names, self.size, self.timeout = op, store, prefix, rank, names, len(names), timeout
        self.opened = []  # [r][s]: whether rank r has opened the memory of rank s
        self.until = time.monotonic() + timeout

    def _left(self):
        return max(0.0, self.until - time.monotonic())

    def _put(self, kind, value):
        self.store.set(f"{self.prefix}/{kind}/{self.rank}", json.dumps(value))

    def _all(self, kind):
        found = []
        for r in range(self.size):
            try:
                value = self.store.get(f"{self.prefix}/{kind}/{r}", self._left())
            except RuntimeError as e:
                if "timed out" not in str(e):
                    raise
                missing = [self.names[i] for i in range(r, self.size) if not self.store.check([f"{self.prefix}/{kind}/{i}"])]
                if not missing:
                    continue
                raise RuntimeError(
                    f"{self.op}: timed out after {self.timeout:g} s; rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} did not come; expected {self.size} processes"
                ) from None
            found.append(json.loads(value))
        return found

    def connect(self):
        """The connected group."""
        sockets, memory, pids = self.meet()
        try:
            made = _C._Group(self.rank, list(self.names), *sockets, memory, pids)
            made.set_label(self.prefix)
            self._check_paths(made)
            return made
        finally:
            for fd in set(memory) - {-1}:
                os.close(fd)

    def meet(self):
        """Descriptors that the caller owns: the sockets control, data and messages, and the memory, of each rank; -1 where there is none. And the ranks' processes, where these may reach each other's memory."""
        address = self.store._connection.getsockname()[0]  # of the interface that reaches rank 0
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as listening:
            if only_loopback(self.store.host):
                address = ""  # other hosts know where rank 0 is, and this rank is on its host
            listening.bind((address, 0))
            listening.listen(3 * self.size)
            memory = _memory_file(self.size)
            opened, shared = [], []
            try:
                token = secrets.token_hex(16)
                found_by_others = ctypes.create_string_buffer(secrets.token_bytes(16), 16)
                if _is_on("PYFLAME_DIRECT_MEMORY") and memory >= 0:
                    _C._Group.let_siblings_reach()
                    direct = [ctypes.addressof(found_by_others), found_by_others.raw.hex()]
                else:
                    direct = None
                self._put("place", {"address": address, "port": listening.getsockname()[1], "token": token, "host": _host(), "memory": f"/proc/{os.getpid()}/fd/{memory}" if memory >= 0 else None, "pid": os.getpid(), "direct": direct})
                places = self._all("place")
                sockets = self._sockets(listening, places, token)
                opened = [self._open(places, r, memory) for r in range(self.size)]
                self._put("opened", [fd >= 0 for fd in opened])
                self._put("reached", direct is not None and all(r == self.rank or fd >= 0 and self._reaches(places[r]) for r, fd in enumerate(opened)))
                self.opened = both = self._all("opened")
                shared = [fd if both[r][self.rank] else -1 for r, fd in enumerate(opened)]
                pids = [place["pid"] for place in places] if all(self._all("reached")) else []  # all tried by now, so what they looked for may go
                return [[-1 if s is None else s[k].detach() for s in sockets] for k in range(3)], shared, pids
            finally:
                for fd in {*opened, memory} - {-1, *shared}:
                    os.close(fd)

    def _check_paths(self, group):
        """Each two ranks send each other 4 KiB. RuntimeError on every rank where bytes came otherwise: such a path is found before anything is trained."""
        found = []
        for to, wrong in enumerate(group.check_paths(self.op, self._left())):
            for r, n in enumerate(wrong):
                if n:
                    found.append(f"{n} of 4096 bytes from rank {self.names[r]} to rank {self.names[to]} by {'shared memory' if self.opened[r][to] and self.opened[to][r] else 'TCP'}")
        if found:
            self._put("told", True)
            try:
                self._all("told")  # a rank that ends while others still compare would be what they tell of
            except RuntimeError:  # rank 0, which has the store, ended: it has seen all
                pass
            raise RuntimeError(f"{self.op}: bytes change between ranks; got {', '.join(found)}; expected the bytes that were sent; hint: PYFLAME_SHARED_MEMORY=0 takes TCP within a host; between hosts, look at the network cards of these ranks")

    def _open(self, places, r, own):
        if r == self.rank or own < 0:
            return own
        if not places[r]["memory"] or not places[r]["host"] or places[r]["host"] != places[self.rank]["host"]:
            return -1
        try:
            return os.open(places[r]["memory"], os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # such as a container's rules
            return -1

    def _reaches(self, place):
        """Whether this process may read and write the memory of one on this host: it finds the bytes there that the other one says."""
        return place["direct"] is not None and _C._Group.reaches_memory(place["pid"], place["direct"][0], bytes.fromhex(place["direct"][1]))

    def _sockets(self, listening, places, token):
        """For each rank its three sockets. The higher rank connects to the lower one. It sends that rank's token, which only the store tells, and its own rank."""
        sockets = [None if r == self.rank else [None] * 3 for r in range(self.size)]
        try:
            for r in range(self.rank):
                for k in range(3):
                    s = socket.create_connection((places[r]["address"] or self.store._connection.getpeername()[0], places[r]["port"]), timeout=max(0.1, self._left()))
                    sockets[r][k] = s
                    s.sendall(f"{places[r]['token']} {self.rank:8d} {k}".encode())
            waiting = 3 * (self.size - 1 - self.rank)
            while waiting:
                listening.settimeout(max(0.01, self._left()))
                s, _ = listening.accept()
                s.settimeout(max(0.01, self._left()))
                said = b""
                while len(said) < len(token) + 11:
                    part = s.recv(len(token) + 11 - len(said))
                    if not part:
                        break
                    said += part
                words = said.decode(errors="replace").split()
                if len(words) != 3 or words[0] != token:
                    s.close()  # not one of ours
                    continue
                sockets[int(words[1])][int(words[2])] = s
                waiting -= 1
        except OSError as e:
            missing = [self.names[r] for r, s in enumerate(sockets) if s and None in s]
            for s in sockets:
                for one in s or ():
                    if one:
                        one.close()
            raise RuntimeError(f"{self.op}: ranks cannot be connected; got {e} with rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}; expected a TCP connection between each two hosts") from None
        return sockets


class Work:
    """A call that runs asynchronously. wait() returns when it has ended, and raises what it raised."""

    def __init__(self, finish: Any = None, result: Any = None) -> None:
        self._ended, self._error, self._finish, self._result, self._waited = threading.Event(), None, finish, result, threading.Lock()

    def _run(self, call):
        try:
            call()
        except BaseException as e:  # raised by wait()
            self._error = e
        self._ended.set()

    def wait(self, timeout: Timeout | None = None) -> bool:
        """Waits; with a timeout (a timedelta, or seconds), RuntimeError when the call has not ended by then. Returns True."""
        seconds = getattr(timeout, "total_seconds", lambda: timeout)()
        if not self._ended.wait(seconds):
            raise RuntimeError(f"Work.wait: timed out after {seconds:g} s; the call has not ended; expected a longer timeout, or another call of wait()")
        if self._error is not None:
            raise self._error
        with self._waited:
            finish, self._finish = self._finish, None
            if finish:
                finish()
        return True

    def is_completed(self) -> bool:
        """A bool: whether the call has ended, well or with an error. It does not wait for it."""
        return self._ended.is_set()

    def is_success(self) -> bool:
        """A bool: whether the call has ended without an error. False while it is under way; it does not wait."""
        return self._ended.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        """The exception that the call ended with, or None if it ended well or is still under way."""
        return self._error

    def result(self) -> Any:
        """The tensors that the call wrote. It waits for the end of the call first, and raises its error."""
        self.wait()
        return self._result


class _Lane:
    """Calls that run one after the other: on the caller's thread when nothing is waiting, otherwise on a thread of the lane."""

    def __init__(self):
        self.lock, self.waiting, self.calls, self.thread = threading.Lock(), 0, queue.SimpleQueue(), None
        self.turn = threading.Lock()  # held while a call runs: threads of the program may call at the same time

    def _work(self):
        while True:
            work, call = self.calls.get()
            with self.turn:
                work._run(call)
            with self.lock:
                self.waiting -= 1
            del work, call

    def start(self, work, call):
        """Runs a call on the lane's thread."""
        with self.lock:
            self.waiting += 1
            if self.thread is None:
                self.thread = threading.Thread(target=self._work, name="pyflame collectives", daemon=True)
                self.thread.start()
        self.calls.put((work, call))

    def start_here(self, work, call):
        """Runs a call: at once if nothing is waiting, otherwise on the lane's thread, which this does not wait for."""
        with self.lock:
            here = self.waiting == 0
            self.waiting += here
        if not here:
            return self.start(work, call)
        try:
            with self.turn:
                call()
        finally:
            with self.lock:
                self.waiting -= 1
            work._ended.set()

    def run(self, work, call):
        """Runs a call in its turn, and waits for it."""
        self.start_here(work, call)
        return work.wait()


class ProcessGroup:
    """Processes that call collectives together. Made by init_process_group() and new_group().

    op: the name of the call that makes it, for errors. ranks: those of its processes in the job. rank: that of this process in the job. store: a TCPStore, by which the processes meet.
    prefix: begins the keys in the store and is the group's own. timeout: in seconds, how long a process waits for the others."""

    def __init__(self, op: str, ranks: Sequence[int], rank: int, store: Any, prefix: str, timeout: float) -> None:
        self.ranks, self._timeout, self._children = list(ranks), timeout, []
        self._rank = self.ranks.index(rank) if rank in self.ranks else -1
        self.store, self._lanes, self._pid = store, {}, os.getpid()
        self._prefix, self._devices = prefix, {}  # by type of device: a Transport (_device.py), or why there is none
        self._group = self._mesh = None  # _mesh: for which the processes of the group divide layers (tensor/parallel.py)
        if self._rank >= 0 and len(self.ranks) > 1:
            self._group = _Meeting(op, store, prefix, self._rank, self.ranks, timeout).connect()

    def rank(self) -> int:
        """The rank of this process in the group; -1 if it is not one of it."""
        return self._rank

    def size(self) -> int:
        """The number of processes of the group, an int from 1. Each has a rank below it."""
        return len(self.ranks)

    def name(self) -> str:
        """The name of the transport: 'nccl' or 'rccl' once the group has connected its GPUs, otherwise 'host'."""
        from ._device import library

        return library(self) or "host"

    def transports(self) -> list[str]:
        """How bytes of the host go to each rank of the group: 'direct', 'shared memory', 'TCP' or 'itself'. 'direct': through shared memory, and in a large all_reduce each process reads and writes the tensors of the others where they lie. That is so for all ranks of a group or for none."""
        return [self._group.transport(r) for r in range(self.size())] if self._group else ["itself"] * self.size()

    def _lane(self, key):
        return self._lanes.setdefault(key, _Lane())

    def _call(self, lane, call, async_op, finish=None, result=None):
        work = Work(finish, result)
        if self._group is None:
            raise RuntimeError("distributed: the group was destroyed; expected a group that is in use")
        if self._pid != os.getpid():  # the lane's thread and its locks are the parent's
            raise RuntimeError("distributed: this process was forked from a rank, and is none itself; got a collective in the child; expected it in the rank")
        if async_op:
            self._lane(lane).start(work, call)
            return work
        self._lane(lane).run(work, call)
        return None

    def _refuse(self, text):
        """Tells the other ranks that this one raised an error for its next collective, without waiting for them. text: the call and the error."""
        core = self._group
        if core is not None and self._pid == os.getpid():
            self._lane("collectives").start_here(Work(), lambda: core.refuse(text))

    def stop(self) -> None:
        """Calls under way raise. What is queued on GPUs ends before, or is given up."""
        for transport in self._devices.values():
            if not isinstance(transport, str) and self._pid == os.getpid():
                transport.finish()
        if self._group:
            self._group.close()

    def close(self) -> None:
        """Ends the connections to the other processes. Calls that are under way raise, here and there; later calls raise, too."""
        for transport in self._devices.values():
            if not isinstance(transport, str):
                transport.close()
        self._devices = {}
        if self._group:
            self._group.close()
            self._group = None

    def __repr__(self):
        return f"<ProcessGroup of ranks {self.ranks}: rank {self._rank}>"


__all__ = ["ProcessGroup", "Store", "Work", "line_of_caller", "said_of", "taking_part"]
