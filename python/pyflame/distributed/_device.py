"""Collectives of tensors on GPUs, by NCCL or RCCL.

A group connects its GPUs at the first collective of tensors on them. Ranks tell each other through the host what they have; where one of them lacks the
library, or two use one GPU, tensors go through the host's memory instead, and the ledger of fallbacks says why. A collective runs on a stream of its own,
behind what computes its tensors. What is recorded after it, or after Work.wait() of an asynchronous one, runs behind it; the host waits for nothing. The
average of small gradients runs on the stream that computes, which costs the host less.

A thread of each process watches what is queued. When a collective does not end within the timeout, a rank ends, or the library reports an error, it ends the
communicator, and the tensors that were to be written raise the error.
"""
import collections
import os
import threading
import time
import weakref

from .. import _C
from ._group import Work, _host, line_of_caller, said_of, taking_part

_TICK = 1.0  # seconds between two looks of the watchdog
_PATIENCE = 10.0  # seconds that the end of a group waits for what is queued
_CHECKED = 1024  # elements of the sum, and of the messages, that are checked when GPUs are connected
_PAIRS = 16  # GPUs of a group whose pairs are checked at its start: each pair takes memory of the library, and a large group has many
_PATH_HINT = "hint: `pyflame doctor --comm` finds the path; NCCL_P2P_DISABLE=1 avoids peer-to-peer transfers"


def checks_calls():
    """Whether ranks compare their calls before each collective on GPUs (PYFLAME_CHECK_COLLECTIVES)."""
    text = os.environ.get("PYFLAME_CHECK_COLLECTIVES") or "0"
    if text == "0":
        return False
    if text.lower() in ("1", "true", "on", "yes"):
        return True
    if text.lower() in ("false", "off", "no"):
        return False
    raise ValueError(f"PYFLAME_CHECK_COLLECTIVES: not a valid value; got '{text}'; expected 0 or 1")


class DeviceWork(Work):
    """A collective that was queued on a GPU. wait() orders what is recorded afterwards behind it, and does not wait on the host."""

    def __init__(self, transport, queued, finish, result):
        self._transport, self._queued, self._finish, self._result, self._joined, self._waited = transport, queued, finish, result, False, threading.Lock()

    def wait(self, timeout=None):
        """What is recorded from now on comes after the call. With a timeout (a timedelta, or seconds) it also waits for the GPU; RuntimeError when the call
        has not ended by then. Returns True."""
        seconds = getattr(timeout, "total_seconds", lambda: timeout)()
        if seconds is not None:
            until = time.monotonic() + seconds
            while not self._queued.passed():
                self._transport.raise_if_broken()
                if time.monotonic() > until:
                    raise RuntimeError(f"Work.wait: timed out after {seconds:g} s; the call has not ended; expected a longer timeout, or another call of wait()")
                time.sleep(0.0005)
        self._transport.raise_if_broken()
        with self._waited:
            if not self._joined:
                self._queued.join()
                self._joined = True
            finish, self._finish = self._finish, None
            if finish:
                finish()
        return True

    def is_completed(self):
        """Whether the GPU has done it."""
        return self._queued.passed()

    def is_success(self):
        """Whether the GPU has done it, and well."""
        return self._transport.broken is None and self._queued.passed()

    def exception(self):
        """What went wrong with the group's GPUs, or None."""
        return RuntimeError(self._transport.broken) if self._transport.broken else None


class _Entry:
    """A collective that the watchdog watches."""

    def __init__(self, number, text, seconds):
        self.number, self.text, self.queued, self.until = number, text, None, time.monotonic() + seconds


