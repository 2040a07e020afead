"""DataLoader: the order of an epoch is a function of (seed, epoch), so that a loader can be put at any place of any epoch again. Batches
are made ahead by one background thread; the core releases the GIL, so that this overlaps with computing."""
import queue
import threading

from .. import _C
from .._C import Tensor
from .dataset import IterableDataset, _permutation


def default_collate(batch):
    """One batch from a list of samples: tensors, arrays and numbers are stacked, tuples, lists and dicts by part, strings listed."""
    if not batch:
        raise ValueError("collate: the batch is empty")
    first = batch[0]
    if isinstance(first, Tensor):
        return _C.stack(list(batch))
    if isinstance(first, (bool, int, float)):
        return _C.tensor(list(batch))
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, dict):
        return {k: default_collate([b[k] for b in batch]) for k in first}
    if isinstance(first, (tuple, list)):
        if any(len(b) != len(first) for b in batch):
            raise ValueError(f"collate: samples have different lengths; got {sorted({len(b) for b in batch})}")
        parts = [default_collate([b[i] for b in batch]) for i in range(len(first))]
        if isinstance(first, tuple) and hasattr(first, "_fields"):
            return type(first)(*parts)
        return parts
    if type(first).__module__ == "numpy":
        return _C.stack([_C.tensor(b) for b in batch])
    raise TypeError(f"collate: cannot make a batch of {type(first).__name__}; expected tensors, arrays, numbers, strings, or tuples, lists and dicts of them")


class _End:
    pass


class DataLoader:
    """Batches of a dataset.

    shuffle: a new order every epoch, a function of seed (which follows manual_seed unless given) and the number of the epoch.
    prefetch_factor: how many batches a background thread makes ahead; 0 makes them when asked. The dataset's code runs in that thread:
    random numbers that it draws from PyFlame's generator interleave with the training's, so give such a dataset prefetch_factor=0.
    state_dict()/load_state_dict(): the place in the data, exact to the batch."""

    def __init__(self, dataset, batch_size=1, shuffle=False, sampler=None, num_workers=0, collate_fn=None, drop_last=False, seed=None, prefetch_factor=2,
                 pin_memory=False):
        if num_workers:
            raise NotImplementedError(f"DataLoader: worker processes are not available; got num_workers={num_workers}; expected 0; "
                                      "hint: prefetch_factor batches are made ahead by a background thread")
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
            raise ValueError(f"DataLoader: batch_size must be a positive integer; got {batch_size!r}")
        if prefetch_factor < 0:
            raise ValueError(f"DataLoader: prefetch_factor must not be negative; got {prefetch_factor}")
        self._iterable = isinstance(dataset, IterableDataset)
        if not self._iterable and not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            raise TypeError(f"DataLoader: not a dataset; got {type(dataset).__name__}; expected __getitem__ and __len__, or an IterableDataset")
        if self._iterable and (shuffle or sampler is not None):
            raise ValueError("DataLoader: an IterableDataset has its own order; expected shuffle=False and no sampler")
        if shuffle and sampler is not None:
            raise ValueError("DataLoader: sampler and shuffle exclude each other")
        if seed is None:
            a, b = _C.get_rng_state()
            seed = (a * 0x9E3779B97F4A7C15 + b) % 2**63
        self.dataset, self.batch_size, self.shuffle, self.sampler = dataset, batch_size, shuffle, sampler
        self.collate_fn = default_collate if collate_fn is None else collate_fn
        self.drop_last, self.seed, self.prefetch_factor = drop_last, int(seed), prefetch_factor
        self._epoch, self._position, self._resumed = 0, 0, True

    def __len__(self):
        if self._iterable:
            raise TypeError("DataLoader: an IterableDataset has no length")
        n = len(self.sampler) if self.sampler is not None else len(self.dataset)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def state_dict(self):
        """{'seed', 'epoch', 'position'}: position counts the batches that were handed out in this epoch."""
        return {"seed": self.seed, "epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state):
        """The next iteration starts at this place."""
        missing = [k for k in ("seed", "epoch", "position") if k not in state]
        if missing:
            raise ValueError(f"DataLoader: not a loader's state; missing {', '.join(missing)}")
        self.seed, self._epoch, self._position = int(state["seed"]), int(state["epoch"]), int(state["position"])
        self._resumed = True

    def _indices(self, epoch):
        if self.sampler is not None:
            order = list(self.sampler)
        elif self.shuffle:
            order = _permutation(len(self.dataset), self.seed, epoch)
        else:
            order = range(len(self.dataset))
        for at in range(0, len(order), self.batch_size):
            part = order[at : at + self.batch_size]
            if len(part) == self.batch_size or not self.drop_last:
                yield part

    def _plan(self, epoch, start):
        """Functions that make one batch each."""
        if self._iterable:
            yield from self._iterable_plan(start)
            return
        fast = getattr(self.dataset, "_batch", None) if self.collate_fn is default_collate else None
        for k, part in enumerate(self._indices(epoch)):
            if k < start:
                continue
            if fast is not None:
                yield lambda part=part: fast(part)
            else:
                yield lambda part=part: self.collate_fn([self.dataset[i] for i in part])

    def _iterable_plan(self, start):
        samples, k = [], 0
        for s in self.dataset:
            samples.append(s)
            if len(samples) == self.batch_size:
                if k >= start:
                    yield lambda part=samples: self.collate_fn(part)
                samples, k = [], k + 1
        if samples and not self.drop_last and k >= start:
            yield lambda: self.collate_fn(samples)

    def __iter__(self):
        if not self._resumed:  # every iteration is a new epoch, also after one that was left early
            self._epoch, self._position = self._epoch + 1, 0
        self._resumed = False
        plan = self._plan(self._epoch, self._position)
        return self._ahead(plan, self._epoch) if self.prefetch_factor else self._now(plan, self._epoch)

    def _handed_out(self, epoch):
        if epoch == self._epoch:
            self._position += 1

    def _finished(self, epoch):
        if epoch == self._epoch:
            self._epoch, self._position, self._resumed = epoch + 1, 0, True

    def _now(self, plan, epoch):
        for make in plan:
            batch = make()
            self._handed_out(epoch)
            yield batch
        self._finished(epoch)

    def _ahead(self, plan, epoch):
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
