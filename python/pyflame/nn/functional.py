"""The functions behind the layers, under PyTorch's names."""
from __future__ import annotations

from .. import _C
from .._C import (
    grouped_mm as grouped_mm,
    gelu as gelu,
    layer_norm as layer_norm,
    linear as linear,
    one_hot as one_hot,
    pad as pad,
    rms_norm as rms_norm,
    scaled_dot_product_attention as scaled_dot_product_attention,
    sigmoid as sigmoid,
    softplus as softplus,
    tanh as tanh,
)
from .._error_names import check_dim as _check_dim
from .._error_names import rename as _rename
from .._keywords import accepting as _accepting
from .._keywords import naming as _naming
from .._statistics import pdist as pdist
from ._implicit import softmax_dim as _softmax_dim
from ._losses import binary_cross_entropy as binary_cross_entropy
from ._old_arguments import with_size_average as _with_size_average
from .functional_attention import multi_head_attention_forward as multi_head_attention_forward
from .functional_ctc import ctc_loss as ctc_loss
from .functional_embedding import embedding as embedding, embedding_bag as embedding_bag
from .functional_linear_loss import linear_cross_entropy as linear_cross_entropy
from .functional_scaled import ScalingType as ScalingType, SwizzleType as SwizzleType, scaled_mm as scaled_mm
from .functional_losses import (
    binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
    cosine_embedding_loss as cosine_embedding_loss,
    cross_entropy as cross_entropy,
    gaussian_nll_loss as gaussian_nll_loss,
    hinge_embedding_loss as hinge_embedding_loss,
    l1_loss as l1_loss,
    margin_ranking_loss as margin_ranking_loss,
    mse_loss as mse_loss,
    multi_margin_loss as multi_margin_loss,
    multilabel_margin_loss as multilabel_margin_loss,
    multilabel_soft_margin_loss as multilabel_soft_margin_loss,
    nll_loss as nll_loss,
    pairwise_distance as pairwise_distance,
    poisson_nll_loss as poisson_nll_loss,
    soft_margin_loss as soft_margin_loss,
    triplet_margin_loss as triplet_margin_loss,
    triplet_margin_with_distance_loss as triplet_margin_with_distance_loss,
)
from .functional_losses import reduced as _reduced
from .functional_maps import _result
from .functional_maps import (
    alpha_dropout as alpha_dropout,
    batch_norm as batch_norm,
    bilinear as bilinear,
    channel_shuffle as channel_shuffle,
    dropout1d as dropout1d,
    dropout2d as dropout2d,
    dropout3d as dropout3d,
    feature_alpha_dropout as feature_alpha_dropout,
    gumbel_softmax as gumbel_softmax,
    hardshrink as hardshrink,
    native_channel_shuffle as native_channel_shuffle,
    instance_norm as instance_norm,
    local_response_norm as local_response_norm,
    pixel_shuffle as pixel_shuffle,
    pixel_unshuffle as pixel_unshuffle,
    rrelu as rrelu,
    softshrink as softshrink,
    threshold as threshold,
)
from .functional_adaptive_pools import (
    adaptive_avg_pool1d as adaptive_avg_pool1d,
    adaptive_avg_pool2d as adaptive_avg_pool2d,
    adaptive_avg_pool3d as adaptive_avg_pool3d,
    adaptive_max_pool1d as adaptive_max_pool1d,
    adaptive_max_pool1d_with_indices as adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d as adaptive_max_pool2d,
    adaptive_max_pool2d_with_indices as adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d as adaptive_max_pool3d,
    adaptive_max_pool3d_with_indices as adaptive_max_pool3d_with_indices,
    fractional_max_pool2d as fractional_max_pool2d,
    fractional_max_pool2d_with_indices as fractional_max_pool2d_with_indices,
    fractional_max_pool3d as fractional_max_pool3d,
    fractional_max_pool3d_with_indices as fractional_max_pool3d_with_indices,
    max_unpool1d as max_unpool1d,
    max_unpool2d as max_unpool2d,
    max_unpool3d as max_unpool3d,
)
from .functional_convs import (
    conv1d as conv1d,
    conv2d as conv2d,
    conv3d as conv3d,
    conv_transpose1d as conv_transpose1d,
    conv_transpose2d as conv_transpose2d,
    conv_transpose3d as conv_transpose3d,
    fold as fold,
    unfold as unfold,
)
from .functional_grids import affine_grid as affine_grid, grid_sample as grid_sample
from .functional_pools import (
    avg_pool1d as avg_pool1d,
    avg_pool2d as avg_pool2d,
    avg_pool3d as avg_pool3d,
    lp_pool1d as lp_pool1d,
    lp_pool2d as lp_pool2d,
    lp_pool3d as lp_pool3d,
    max_pool1d as max_pool1d,
    max_pool1d_with_indices as max_pool1d_with_indices,
    max_pool2d as max_pool2d,
    max_pool2d_with_indices as max_pool2d_with_indices,
    max_pool3d as max_pool3d,
    max_pool3d_with_indices as max_pool3d_with_indices,
)
from .resampling import interpolate as interpolate, upsample as upsample, upsample_bilinear as upsample_bilinear, upsample_nearest as upsample_nearest

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from .._C import Tensor
    from .._annotations import DType, Dim
    from ._annotations import Reduction


