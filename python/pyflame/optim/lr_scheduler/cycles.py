"""Schedules that go up and down."""
from __future__ import annotations

import math
import numbers

from .base import LRScheduler, attributes_of, check_numbers, check_state, for_each_group, groups_of, positive, set_rate

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from .._annotations import Anneal, ForEachGroup, State
    from ..optimizer import Optimizer


def set_momentum(group, momentum):
    """Sets a group's momentum, or its beta1."""
    if "betas" in group:
        group["betas"] = (momentum, *tuple(group["betas"])[1:])
    else:
        group["momentum"] = momentum


class OneCycleLR(LRScheduler):
    """From max_lr / div_factor up to max_lr, then down to that start divided by final_div_factor; with cycle_momentum the momentum (or
    beta1) changes in the opposite direction, from max_momentum down to base_momentum and back.

    - max_lr: a number, or one for each group of parameters. total_steps: the calls of step(); epochs * steps_per_epoch unless given.
    - pct_start: the part of the steps that goes up. anneal_strategy: "cos" or "linear".
    - three_phase: down to the start in as many steps as up, then to the end.
    - last_epoch: the number of the last step of a run that goes on; -1: a new one.

    optimizer: the one whose groups get the rate.

    Raises ValueError for a missing or non-positive length, a pct_start outside of 0 to 1, an unknown anneal_strategy, a max_lr that does not fit the
    groups, an optimizer without momentum unless cycle_momentum is False, and a step beyond the last; TypeError for what is no number and what is no
    optimizer; KeyError for a last_epoch other than -1 where the groups have no initial_lr.
    """

    def __init__(self, optimizer: Optimizer, max_lr: ForEachGroup, total_steps: int | None = None, epochs: int | None = None,
                 steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: Anneal = "cos", cycle_momentum: bool = True,
                 base_momentum: float = 0.85, max_momentum: float = 0.95, div_factor: float = 25.0, final_div_factor: float = 1e4, three_phase: bool = False,
                 last_epoch: int = -1) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR: the length is missing; expected total_steps, or epochs and steps_per_epoch")
            positive("OneCycleLR", "epochs", epochs)
            positive("OneCycleLR", "steps_per_epoch", steps_per_epoch)
            total_steps = epochs * steps_per_epoch
        positive("OneCycleLR", "total_steps", total_steps)
        check_numbers("OneCycleLR", pct_start=pct_start, div_factor=div_factor, final_div_factor=final_div_factor)
        if cycle_momentum:
            check_numbers("OneCycleLR", base_momentum=base_momentum, max_momentum=max_momentum)
        if not 0 <= pct_start <= 1:
            raise ValueError(f"OneCycleLR: pct_start is out of range; got {pct_start}; expected 0 to 1")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"OneCycleLR: unknown anneal_strategy; got '{anneal_strategy}'; expected 'cos' or 'linear'")
        max_lrs = for_each_group("OneCycleLR", "max_lr", max_lr, optimizer)
        self.total_steps, self.anneal_strategy = total_steps, anneal_strategy
        self.max_lrs = max_lrs
        self.initial_lrs = [m / div_factor for m in max_lrs]
        self.min_lrs = [m / final_div_factor for m in self.initial_lrs]
        up = float(pct_start * total_steps) - 1
        if three_phase:
            self.phases = [(up, "initial", "max", "max_m", "base_m"), (2 * up, "max", "initial", "base_m", "max_m"),
                           (total_steps - 1, "initial", "min", "max_m", "max_m")]
        else:
            self.phases = [(up, "initial", "max", "max_m", "base_m"), (total_steps - 1, "max", "min", "base_m", "max_m")]
        self.base_momentum, self.max_momentum = base_momentum, max_momentum
        self.cycle_momentum = cycle_momentum
        if cycle_momentum and not all("momentum" in g or "betas" in g for g in optimizer.param_groups):
            raise ValueError("OneCycleLR: the optimizer has no momentum; hint: cycle_momentum=False")
        if last_epoch == -1:
            for g, first, most, least in zip(optimizer.param_groups, self.initial_lrs, self.max_lrs, self.min_lrs):
                set_rate(g, first)
                g.update(initial_lr=first, max_lr=most, min_lr=least)  # PyTorch's schedule reads them from the groups
                if cycle_momentum:
                    g.update(max_momentum=max_momentum, base_momentum=base_momentum)
        else:  # a run that goes on: as it began
            groups = optimizer.param_groups
            self.initial_lrs = [g.get("initial_lr", v) for g, v in zip(groups, self.initial_lrs)]
            self.max_lrs = [g.get("max_lr", v) for g, v in zip(groups, self.max_lrs)]
            self.min_lrs = [g.get("min_lr", v) for g, v in zip(groups, self.min_lrs)]
        super().__init__(optimizer, last_epoch)

    def _between(self, a, b, at):
        if self.anneal_strategy == "linear":
            return (b - a) * at + a
        return b + (a - b) / 2.0 * (1 + math.cos(math.pi * at))

    def _phase(self, step):
        start = 0.0
        for k, phase in enumerate(self.phases):
            if step <= phase[0] or k == len(self.phases) - 1:
                length = phase[0] - start
                return phase, (step - start) / length if length else 1.0
            start = phase[0]

    def _rate(self, i, step):
        if step > self.total_steps:
            raise ValueError(f"OneCycleLR: step {step} is beyond the end; expected at most {self.total_steps} steps")
        phase, at = self._phase(step)
        rates = {"initial": self.initial_lrs[i], "max": self.max_lrs[i], "min": self.min_lrs[i]}
        return self._between(rates[phase[1]], rates[phase[2]], at)

    def _apply(self, rates):
        super()._apply(rates)
        if not self.cycle_momentum:
            return
        phase, at = self._phase(self.last_epoch)
        for g in self.optimizer.param_groups:
            momenta = {"max_m": g.get("max_momentum", self.max_momentum), "base_m": g.get("base_momentum", self.base_momentum)}
            set_momentum(g, self._between(momenta[phase[3]], momenta[phase[4]], at))


