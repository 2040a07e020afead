"""Averages of a model's weights over training: equal weights (stochastic weight averaging) or exponential ones (EMA).

    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    for x, y in loader:
        ...
        optimizer.step()
        averaged.update_parameters(model)
    update_bn(loader, averaged)  # the statistics of batch norm belong to the weights

Izmailov et al., "Averaging weights leads to wider optima and better generalization", 2018."""
from __future__ import annotations

import copy
import math

from .. import _C
from .._C import Tensor
from .._grad_mode import no_grad
from ..nn import Module
from ..nn.normalization import _BatchNorm
from .lr_scheduler.base import LRScheduler, for_each_group

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from .._annotations import Device
    from ._annotations import Anneal, ForEachGroup
    from .optimizer import Optimizer

    # avg_fn(average, value, num_averaged) and multi_avg_fn(averages, values, num_averaged)
    AverageOne = Callable[[Tensor, Tensor, int], Tensor]
    AverageAll = Callable[[Sequence[Tensor], Sequence[Tensor], int], None]

__all__ = ["AveragedModel", "update_bn", "SWALR", "get_ema_multi_avg_fn", "get_swa_multi_avg_fn", "get_ema_avg_fn", "get_swa_avg_fn"]


def _check_decay(decay):
    if not 0 <= decay <= 1:
        raise ValueError(f"get_ema_avg_fn: decay is out of range; got {decay}; expected 0 to 1")


def get_ema_avg_fn(decay: float = 0.999) -> AverageOne:
    """A function of (average, value, num_averaged) that returns the new average of one tensor: decay average + (1 - decay) value. num_averaged is not used.

    decay: from 0 to 1, a ValueError otherwise. AveragedModel's avg_fn takes the function.
    """
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param, current_param, num_averaged):
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> AverageOne:
    """A function of (average, value, num_averaged) that returns the new average of one tensor: average + (value - average) / (num_averaged + 1), which gives
    all values so far equal weights.

    AveragedModel's avg_fn takes the function. Never raises.
    """

    @no_grad()
    def swa_update(averaged_param, current_param, num_averaged):
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


def _in_place(update):
    @no_grad()
    def update_all(averaged, current, num_averaged):
        for a, c in zip(averaged, current):
            a.copy_(update(a, c, num_averaged))

    return update_all


