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


def _one(v):
    return v[0] if isinstance(v, (tuple, list)) and len(v) == 1 else v


def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """1-D cross-correlation. input [N, C, L], weight [O, C / groups, K], bias [O] -> [N, O, L']."""
    return _C.conv1d(input, weight, bias, _one(stride), _one(padding), _one(dilation), groups)


def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    """The maximum of each window of [N, C, L]; stride is kernel_size unless given."""
    step = _one(kernel_size if stride is None else stride)
    y = _C.max_pool2d(input.unsqueeze(-2), (1, _one(kernel_size)), (1, step), (0, _one(padding)), (1, _one(dilation)), ceil_mode, return_indices)
    return tuple(part.squeeze(-2) for part in y) if return_indices else y.squeeze(-2)


def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    """The mean of each window of [N, C, L]; stride is kernel_size unless given."""
    step = _one(kernel_size if stride is None else stride)
    return _C.avg_pool2d(input.unsqueeze(-2), (1, _one(kernel_size)), (1, step), (0, _one(padding)), ceil_mode, count_include_pad).squeeze(-2)


def adaptive_avg_pool2d(input, output_size):
    """The means of windows that cover [N, C, H, W] as evenly as they can: [N, C, *output_size]; None keeps a size."""
    sizes = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size, output_size)
    if len(sizes) != 2:
        raise ValueError(f"adaptive_avg_pool2d: needs one number or two; got {output_size}")
    return _C.adaptive_avg_pool2d(input, tuple(have if want is None else want for want, have in zip(sizes, input.shape[-2:])))


def adaptive_avg_pool1d(input, output_size):
    """The means of windows that cover [N, C, L] as evenly as they can: [N, C, output_size]."""
    return _C.adaptive_avg_pool2d(input.unsqueeze(-2), (1, _one(output_size))).squeeze(-2)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    """Each sample's groups of channels of [N, C, ...] with mean 0 and variance 1, then times weight [C] plus bias [C]."""
    if input.ndim < 2 or num_groups < 1 or input.shape[1] % num_groups:
        raise ValueError(f"group_norm: the groups do not divide the channels; got input {input.shape} and {num_groups} groups; expected (N, C, ...)")
    groups = input.reshape(input.shape[0], num_groups, -1)
    y = _C.layer_norm(groups, groups.shape[2:], None, None, eps).reshape(input.shape)
    per_channel = (1, -1) + (1,) * (input.ndim - 2)
    y = y if weight is None else y * weight.view(per_channel)
    return y if bias is None else y + bias.view(per_channel)


def normalize(input, p=2.0, dim=1, eps=1e-12):
    """input / max(its 2-norm along dim, eps)."""
    if p != 2:
        raise NotImplementedError(f"normalize: only p=2 is available; got {p}")
    return input / _C.clamp(_C.sqrt(_C.sum(input * input, dim, True)), min=eps)


def logsigmoid(input):
    """log(sigmoid(input))."""
    return -_C.softplus(-input)
