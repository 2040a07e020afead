"""The base class of learning-rate schedules. Each step computes the new rate from the rate that the group has, as PyTorch's schedules do. So a rate
that is set by hand is kept, and two schedules of one optimizer multiply. Schedules that are a function of the step alone set that rate."""

from __future__ import annotations

import types
from collections.abc import Mapping

from ..._C import Tensor
from ..._grad_mode import no_grad

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._annotations import Factors, State
    from ..optimizer import Optimizer


class LRScheduler:
    """Sets group['lr'] when it is made and at every step(). Subclasses define get_lr(), which returns one rate for each group.

    Schedules of this module define _rate(group index, step), the rate as a function of the step, and, where the rate follows from the one
    before, _next(group index, lr).

    Raises NotImplementedError for a class without get_lr and _rate; TypeError for what is no optimizer and a last_epoch that is no number; KeyError for
    a last_epoch other than -1 where the groups have no initial_lr.
    """

    _is_initial = False  # whether the step is the one that the constructor makes

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        groups_of(type(self).__name__, optimizer)
        check_numbers(type(self).__name__, last_epoch=last_epoch)
        self.optimizer = optimizer
        if last_epoch == -1:
            for g in optimizer.param_groups:
                if "initial_lr" not in g:  # a second schedule has the same base rate
                    g["initial_lr"] = g["lr"].clone() if isinstance(g["lr"], Tensor) else g["lr"]
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

    def get_lr(self) -> list[float | Tensor]:
        """The rates of the step last_epoch, one per group, from those that the groups have. get_last_lr() returns the current ones."""
        return [self._next(i, g["lr"]) for i, g in enumerate(self.optimizer.param_groups)]

    def _get_closed_form_lr(self):
        return [self._rate(i, self.last_epoch) for i in range(len(self.optimizer.param_groups))]

    def _apply(self, rates):
        for g, lr in zip(self.optimizer.param_groups, rates):
            set_rate(g, lr)
        self._last_lr = rates_of(self.optimizer)

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

    def step(self, epoch: int | None = None) -> None:
        """Advances by one step and sets the learning rates; call it after optimizer.step(). epoch: the step to go to instead; None: the next one."""
        self._step_count += 1
        if epoch is not None:
            self._jump(epoch)
            return
        self.last_epoch += 1
        self._apply(self.get_lr())

    def get_last_lr(self) -> list[float | Tensor]:
        """The learning rates that the last step() set, a list of one number per parameter group, or a tensor where the group's rate is one."""
        return list(self._last_lr)

    def state_dict(self) -> State:
        """The state of the scheduler as a dict for load_state_dict(): all attributes but the optimizer and functions."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not callable(v)}

    def load_state_dict(self, state_dict: State) -> None:
        """Continues from there. The rates themselves are in the optimizer's state, which is loaded apart. ValueError for what is no state of a scheduler."""
        check_state(type(self).__name__, state_dict, "last_epoch")
        self.__dict__.update(state_dict)


_LRScheduler = LRScheduler  # the older name


class LambdaScheduler(LRScheduler):
    """A schedule of lr_lambda: one function, or one per group. Its state has the attributes of the objects among them, and None for functions."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Factors, last_epoch: int = -1) -> None:
        n = len(groups_of(type(self).__name__, optimizer))
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * n
        if len(self.lr_lambdas) != n:
            raise ValueError(f"{type(self).__name__}: got {len(self.lr_lambdas)} functions; expected {n}, one for each group")
        for f in self.lr_lambdas:
            if not callable(f):
                raise TypeError(f"{type(self).__name__}: lr_lambda is not a function; got {f!r}; expected a function of the step that returns a factor, or a list of them")
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> State:
        return {**super().state_dict(), "lr_lambdas": [attributes_of(f) for f in self.lr_lambdas]}

    def load_state_dict(self, state_dict: State) -> None:
        check_state(type(self).__name__, state_dict, "last_epoch")
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for f, attributes in zip(self.lr_lambdas, state_dict.get("lr_lambdas", ())):
            if attributes:
                vars(f).update(attributes)


def set_rate(group, lr):
    """Sets a group's rate. One that is a tensor stays that tensor, which may be the rate of other groups as well."""
    if isinstance(group["lr"], Tensor):
        with no_grad():
            group["lr"].fill_(lr)
    else:
        group["lr"] = lr


def rates_of(optimizer):
    """The rates of all groups, which later steps do not change."""
    return [g["lr"].clone() if isinstance(g["lr"], Tensor) else g["lr"] for g in optimizer.param_groups]


def attributes_of(function):
    """What a state keeps of a function that was given: a copy of its attributes if it is an object that can be called, otherwise None."""
    return None if function is None or isinstance(function, types.FunctionType) else dict(getattr(function, "__dict__", ())) or None


def positive(owner, name, value):
    if not (isinstance(value, int) and value > 0):
        raise ValueError(f"{owner}: {name} must be a positive integer; got {value}")


def check_numbers(owner, **values):
    """TypeError for an argument that is no number. A list has to be one of numbers. A tensor and a NumPy array of one element are numbers."""
    for name, value in values.items():
        for v in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(v, (str, bytes)) or not hasattr(v, "__float__"):
                raise TypeError(f"{owner}: {name} is not a number; got {v!r}")


def check_state(owner, state, key):
    """ValueError for a state that is no dict or lacks an entry that each state of this kind has."""
    if not isinstance(state, Mapping) or key not in state:
        got = f"a dict with {', '.join(map(repr, list(state)[:3])) or 'no entries'}" if isinstance(state, Mapping) else type(state).__name__
        raise ValueError(f"{owner}.load_state_dict: not a scheduler's state; got {got}; expected a dict with '{key}', which state_dict() returns")


def groups_of(owner, optimizer):
    """The groups of an optimizer. TypeError for an object without them."""
    if not hasattr(optimizer, "param_groups"):
        raise TypeError(f"{owner}: not an optimizer; got {type(optimizer).__name__}")
    return optimizer.param_groups


def for_each_group(owner, name, value, optimizer):
    """The values of an argument that is one number for all groups, or a list with one for each. TypeError for what is no number."""
    n = len(groups_of(owner, optimizer))
    values = list(value) if isinstance(value, (list, tuple)) else [value] * n
    if len(values) != n:
        raise ValueError(f"{owner}: got {len(values)} values of {name}; expected {n}, one for each group")
    check_numbers(owner, **{name: values})
    return values