def get_ema_multi_avg_fn(decay: float = 0.999) -> AverageAll:
    """A function of (averages, values, num_averaged), lists of tensors, that writes decay average + (1 - decay) value over each average. Averages of
    integers are truncated.

    decay: from 0 to 1, a ValueError otherwise. AveragedModel's multi_avg_fn takes the function.
    """
    return _in_place(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> AverageAll:
    """A function of (averages, values, num_averaged), lists of tensors, that writes average + (value - average) / (num_averaged + 1) over each average.
    Averages of integers are truncated.

    AveragedModel's multi_avg_fn takes the function. Never raises.
    """
    return _in_place(get_swa_avg_fn())


class AveragedModel(Module):
    """A copy of a model, `module`, whose parameters are averages of those that update_parameters(model) has seen.

    device: where the averages are kept (default: where the model is). avg_fn(average, value, num_averaged) returns the new average of one tensor;
    multi_avg_fn(averages, values, num_averaged) changes lists in place; the default is equal weights. use_buffers: buffers are averaged too; otherwise
    they are copied from the model. The buffer n_averaged counts the updates.

    Raises TypeError where model is no Module, and ValueError for both functions and for a device that does not exist. update_parameters raises ValueError
    for parameters of other shapes.
    """

    def __init__(self, model: Module, device: Device | None = None, avg_fn: AverageOne | None = None, multi_avg_fn: AverageAll | None = None,
                 use_buffers: bool = False) -> None:
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError("AveragedModel: got avg_fn and multi_avg_fn; expected one of them")
        if not isinstance(model, Module):
            raise TypeError(f"AveragedModel: not a module; got {type(model).__name__}; expected the model whose parameters are averaged")
        super().__init__()
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", _C.tensor(0, dtype=_C.int64, device="cpu" if device is None else device))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _averaged(self, model):
        tensors = list(model.parameters())
        return [t.detach() for t in tensors + (list(model.buffers()) if self.use_buffers else [])]

    def update_parameters(self, model: Module) -> None:
        """Takes the model's parameters into the average. The first ones become the average. Reads n_averaged, which lies on
        the CPU unless `device` says otherwise."""
        count = int(self.n_averaged.item())
        averages = self._averaged(self.module)
        values = [v.to(a.device) for v, a in zip(self._averaged(model), averages)]
        with no_grad():
            if count == 0:
                for a, v in zip(averages, values):
                    a.copy_(v)
            elif self.avg_fn is not None:
                for a, v in zip(averages, values):
                    a.copy_(self.avg_fn(a, v, count))
            else:
                (self.multi_avg_fn or get_swa_multi_avg_fn())(averages, values, count)
            if not self.use_buffers:
                for a, v in zip(self.module.buffers(), model.buffers()):
                    a.detach().copy_(v.detach().to(a.device))
            self.n_averaged.add_(1)
        _C.cut()


def _forget(norm):
    with no_grad():
        for name, value in (("running_mean", 0), ("running_var", 1), ("num_batches_tracked", 0)):
            buffer = getattr(norm, name)
            if buffer is not None:
                buffer.fill_(value)


def update_bn(loader: Iterable[Any], model: Module, device: Device | None = None) -> None:
    """Computes the running statistics of the model's batch norm layers anew, as equal means over the batches of loader. Returns None.

    A batch that is a list or tuple gives its first entry to the model. device: where batches are moved to. The model's mode and its layers' momenta are
    as before afterwards. Without batch norm layers it does nothing. What the model raises for a batch is raised.
    """
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    if not norms:
        return
    momenta, training = [m.momentum for m in norms], model.training
    for m in norms:
        _forget(m)
        m.momentum = None
    model.train()
    try:
        with no_grad():
            for batch in loader:
                x = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(x.to(device) if device is not None and isinstance(x, Tensor) else x)
    finally:
        for m, momentum in zip(norms, momenta):
            m.momentum = momentum
        model.train(training)


class SWALR(LRScheduler):
    """Goes from the rate that a group has to swa_lr within anneal_epochs steps, along half a cosine ('cos') or a line ('linear'), and stays there.

    With a = (1 - cos(pi t)) / 2 or a = t, t = min(step / anneal_epochs, 1): a swa_lr + (1 - a) base.

    optimizer: the one whose groups get the rate. anneal_strategy: 'cos' or 'linear'. last_epoch: the number of the last step of a run that goes on;
    -1: a new one.

    Raises ValueError for an unknown anneal_strategy, a negative anneal_epochs and a swa_lr that does not fit the groups; TypeError for what is no
    optimizer.
    """

    def __init__(self, optimizer: Optimizer, swa_lr: ForEachGroup, anneal_epochs: int = 10, anneal_strategy: Anneal = "cos", last_epoch: int = -1) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"SWALR: unknown anneal_strategy; got '{anneal_strategy}'; expected 'cos' or 'linear'")
        if not (isinstance(anneal_epochs, int) and anneal_epochs >= 0):
            raise ValueError(f"SWALR: anneal_epochs must be an integer that is not negative; got {anneal_epochs}")
        self.anneal_epochs, self._strategy = anneal_epochs, anneal_strategy
        rates = for_each_group("SWALR", "swa_lr", swa_lr, optimizer)
        for g, lr in zip(optimizer.param_groups, rates):
            g["swa_lr"] = lr
        super().__init__(optimizer, last_epoch)

    def _share(self, step):
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def _next(self, i, lr):
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        target, before, now = self.optimizer.param_groups[i]["swa_lr"], self._share(step - 1), self._share(step)
        base = target if before == 1 else (lr - before * target) / (1 - before)
        return now * target + (1 - now) * base
