"""A multilayer perceptron with layer norms, for tables of features."""
from .. import nn


class MLP(nn.Module):
    """Linear, SiLU, LayerNorm for each hidden size, then Linear.

    Input (.., input_size), output (.., output_size); with output_size 1 the last dim is left out: (..). Weights have the names layers.N and layer_norms.N.
    Mixed precision is the caller's: `with pf.autocast(...)`, or pf.train.Trainer(mixed_precision=True).
    ValueError if a size is not an integer of 1 or more, TypeError if hidden_sizes is not a list or tuple."""

    def __init__(self, input_size, hidden_sizes=(128, 64), output_size=1):
        super().__init__()
        if not isinstance(hidden_sizes, (list, tuple)):
            raise TypeError(f"MLP: hidden_sizes does not fit; got {hidden_sizes!r}; expected a list of integers; hint: hidden_sizes=[{hidden_sizes}]")
        sizes = [input_size, *hidden_sizes, output_size]
        bad = next((s for s in sizes if not isinstance(s, int) or isinstance(s, bool) or s < 1), None)
        if bad is not None:
            raise ValueError(f"MLP: a size does not fit; got {bad!r} in {sizes}; expected integers of 1 or more")
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])])
        self.activation = nn.SiLU()
        self.layer_norms = nn.ModuleList([nn.LayerNorm(size) for size in sizes[1:-1]])

    def forward(self, x):
        for layer, norm in zip(self.layers, self.layer_norms):
            x = norm(self.activation(layer(x)))
        return self.layers[-1](x).squeeze(-1)
