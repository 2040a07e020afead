"""DataLoader. The order of an epoch is a function of (seed, epoch), so a loader can resume at any batch of any epoch. Batches are prepared ahead by
one background thread (the core releases the GIL, so this overlaps with computing) or by worker processes (workers.py)."""
from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import numbers
import queue
import threading
from typing import Generic

from .. import _C
from .._generator import draw_seed
from .collate import default_collate, default_convert
from .dataset import IterableDataset, T_co, _permutation, cut_each, quick_batch, samples_of
from .sampler import BatchSampler, RandomSampler, SequentialSampler
from .workers import Pool, drawing, mix

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from multiprocessing.context import BaseContext
    from typing import Any

    from .._generator import Generator
    from ._annotations import Samples


start_method = "forkserver"  # how workers are started unless the loader is told
default_workers = 0  # num_workers of loaders that have none (the setting loader_workers)


def _fast(dataset, collate_fn):
    """The dataset's own function from indices to a batch, if it has one that draws no random numbers; otherwise None."""
    return quick_batch(dataset) if collate_fn is default_collate else None


def batch_maker(dataset, collate_fn, batched):
    """The function from a list of indices to a batch, or from an index to a sample."""
    if not batched:
        return lambda i: collate_fn(dataset[i])
    fast = _fast(dataset, collate_fn)
    return fast if fast is not None else lambda part: collate_fn(samples_of(dataset, part))


def _check_order(iterable, batch_size, shuffle, sampler, batch_sampler, drop_last):
    if batch_size is not None and (not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1):
        raise ValueError(f"DataLoader: batch_size must be a positive integer or None; got {batch_size!r}")
    if batch_size is None and drop_last:
        raise ValueError("DataLoader: without batches there is no last one to drop; got batch_size=None and drop_last=True")
    if iterable and (shuffle or sampler is not None or batch_sampler is not None):
        raise ValueError("DataLoader: an IterableDataset has its own order; expected shuffle=False and no sampler")
    if shuffle and sampler is not None:
        raise ValueError("DataLoader: sampler and shuffle exclude each other")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ValueError("DataLoader: batch_sampler and batch_size, shuffle, sampler or drop_last exclude each other")


def _check_kinds(sampler, batch_sampler, collate_fn, worker_init_fn, seed):
    for name, value in (("sampler", sampler), ("batch_sampler", batch_sampler)):
        if value is not None and not hasattr(value, "__iter__") and not hasattr(value, "__getitem__"):
            raise TypeError(f"DataLoader: {name} cannot be iterated; got {value!r}; expected a sampler of pf.data, or any iterable of indices")
    for name, value in (("collate_fn", collate_fn), ("worker_init_fn", worker_init_fn)):
        if value is not None and not callable(value):
            raise TypeError(f"DataLoader: {name} is not a function; got {value!r}; expected a function or None")
    if seed is not None and not hasattr(seed, "__int__"):
        raise TypeError(f"DataLoader: seed is not a number; got {seed!r}; expected an int or None")


def _check_workers(num_workers, prefetch_factor, timeout, context, persistent):
    """Returns the multiprocessing context; None without workers."""
    if not isinstance(num_workers, int) or isinstance(num_workers, bool) or num_workers < 0:
        raise ValueError(f"DataLoader: num_workers must be an integer that is not negative; got {num_workers!r}")
    least = 1 if num_workers else 0
    for name, value in (("prefetch_factor", prefetch_factor), ("timeout", timeout)):
        if value is not None and not isinstance(value, numbers.Real):
            raise TypeError(f"DataLoader: {name} is not a number; got {value!r}")
    if prefetch_factor is not None and prefetch_factor < least:
        raise ValueError(f"DataLoader: prefetch_factor is too small; got {prefetch_factor}; expected at least {least} with num_workers={num_workers}")
    if timeout < 0:
        raise ValueError(f"DataLoader: timeout must not be negative; got {timeout}")
    if num_workers:
        if context is None or isinstance(context, str):
            methods = multiprocessing.get_all_start_methods()
            if context is not None and context not in methods:
                raise ValueError(f"DataLoader: no such multiprocessing_context; got '{context}'; expected {', '.join(methods)}")
            context = multiprocessing.get_context(context or start_method)
        if not hasattr(context, "get_start_method"):
            raise TypeError(f"DataLoader: not a multiprocessing_context; got {type(context).__name__}; expected a name or a context of multiprocessing")
        return context
    given = {"timeout": timeout, "multiprocessing_context": context, "persistent_workers": persistent}
    idle = [k for k, v in given.items() if v]
    if idle:
        raise ValueError(f"DataLoader: {', '.join(idle)} need workers; got num_workers=0; expected at least 1")
    return None


