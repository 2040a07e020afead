"""Learning-rate schedules. Each step computes the new rate from the rate that the group has, as PyTorch's schedules do. So a rate that is set by
hand is kept, and two schedules of one optimizer multiply. Schedules that are a function of the step alone (LambdaLR, OneCycleLR) set that rate."""
import math
from bisect import bisect_right


class LRScheduler:
    """Sets group['lr'] when it is made and at every step(). Subclasses define get_lr(), which returns one rate for each group.

    Schedules of this module define _rate(group index, step), the rate as a function of the step, and, where the rate follows from the one
    before, _next(group index, lr)."""

    _is_initial = False  # whether the step is the one that the constructor makes

    def __init__(self, optimizer, last_epoch=-1):
        if not hasattr(optimizer, "param_groups"):
            raise TypeError(f"{type(self).__name__}: not an optimizer; got {type(optimizer).__name__}")
        self.optimizer = optimizer
        if last_epoch == -1:
            for g in optimizer.param_groups:
                g.setdefault("initial_lr", g["lr"])  # a second schedule has the same base rate
        for i, g in enumerate(optimizer.param_groups):
            if "initial_lr" not in g:
                raise KeyError(f"{type(self).__name__}: group {i} has no 'initial_lr'; expected one when last_epoch is {last_epoch}")
        self.base_lrs = [g["initial_lr"] for g in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._initial_step()

    def _rate(self, i, step):
        raise NotImplementedError(f"{type(self).__name__}: neither get_lr nor _rate is implemented")

    def _next(self, i, lr):
        return self._rate(i, self.last_epoch)

    def get_lr(self):
        """The rates of the step last_epoch, one per group, from those that the groups have. get_last_lr() returns the current ones."""
        return [self._next(i, g["lr"]) for i, g in enumerate(self.optimizer.param_groups)]

    def _get_closed_form_lr(self):
        return [self._rate(i, self.last_epoch) for i in range(len(self.optimizer.param_groups))]

    def _apply(self, rates):
        for g, lr in zip(self.optimizer.param_groups, rates):
            g["lr"] = lr
        self._last_lr = [g["lr"] for g in self.optimizer.param_groups]

    def _initial_step(self):
        self._step_count, self._is_initial = 0, True
        try:
            self.step()
        finally:
            del self._is_initial

    def _jump(self, epoch):
        """Sets the step, and the rates to those that are a function of it where there is such a function."""
        self.last_epoch = epoch
        closed = type(self)._rate is not LRScheduler._rate
        self._apply(self._get_closed_form_lr() if closed else self.get_lr())

    def step(self, epoch=None):
        """Advances by one step, or to `epoch`; call it after optimizer.step()."""
        self._step_count += 1
        if epoch is not None:
            self._jump(epoch)
            return
        self.last_epoch += 1
        self._apply(self.get_lr())

    def get_last_lr(self):
        """The current learning rates, one per group."""
        return list(self._last_lr)

    def state_dict(self):
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not callable(v)}

    def load_state_dict(self, state_dict):
        self.__dict__.update(state_dict)
        for g, lr in zip(self.optimizer.param_groups, self._last_lr):
            g["lr"] = lr


_LRScheduler = LRScheduler  # the older name


def _positive(owner, name, value):
    if not (isinstance(value, int) and value > 0):
        raise ValueError(f"{owner}: {name} must be a positive integer; got {value}")


