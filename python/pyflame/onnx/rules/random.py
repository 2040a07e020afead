"""Rules of random numbers. Their seeds are PyFlame's: pf.manual_seed."""
import pyflame as pf

from ..table import op
from ..values import dtype_of


def _draw(node, shape, dtype, device):
    if node.op.startswith("RandomNormal"):
        return pf.randn(shape, dtype=dtype, device=device) * node.attr("scale", 1.0) + node.attr("mean", 0.0)
    low, high = node.attr("low", 0.0), node.attr("high", 1.0)
    return pf.rand(shape, dtype=dtype, device=device) * (high - low) + low


@op("RandomNormal", "RandomUniform")
def random(node):
    dtype = dtype_of(node.attr("dtype", 1), str(node))
    return lambda: _draw(node, tuple(node.attr("shape")), dtype, "cpu")


@op("RandomNormalLike", "RandomUniformLike")
def random_like(node):
    to = node.attr("dtype")
    return lambda x: _draw(node, tuple(x.shape), x.dtype if to is None else dtype_of(to, str(node)), x.device)


@op("Bernoulli")
def bernoulli(node):
    to = node.attr("dtype")
    return lambda x: (pf.rand(tuple(x.shape), dtype=pf.float32, device=x.device) < x).to(dtype=x.dtype if to is None else dtype_of(to, str(node)))
