"""Worker processes of the DataLoader.

Batches come back through memory that both sides map. The memory has no name (memfd). So no file remains when a process is killed, and a small
/dev/shm is enough. A worker has one such file for each batch that it may prepare ahead, so it never waits for a free one. The reader copies
each batch out of it, because a tensor over borrowed bytes could not be recorded into windows. The pipes carry short messages only, so neither
side blocks when it sends.

Worker k modulo the number of workers makes batch k. Its generators are seeded anew for each batch, with (seed, epoch, k). So the contents of a
batch depend neither on the number of workers nor on timing, and a resumed run can make the batch again."""
from __future__ import annotations

import collections
import contextlib
import hashlib
import io
import itertools
import mmap
import multiprocessing
import os
import pickle
import random
import signal
import sys
import time
import traceback
import weakref
from multiprocessing import connection, reduction

from .. import _C
from .._C import Tensor

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Any

_ALIGN = 64
_GRACE = 5.0  # seconds that workers have to end by themselves
_LONGEST_TEXT = 32768  # of a traceback: what a pipe takes in without a reader
_LOOK_FOR_PARENT = 2.0  # seconds


class WorkerInfo:
    """What get_worker_info() returns inside a worker: id, num_workers, seed (of this worker and epoch) and its copy of the dataset. Nothing is checked or
    raised for other values."""

    def __init__(self, id: int, num_workers: int, seed: int, dataset: Any) -> None:
        self.id, self.num_workers, self.seed, self.dataset = id, num_workers, seed, dataset

    def __repr__(self):
        return f"WorkerInfo(id={self.id}, num_workers={self.num_workers}, seed={self.seed})"


_info = None


def get_worker_info() -> WorkerInfo | None:
    """The WorkerInfo of the worker process that calls it; None in the main process."""
    return _info


def mix(*numbers):
    """63 bits that are a function of these numbers."""
    return int.from_bytes(hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest(), "little") >> 1


def _seed_everything(seed):
    _C.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed([seed & 0xFFFFFFFF, seed >> 32])


@contextlib.contextmanager
def drawing(seed):
    """The global generators from this seed on; afterwards they are where they were."""
    numpy = sys.modules.get("numpy")
    before = _C.get_rng_state(), random.getstate(), numpy.random.get_state() if numpy is not None else None
    _seed_everything(seed)
    try:
        yield
    finally:
        _C.set_rng_state(before[0])
        random.setstate(before[1])
        if numpy is not None:
            numpy.random.set_state(before[2])


class _SharedFile:
    """Memory without a name, sent to a process while that is started."""

    def __init__(self, fd=None):
        self.fd = os.memfd_create("pyflame-loader", os.MFD_CLOEXEC) if fd is None else fd
        self._map = None
        weakref.finalize(self, os.close, self.fd)

    def __reduce__(self):
        return _received_file, (reduction.DupFd(self.fd),)

    def reserve(self, size):
        """At least this many bytes, all of them really there: a lack of memory is an OSError here and no SIGBUS later."""
        if size > os.fstat(self.fd).st_size:
            os.posix_fallocate(self.fd, 0, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)

    def bytes(self, size, access=mmap.PROT_READ | mmap.PROT_WRITE, flags=mmap.MAP_SHARED):
        if self._map is None or len(self._map) < size:
            self._map = mmap.mmap(self.fd, os.fstat(self.fd).st_size, flags, access)
        return memoryview(self._map)


def _received_file(handle):
    return _SharedFile(handle.detach())


class _Packer(reduction.ForkingPickler):
    """A pickler that leaves tensors and arrays out: `leaves` says where each is to lie."""

    def __init__(self, stream, leaves):
        super().__init__(stream, pickle.HIGHEST_PROTOCOL)
        self._leaves = leaves

    def persistent_id(self, x):
        if type(x) is Tensor:
            if x.requires_grad:
                return None  # it pickles itself, or says why not
            size, kind = x.nbytes, ("tensor", x.dtype, x.shape, str(x.device))
        elif type(x).__module__ == "numpy" and type(x).__name__ == "ndarray" and not x.dtype.hasobject:
            size, kind = x.nbytes, ("array", x.dtype, x.shape, None)
        else:
            return None
        return (*kind, self._leaves.place(x, size), size)