def _source(input, inplace):
    """What an op reads that then writes over its input: a copy, which the gradient needs."""
    return input.clone() if inplace else input


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0). inplace writes the result over the input and returns that.

    input: of any shape and integer or floating dtype, which the result has. TypeError for bool and complex.
    """
    return input.relu_() if inplace else _C.relu(input)


def relu_(input: Tensor) -> Tensor:
    """relu in place: writes max(x, 0) over the input, of any shape, and returns it.

    TypeError for bool and complex. RuntimeError for a leaf that requires a gradient.
    """
    return input.relu_()


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x) (Elfwing et al., 2017). inplace writes the result over the input and returns that.

    input: of any shape, which the result has. Integers and bools become float32; with inplace they are a RuntimeError.
    """
    return input.silu_() if inplace else _C.silu(input)


def leaky_relu(input: Tensor, negative_slope: Tensor | float = 0.01, inplace: bool = False) -> Tensor:
    """x where x > 0, otherwise negative_slope * x. inplace writes the result over the input and returns that.

    input: of any shape, which the result has. Integers and bools become float32. TypeError for complex.
    """
    x = _source(input, inplace)
    return _result(input, _C.leaky_relu(x, negative_slope), inplace)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes elements with probability p and scales the rest by 1 / (1 - p). Where not training, and for p = 0, it returns the input itself. inplace writes over the input.

    input: of any shape and a floating or complex dtype, which the result has; TypeError for others while training. ArgumentError for p outside of [0, 1].
    """
    if p == 0 or (not training and 0 < p <= 1):
        return input
    return _result(input, _C.dropout(input, p, training), inplace)


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along dim; dtype: what the input is cast to first. Without dim: 0 for 0, 1 or 3 dimensions, otherwise 1, and a warning.

    input: of any shape and a floating dtype, which the result has; TypeError for others, unless dtype is given. IndexError for a dim out of range.
    """
    dim = _softmax_dim("softmax", input, dim, _stacklevel)
    return _C.softmax(input if dtype is None else input.to(dtype), dim)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """log(softmax(x)) = x - log(sum(exp(x))) along dim, which does not overflow where exp(x) does.

    The arguments are those of softmax, and so are shape, dtypes and errors.
    """
    dim = _softmax_dim("log_softmax", input, dim, _stacklevel)
    return _C.log_softmax(input if dtype is None else input.to(dtype), dim)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """softmax(-x) = exp(-x) / sum(exp(-x)) along dim: the smallest element has the largest share.

    The arguments are those of softmax, and so are shape, dtypes and errors.
    """
    try:
        dim = _softmax_dim("softmin", input, dim, _stacklevel)
        return _C.softmax(-(input if dtype is None else input.to(dtype)), dim)
    except Exception as error:
        _rename("softmin", error, (input, dim))
        raise