class StepLR(LRScheduler):
    """base * gamma ^ (step // step_size)."""

    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1):
        _positive("StepLR", "step_size", step_size)
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def _rate(self, i, step):
        return self.base_lrs[i] * self.gamma ** (step // self.step_size)

    def _next(self, i, lr):
        return lr if self.last_epoch == 0 or self.last_epoch % self.step_size else lr * self.gamma


class CosineAnnealingLR(LRScheduler):
    """eta_min + (base - eta_min) (1 + cos(pi step / T_max)) / 2."""

    def __init__(self, optimizer, T_max, eta_min=0.0, last_epoch=-1):
        _positive("CosineAnnealingLR", "T_max", T_max)
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


class LinearLR(LRScheduler):
    """base times a factor that changes linearly from start_factor to end_factor within total_iters steps."""

    def __init__(self, optimizer, start_factor=1.0 / 3, end_factor=1.0, total_iters=5, last_epoch=-1):
        if not 0 < start_factor <= 1:
            raise ValueError(f"LinearLR: start_factor is out of range; got {start_factor}; expected 0 < start_factor <= 1")
        if not 0 <= end_factor <= 1:
            raise ValueError(f"LinearLR: end_factor is out of range; got {end_factor}; expected 0 to 1")
        _positive("LinearLR", "total_iters", total_iters)
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


class LambdaLR(LRScheduler):
    """base * lr_lambda(step); one function, or one per group."""

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        n = len(optimizer.param_groups)
        self._lambdas = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * n
        if len(self._lambdas) != n:
            raise ValueError(f"LambdaLR: got {len(self._lambdas)} functions; expected {n}, one for each group")
        super().__init__(optimizer, last_epoch)

    def _rate(self, i, step):
        return self.base_lrs[i] * self._lambdas[i](step)

    def state_dict(self):
        return {k: v for k, v in super().state_dict().items() if k != "_lambdas"}


class OneCycleLR(LRScheduler):
    """From max_lr / div_factor up to max_lr, then down to that start divided by final_div_factor; with cycle_momentum the momentum (or
    beta1) changes in the opposite direction."""

    def __init__(self, optimizer, max_lr, total_steps=None, epochs=None, steps_per_epoch=None, pct_start=0.3, anneal_strategy="cos",
                 cycle_momentum=True, base_momentum=0.85, max_momentum=0.95, div_factor=25.0, final_div_factor=1e4, three_phase=False, last_epoch=-1):
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR: the length is missing; expected total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        _positive("OneCycleLR", "total_steps", total_steps)
        if not 0 <= pct_start <= 1:
            raise ValueError(f"OneCycleLR: pct_start is out of range; got {pct_start}; expected 0 to 1")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"OneCycleLR: unknown anneal_strategy; got '{anneal_strategy}'; expected 'cos' or 'linear'")
        n = len(optimizer.param_groups)
        max_lrs = list(max_lr) if isinstance(max_lr, (list, tuple)) else [max_lr] * n
        if len(max_lrs) != n:
            raise ValueError(f"OneCycleLR: got {len(max_lrs)} values of max_lr; expected {n}, one for each group")
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
            for g, lr in zip(optimizer.param_groups, self.initial_lrs):
                g["lr"] = g["initial_lr"] = lr
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
        momenta = {"max_m": self.max_momentum, "base_m": self.base_momentum}
        m = self._between(momenta[phase[3]], momenta[phase[4]], at)
        for g in self.optimizer.param_groups:
            if "betas" in g:
                g["betas"] = (m, *tuple(g["betas"])[1:])
            else:
                g["momentum"] = m


class SequentialLR(LRScheduler):
    """Runs several schedules one after the other: scheduler k + 1 starts at milestones[k], from its own step 0."""

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1):
        if len(schedulers) != len(milestones) + 1:
            raise ValueError(f"SequentialLR: got {len(schedulers)} schedulers and {len(milestones)} milestones; expected one milestone less than schedulers")
        for s in schedulers:
            if s.optimizer is not optimizer:
                raise ValueError("SequentialLR: a scheduler belongs to another optimizer")
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        self.optimizer, self.last_epoch = optimizer, last_epoch + 1
        for g in optimizer.param_groups:
            g["lr"] = g["initial_lr"]
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

    def step(self):
        """Advances by one step; call it after optimizer.step()."""
        self.last_epoch += 1
        k = bisect_right(self._milestones, self.last_epoch)
        s = self._schedulers[k]
        if k and self._milestones[k - 1] == self.last_epoch:
            s._jump(0)
        else:
            s.step()
        self._last_lr = s.get_last_lr()

    def state_dict(self):
        state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_schedulers")}
        return {**state, "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict):
        state = dict(state_dict)
        for s, d in zip(self._schedulers, state.pop("_schedulers")):
            s.load_state_dict(d)
        self.__dict__.update(state)
        for g, lr in zip(self.optimizer.param_groups, self._last_lr):
            g["lr"] = lr
