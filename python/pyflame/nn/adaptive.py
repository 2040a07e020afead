"""The softmax of many classes of which few are frequent."""
from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable

from .. import _C
from .containers import ModuleList, Sequential
from .linear import Linear
from .module import Module

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import NamedTuple

    from .._C import Tensor
    from .._annotations import DType, Device

    class _ASMoutput(NamedTuple):
        output: Tensor
        loss: Tensor

else:
    _ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """log_softmax in two levels (Grave et al., 2017): the frequent classes, before cutoffs[0], and clusters of the others, whose projections are smaller by
    div_value for each next cluster. (input [N, D], target [N]) -> (the log probability of each target, the mean loss).

    in_features: D. n_classes: of all levels. cutoffs: rising numbers from 1 to n_classes - 1, each the first class of a cluster (ValueError). div_value: cluster i, from
    0, has int(D / div_value^(i + 1)) hidden features, at least one (ValueError). head_bias: the linear layer of the frequent classes has a bias; those of the clusters have none.
    """

    def __init__(self, in_features: int, n_classes: int, cutoffs: Iterable[int], div_value: float = 4.0, head_bias: bool = False, device: Device | None = None,
                 dtype: DType | None = None) -> None:
        super().__init__()
        if not isinstance(cutoffs, Iterable) or isinstance(cutoffs, str):
            raise TypeError(f"AdaptiveLogSoftmaxWithLoss: cutoffs are not a list; got {cutoffs!r}; expected rising integers")
        cutoffs = list(cutoffs)
        if not cutoffs or cutoffs != sorted(set(cutoffs)) or cutoffs[0] <= 0 or cutoffs[-1] > n_classes - 1 or any(int(c) != c for c in cutoffs):
            raise ValueError(f"AdaptiveLogSoftmaxWithLoss: cutoffs do not fit; got {cutoffs}; expected rising, different integers between 1 and n_classes - 1")
        self.in_features, self.n_classes, self.cutoffs, self.div_value, self.head_bias = in_features, n_classes, [*cutoffs, n_classes], div_value, head_bias
        where = {"device": device, "dtype": dtype}
        self.shortlist_size, self.n_clusters = cutoffs[0], len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, **where)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            hidden = int(in_features // div_value ** (i + 1))
            if hidden < 1:
                raise ValueError(f"AdaptiveLogSoftmaxWithLoss: cluster {i} has no hidden features; got in_features={in_features} and div_value={div_value}; expected "
                                 f"in_features of at least div_value^{i + 1}; hint: a smaller div_value or fewer cutoffs")
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(Sequential(Linear(in_features, hidden, False, **where), Linear(hidden, size, False, **where)))

    def reset_parameters(self) -> None:
        """Draws the parameters of the head and of both layers of each cluster again, as nn.Linear's reset_parameters does."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def log_prob(self, input: Tensor) -> Tensor:
        """The log probabilities of all classes, input [N, in_features] -> [N, n_classes]: log_softmax of the head for the frequent classes; for a class of a
        cluster that of the cluster plus that within it.
        """
        head = _C.log_softmax(self.head(input), 1)
        parts = [head.narrow(1, 0, self.shortlist_size)]
        for i, tail in enumerate(self.tail):
            parts.append(_C.log_softmax(tail(input), 1) + head.narrow(1, self.shortlist_size + i, 1))
        return _C.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The class with the highest probability of each row, input [N, in_features] -> int64 [N]: log_prob(input).argmax(1)."""
        return self.log_prob(input).argmax(1)

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        single = target_.ndim == 0
        x, target = (input_.unsqueeze(0), target_.unsqueeze(0)) if single else (input_, target_)
        if x.ndim != 2 or target.ndim != 1 or x.shape[0] != target.shape[0]:
            raise RuntimeError(f"AdaptiveLogSoftmaxWithLoss: input and target do not fit; got {tuple(input_.shape)} and {tuple(target_.shape)}; expected (N, D) and (N)")
        output = self.log_prob(x).gather(1, target.unsqueeze(1)).squeeze(1)
        return _ASMoutput(output.squeeze(0) if single else output, -output.mean())
