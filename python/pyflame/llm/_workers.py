"""Tensor parallelism of an Engine: N processes compute each step together. What a rank has of the weights is in _share.py.

The design. Rank 0 is the user's process; it has the scheduler, the tokenizer and the samplers. Workers starts the other ranks, `python -m pyflame.llm._rank`, as children
(_children.py). Each rank reads the model's files and keeps its part. All ranks meet in a ProcessGroup of their own, beside whatever group the program has.

A step is announced to each worker through its pipe, before rank 0 computes it: token ids, positions and blocks of each text, numbers of rows, and how the device chooses the
next tokens, if the next step may begin before rank 0 knows them. A worker waits for the next message without computing, and without a limit in time. It then runs the same Step as rank 0, on keys and values
of its own heads in blocks of the same numbers, so the blocks' bookkeeping exists once. All ranks get all logits. Rank 0 chooses the tokens; where the next step may begin
without the host, each rank chooses the same ones of the same bits.

The order of collectives. Only steps have collectives, and only in Step.logits(). Rank 0 sends messages and runs steps on one thread, in one order, and a worker takes one message after
the other, so all ranks call the same collectives in the same order. What changes blocks (copies of beams, swapped texts) is a message in the same pipe.

Errors. A rank whose step fails cannot take part in the next one, so a failed step ends the engine. A worker that fails prints why and ends; rank 0 hears of it by its collective (the group
sees closed connections) or by the end of the process, and ends all requests with that worker's last lines. A worker that hangs is an error after the group's timeout."""
import collections
import logging
import os
import time
import weakref

from .. import _C
from ..distributed import TCPStore
from ..distributed._environment import place_of_process
from ..distributed._group import ProcessGroup
from ..distributed._state import blames_another_rank
from ._children import Child, close_all
from ._errors import EngineDead
from ._paged import Pages, Step
from ._share import Share

MEETING_SECONDS, STEP_SECONDS = 60.0, 600.0  # until all ranks are connected; that a collective of a step may take
_BLAME_SECONDS = 5.0  # that the ranks have, after one has failed, to end and say why
_log = logging.getLogger("pyflame.llm")


def devices_of(device, size):
    """The devices of so many processes: with a GPU, this one and those that follow it. ValueError where there are too few."""
    kind, _, first = str(_C.get_device() if device is None else device).partition(":")
    if kind == "cpu":
        return ["cpu"] * size
    first, count = int(first or 0), getattr(_C, f"{kind}_device_count")()
    if first + size > count:
        raise ValueError(f"Engine: there are fewer GPUs than processes; got {count} GPU{'s' * (count != 1)}, {kind}:{first} as the first and {size} processes; expected one for each")
    return [f"{kind}:{first + r}" for r in range(size)]


def _refuse_launcher(size):
    place = place_of_process("Engine")
    if place.world_size > 1:
        raise ValueError(f"Engine: tensor_parallel_size starts the other processes itself; got tensor_parallel_size {size} in rank {place.rank} of {place.world_size} ({place.source}); "
                         "expected a program that runs once; hint: start it by `python script.py`, without `pyflame run` or torchrun")


def _named(dtype):
    return None if dtype is None else str(dtype).rpartition(".")[2]


def meet(rank, size, store):
    group = ProcessGroup("Engine", range(size), rank, store, "llm", MEETING_SECONDS)
    group._timeout = STEP_SECONDS
    return group