def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Each sample's groups of channels of [N, C, ...] with mean 0 and variance 1, then times weight [C] plus bias [C].

    num_groups: divides C. input: [N, C, ...]. eps: is added to the variance.

    input is floating. Raises ValueError where num_groups does not divide C, for one dim, and where weight or bias does not broadcast; TypeError for
    another dtype.
    """
    if input.ndim < 2 or num_groups < 1 or input.shape[1] % num_groups:
        raise ValueError(f"group_norm: the groups do not divide the channels; got input {input.shape} and {num_groups} groups; expected (N, C, ...)")
    if input.numel() == 0:
        y = input * 1
    else:
        groups = input.reshape(input.shape[0], num_groups, input.numel() // (input.shape[0] * num_groups))
        y = _C.layer_norm(groups, groups.shape[2:], None, None, eps).reshape(input.shape)
    per_channel = (1, -1) + (1,) * (input.ndim - 2)
    y = y if weight is None else y * weight.view(per_channel)
    return y if bias is None else y + bias.view(per_channel)


@_accepting
def normalize(input: Tensor, p: float = 2.0, dim: Dim = 1, eps: float = 1e-12) -> Tensor:
    """input / max(its p-norm along dim, eps): vectors of length 1; those of zeros stay zeros.

    input: of any shape with the dim, and of a floating or complex dtype, which the result has; integers become float32, and bool is a TypeError. p: the
    order of the norm, (sum |x|^p)^(1/p). dim: a number or several. eps: the smallest divisor. IndexError for a dim out of range, which the default 1 is
    for vectors.
    """
    return input / _C.clamp(input.norm(p, dim, True), min=eps)


@_accepting
def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(input)) = -log(1 + exp(-input)).

    input: of any shape, which the result has. Integers become float32. TypeError for bool and complex.
    """
    return -_C.softplus(-input, 1, 40)  # beyond 40, log(1 + exp(x)) is x in float64, too


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where x > 0, otherwise alpha * (exp(x) - 1), of input x (Clevert et al., 2015). inplace: the result is written to input, which is returned.

    input: of any shape, which the result has. Integers become float32. TypeError for bool and complex.
    """
    try:
        x = _source(input, inplace)
        return _result(input, _C.relu(x) + alpha * _C.expm1(_C.clamp(x, max=0)), inplace)
    except Exception as error:
        _rename("elu", error, (input, alpha))
        raise


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where x > 0, otherwise alpha * (exp(x / alpha) - 1), of input x (Barron, 2017). inplace: the result is written to input, which is returned.

    input: of any shape, which the result has. Integers become float32. TypeError for bool and complex. alpha: not 0 (ArgumentError).
    """
    if isinstance(alpha, (int, float)) and alpha == 0:
        raise _C.ArgumentError(f"celu: alpha is 0; got {alpha}; expected another number; hint: relu() is its limit")
    x = _source(input, inplace)
    return _result(input, _C.relu(x) + alpha * _C.expm1(_C.clamp(x, max=0) / alpha), inplace)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """1.0507 elu(x, 1.6733): elu scaled so that activations keep mean 0 and variance 1 (Klambauer et al., 2017).

    input: of any shape, which the result has. Integers become float32. TypeError for bool and complex. inplace: the result is written to input, which is
    returned.
    """
    try:
        x = _source(input, inplace)
        return _result(input, 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717), inplace)
    except Exception as error:
        _rename("selu", error, (input,))
        raise


