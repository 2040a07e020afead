"""Stochastic gradient descent."""
from __future__ import annotations

from .. import _C
from .optimizer import Optimizer, _is_number

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from ._annotations import Rate
    from .optimizer import ParamsT


class SGD(Optimizer):
    """Stochastic gradient descent with momentum (Nesterov's if asked), dampening and weight decay:

    g += wd p; b = momentum b + (1 - dampening) g; p -= lr (g + momentum b if nesterov else b). The first b is g.

    Nesterov's form is that of Sutskever et al., "On the importance of initialization and momentum in deep learning", 2013.
    foreach and fused are accepted and change nothing: a step is always one fused update.

    params: tensors, or dicts of groups with values of their own. maximize: the update goes up. weight_decay: the wd of the formula.

    Raises ValueError for no parameters, a parameter that appears twice or is not a leaf, a negative lr, momentum or weight_decay, and nesterov
    without a momentum or with dampening; TypeError for params that are one tensor or not all tensors, and for an option that is no number;
    NotImplementedError for differentiable=True.
    """

    def __init__(self, params: ParamsT, lr: Rate = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float = 0, nesterov: bool = False, *,
                 maximize: bool = False, foreach: bool | None = None, differentiable: bool = False, fused: bool | None = None) -> None:
        if not _is_number(momentum) or not _is_number(dampening):
            raise TypeError(f"SGD: momentum and dampening must be numbers; got {momentum!r} and {dampening!r}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError(f"SGD: nesterov needs a momentum and no dampening; got momentum {momentum}, dampening {dampening}")
        super().__init__(params, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov,
                                      maximize=maximize, foreach=foreach, differentiable=differentiable, fused=fused))

    def _update(self, group):
        _C._sgd_group(group["params"], self.state, float(group["lr"]), group["momentum"], group["dampening"], group["weight_decay"],
                      group["nesterov"], group["maximize"])