class _End:
    pass


class _Skipped:
    pass


class DataLoader(Generic[T_co]):
    """Batches of a dataset.

    - dataset: has `__getitem__` and `__len__`, as Dataset, or is an IterableDataset.
    - batch_size: samples of a batch. drop_last: leaves out a last batch that is smaller.
    - sampler: gives the indices, in place of shuffle.
    - collate_fn: makes a batch of a list of samples; default_collate unless given, which stacks numbers, arrays and tensors, also in tuples and dicts.
    - seed: a number from which the order and the workers' random numbers follow.
    - num_workers: processes that make batches; 0: this process.

    shuffle: a new order every epoch, a function of seed and the number of the epoch. The seed is drawn from `generator` if there is one, and
    follows manual_seed if neither is given.
    batch_size=None: yields the samples themselves, for datasets that make batches; arrays become tensors.
    batch_sampler: something that gives a list of indices for each batch, instead of batch_size, shuffle, sampler and drop_last.
    state_dict()/load_state_dict(): the position in the data, exact to the batch, with or without workers.

    num_workers=0: each batch is made when it is needed. Of a TensorDataset, whose samples draw no random numbers, a background thread prepares two batches
    ahead. With prefetch_factor=n the thread prepares n batches ahead of any dataset. The dataset's code then runs in that thread: random numbers
    that it draws from a global generator interleave with the training's, and the run is not reproducible.

    num_workers=n: each of n processes prepares prefetch_factor batches ahead. Batches have the same order for any n. What a dataset draws from
    PyFlame's, Python's or NumPy's global generator is a function of seed, epoch and number of the batch, the same as without workers. An IterableDataset is iterated in every
    worker, which get_worker_info() tells apart. An exception in a worker is raised here, in its type, with its traceback as text.
    - worker_init_fn(number) is called in each worker first; timeout: RuntimeError when a batch takes more seconds (0: no limit).
    - persistent_workers: the processes live as long as the loader and not for one epoch.
    - multiprocessing_context: 'forkserver' unless given: new processes, to which dataset, collate_fn and worker_init_fn are sent by pickle; a script
      needs `if __name__ == "__main__":` around what it runs. 'fork' copies this process, which starts at once and needs no pickle. PyFlame's own
      locks are free in the copy; those of other libraries' threads may not be. Not after a GPU was used.
    - Workers compute on the CPU with one thread.

    pin_memory, pin_memory_device and in_order are accepted and change nothing: copies to a GPU go through pinned memory anyway, and batches come in
    order.

    The constructor raises
    - ValueError: batch_size is neither a positive int nor None; num_workers is no int or negative; two arguments exclude each other; an IterableDataset
      gets an order; prefetch_factor is too small; timeout is negative; timeout, persistent_workers or multiprocessing_context is given without workers;
      there is no start method of that name.
    - TypeError: dataset is no dataset; prefetch_factor, timeout or seed is no number; collate_fn or worker_init_fn is no function; sampler or
      batch_sampler cannot be iterated; generator is no Generator; multiprocessing_context is neither a name nor a context.

    Iterating raises what the dataset raises; TypeError where default_collate cannot make a batch of the samples, and ValueError where their shapes
    differ; RuntimeError where a worker ends or takes longer than timeout; the error of pickle where workers cannot be sent what they need. len() raises
    TypeError for an IterableDataset without `__len__`.
    """

    def __init__(self, dataset: Samples[T_co], batch_size: int | None = 1, shuffle: bool | None = None, sampler: Iterable[Any] | None = None,
                 batch_sampler: Iterable[Sequence[Any]] | None = None, num_workers: int = 0, collate_fn: Callable[[Any], Any] | None = None,
                 pin_memory: bool = False, drop_last: bool = False, timeout: float = 0, worker_init_fn: Callable[[int], Any] | None = None,
                 multiprocessing_context: BaseContext | str | None = None, generator: Generator | None = None, *, seed: int | None = None,
                 prefetch_factor: int | None = None, persistent_workers: bool = False, pin_memory_device: str = "", in_order: bool = True) -> None:
        num_workers = default_workers if num_workers == 0 and default_workers else num_workers
        self._iterable = isinstance(dataset, IterableDataset)
        sized = hasattr(dataset, "__len__") or sampler is not None or batch_sampler is not None
        if not self._iterable and not (hasattr(dataset, "__getitem__") and sized):
            raise TypeError(f"DataLoader: not a dataset; got {type(dataset).__name__}; expected __getitem__ and __len__, or an IterableDataset")
        _check_order(self._iterable, batch_size, shuffle, sampler, batch_sampler, drop_last)
        _check_kinds(sampler, batch_sampler, collate_fn, worker_init_fn, seed)
        self._context = _check_workers(num_workers, prefetch_factor, timeout, multiprocessing_context, persistent_workers)
        if seed is None and generator is not None:
            seed = draw_seed(generator)
        if seed is None:
            a, b = _C.get_rng_state()
            seed = (a * 0x9E3779B97F4A7C15 + b) % 2**63
        self.dataset, self.batch_size, self.shuffle, self._sampler, self.generator = dataset, batch_size, bool(shuffle), sampler, generator
        self._batch_sampler, self.drop_last, self.seed = batch_sampler, drop_last, int(seed)
        self.collate_fn = collate_fn if collate_fn is not None else default_collate if self._batched else default_convert
        self.num_workers, self.worker_init_fn, self.timeout, self.pin_memory = num_workers, worker_init_fn, timeout, bool(pin_memory)
        # A thread would draw its random numbers in between those of the training.
        ahead = 2 if num_workers or _fast(dataset, self.collate_fn) is not None else 0
        self.prefetch_factor = ahead if prefetch_factor is None else prefetch_factor
        self.persistent_workers, self._pool = bool(persistent_workers), None
        self._epoch, self._position, self._resumed = 0, 0, True

    @property
    def _batched(self):
        return self.batch_size is not None

    @property
    def sampler(self) -> Any:
        """What gives the indices: the sampler that was given, or one that stands for the loader's own order."""
        if self._sampler is not None or self._iterable:
            return self._sampler
        return RandomSampler(self.dataset) if self.shuffle else SequentialSampler(self.dataset)

    @property
    def batch_sampler(self) -> Any:
        """What gives a list of indices for each batch: the argument, or a BatchSampler of the loader's sampler. None for batch_size=None and for an
        IterableDataset.
        """
        if self._batch_sampler is not None or self._iterable or not self._batched:
            return self._batch_sampler
        return BatchSampler(self.sampler, self.batch_size, self.drop_last)

    def __len__(self) -> int:
        if self._iterable and not hasattr(self.dataset, "__len__"):
            raise TypeError("DataLoader: an IterableDataset has no length; hint: give it a __len__")
        if self._batch_sampler is not None:
            return len(self._batch_sampler)
        n = len(self._sampler) if self._sampler is not None else len(self.dataset)
        if not self._batched:
            return n
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def state_dict(self) -> dict[str, int]:
        """{'seed', 'epoch', 'position'}: position is the number of batches that this epoch has yielded. The streams of an IterableDataset are
        as many as there are workers, so their number belongs to its state."""
        state = {"seed": self.seed, "epoch": self._epoch, "position": self._position}
        return {**state, "num_workers": self.num_workers} if self._iterable else state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Sets the position in the data to that of a state_dict(): the next iteration begins with the batch that would have followed.

        ValueError if seed, epoch or position is missing, or if the dataset is an IterableDataset and the number of workers differs.
        """
        missing = [k for k in ("seed", "epoch", "position") if k not in state]
        if missing:
            raise ValueError(f"DataLoader: not the state of a DataLoader; got none of the entries {', '.join(missing)}; expected a state_dict()")
        if self._iterable and max(1, state.get("num_workers", 0)) != max(1, self.num_workers):
            raise ValueError(f"DataLoader: the state was saved with another number of workers; got {state.get('num_workers', 0)}; expected {self.num_workers}")
        self.seed, self._epoch, self._position = int(state["seed"]), int(state["epoch"]), int(state["position"])
        self._resumed = True

    def _indices(self, epoch):
        for sampler in (self._sampler, self._batch_sampler, getattr(self._batch_sampler, "sampler", None)):
            if hasattr(sampler, "_begin_epoch"):  # a DistributedSampler
                sampler._begin_epoch(epoch)
        if self._batch_sampler is not None:
            return iter(self._batch_sampler)
        order = self._sampler
        if order is None:
            order = _permutation(len(self.dataset), self.seed, epoch) if self.shuffle else range(len(self.dataset))
        return iter(BatchSampler(order, self.batch_size, bool(self.drop_last)) if self._batched else order)

    def _plan(self, epoch, start):
        """Functions that make one batch each; for a stream all of them, until one says that it is at the end."""
        if self._iterable:
            yield from self._stream_plan(start)
            return
        make = batch_maker(self.dataset, self.collate_fn, self._batched)
        for part in itertools.islice(self._indices(epoch), start, None):
            yield lambda part=part: make(part)

    def _stream_plan(self, start):
        stream = None

        def make(k):
            nonlocal stream
            if stream is None:
                stream = iter(self.dataset)  # here, as what it draws is part of the first batch
            samples = cut_each(itertools.islice(stream, self.batch_size or 1))
            if not samples or (self.drop_last and len(samples) < self.batch_size):
                return _End
            return self.collate_fn(samples if self._batched else samples[0]) if k >= start else _Skipped

        for k in itertools.count():
            yield lambda k=k: make(k)

    def __iter__(self) -> Iterator[Any]:
        if not self._resumed:  # every iteration is a new epoch, also after one that was left early
            self._epoch, self._position = self._epoch + 1, 0
        self._resumed = False
        if self.num_workers:
            return self._logged(self._from_workers(self._epoch, self._position))
        return self._logged((self._ahead if self.prefetch_factor else self._now)(self._epoch, self._position))

    def _logged(self, batches):
        try:
            while True:
                began = _C._range_begin("DataLoader.__next__")  # None unless a profile is recorded
                batch = next(batches, _End)
                if began is not None:
                    _C._range_end(*began)
                if batch is _End:
                    return
                yield batch
        finally:
            batches.close()

    def _handed_out(self, epoch):
        if epoch == self._epoch:
            self._position += 1

    def _finished(self, epoch):
        if epoch == self._epoch:
            self._epoch, self._position, self._resumed = epoch + 1, 0, True

    def _from_workers(self, epoch, start):
        pool, self._pool = self._pool, None
        if pool is None:
            pool = Pool(self, self.prefetch_factor, self.timeout, self._context)
        try:
            pool.begin(self.seed, epoch)
            for batch in pool.streams(start) if self._iterable else pool.batches(self._indices(epoch), start):
                self._handed_out(epoch)
                yield batch
            self._finished(epoch)
        finally:
            if self.persistent_workers and not pool.broken and self._pool is None:
                self._pool = pool
            else:
                pool.close()

    def _now(self, epoch, start):
        first, stream = (0, (0,)) if self._iterable else (start, ())
        draws = _fast(self.dataset, self.collate_fn) is None
        for k, make in enumerate(self._plan(epoch, start), first):
            with drawing(mix(self.seed, epoch, k, *stream)) if draws else contextlib.nullcontext():  # what a worker would draw
                batch = make()
            if batch is _End:
                break
            if batch is not _Skipped:
                self._handed_out(epoch)
                yield batch
        self._finished(epoch)

    def _ahead(self, epoch, start):
        plan = self._plan(epoch, start)
        ready, stop = queue.Queue(self.prefetch_factor), threading.Event()

        def put(item):
            while not stop.is_set():
                try:
                    return ready.put(item, timeout=0.1)
                except queue.Full:
                    continue

        def work():
            try:
                for make in plan:
                    if stop.is_set():
                        return
                    batch = make()
                    if batch is _End:
                        break
                    if batch is _Skipped:
                        continue
                    _C.cut()  # computed here, not in the reader's thread
                    put((batch, None))
                put((_End, None))
            except BaseException as e:  # raised where the batch is asked for
                put((None, e))

        thread = threading.Thread(target=work, name="pyflame-loader", daemon=True)
        thread.start()
        try:
            while True:
                batch, error = ready.get()
                if error is not None:
                    raise error
                if batch is _End:
                    break
                self._handed_out(epoch)
                yield batch
            self._finished(epoch)
        finally:
            stop.set()
            thread.join()