class Transport:
    """The GPUs of a group, one for each rank."""

    def __init__(self, group, device, communicator, library):
        self.device, self.communicator, self.library, self.broken = device, communicator, library, None
        self._group, self._kind = weakref.ref(group), device.type
        self._timeout, self._lock, self._pending, self.last = group._timeout, threading.Lock(), collections.deque(), _Entry(0, "none", 0)
        self._told, self._gone_for, self._refused, self._failing = -1, 0, {}, threading.RLock()
        self._key = f"{group._prefix}/{self._kind}"

    def refuses(self, dtype, reduction):
        """Whether the library has no such reduction."""
        if (dtype, reduction) not in self._refused:
            self._refused[dtype, reduction] = not _C._communicator_takes(self.device, dtype) or dtype.is_complex and reduction not in ("sum", "avg")
        return self._refused[dtype, reduction]

    def raise_if_broken(self):
        if self.broken:
            raise RuntimeError(self.broken)

    # -- calls

    def _queue(self, op, signature, queue):
        """Queues a collective, which the watchdog watches from then on. queue(communicator) does it, and returns what the core gives."""
        group = self._group()
        if group is None or group._group is None:
            raise RuntimeError(f"{op}: the group was destroyed; expected a group that is in use")
        if group._pid != os.getpid():
            raise RuntimeError("distributed: this process was forked from a rank, and is none itself; got a collective in the child; expected it in the rank")
        self.raise_if_broken()
        text = f"{signature} at {line_of_caller()}"
        if checks_calls():
            with taking_part():
                group._call("collectives", lambda: group._group.barrier(said_of("barrier", signature, text, self._timeout)), False)
        with taking_part(), self._lock:  # ranks queue in one order; so do the threads of a process
            self._forget_passed()
            entry = self.last = _Entry(self.last.number + 1, text, self._timeout)
            self._pending.append(entry)
            try:
                self.communicator.set_call(op, text)
                entry.queued = queue(self.communicator)
            except BaseException:
                if entry in self._pending:
                    self._pending.remove(entry)
                raise
        self.raise_if_broken()
        return entry.queued

    def start(self, op, signature, queue, async_op, finish=None, result=None):
        """Queues a collective on the stream of collectives."""
        work = DeviceWork(self, self._queue(op, signature, queue), finish, result)
        if async_op:
            return work
        work.wait()
        return None

    def _forget_passed(self):
        while self._pending and self._pending[0].queued is not None and self._pending[0].queued.passed():
            self._pending.popleft()

    def _written(self, tensors):
        """The tensors as contiguous ones, and what copies the new values back."""
        own = [t.detach() for t in tensors]
        flat = [t if t.is_contiguous() else _C.empty(tuple(t.shape), dtype=t.dtype, device=t.device) for t in own]
        back = [(t, f) for t, f in zip(own, flat) if t is not f]
        return flat, (lambda: [t.copy_(f) for t, f in back]) if back else None

    def all_reduce(self, signature, x, reduction, async_op):
        own = x.detach()
        flat = own.contiguous()
        finish = None if flat is own else lambda: own.copy_(flat)
        return self.start("all_reduce", signature, lambda c: c.all_reduce(flat, reduction), async_op, finish, [x])

    def averages(self, signature, tensors):
        """Starts to average tensors of one dtype over the ranks. Returns the work, and the new tensors that have the averages afterwards."""
        made = []

        def queue(c):
            queued, out = c.averages(tensors)
            made.extend(out)
            return queued

        return self.start("all_reduce", signature, queue, True), made

    def average_in_place(self, signature, tensors):
        """Averages small tensors of one dtype over the ranks, on the stream that computes: between what was recorded before and what is recorded afterwards."""
        self._queue("all_reduce", signature, lambda c: c.average_in_place(tensors))

    def reduce(self, signature, x, reduction, root, here, async_op):
        own = x.detach()
        flat = own.contiguous()
        finish = (lambda: own.copy_(flat)) if here and flat is not own else None
        return self.start("reduce", signature, lambda c: c.reduce(flat, reduction, root, here), async_op, finish, [x])

    def broadcast(self, signature, x, root, here, async_op):
        if here:
            flat, finish = x.detach().contiguous(), None
        else:
            (flat,), finish = self._written([x])
        return self.start("broadcast", signature, lambda c: c.broadcast(flat, root, here), async_op, finish, [x])

    def all_gather(self, op, signature, x, out, async_op, finish=None, result=None):
        flat = x.detach().contiguous()
        (whole,), back = self._written([out])

        def both():
            if back:
                back()
            if finish:
                finish()

        return self.start(op, signature, lambda c: c.all_gather(flat, whole), async_op, both, result or [out])

    def reduce_scatter(self, op, signature, x, out, reduction, async_op):
        flat = x.detach().contiguous()
        (own,), back = self._written([out])
        return self.start(op, signature, lambda c: c.reduce_scatter(flat, own, reduction), async_op, back, [out])

    def exchange(self, op, signature, sends, takes, async_op, result):
        """sends and takes: lists of (rank, tensor)."""
        given = [(r, t.detach().contiguous()) for r, t in sends]
        flat, back = self._written([t for _, t in takes])
        to = [(r, f) for (r, _), f in zip(takes, flat)]
        return self.start(op, signature, lambda c: c.exchange(given, to), async_op, back, result)

    # -- the watchdog

    def look(self):
        """Called by the watchdog. True while there is something to watch."""
        group = self._group()
        if group is None or group._group is None or self.broken:
            return False
        self._tell(group)
        first = self._pending[0] if self._pending else None
        if first is None:
            self._gone_for = 0
            return True
        if first.queued is not None and first.queued.passed():
            if self._lock.acquire(blocking=False):  # otherwise the thread that has it does so
                try:
                    self._forget_passed()
                finally:
                    self._lock.release()
            self._gone_for = 0
            return True
        failure = self.communicator.failure() if first.queued is not None else ""
        gone = group._group.gone()
        self._gone_for = self._gone_for + 1 if gone else 0
        if failure:
            self._fail(f"{first.text}: {self.library} reports a failure; got {failure}; {self._others(group, first, gone)}")
        elif self._gone_for > 2:  # its last collective may be under way still
            ranks = ", ".join(map(str, gone))
            self._fail(f"{first.text}: rank{'s' * (len(gone) > 1)} {ranks} {'is gone; its process' if len(gone) == 1 else 'are gone; their processes'} ended; the group cannot be used any more; hint: start the processes again")
        elif time.monotonic() > first.until:
            self._tell(group)
            time.sleep(1.5 * _TICK)  # the others tell where they are
            self._fail(f"{first.text}: timed out after {self._timeout:g} s on {self.device}; {self._others(group, first, gone)}")
        return True

    def _tell(self, group):
        """Tells the store what this rank called last."""
        last = self.last
        if last.number != self._told:
            try:
                group.store.set(f"{self._key}/{group.rank()}", f"{last.number} {last.text}")
                self._told = last.number
            except RuntimeError:
                pass  # rank 0 is gone, which is told as such

    def _others(self, group, first, gone):
        """What the other ranks called, as far as the store knows."""
        missing, different = [], []
        for r, name in enumerate(group.ranks):
            if r == group.rank():
                continue
            try:
                value = group.store._get(f"{self._key}/{r}", 0)
            except RuntimeError:
                return "the store of rank 0 does not answer; hint: look at what rank 0 said"
            number, _, text = (value or b"0 none").decode().partition(" ")
            if name in gone:
                missing.append(f"rank {name} is gone; its process ended")
            elif int(number) < first.number:
                missing.append(f"rank {name} did not come; its last call was {text}")
            elif int(number) == first.number and text.rpartition(" at ")[0] != first.text.rpartition(" at ")[0]:
                different.append(f"rank {name} called {text}")
        if missing or different:
            return f"got {'; '.join(missing + different)}; expected the same calls on every rank; hint: PYFLAME_CHECK_COLLECTIVES=1 compares each call"
        return "all ranks came, but the devices do not finish; hint: `pyflame doctor --comm`, NCCL_DEBUG=INFO"

    def _fail(self, message):
        with self._failing:
            if self.broken:
                return
            self.broken = message
            for entry in list(self._pending):
                if entry.queued is not None:
                    entry.queued.failed(message)
            self.communicator.abort()
            self._pending.clear()

    def finish(self):
        """Waits a while for what is queued, and gives up what is not done then: the process, or the group, ends."""
        until = time.monotonic() + _PATIENCE
        pending = [e for e in self._pending if e.queued is not None]
        try:
            while not self.broken and any(not e.queued.passed() for e in pending):
                if time.monotonic() > until:
                    self._fail("distributed: the group ended while a collective was under way")
                time.sleep(0.001)
        except RuntimeError as e:  # the device is lost
            self.broken = str(e)
        with self._failing:  # the watchdog may be telling of a failure: what it has not told yet would be read as if it were right, or raise after the end
            self.broken = self.broken or "distributed: the group was destroyed; expected a group that is in use"
            self._pending.clear()

    def close(self):
        """Ends the connections."""
        self.finish()
        self.communicator = None