def _limited(x, low, high):
    """x limited to [low, high], with gradient 0 at both bounds, where clamp has 1."""
    if not x.is_floating_point():
        return _C.clamp(x, int(low), int(high))
    return _C.where(x <= low, float(low), _C.where(x >= high, float(high), x))


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """input limited to [min_val, max_val]. ValueError where min_val is greater. inplace: the result is written to input, which is returned.

    input: of any shape and an integer or floating dtype, which the result has; the bounds of integers lose their fractions. The gradient at a bound is 0.
    TypeError for complex.
    """
    try:
        if min_val > max_val:
            raise ValueError(f"hardtanh: min_val is greater than max_val; got {min_val} and {max_val}; expected min_val <= max_val")
        x = _source(input, inplace)
        return _result(input, _limited(x, min_val, max_val), inplace)
    except Exception as error:
        _rename("hardtanh", error, (input, min_val, max_val))
        raise


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x, 0), 6). inplace: the result is written to input, which is returned.

    input: of any shape and an integer or floating dtype, which the result has. The gradient at 0 and 6 is 0. TypeError for complex.
    """
    try:
        x = _source(input, inplace)
        return _result(input, _limited(x, 0, 6), inplace)
    except Exception as error:
        _rename("relu6", error, (input,))
        raise


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """x / 6 + 1 / 2, limited to [0, 1].

    input: of any shape, which the result has. Integers and bools become float32. inplace: the result is written to input, which is
    returned.

    Raises TypeError for complex numbers, and RuntimeError where inplace writes to a leaf that requires a gradient.
    """
    try:
        x = _source(input, inplace)
        return _result(input, _limited(x + 3, 0, 6) / 6, inplace)
    except Exception as error:
        _rename("hardsigmoid", error, (input,))
        raise


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * hardsigmoid(x).

    input: of any shape, which the result has. Integers and bools become float32. inplace: the result is written to input, which is
    returned.

    Raises TypeError for complex numbers, and RuntimeError where inplace writes to a leaf that requires a gradient.
    """
    try:
        x = _source(input, inplace)
        return _result(input, x * hardsigmoid(x), inplace)
    except Exception as error:
        _rename("hardswish", error, (input,))
        raise


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x)).

    input: of any shape, which the result has. Integers and bools become float32.
    inplace: the result is written to input, which is returned.

    Raises TypeError for complex numbers, and RuntimeError where inplace writes to a leaf that requires a gradient.
    """
    try:
        x = _source(input, inplace)
        return _result(input, x * _C.tanh(_C.softplus(x)), inplace)
    except Exception as error:
        _rename("mish", error, (input,))
        raise


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|).

    input: of any shape, which the result has. Integers become float32. TypeError for bool.
    """
    try:
        return input / (1 + _C.abs(input))
    except Exception as error:
        _rename("softsign", error, (input,))
        raise


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x).

    input: of any shape, which the result has. Integers and bools become float32.

    Complex numbers are accepted. Raises TypeError for what is no tensor.
    """
    return input - _C.tanh(input)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along dim times the sigmoid of the second (Dauphin et al., 2017).

    input: of any shape with an even size along dim, a ValueError otherwise. The result has half of that size. Integers become float32. IndexError for a dim
    out of range.
    """
    _check_dim("glu", dim, input.ndim)
    if input.ndim == 0 or input.shape[dim] % 2:
        raise ValueError(f"glu: the size along dim {dim} is not even; got shape {input.shape}")
    a, b = _C.chunk(input, 2, dim)
    return a * _C.sigmoid(b)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where x > 0, otherwise weight * x; weight has one number, or one for each channel (dim 1).

    input: of any shape, which the result has, of a real dtype. weight: a tensor of 1 element, or of C. ValueError for another number of elements (He et
    al., 2015).
    """
    if weight.numel() != 1 and (input.ndim < 2 or weight.numel() != input.shape[1]):
        raise ValueError(f"prelu: the weight does not fit; got {weight.numel()} numbers for input {input.shape}; expected 1 or one for each channel")
    weight = weight.view((1, -1) + (1,) * (input.ndim - 2) if input.ndim > 1 else (1,) * input.ndim)
    return _C.where(input > 0, input, weight * input)


def _same_shape(op, input, target):
    if input.shape != target.shape:
        raise ValueError(f"{op}: shapes differ; got {input.shape} and {target.shape}")


def smooth_l1_loss(input: Tensor, target: Tensor, reduction: Reduction = "mean", beta: float = 1.0) -> Tensor:
    """d * d / (2 beta) where d = |input - target| < beta, d - beta / 2 beyond. reduction: 'mean', 'sum' or 'none' (the loss of each element).

    input, target: of one shape, a ValueError otherwise, integers become float32. beta: 0 gives l1_loss. ValueError for a negative beta
    and an unknown reduction. Returns a scalar, or with 'none' the shape of the input.
    """
    _same_shape("smooth_l1_loss", input, target)
    if beta < 0:
        raise ValueError(f"smooth_l1_loss: beta must not be negative; got {beta}")
    if beta == 0:
        return _C.l1_loss(input, target, reduction)
    d = _C.abs(input - target)
    return _reduced("smooth_l1_loss", _C.where(d < beta, d * d * (0.5 / beta), d - 0.5 * beta), reduction)


def huber_loss(input: Tensor, target: Tensor, reduction: Reduction = "mean", delta: float = 1.0, weight: Tensor | None = None) -> Tensor:
    """d * d / 2 where d = |input - target| <= delta, delta * (d - delta / 2) beyond. weight, of the same shape, multiplies each; 'mean' is over all
    elements.

    reduction: 'mean', 'sum' or 'none' (the loss of each element or sample). input, target: of one shape. ValueError for other shapes, delta <= 0 and an
    unknown reduction. Returns a scalar, or with 'none' the shape of the input.
    """
    _same_shape("huber_loss", input, target)
    if delta <= 0:
        raise ValueError(f"huber_loss: delta must be positive; got {delta}")
    if weight is not None and weight.shape != input.shape:
        raise ValueError(f"huber_loss: the weight does not fit; got weight {weight.shape}; expected the input's shape {input.shape}")
    d = _C.abs(input - target)
    loss = _C.where(d <= delta, d * d * 0.5, delta * (d - 0.5 * delta))
    return _reduced("huber_loss", loss if weight is None else loss * weight, reduction)


def kl_div(input: Tensor, target: Tensor, reduction: Literal["none", "mean", "sum", "batchmean"] = "mean", log_target: bool = False) -> Tensor:
    """target * (log(target) - input) for log-probabilities, 0 where the target is 0 and NaN where it is negative; reduction 'batchmean' divides the sum by the first size.

    input, target: of one shape and real dtypes. reduction: 'mean', over all elements, 'sum', 'none', which keeps the shape, or 'batchmean'. log_target: target
    holds logarithms, too: exp(target) * (target - input). ValueError for other shapes and reductions, and for 'batchmean' without a dim.
    """
    _same_shape("kl_div", input, target)
    if reduction not in ("none", "mean", "sum", "batchmean"):
        raise ValueError(f"kl_div: unknown reduction; got '{reduction}'; expected 'none', 'mean', 'sum' or 'batchmean'")
    if reduction == "batchmean" and not input.ndim:
        raise ValueError("kl_div: 'batchmean' divides by the first size, which a single number has not; got shape (); expected [N, ..]; hint: reduction='mean'")
    if log_target:
        loss = _C.exp(target) * (target - input)
    else:
        some = target != 0  # a negative one has no logarithm: NaN
        loss = _C.where(some, target * (_C.log(_C.where(some, target, 1.0)) - input), 0.0)
    if reduction == "batchmean":
        return loss.sum() / input.shape[0]
    return _reduced("kl_div", loss, reduction)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The inner product of x1 and x2, which broadcast, along dim over the product of the 2-norms, each at least eps. dim and norms are those of the common
    shape.

    Returns the common shape without dim: numbers in [-1, 1]. IndexError for a dim out of range.
    """
    x1, x2 = _C.broadcast_tensors(x1, x2)

    def unit(x):
        length = _C.sqrt(_C.clamp(_C.sum(x * x, dim, True), min=2.0**-126))
        short = length.detach()
        return x / _C.where(short < eps, length + (eps - short), length)  # the gradient is that of the norm, also below eps

    return _C.sum(unit(x1) * unit(x2), dim)


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """conv1d of tensors whose time comes first: input [T, B, C], weight [K, C, O], bias [O]; the result is [T + 2 pad - K + 1, B, O].

    The three have one dtype, which the result has. Raises ValueError for shapes that do not fit, a negative pad and a kernel that is longer than the
    padded input; TypeError for dtypes that differ and for a bias of None.
    """
    if input.ndim != 3 or weight.ndim != 3 or input.shape[2] != weight.shape[1] or tuple(bias.shape) != (weight.shape[2],):
        raise ValueError(f"conv_tbc: sizes do not fit; got {tuple(input.shape)}, {tuple(weight.shape)} and {tuple(bias.shape)}; expected [T, B, C], [K, C, O] and [O]")
    return conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(2, 0, 1)


