"""Schedules that change the rate in one direction."""
from __future__ import annotations

import math
import numbers
from collections import Counter
from collections.abc import Iterable

from .base import LambdaScheduler, LRScheduler, check_numbers, positive

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from ..optimizer import Optimizer


class LambdaLR(LambdaScheduler):
    """The rate is base * lr_lambda(step), where base is the rate that the group has at first and step counts the calls of step(), from 0.

    lr_lambda: one function, or a list of one for each group. optimizer: the one whose groups get the rate. last_epoch: the number of the last step of a
    run that goes on; -1: a new one.

    Raises ValueError for a list of another length; TypeError for what is no optimizer and for an lr_lambda that is no function; KeyError for a
    last_epoch other than -1 where the groups have no initial_lr.
    """

    def _rate(self, i, step):
        return self.base_lrs[i] * self.lr_lambdas[i](step)


class StepLR(LRScheduler):
    """The rate is base * gamma ^ (step // step_size), where base is the rate that the group has at first and step counts the calls of step(), from 0.

    step_size: after how many steps the rate falls, a positive int. optimizer: the one whose groups get the rate. last_epoch: the number of the last step
    of a run that goes on; -1: a new one.

    Raises ValueError for a step_size that is not a positive int; TypeError for a gamma that is no number and for what is no optimizer; KeyError for a
    last_epoch other than -1 where the groups have no initial_lr.
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        positive("StepLR", "step_size", step_size)
        check_numbers("StepLR", gamma=gamma)
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def _rate(self, i, step):
        return self.base_lrs[i] * self.gamma ** (step // self.step_size)

    def _next(self, i, lr):
        return lr if self.last_epoch == 0 or self.last_epoch % self.step_size else lr * self.gamma


class LinearLR(LRScheduler):
    """base (start_factor + (end_factor - start_factor) min(step, total_iters) / total_iters): a factor that changes linearly within total_iters steps.

    base is the rate that the group has at first, and step counts the calls of step(), from 0. start_factor: above 0 and at most 1; end_factor: from 0 to
    1; total_iters: a positive int. optimizer: the one whose groups get the rate. last_epoch: the number of the last step of a run that goes on; -1: a new
    one.

    Raises ValueError for a start_factor, an end_factor or a total_iters outside of these; TypeError for factors that are no numbers and for what is
    no optimizer; KeyError for a last_epoch other than -1 where the groups have no initial_lr.
    """

    def __init__(self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5, last_epoch: int = -1) -> None:
        check_numbers("LinearLR", start_factor=start_factor, end_factor=end_factor)
        if not 0 < start_factor <= 1:
            raise ValueError(f"LinearLR: start_factor is out of range; got {start_factor}; expected 0 < start_factor <= 1")
        if not 0 <= end_factor <= 1:
            raise ValueError(f"LinearLR: end_factor is out of range; got {end_factor}; expected 0 to 1")
        positive("LinearLR", "total_iters", total_iters)
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _rate(self, i, step):
        at = min(step, self.total_iters) / self.total_iters
        return self.base_lrs[i] * (self.start_factor + (self.end_factor - self.start_factor) * at)

    def _next(self, i, lr):
        if self.last_epoch == 0:
            return lr * self.start_factor
        if self._is_initial or self.last_epoch > self.total_iters:
            return lr
        change = self.end_factor - self.start_factor
        return lr * (1 + change / (self.total_iters * self.start_factor + (self.last_epoch - 1) * change))


class CosineAnnealingLR(LRScheduler):
    """The rate is eta_min + (base - eta_min) (1 + cos(pi step / T_max)) / 2: half a cosine from base, the rate that the group has at first, to eta_min.

    T_max: the step at which the rate is eta_min, a positive int; after it, the rate rises again. step counts the calls of step(), from 0.
    optimizer: the one whose groups get the rate. last_epoch: the number of the last step of a run that goes on; -1: a new one. Loshchilov and
    Hutter, "SGDR: stochastic gradient descent with warm restarts", 2016, without the restarts.

    Raises ValueError for a T_max that is not a positive int; TypeError for an eta_min that is no number and for what is no optimizer; KeyError for a
    last_epoch other than -1 where the groups have no initial_lr.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        positive("CosineAnnealingLR", "T_max", T_max)
        check_numbers("CosineAnnealingLR", eta_min=eta_min)
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def _rate(self, i, step):
        return self.eta_min + (self.base_lrs[i] - self.eta_min) * self._height(step) / 2

    def _height(self, step):
        return 1 + math.cos(math.pi * step / self.T_max)

    def _next(self, i, lr):
        step = self.last_epoch
        if self._is_initial:
            return lr
        if (step - 1) % (2 * self.T_max) == self.T_max:  # the rate before is eta_min, which tells nothing of the height
            return lr + (self.base_lrs[i] - self.eta_min) * (1 - math.cos(math.pi / self.T_max)) / 2
        return self.eta_min + (lr - self.eta_min) * self._height(step) / self._height(step - 1)


