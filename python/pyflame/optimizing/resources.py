"""In the program's process: how long it waits for its loaders, how many batches an optimizer step takes, how much memory it takes, and what recomputation
saves and costs. The figures decide which changes are worth a trial (candidates.py)."""
import contextlib
import inspect
import os
import sys
import threading
import time

from .. import _C, _tree, memory
from ..autograd import recompute as functions
from ..data.loader import DataLoader
from ..memory import _null
from ..memory._estimate import estimate
from ..memory._policy import _step_flops, checkpoint_policy
from .candidates import NEAR

SKIPPED = 5  # batches before the first that counts: during the first steps programs are compiled


class Loaders:
    """How long a program waits for loaders that have no workers. clock: seconds; processor: the processor's seconds of this process, of all its threads."""

    def __init__(self, clock=time.perf_counter, processor=time.process_time):
        self._clock, self._processor, self.waits = clock, processor, []  # (asked for, received, the processor's seconds meanwhile) of each batch
        self._maker = None  # the thread in which a loader makes a batch

    def watch(self):
        """Watches all loaders of the process."""
        original, watch = DataLoader._logged, self

        def logged(loader, batches):
            batches = original(loader, batches)
            return batches if loader.num_workers else watch.timed(batches)

        DataLoader._logged = logged

    def timed(self, batches):
        """The same batches. The time that each takes is noted."""
        try:
            while True:
                began, used = self._clock(), self._processor()
                self._maker = threading.get_ident()
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                finally:
                    self._maker = None
                self.waits.append((began, self._clock(), self._processor() - used))
                yield batch
        finally:
            batches.close()

    def make_here(self):
        """Whether a loader makes a batch in this thread. With workers another process would."""
        return self._maker == threading.get_ident()

    def found(self):
        """(share, busy), each 0 to 1: the part of the time, from one request for a batch to the last one, in which the program waited for a batch; and the part
        of the waiting in which a core worked. The rest is spent on disks, networks and the like."""
        counted = self.waits[SKIPPED if len(self.waits) >= 2 * SKIPPED else 0:]
        if len(counted) < 2:
            return 0.0, 1.0
        elapsed = counted[-1][0] - counted[0][0]  # the work on the last batch is not known
        waited, used = sum(end - begin for begin, end, _ in counted[:-1]), sum(used for *_, used in counted[:-1])
        return min(1.0, waited / elapsed) if elapsed > 0 else 0.0, min(1.0, used / waited) if waited > 0 else 1.0


# ---- accumulated gradients


class Accumulation:
    """How many backward passes a program makes for an optimizer step, and where."""

    def __init__(self):
        self._count, self._counts, self._places = 0, [], set()

    def backward(self, path):
        self._count += 1
        self._places.add(path)

    def step(self):
        self._counts.append(self._count)
        self._count = 0

    def found(self):
        """{'batches': backward passes of each step, 'file': of the program, which makes them, 'trainer': whether pf.train.Trainer does}; {} if there is nothing to
        merge. Steps at the end of an epoch may have fewer."""
        most = max(self._counts, default=0)
        if most < 2 or 2 * self._counts.count(most) <= len(self._counts) or len(self._places) != 1:
            return {}
        (path,) = self._places
        trainer = sys.modules.get("pyflame.train._trainer")
        by_trainer = trainer is not None and path == os.path.abspath(trainer.__file__)
        return {"batches": most, "file": path, "trainer": by_trainer}


# ---- memory


def memory_of(device):
    """{'capacity': bytes that the program may take, 'peak': bytes that it took at most, 'retries': how often the allocator freed its caches to go on}."""
    s = memory.stats(device)
    return {"capacity": s["limit"] or s["total"], "peak": max(s["peak_allocated"], s.get("peak_reserved", 0)), "retries": s.get("retries", 0)}


class _NoOptimizer:
    """Stands for the optimizer, whose state is the same with recomputation and without."""

    def __init__(self, parameters):
        self._parameters = parameters

    def zero_grad(self):
        _C._drop_gradients(self._parameters, True)

    def step(self):
        pass


class Call:
    """A call of the program's module in training: the module, its arguments without their values, and the mixed precision around it."""

    def __init__(self, module, args, kwargs):
        batch = dict(inspect.signature(module.forward).bind(*args, **kwargs).arguments) if kwargs else args
        leaves, self._rebuild = _tree.flatten(batch)
        self._leaves = [((tuple(v.shape), v.dtype), None) if isinstance(v, _C.Tensor) else (None, v) for v in leaves]
        self._module = module
        self._kind = (_null.device_of(module) or _C.get_device()).partition(":")[0]
        self._mode = _C._autocast(self._kind)

    def _model(self):
        """The module on the null device, without hooks of its own, which would take the plan's calls for the program's."""
        made = _null.module(self._module)
        made._forward_hooks.clear()
        made._forward_pre_hooks.clear()
        return made

    def _batch(self):
        return self._rebuild([_C.empty(spec[0], dtype=spec[1], device=_null.DEVICE) if spec else other for spec, other in self._leaves])

    @contextlib.contextmanager
    def _as_called(self, kept):
        """Plans as the call was made; kept: whether checkpoint() keeps all intermediates."""
        kind = _C.get_device().partition(":")[0]
        before, enabled = _C._autocast(kind), functions.enabled
        _C._set_autocast(kind, *self._mode)
        functions.enabled = not kept
        try:
            yield
        finally:
            functions.enabled = enabled
            _C._set_autocast(kind, *before)

    def _plan(self, kept):
        """(the peak of a step in bytes, its FLOPs)."""
        with self._as_called(kept):
            peak = estimate(self._model, self._batch, optimizer=_NoOptimizer).peak
            with _null.planning():
                return peak, _step_flops(self._model, self._batch, None, _NoOptimizer)

    def without_recomputation(self):
        """What the program's own recomputation saves and costs: {'saves': bytes, 'flops': of a step, times those without}."""
        (peak, flops), (peak_kept, flops_kept) = self._plan(False), self._plan(True)
        return {"saves": max(0, peak_kept - peak), "flops": flops / flops_kept if flops_kept else 1.0}

    def with_recomputation(self, found):
        """The fewest blocks whose recomputation takes the program's peak to NEAR of its memory: {'modules': names, 'saves': bytes, 'flops': of a step, times
        those without}. found: of memory_of."""
        with self._as_called(False):
            planned = estimate(self._model, self._batch, optimizer=_NoOptimizer).peak
            budget = planned - (found["peak"] - int(NEAR * found["capacity"]))
            policy = checkpoint_policy(self._model, self._batch, bytes=max(1, budget), optimizer=_NoOptimizer)
        return {"modules": list(policy), "saves": planned - policy.plan.peak, "flops": 1 + policy.recompute}


def recomputation(call, found):
    """What candidates need to know of recomputation; {'why'} says why nothing is known, and {} that there is nothing to decide. call: a Call, or None;
    found: of memory_of."""
    near = found["peak"] >= NEAR * found["capacity"]
    if not functions.used and not near:
        return {}
    if call is None:
        return {"why": "the program does not call its module twice in training"}
    try:
        return {"off": call.without_recomputation()} if functions.used else {"on": call.with_recomputation(found)}
    except Exception as e:  # the module's own code runs in the plan, and may raise anything
        return {"why": f"a step cannot be planned: {type(e).__name__}: {e}"}
