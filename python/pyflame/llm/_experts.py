"""The feed-forward part of a layer as a mixture of experts (arXiv:1701.06538; Mixtral, arXiv:2401.04088; Qwen2-MoE, Qwen3-MoE).

A router gives each token a probability for each expert. The token's result is the sum of what its few likeliest experts give, each times its probability.
The tokens are sorted by their experts, so that each expert's tokens are rows that follow each other, and one product of groups computes all experts.
The host reads nothing of it: which expert a token has is known on the device only, and shapes do not depend on it."""
from .. import _C
from .._order_statistics import searchsorted
from ._offload import on_device, to_host
from ._packed import PackedWeight


def _grouped(x, weight, ends):
    weight = on_device(weight)
    return weight.grouped(x, ends) if isinstance(weight, PackedWeight) else _C.grouped_mm(x, weight.transpose(1, 2), offs=ends)


class Experts:
    """The experts of one layer. router (count, hidden); weights: gate and up (count, inner, hidden), or both in gate_up (count, 2 inner, hidden); down (count, hidden, inner).

    shared: the weights of the expert that all tokens have, a dict with gate, up and down, and scale (1, hidden), whose product with the token's input decides
    through a sigmoid how much it counts; or None. found: all of these by their names in _layers.py. linear: the function that multiplies with a matrix."""

    def __init__(self, sizes, found, activation, linear):
        of = {part: {name.removeprefix(part): w for name, w in found.items() if name.startswith(part)} for part in ("expert_", "shared_")}
        self.sizes, self.router, self.weights, self.shared, self.activation, self.linear = sizes, found["router"], of["expert_"], of["shared_"] or None, activation, linear
        self.numbers = _C.arange(sizes.count, device=self.router.device)

    def matrices(self):
        """The weights that are worth a place in host memory: all but the router's and the shared expert's scale."""
        return [*self.weights.values(), *(w for name, w in (self.shared or {}).items() if name != "scale")]

    def offload(self):
        """Moves the matrices to host memory."""
        self.weights = {name: to_host(w) for name, w in self.weights.items()}
        self.shared = self.shared and {name: w if name == "scale" else to_host(w) for name, w in self.shared.items()}

    def __call__(self, x):
        """x (tokens, hidden) -> (tokens, hidden), of the same dtype."""
        s, tokens = self.sizes, x.shape[0]
        probabilities = self.linear(x, (self.router, None)).float().softmax(-1)
        share, chosen = probabilities.topk(s.chosen, dim=-1)
        if s.normed:
            share = share / share.sum(-1, keepdim=True)
        expert, order = chosen.reshape(-1).sort(stable=True)
        ends = searchsorted(expert, self.numbers, right=True, out_int32=True)
        y = self._inner(x.index_select(0, order // s.chosen), ends)
        y = _grouped(y, self.weights["down"], ends)
        # Back in the order of the tokens. A token's experts are added in the order of their probabilities.
        y = y.index_select(0, order.argsort()).reshape(tokens, s.chosen, -1)
        y = (y.float() * share.unsqueeze(-1)).sum(1).to(x.dtype)
        return y if self.shared is None else y + self._shared(x)

    def _inner(self, rows, ends):
        act, w = self.activation, self.weights
        if "gate_up" in w:
            gate, up = _grouped(rows, w["gate_up"], ends).split(self.sizes.inner, dim=-1)
        else:
            gate, up = _grouped(rows, w["gate"], ends), _grouped(rows, w["up"], ends)
        return act(gate) * up

    def _shared(self, x):
        w, linear = self.shared, self.linear
        y = linear(self.activation(linear(x, (w["gate"], None))) * linear(x, (w["up"], None)), (w["down"], None))
        return y * linear(x, (w["scale"], None)).sigmoid() if "scale" in w else y