class MultiplicativeLR(LambdaScheduler):
    """The rate becomes rate * lr_lambda(step) at each step() but the first, which the constructor makes: the product of all factors so far times base.

    lr_lambda: one function, or a list of one for each group. step counts the calls of step(), from 0. optimizer: the one whose groups get the rate.
    last_epoch: the number of the last step of a run that goes on; -1: a new one.

    Raises ValueError for a list of another length; TypeError for what is no optimizer and for an lr_lambda that is no function; KeyError for a
    last_epoch other than -1 where the groups have no initial_lr.
    """

    def _next(self, i, lr):
        return lr if self._is_initial else lr * self.lr_lambdas[i](self.last_epoch)


class MultiStepLR(LRScheduler):
    """The rate is base * gamma ^ k, where k is the number of milestones that are at most step. base is the rate that the group has at first, and step
    counts the calls of step(), from 0.

    milestones: a list of steps. optimizer: the one whose groups get the rate.
    last_epoch: the number of the last step of a run that goes on; -1: a new one.

    Raises TypeError for milestones that are no list of numbers, a gamma that is no number and for what is no optimizer; KeyError for a last_epoch other
    than -1 where the groups have no initial_lr.
    """

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1) -> None:
        if not isinstance(milestones, Iterable):
            raise TypeError(f"MultiStepLR: milestones are not a list; got {milestones!r}; expected a list of steps")
        milestones = list(Counter(milestones).elements())
        if not all(isinstance(m, numbers.Real) for m in milestones):
            raise TypeError(f"MultiStepLR: milestones are not numbers; got {milestones!r}; expected a list of steps")
        check_numbers("MultiStepLR", gamma=gamma)
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def _rate(self, i, step):
        return self.base_lrs[i] * self.gamma ** sum(n for m, n in Counter(self.milestones).items() if m <= step)

    def _next(self, i, lr):
        return lr * self.gamma ** Counter(self.milestones)[self.last_epoch]


class ConstantLR(LRScheduler):
    """base * factor for total_iters steps, then base: the rate that the group has at first.

    factor: from 0 to 1. optimizer: the one whose groups get the rate. last_epoch: the number of the last step of a run that goes on; -1: a new one.

    Raises ValueError for a factor outside of 0 to 1; TypeError for a factor or total_iters that is no number and for what is no optimizer; KeyError
    for a last_epoch other than -1 where the groups have no initial_lr.
    step() raises ZeroDivisionError at step total_iters where factor is 0.
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        check_numbers("ConstantLR", factor=factor, total_iters=total_iters)
        if not 0 <= factor <= 1:
            raise ValueError(f"ConstantLR: factor is out of range; got {factor}; expected 0 to 1")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _rate(self, i, step):
        return self.base_lrs[i] * (self.factor if step < self.total_iters else 1.0)

    def _next(self, i, lr):
        if self.last_epoch == 0:
            return lr * self.factor
        return lr * (1.0 / self.factor) if self.last_epoch == self.total_iters else lr


class ExponentialLR(LRScheduler):
    """The rate is base * gamma ^ step, where base is the rate that the group has at first and step counts the calls of step(), from 0.

    gamma: a number. optimizer: the one whose groups get the rate. last_epoch: the number of the last step of a run that goes on; -1: a new one.

    Raises TypeError for a gamma that is no number and for what is no optimizer; KeyError for a last_epoch other than -1 where the groups have no
    initial_lr.
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        check_numbers("ExponentialLR", gamma=gamma)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _rate(self, i, step):
        return self.base_lrs[i] * self.gamma**step

    def _next(self, i, lr):
        return lr if self._is_initial else lr * self.gamma


class PolynomialLR(LRScheduler):
    """base * (1 - min(step, total_iters) / total_iters) ^ power: from base, the rate that the group has at first, to 0.

    step counts the calls of step(), from 0. total_iters: how many of them lead to 0, a positive int, of which only the type is checked. power: 1 for a line.
    optimizer: the one whose groups get the rate. last_epoch: the number of the last step of a run that goes on; -1: a new one.

    Raises TypeError for a total_iters or power that is no number and for what is no optimizer; KeyError for a last_epoch other than -1 where the groups
    have no initial_lr.
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        check_numbers("PolynomialLR", total_iters=total_iters, power=power)
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _rate(self, i, step):
        return self.base_lrs[i] * (1 - min(step, self.total_iters) / self.total_iters) ** self.power

    def _next(self, i, lr):
        if self._is_initial or self.last_epoch > self.total_iters:
            return lr
        return lr * ((self.total_iters - self.last_epoch) / (self.total_iters - self.last_epoch + 1)) ** self.power