def _in_place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def written(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return function(input, *args, inplace=True, **kwargs)

    name = function.__name__
    written.__name__ = written.__qualname__ = name + "_"
    written.__doc__ = (f"{name} in place: writes the result to input, a tensor of a real dtype, and returns it. args, kwargs: the other arguments of {name}. "
                       f"Raises what {name} raises, such as TypeError for complex numbers, and RuntimeError for a leaf that requires a gradient.")
    return written


celu_, elu_, selu_, hardtanh_, leaky_relu_, rrelu_, threshold_ = map(_in_place, (celu, elu, selu, hardtanh, leaky_relu, rrelu, threshold))

for _loss in (binary_cross_entropy, binary_cross_entropy_with_logits, cosine_embedding_loss, cross_entropy, hinge_embedding_loss, kl_div, l1_loss, margin_ranking_loss, mse_loss,
              multi_margin_loss, multilabel_margin_loss, multilabel_soft_margin_loss, nll_loss, poisson_nll_loss, smooth_l1_loss, soft_margin_loss, triplet_margin_loss):
    globals()[_loss.__name__] = _with_size_average(_loss)
    globals()[_loss.__name__].__module__ = __name__  # a function is pickled by its place

_PRIVATE = frozenset({"_canonical_mask", "_in_projection", "_in_projection_packed", "_none_or_dtype", "_pair", "_single", "_triple", "handle_torch_function", "has_torch_function",
                      "has_torch_function_unary", "has_torch_function_variadic"})


def __getattr__(name):
    if name in _PRIVATE:
        from . import functional_private

        return getattr(functional_private, name)
    from .._misspelt import missing

    raise missing(__name__, name)


# Functions of one or two ops stay as they are: a wrapped call costs a part of theirs. Their errors may begin with the name of such an op.
_SMALL = frozenset("""batch_norm conv1d conv2d cross_entropy dropout embedding leaky_relu log_softmax logsigmoid mse_loss
prelu relu relu_ silu softmax softmin softshrink tanhshrink""".split())
for _function in (elu, hardsigmoid, hardswish, hardtanh, mish, relu6, selu, softsign, threshold):
    _function.names_errors = True  # they name their errors themselves, without one more call
_naming(globals(), ("pyflame.nn", "pyflame._statistics"), _SMALL)
