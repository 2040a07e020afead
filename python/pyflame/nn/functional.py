"""The functions behind the layers, under PyTorch's names."""
from .. import _C
from .._C import (  # noqa: F401
    avg_pool2d,
    batch_norm,
    binary_cross_entropy_with_logits,
    conv2d,
    cross_entropy,
    dropout,
    embedding,
    gelu,
    l1_loss,
    layer_norm,
    leaky_relu,
    linear,
    log_softmax,
    max_pool2d,
    mse_loss,
    nll_loss,
    one_hot,
    pad,
    relu,
    rms_norm,
    scaled_dot_product_attention,
    sigmoid,
    silu,
    softmax,
    softplus,
    tanh,
)


def normalize(input, p=2.0, dim=1, eps=1e-12):
    """input / max(its 2-norm along dim, eps)."""
    if p != 2:
        raise NotImplementedError(f"normalize: only p=2 is available; got {p}")
    return input / _C.clamp(_C.sqrt(_C.sum(input * input, dim, True)), min=eps)


def logsigmoid(input):
    """log(sigmoid(input))."""
    return -_C.softplus(-input)