class CosineAnnealingWarmRestarts(LRScheduler):
    """eta_min + (base - eta_min) (1 + cos(pi T_cur / T_i)) / 2, where T_cur counts the steps since the last restart. The first period T_i is T_0, and
    each further one T_mult times as long. step(epoch) takes fractions, such as epoch + batch / batches.

    Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts", 2016.

    optimizer: the one whose groups get the rate. last_epoch: the number of the last step of a run that goes on; -1: a new one.

    Raises ValueError where T_0 or T_mult is not a positive int, and for a negative epoch; TypeError for an eta_min that is no number and what is no
    optimizer; KeyError for a last_epoch other than -1 where the groups have no initial_lr.
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        positive("CosineAnnealingWarmRestarts", "T_0", T_0)
        positive("CosineAnnealingWarmRestarts", "T_mult", T_mult)
        check_numbers("CosineAnnealingWarmRestarts", eta_min=eta_min, last_epoch=last_epoch)
        self.T_0, self.T_i, self.T_mult, self.eta_min = T_0, T_0, T_mult, eta_min
        self.T_cur = last_epoch
        super().__init__(optimizer, last_epoch)

    def _next(self, i, lr):
        return self.eta_min + (self.base_lrs[i] - self.eta_min) * (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2

    def _initial_step(self):
        if self.last_epoch < 0:
            self._step_count = 0
            self.step(0)
        else:
            super()._initial_step()

    def step(self, epoch: float | None = None) -> None:
        """Advances T_cur by one step and sets the learning rates. epoch: the step to go to, which may be a fraction; None: the next one. ValueError for a
        negative epoch.
        """
        if epoch is not None:
            super().step(epoch)
            return
        self._wind(self.T_cur + 1, self.T_i)
        super().step()

    def _jump(self, epoch):
        if epoch < 0:
            raise ValueError(f"CosineAnnealingWarmRestarts: the epoch is negative; got {epoch}; expected at least 0")
        if self.T_mult == 1:
            self._wind(epoch % self.T_0, self.T_0)
        else:
            self._wind(epoch, self.T_0)
        super()._jump(math.floor(epoch))

    def _wind(self, at, period):
        while at >= period:
            at, period = at - period, period * self.T_mult
        self.T_cur, self.T_i = at, period


class CyclicLR(LRScheduler):
    """Up from base_lr to max_lr in step_size_up steps, and down again in step_size_down (default: as many):

    base + (max - base) s f, where s is between 0 at base and 1 at max, and f is 1 (mode 'triangular'), 1 / 2^(cycle - 1) ('triangular2'),
    gamma^step ('exp_range'), or scale_fn of the cycle or of the step (scale_mode 'cycle', 'iterations'). With cycle_momentum, the momentum (or beta1)
    moves from max_momentum to base_momentum and back.

    Smith, "Cyclical learning rates for training neural networks", 2015.

    optimizer: the one whose groups get the rate. last_epoch: the number of the last step of a run that goes on; -1: a new one.

    Raises ValueError for an unknown mode without scale_fn, an unknown scale_mode, steps that are not positive, lists that do not fit the groups, and an
    optimizer without momentum unless cycle_momentum is False; TypeError for what is no optimizer, a scale_fn that is no function and what is no
    number; KeyError for a last_epoch other than -1 where the groups have no initial_lr.
    """

    def __init__(self, optimizer: Optimizer, base_lr: ForEachGroup, max_lr: ForEachGroup, step_size_up: float = 2000, step_size_down: float | None = None,
                 mode: Literal["triangular", "triangular2", "exp_range"] = "triangular", gamma: float = 1.0, scale_fn: Callable[[float], float] | None = None,
                 scale_mode: Literal["cycle", "iterations"] = "cycle", cycle_momentum: bool = True, base_momentum: ForEachGroup = 0.8,
                 max_momentum: ForEachGroup = 0.9, last_epoch: int = -1) -> None:
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError(f"CyclicLR: unknown mode; got '{mode}'; expected 'triangular', 'triangular2' or 'exp_range', or scale_fn")
        if scale_fn is not None and not callable(scale_fn):
            raise TypeError(f"CyclicLR: scale_fn is not a function; got {scale_fn!r}; expected a function of the cycle or the step, or None")
        if scale_mode not in ("cycle", "iterations"):
            raise ValueError(f"CyclicLR: unknown scale_mode; got {scale_mode!r}; expected 'cycle' or 'iterations'")
        if cycle_momentum and not all("momentum" in g or "betas" in g for g in groups_of("CyclicLR", optimizer)):
            raise ValueError("CyclicLR: the optimizer has no momentum; hint: cycle_momentum=False")
        base_lrs = for_each_group("CyclicLR", "base_lr", base_lr, optimizer)
        self.max_lrs = for_each_group("CyclicLR", "max_lr", max_lr, optimizer)
        check_numbers("CyclicLR", gamma=gamma)
        if cycle_momentum:
            self.base_momentums = for_each_group("CyclicLR", "base_momentum", base_momentum, optimizer)
            self.max_momentums = for_each_group("CyclicLR", "max_momentum", max_momentum, optimizer)
        down = step_size_up if step_size_down is None else step_size_down
        for name, steps in (("step_size_up", step_size_up), ("step_size_down", down)):
            if not isinstance(steps, numbers.Real):
                raise TypeError(f"CyclicLR: {name} is not a number; got {steps!r}; expected a number of steps")
        if step_size_up <= 0 or down <= 0:
            raise ValueError(f"CyclicLR: the steps of a cycle are not positive; got {step_size_up} up and {down} down; expected more than 0 of each")
        self.total_size, self.step_ratio = float(step_size_up + down), step_size_up / (step_size_up + down)
        self.mode, self.gamma, self.cycle_momentum = mode, gamma, cycle_momentum
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        if last_epoch == -1:
            for g, lr in zip(optimizer.param_groups, base_lrs):
                set_rate(g, lr)
            if cycle_momentum:
                for g, low, high in zip(optimizer.param_groups, self.base_momentums, self.max_momentums):
                    g.update(max_momentum=high, base_momentum=low)
                    set_momentum(g, high)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def _scale(self, cycle, step):
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(cycle if self.scale_mode == "cycle" else step)
        return {"triangular": lambda: 1.0, "triangular2": lambda: 1 / 2.0 ** (cycle - 1), "exp_range": lambda: self.gamma**step}[self.mode]()

    def _height(self, step):
        cycle = math.floor(1 + step / self.total_size)
        x = 1 + step / self.total_size - cycle
        up = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        return up * self._scale(cycle, step)

    def _rate(self, i, step):
        return self.base_lrs[i] + (self.max_lrs[i] - self.base_lrs[i]) * self._height(step)

    def _apply(self, rates):
        super()._apply(rates)
        if self.cycle_momentum:
            height = self._height(self.last_epoch)
            for g, low, high in zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums):
                set_momentum(g, high - (high - low) * height)

    def state_dict(self) -> State:
        """The state of the scheduler as a dict for load_state_dict(), without the optimizer and functions. Attributes of an object as scale_fn are in it."""
        return {**super().state_dict(), "_scale_fn_custom": attributes_of(self._scale_fn_custom)}

    def load_state_dict(self, state_dict: State) -> None:
        check_state("CyclicLR", state_dict, "last_epoch")
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_scale_fn_custom"})
        if state_dict.get("_scale_fn_custom"):
            vars(self._scale_fn_custom).update(state_dict["_scale_fn_custom"])
