"""Schedules made of schedules, and the one that looks at a metric."""
from __future__ import annotations

import math
import numbers
from bisect import bisect_right
from collections.abc import Iterable

from .base import LRScheduler, check_numbers, check_state, for_each_group, rates_of, set_rate

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Literal, SupportsFloat

    from ..._C import Tensor
    from .._annotations import ForEachGroup, State
    from ..optimizer import Optimizer


def check_schedulers(owner, schedulers, optimizer):
    """TypeError for an object that has no optimizer, ValueError for a scheduler of another optimizer."""
    for s in schedulers:
        if not hasattr(s, "optimizer"):
            raise TypeError(f"{owner}: not a scheduler; got {type(s).__name__}; expected a learning-rate schedule of pf.optim.lr_scheduler")
        if s.optimizer is not optimizer:
            raise ValueError(f"{owner}: a scheduler belongs to another optimizer")


def check_lists(owner, **values):
    """TypeError for an argument that cannot be iterated."""
    for name, value in values.items():
        if not isinstance(value, Iterable):
            raise TypeError(f"{owner}: {name} are not a list; got {type(value).__name__}")


class SequentialLR(LRScheduler):
    """Runs several schedules one after the other: scheduler k + 1 starts at milestones[k], from its own step 0.

    schedulers: of the same optimizer; one more than milestones, which are numbers of steps that rise. Steps are counted from last_epoch + 1.

    Raises ValueError for another number of milestones, milestones that fall, and a scheduler of another optimizer; TypeError for what is no list, no
    scheduler and no number.
    """

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[float], last_epoch: int = -1) -> None:
        check_lists("SequentialLR", schedulers=schedulers, milestones=milestones)
        check_numbers("SequentialLR", last_epoch=last_epoch)
        if len(schedulers) != len(milestones) + 1:
            raise ValueError(f"SequentialLR: got {len(schedulers)} schedulers and {len(milestones)} milestones; expected one milestone less than schedulers")
        check_schedulers("SequentialLR", schedulers, optimizer)
        if not all(isinstance(m, numbers.Real) for m in milestones):
            raise TypeError(f"SequentialLR: milestones are not numbers; got {milestones!r}; expected a list of steps")
        if any(a > b for a, b in zip(milestones, milestones[1:])):
            raise ValueError(f"SequentialLR: the milestones fall; got {milestones!r}; expected numbers of steps that rise")
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        self.optimizer, self.last_epoch = optimizer, last_epoch + 1
        for g in optimizer.param_groups:
            set_rate(g, g["initial_lr"])
        self._undo()
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def _undo(self):
        """Takes back the steps that the schedules made when they were made."""
        for s in self._schedulers:
            if hasattr(s, "_schedulers"):
                SequentialLR._undo(s)
            else:
                s.last_epoch -= 1

    def step(self) -> None:
        """Advances by one step with the scheduler that the milestones name for it; call it after optimizer.step(). At a milestone the next scheduler begins
        at its step 0.
        """
        self.last_epoch += 1
        k = bisect_right(self._milestones, self.last_epoch)
        s = self._schedulers[k]
        if k and self._milestones[k - 1] == self.last_epoch:
            s._jump(0)
        else:
            s.step()
        self._last_lr = s.get_last_lr()

    def state_dict(self) -> State:
        """The state of the scheduler and of those in it, without the optimizer."""
        state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_schedulers")}
        return {**state, "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: State) -> None:
        """Takes the state of the scheduler and of those in it from a state_dict. ValueError for what is no state of this kind and for another number of
        schedulers; then nothing is changed.
        """
        check_state(type(self).__name__, state_dict, "_schedulers")
        state = dict(state_dict)
        states = state.pop("_schedulers")
        if len(states) != len(self._schedulers):
            raise ValueError(f"{type(self).__name__}.load_state_dict: got the states of {len(states)} schedulers; expected {len(self._schedulers)}")
        for s, d in zip(self._schedulers, states):
            s.load_state_dict(d)
        self.__dict__.update(state)


class ChainedScheduler:
    """Steps several schedules of one optimizer together, so that their factors multiply.

    schedulers: a list of schedules, in the order in which they are stepped. optimizer: that of all of them; None: that of the first. state_dict() has the
    states of all.

    Raises ValueError for an empty list and for a scheduler of another optimizer; TypeError for what is no list and what is no scheduler.
    """

    def __init__(self, schedulers: Iterable[LRScheduler], optimizer: Optimizer | None = None) -> None:
        check_lists("ChainedScheduler", schedulers=schedulers)
        self._schedulers = list(schedulers)
        if not self._schedulers:
            raise ValueError("ChainedScheduler: the list of schedulers is empty")
        self.optimizer = optimizer or getattr(self._schedulers[0], "optimizer", None)
        check_schedulers("ChainedScheduler", self._schedulers, self.optimizer)
        self._last_lr = self._schedulers[-1].get_last_lr()

    def step(self) -> None:
        """Calls step() of each scheduler, in order. Each starts from the learning rates that the one before it has set."""
        for s in self._schedulers:
            s.step()
        self._last_lr = rates_of(self.optimizer)

    if TYPE_CHECKING:

        def get_last_lr(self) -> list[float | Tensor]: ...

        def state_dict(self) -> State: ...

        def load_state_dict(self, state_dict: State) -> None: ...

    else:
        get_last_lr = LRScheduler.get_last_lr
        state_dict = SequentialLR.state_dict
        load_state_dict = SequentialLR.load_state_dict


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rate by factor, down to min_lr, when step(metric) has seen no better metric for more than patience steps.

    mode 'min' or 'max': whether smaller or larger is better. A metric is better if it differs from the best one by more than threshold, as a share
    of the best ('rel') or as a number ('abs'). After a change, cooldown steps pass before bad steps are counted again. Changes of at most eps are
    not made. A tensor as metric is read from its device. NaN is never better.

    optimizer: the one whose groups get the rate. threshold_mode: 'rel' or 'abs'.

    Raises ValueError for an unknown mode or threshold_mode, a factor of 1 or more, and a min_lr that does not fit the groups; TypeError for what
    is no number and what is no optimizer. step(metric) raises ValueError for a tensor of several elements and a text that is no number.
    """

    def __init__(self, optimizer: Optimizer, mode: Literal["min", "max"] = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
                 threshold_mode: Literal["rel", "abs"] = "rel", cooldown: int = 0, min_lr: ForEachGroup = 0, eps: float = 1e-8) -> None:
        check_numbers("ReduceLROnPlateau", factor=factor, patience=patience, threshold=threshold, cooldown=cooldown, eps=eps)
        if factor >= 1.0:
            raise ValueError(f"ReduceLROnPlateau: factor is out of range; got {factor}; expected less than 1")
        if mode not in ("min", "max"):
            raise ValueError(f"ReduceLROnPlateau: unknown mode; got '{mode}'; expected 'min' or 'max'")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"ReduceLROnPlateau: unknown threshold_mode; got '{threshold_mode}'; expected 'rel' or 'abs'")
        if not hasattr(optimizer, "param_groups"):
            raise TypeError(f"ReduceLROnPlateau: not an optimizer; got {type(optimizer).__name__}")
        self.optimizer, self.factor, self.patience, self.cooldown, self.eps = optimizer, factor, patience, cooldown, eps
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self.min_lrs = for_each_group("ReduceLROnPlateau", "min_lr", min_lr, optimizer)
        self.default_min_lr = min_lr
        self.last_epoch = 0
        self._last_lr = rates_of(optimizer)
        self._reset()

    def _reset(self):
        self.best = math.inf if self.mode == "min" else -math.inf
        self.cooldown_counter = self.num_bad_epochs = 0

    def step(self, metrics: SupportsFloat, epoch: int | None = None) -> None:
        """Takes the metric of one epoch, a number or a tensor of one element, and reduces the rates after more than patience bad ones. epoch: the number of
        the epoch; None: the next one.
        """
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(current, self.best):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = rates_of(self.optimizer)

    def _reduce(self):
        for g, least in zip(self.optimizer.param_groups, self.min_lrs):
            lr = max(float(g["lr"]) * self.factor, least)
            if float(g["lr"]) - lr > self.eps:
                set_rate(g, lr)

    @property
    def in_cooldown(self) -> bool:
        """Whether bad steps are not counted yet, because the rate was reduced less than cooldown steps ago."""
        return self.cooldown_counter > 0

    def is_better(self, a: float, best: float) -> bool:
        """Whether the metric a is better than best by more than threshold, which mode and threshold_mode describe. Returns a bool."""
        sign = -1 if self.mode == "min" else 1
        bound = best * (1 + sign * self.threshold) if self.threshold_mode == "rel" else best + sign * self.threshold
        return a < bound if self.mode == "min" else a > bound