class _Leaves:
    def __init__(self):
        self.end, self.items, self._places = 0, [], {}

    def place(self, x, size):
        if id(x) not in self._places:
            self._places[id(x)] = self.end
            self.items.append((x, self.end, size))  # and so it stays alive, and its id its own
            self.end += -(-size // _ALIGN) * _ALIGN
        return self._places[id(x)]

    def write(self, view):
        for x, at, size in self.items:
            if not size:
                continue
            if isinstance(x, Tensor):
                _C.frombuffer(view[at : at + size], dtype=x.dtype).view(x.shape).copy_(x.detach())
            else:
                import numpy as np

                np.frombuffer(view[at : at + size], x.dtype).reshape(x.shape)[...] = x


class _Unpacker(pickle.Unpickler):
    """Copies leaves out of `view`, or lets them share it."""

    def __init__(self, stream, view, share=False):
        super().__init__(stream)
        self._view, self._share = view, share

    def persistent_load(self, pid):
        kind, dtype, shape, device, at, size = pid
        part = self._view[at : at + size]
        if kind == "array":
            import numpy as np

            x = np.frombuffer(part, dtype).reshape(shape)
            return x if self._share else x.copy()
        if not size:
            return _C.empty(shape, dtype=dtype, device=device)
        x = _C.frombuffer(part if self._share else part.toreadonly(), dtype=dtype).view(shape)
        return x if str(x.device) == device else x.to(device)


def _pack(value, file):
    """Writes a value into the file; returns where its description begins and ends."""
    stream, leaves = io.BytesIO(), _Leaves()
    _Packer(stream, leaves).dump(value)
    text = stream.getbuffer()
    end = leaves.end + len(text)
    file.reserve(end)
    view = file.bytes(end)
    leaves.write(view)
    view[leaves.end : end] = text
    return leaves.end, end


def _unpack(file, begin, end):
    view = file.bytes(end)
    return _Unpacker(io.BytesIO(view[begin:end]), view).load()


class _Job:
    """Dataset, collate_fn and worker_init_fn on their way to the workers. Tensors and arrays are written once and mapped by all workers, each of
    which may change its own copy; a forked worker has everything already."""

    def __init__(self, *parts):
        self.parts, self._file, self._leaves, self._written = parts, None, _Leaves(), 0

    def __reduce__(self):
        stream = io.BytesIO()
        try:
            _Packer(stream, self._leaves).dump(self.parts)
        except Exception as e:
            raise type(e)(f"DataLoader: cannot be sent to worker processes; got {type(e).__name__}: {e}; expected a dataset, collate_fn and worker_init_fn "
                          "that can be pickled; hint: define them at the top of a module, or pass multiprocessing_context='fork'") from e
        if self._file is None:
            self._file = _SharedFile()
        if self._leaves.end > self._written:
            self._file.reserve(self._leaves.end)
            self._leaves.write(self._file.bytes(self._leaves.end))
            self._written = self._leaves.end
        return _received_job, (stream.getvalue(), self._file, self._leaves.end)


def _received_job(data, file, end):
    try:
        view = file.bytes(end, flags=mmap.MAP_PRIVATE) if end else None
        return _Job(*_Unpacker(io.BytesIO(data), view, share=True).load())
    except Exception as e:
        return e  # raised where the first batch is asked for


# ---- errors

class _Text(str):
    """A message whose repr is itself: a KeyError shows the repr of its argument, and a traceback needs its line ends."""

    def __repr__(self):
        return self


def _describe(error, where):
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    if len(text) > _LONGEST_TEXT:
        text = text[: _LONGEST_TEXT // 2] + "\n  ...\n" + text[-_LONGEST_TEXT // 2 :]
    try:
        kind = pickle.dumps(type(error))
    except Exception:
        kind = None  # a class that only the worker knows
    return kind, type(error).__name__, f"Caught {type(error).__name__} in {where}.\nOriginal {text}"


def _raised(kind, name, text):
    """The exception to raise for a worker's: of its type where that can be made from a message."""
    try:
        cls = pickle.loads(kind)
        error = cls(_Text(text) if issubclass(cls, KeyError) else text)
        if isinstance(error, Exception):
            return error
    except Exception:
        pass
    return RuntimeError(text)


# ---- the worker's side

class _Worker:
    def __init__(self, number, count, pipe, files, iterable, batch_size, drop_last):
        self.number, self.count, self.pipe, self.files = number, count, pipe, files
        self.iterable, self.batch_size, self.drop_last = iterable, batch_size, drop_last
        self.tag = self.seed = self.epoch = self.stream = self.failed = None

    def start(self, job, seed):
        global _info
        _info = WorkerInfo(self.number, self.count, seed, None)
        try:
            if isinstance(job, AttributeError) and "__main__" in str(job):
                raise AttributeError(f"{job}; expected dataset, collate_fn and worker_init_fn that a new process can import; hint: in a notebook or an interactive session pass "
                                     "multiprocessing_context='fork', or define them in a file and import it") from job
            if isinstance(job, Exception):
                raise job
            from .loader import batch_maker

            dataset, collate, init = job.parts
            self.make, self.collate, _info.dataset = batch_maker(dataset, collate, self.batch_size is not None), collate, dataset
            _seed_everything(seed)
            if init is not None:
                init(self.number)
        except Exception as e:
            self.failed = _describe(e, f"DataLoader worker process {self.number} while it started")

    def begin(self, tag, seed, epoch):
        self.tag, self.seed, self.epoch, self.stream = tag, seed, epoch, None
        _info.seed = mix(seed, epoch) + self.number

    def samples(self):
        """What the next batch of a stream is made of."""
        if self.stream is None:
            self.stream = iter(_info.dataset)
        got = list(itertools.islice(self.stream, self.batch_size or 1))
        return [] if self.drop_last and len(got) < self.batch_size else got

    def answer(self, k, slot, part, keep):
        try:
            if self.failed is not None:
                return self.tag, "error", self.failed
            if not self.iterable:
                _seed_everything(mix(self.seed, self.epoch, k))
                batch = self.make(part)
            else:
                _seed_everything(mix(self.seed, self.epoch, k, self.number))
                samples = self.samples()
                if not samples:
                    return self.tag, "end", None
                if not keep:
                    return self.tag, "batch", None
                batch = self.collate(samples if self.batch_size else samples[0])
            return self.tag, "batch", (slot, *_pack(batch, self.files[slot]))
        except Exception as e:
            return self.tag, "error", _describe(e, f"DataLoader worker process {self.number}")

    def receive(self, parent):
        while not self.pipe.poll(_LOOK_FOR_PARENT):
            if os.getppid() != parent:  # orphaned, while a forked sibling holds the other end of the pipe
                raise EOFError
        return self.pipe.recv()

    def run(self, parent):
        asked = collections.deque()
        while True:
            while not asked or self.pipe.poll(0):  # what came last may make the rest needless
                message = self.receive(parent)
                if message is None:
                    return
                if message[0] == "epoch":
                    asked.clear()
                    self.begin(*message[1:])
                elif self.tag is not None:
                    asked.append(message[1:])
            reply = self.answer(*asked.popleft())
            self.pipe.send(reply)
            if reply[1] == "error":  # it ends the epoch
                self.tag = None
                asked.clear()


def _worker_main(job, number, count, pipe, files, seed, settings, forked_from):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the main process tells its workers
    parent = forked_from or os.getppid()
    _C.set_num_threads(1)
    _C.set_device("cpu")
    worker = _Worker(number, count, pipe, files, *settings)
    worker.start(job, seed)
    try:
        worker.run(parent)
    except (EOFError, ConnectionError):
        pass  # the main process is gone


# ---- the main process's side

def _end(processes, pipes, grace, owner):
    """Asks the workers to end, then makes them."""
    if os.getpid() != owner:
        return  # a forked copy of the loader
    for pipe in pipes:
        try:
            pipe.send(None)
        except OSError:
            pass
    for stop, patience in ((None, grace), ("terminate", 1.0), ("kill", 60.0)):
        until = time.monotonic() + patience
        for p in processes:
            if stop is not None and p.is_alive():
                getattr(p, stop)()
        for p in processes:
            p.join(max(0.0, until - time.monotonic()))
        if not any(p.is_alive() for p in processes):
            break
    for pipe in pipes:
        pipe.close()


class Pool:
    """The workers of one loader; `ahead` batches of each are under way."""

    def __init__(self, loader, ahead, timeout, context):
        if not hasattr(os, "memfd_create"):
            raise NotImplementedError("DataLoader: this system has no memfd_create, which worker processes need; expected num_workers=0")
        n, forks = loader.num_workers, context.get_start_method() == "fork"
        self.broken, self._tag, self._ahead, self._timeout = False, 0, ahead, timeout
        self._processes, self._pipes, self._files = [], [], []
        job = _Job(loader.dataset, loader.collate_fn, loader.worker_init_fn)
        settings = (loader._iterable, loader.batch_size, loader.drop_last)
        if forks:
            _C.synchronize()  # nothing of ours runs while the process is copied
        elif getattr(multiprocessing.current_process(), "_inheriting", False):  # multiprocessing's own error says it in other words, of programs for Windows
            raise RuntimeError("DataLoader: a worker process began to run the program again; got workers that are started while the program is imported; "
                               "expected a program that does nothing when it is imported; hint: put what it runs behind `if __name__ == '__main__':`")
        try:
            for number in range(n):
                pipe, theirs = multiprocessing.Pipe()
                self._pipes.append(pipe)
                self._files.append([_SharedFile() for _ in range(ahead)])
                args = (job, number, n, theirs, self._files[-1], mix(loader.seed) + number, settings, os.getpid() if forks else 0)
                p = context.Process(target=_worker_main, args=args, daemon=True, name=f"pyflame-loader-{number}")
                p.start()
                self._processes.append(p)
                theirs.close()
        except BaseException:
            _end(self._processes, self._pipes, 0.0, os.getpid())
            raise
        self._finish = weakref.finalize(self, _end, self._processes, self._pipes, _GRACE, os.getpid())

    def close(self):
        if self.broken:  # somebody hangs, or Ctrl-C was pressed
            for p in self._processes:
                p.terminate()
        self._finish()

    def _gone(self):
        """Raises: a worker ended although it was not asked to."""
        ready = connection.wait([p.sentinel for p in self._processes], 1.0)
        ended = [(w, p) for w, p in enumerate(self._processes) if p.sentinel in ready]
        if not ended:
            raise RuntimeError("DataLoader: a worker process closed its pipe; expected it to be open as long as the loader runs") from None
        w, p = ended[0]
        p.join()  # its files are closed a moment before it can be waited for
        if p.exitcode < 0:
            how = f"signal {next((s.name for s in signal.Signals if s == -p.exitcode), -p.exitcode)}"
            hint = "the system kills processes when memory runs out: fewer workers or a smaller prefetch_factor need less"
        else:
            how = f"exit code {p.exitcode}"
            hint = "what it printed says why; a script that starts workers needs `if __name__ == '__main__':` around what it runs, a program without a file multiprocessing_context='fork'"
        raise RuntimeError(f"DataLoader: worker process {w} (pid {p.pid}) ended unexpectedly; got {how}; expected it to live as long as the loader runs; hint: {hint}") from None

    def _send(self, w, message):
        self.broken = True  # until it is whole: Ctrl-C may come in between
        try:
            self._pipes[w].send(message)
        except ConnectionError:
            self._gone()
        self.broken = False

    def _reply(self, w):
        pipe = self._pipes[w]
        self.broken = True
        tag = None
        while tag != self._tag:  # another is of an epoch that was left
            if not pipe.poll(0):
                ready = connection.wait([pipe, *(p.sentinel for p in self._processes)], self._timeout or None)
                if not ready:
                    raise RuntimeError(f"DataLoader: no batch within the timeout; got nothing from worker process {w} for {self._timeout} seconds")
                if pipe not in ready:
                    self._gone()
            try:
                tag, kind, value = pipe.recv()
            except (EOFError, ConnectionError):
                self._gone()
        self.broken = False
        if kind == "error":
            raise _raised(*value)
        return kind, value

    def _batch(self, w, value):
        slot, begin, end = value
        return _unpack(self._files[w][slot], begin, end)

    def begin(self, seed, epoch):
        self._tag += 1
        for w in range(len(self._pipes)):
            self._send(w, ("epoch", self._tag, seed, epoch))

    def batches(self, parts, start):
        """Those of a dataset with indices, in order, from number `start` on."""
        n, parts = len(self._pipes), enumerate(parts)
        asked = 0

        def ask(most):
            nonlocal asked
            for k, part in itertools.islice(parts, most):
                self._send(k % n, ("make", k, k // n % self._ahead, part, True))
                asked = k + 1

        asked += sum(1 for _ in itertools.islice(parts, start))
        ask(n * self._ahead)
        k = start
        while k < asked:
            batch = self._batch(k % n, self._reply(k % n)[1])
            ask(1)
            yield batch
            k += 1

    def streams(self, start):
        """Those of each worker's stream in turn, without the first `start`."""
        n, asked = len(self._pipes), [0] * len(self._pipes)

        def ask(w):
            j = asked[w]
            asked[w] += 1
            self._send(w, ("make", j, j % self._ahead, None, j * n + w >= start))  # at that place or, where a stream ended, before it

        for _ in range(self._ahead):
            for w in range(n):
                ask(w)
        going, k = list(range(n)), 0
        while going:
            for w in tuple(going):
                kind, value = self._reply(w)
                if kind == "end":
                    going.remove(w)
                    continue
                batch = self._batch(w, value) if k >= start else None
                ask(w)
                k += 1
                if k > start:
                    yield batch