class _Watchdog:
    """One thread for all groups of the process."""

    def __init__(self):
        self._changed, self._all, self._thread, self._pid = threading.Lock(), [], None, 0

    def add(self, transport):
        with self._changed:
            self._all.append(weakref.ref(transport))
            if self._thread is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._run, name="pyflame watchdog", daemon=True)
                self._thread.start()

    def _run(self):
        while True:
            time.sleep(_TICK)
            with self._changed:
                now = [t for t in (ref() for ref in self._all) if t is not None]
            ended = []
            for t in now:
                try:
                    if not t.look():
                        ended.append(t)
                except Exception as e:  # such as a device that is lost: what uses it is told
                    t.broken = t.broken or f"distributed: the collectives of {t.device} cannot be watched; got {e}; expected a device that works"
                    ended.append(t)
            with self._changed:
                self._all = [ref for ref in self._all if ref() is not None and ref() not in ended]
            del now, ended


_watchdog = _Watchdog()


def _facts(device):
    """What the other ranks need to know of this rank's GPU."""
    version, why = _C._communicator_library(device)
    return {"type": device.type, "device": str(device), "version": version, "why": why, "gpu": (_host(), _C.device_info(device).get("pci", str(device)))}


def _refusal(group, facts):
    """Why the GPUs of these ranks cannot be connected; empty if they can."""
    kinds = sorted({f["type"] for f in facts})
    if len(kinds) > 1:
        return f"the ranks have GPUs of different kinds ({', '.join(kinds)})"
    for r, f in zip(group.ranks, facts):
        if not f["version"]:
            return f["why"] + (f" (rank {r})" if any(g["version"] for g in facts) else "")
    seen = {}
    for r, f in zip(group.ranks, facts):
        if f["gpu"][0] and f["gpu"] in seen:
            return f"ranks {seen[f['gpu']]} and {r} use the same GPU; pyflame.set_device() or init_process_group(device=) gives each its own"
        seen[f["gpu"]] = r
    return ""