class Workers:
    """The other ranks, as rank 0 sees them. model: the LanguageModel with rank 0's part. on_end(): called on some thread when one has ended by itself.

    ValueError where the model cannot be divided, in one of several processes of a launcher, and for too few GPUs; EngineDead where a worker does not start."""

    def __init__(self, source, size, on_end):
        from .language_model import load_part

        _refuse_launcher(size)
        devices = devices_of(source.device, size)
        self.size, self._group, self._store, self._threads = size, None, None, None
        self._saved, self._forgotten, self._children, self._on_end = 0, collections.deque(), [], on_end
        threads = self._divide_threads() if devices[0] == "cpu" else None
        try:
            for rank in range(1, size):
                self._children.append(Child("pyflame.llm._rank", f"rank {rank}", self._ended, threads))
                self.send_to(self._children[-1], "load", source.path, _named(source.dtype), devices[rank], rank, size, source.cpu_offload_gb)
            share = Share(0, size)
            self.model = load_part(source.path, source.dtype, devices[0], share, cpu_offload_gb=source.cpu_offload_gb)
            self._meet(share)
        except BaseException:
            self.close(patience=0)
            raise

    def _meet(self, share):
        try:
            for child in self._children:
                child.receive()  # it has loaded its part
                child.is_quiet = False
            self._store = TCPStore("127.0.0.1", 0, is_master=True, timeout=MEETING_SECONDS)
            self.send("meet", self._store.port)
            share.group = self._group = meet(0, self.size, self._store)
        except (EOFError, RuntimeError) as e:
            raise self.failure(e) from None

    def _divide_threads(self):
        """The processors are divided over the ranks, unless the user has said how many threads a process has. Threads of each rank."""
        if os.environ.get("PYFLAME_NUM_THREADS"):
            return None
        before = _C.get_num_threads()
        self._threads = before, max(1, before // self.size)
        _C.set_num_threads(self._threads[1])
        return self._threads[1]

    def _ended(self, child):
        self._on_end()

    def send(self, *message):
        """Sends a message to all workers. EngineDead where one has ended."""
        forgotten = []
        while self._forgotten:
            forgotten.append(self._forgotten.popleft())
        for child in self._children:
            if forgotten:
                self.send_to(child, "forget", forgotten)
            self.send_to(child, *message)

    def send_to(self, child, *message):
        try:
            child.send(*message)
        except OSError as e:
            raise self.failure(e) from None

    def failure(self, error):
        """The EngineDead that says which rank failed and why. error: what rank 0 has seen of it, or None."""
        if isinstance(error, EngineDead):
            return error
        until = time.monotonic() + _BLAME_SECONDS
        while time.monotonic() < until and not any(self._has_failed_itself(c) for c in self._children):
            if error is not None and not isinstance(error, (EOFError, OSError)) and not blames_another_rank(str(error)):
                break  # rank 0 itself has failed
            time.sleep(0.02)
        failed = [c for c in self._children if self._has_failed_itself(c)] or [c for c in self._children if c.has_ended()]
        if failed:
            return EngineDead(failed[0].words())
        return EngineDead(f"rank 0 failed: {type(error).__name__}: {error}" if error is not None else "a rank has ended")

    @staticmethod
    def _has_failed_itself(child):
        """Whether it has ended, and not because another rank did."""
        if not child.has_ended():
            return False
        child._reader.join(1.0)
        return child.process.returncode < 0 or not any(map(blames_another_rank, child.tail))

    # Steps. On the engine's thread.

    def step(self, network, pages, parts, rows, logits, adapters, found=None, start=None):
        """A Step in which all ranks take part. found: as of Step; each rank has its own. start: what Step.start() gets, where that follows."""
        self.send("step", [(p.ids, p.begin, p.blocks, p.wanted, p.adapter, p.after) for p in parts], rows, logits, found is not None, start)
        return Step(network, pages, parts, rows, logits, adapters, found)

    def adapters(self, adapters):
        """The engine's adapters are these from now on: a list of Adapter."""
        self.send("adapters", [(a.name, a.path) for a in adapters])

    def pages(self, network, count, kv_cache_dtype, longest=1, texts=1):
        return RankPages(self, network, count, kv_cache_dtype, longest, texts)

    def kill(self):
        """Ends the workers at once; a step that waits for one of them fails."""
        for child in self._children:
            child.process.kill()

    def close(self, patience=5.0):
        """Ends the workers, which have `patience` seconds for it, and the group."""
        close_all(self._children, patience)
        if self._group is not None:
            self._group.close()
            self._drop_late_error()
        if self._store is not None:
            self._store.close()
        if self._threads is not None and _C.get_num_threads() == self._threads[1]:
            _C.set_num_threads(self._threads[0])
        self._group = self._store = self._threads = None


    def _drop_late_error(self):
        """A collective on GPUs that a lost rank has left unfinished fails at the next synchronize(), which may be anybody's. The engine has told its users of the loss."""
        try:
            _C.synchronize()
        except RuntimeError as e:
            if not blames_another_rank(str(e)):
                _log.error("the engine ends; its last work has failed: %s", e)


class _Saved(list):
    """What RankPages.saved() returns: rank 0's tensors, and the key of those of the others."""


class RankPages(Pages):
    """The Pages of rank 0. What it does to blocks, the other ranks do to theirs."""

    def __init__(self, workers, network, count, kv_cache_dtype, longest=1, texts=1):
        self._workers = workers
        workers.send("pages", count, kv_cache_dtype, longest, texts)
        super().__init__(network, count, kv_cache_dtype, longest, texts)

    def copy(self, pairs):
        self._workers.send("copy", list(pairs))
        super().copy(pairs)

    def saved(self, blocks):
        workers = self._workers
        workers._saved += 1
        key = workers._saved
        workers.send("save", key, list(blocks))
        try:
            found = _Saved(super().saved(blocks))
        except BaseException:
            workers._forgotten.append(key)
            raise
        found.key = key
        weakref.finalize(found, workers._forgotten.append, found.key).atexit = False
        return found

    def restore(self, blocks, saved, places):
        self._workers.send("restore", saved.key, list(blocks), list(places))
        super().restore(blocks, saved, places)