def _connect(op, group, device):
    """A Transport, or a text that says why there is none."""
    from ._objects import all_gather_object, broadcast_object_list

    facts = [None] * group.size()
    all_gather_object(facts, _facts(device), group=group)
    refusal = _refusal(group, facts)
    if refusal:
        return refusal
    made = [_C._communicator_id(device) if group.rank() == 0 else None]
    broadcast_object_list(made, group=group, group_src=0)
    communicator, error = None, None
    try:
        communicator = _C._connect_devices(device, made[0], group.rank(), group.size())
    except RuntimeError as e:
        error = str(e)
    errors = [None] * group.size()
    all_gather_object(errors, error, group=group)
    if any(errors):
        return next(e for e in errors if e)
    version = facts[group.rank()]["version"]
    communicator.set_group(version.split()[0], group._prefix, group.ranks)
    transport = Transport(group, device, communicator, version)
    _check_sum(op, group, transport, facts)
    _check_pairs(op, group, transport)
    _watchdog.add(transport)
    return transport


def _check_sum(op, group, transport, facts):
    """A sum that is known exactly: a path between GPUs that changes bytes is found before anything is trained."""
    from ._objects import all_gather_object

    n, r = group.size(), group.rank()
    numbers = _C.arange(0, _CHECKED, dtype=_C.int32, device=transport.device)
    total = numbers * (r + 1)
    transport.all_reduce("the check of a new group", total, "sum", False)
    wrong = [None] * n
    all_gather_object(wrong, int((total != numbers * (n * (n + 1) // 2)).sum().item()), group=group)
    if any(wrong):
        found = ", ".join(f"{w} of {_CHECKED} elements on rank {name} ({f['device']})" for name, w, f in zip(group.ranks, wrong, facts) if w)
        raise RuntimeError(f"{op}: the sum over the GPUs of the group is wrong; got {found}; expected none; {_PATH_HINT}")


def _check_pairs(op, group, transport):
    """Each two GPUs send each other numbers that both can compute: a sum may take a ring, which leaves out paths."""
    from ._objects import all_gather_object

    n, r = group.size(), group.rank()
    if n > _PAIRS:
        return
    numbers = _C.arange(0, _CHECKED, dtype=_C.int32, device=transport.device)
    others = [p for p in range(n) if p != r]
    taken = [(p, _C.zeros((_CHECKED,), dtype=_C.int32, device=transport.device)) for p in others]
    transport.exchange(op, "the check of the pairs of a new group", [(p, numbers * (r * n + p + 1)) for p in others], taken, False, None)
    wrong = [None] * n
    all_gather_object(wrong, [(p, int((t != numbers * (p * n + r + 1)).sum().item())) for p, t in taken], group=group)
    found = [f"{w} of {_CHECKED} elements from rank {group.ranks[p]} to rank {group.ranks[to]}" for to, all_of in enumerate(wrong) for p, w in all_of if w]
    if found:
        raise RuntimeError(f"{op}: messages between GPUs of the group are wrong; got {', '.join(found)}; expected none; {_PATH_HINT}")


def of(op, group, tensor, reduction=None):
    """The transport for a tensor; None where it goes through the host's memory."""
    device = tensor.device
    if device.type == "cpu" or group._group is None:
        return None
    kind = device.type
    if kind not in group._devices:
        group._devices[kind] = "the device is none of a GPU library" if kind not in ("cuda", "rocm") else _connect(op, group, device)
    found = group._devices[kind]
    if isinstance(found, str):
        return None
    if reduction is not None and found.refuses(tensor.dtype, reduction):
        return None
    if found.device != device:
        raise ValueError(f"{op}: the tensor is on another GPU than this rank's collectives; got {device}; expected {found.device}; hint: one process for each GPU")
    return found


def by_library(group, tensor):
    """Whether collectives of such a tensor go through the library without an exchange over the host before them."""
    return isinstance(group._devices.get(tensor.device.type), Transport) and not checks_calls()


def why_host(group, kind):
    """Why tensors of such a device go through the host's memory."""
    found = group._devices.get(kind)
    return found if isinstance(found, str) else "the library does not reduce this dtype"


def library(group):
    """'nccl' or 'rccl' where the group has connected its GPUs; otherwise None."""
    for found in group._devices.values():
        if not isinstance(found, str):
            return found.library.split()[0]
    return None
