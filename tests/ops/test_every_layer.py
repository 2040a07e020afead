"""Every layer, every function of nn and every op on a device that is not the current one: results and gradients lie there and are those of the CPU.
The two are the CPU and the GPU that PYFLAME_TEST_DEVICE names, otherwise the CPU and 'reference'."""
import ast
import inspect
import os
import pathlib

import numpy as np
import pytest

import pyflame as pf
import pyflame.nn as nn
import pyflame.nn.functional as F
from pyflame.testing import harness
from pyflame.testing.cases import all_cases

DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")
OTHER = DEVICE if DEVICE != "cpu" else "reference"
PAIRS = [("cpu", OTHER), (OTHER, "cpu")]
PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python" / "pyflame"


@pytest.fixture(params=PAIRS, ids=lambda pair: f"{pair[1]}-under-{pair[0]}")
def other(request):
    """A device, while another one is the current one."""
    before = pf.get_device()
    pf.set_device(request.param[0])
    yield str(pf.zeros(1, device=request.param[1]).device)
    pf.set_device(before)


def numbers(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def below(n, *shape):
    return np.random.default_rng(n).integers(0, n, shape)


def truths(*shape):
    return np.random.default_rng(3).random(shape) < 0.5


def chances(*shape):
    return np.random.default_rng(4).random(shape, np.float32)


SIGNS = np.where(np.arange(24).reshape(4, 6) % 3, 1, -1).astype(np.float32)
X, IMAGE, ROW, VOLUME = numbers(4, 6), numbers(2, 4, 6, 5), numbers(2, 4, 9), numbers(2, 4, 4, 5, 6)
SERIES = numbers(4, 5, 6)
BASES = {"RNNBase", "RNNCellBase", "ParameterList", "ParameterDict", "DataParallel"}  # for or around layers, not layers
Q, KV = numbers(2, 3, 8), numbers(2, 5, 8)


def attention(**settings):
    return lambda layer, q, k, v, **masks: layer(q, k, v, **settings, **masks)


def call(layer, *inputs):
    return layer(*inputs)


def recurrent(layer, *inputs):
    y, state = layer(*inputs)
    return [y, *(state if isinstance(state, tuple) else (state,))]


def recurrent_layers(device):
    """Layers over sequences, their cells, and Transformers."""
    yield "RNN", nn.RNN(6, 3, 2, nonlinearity="relu", bidirectional=True, device=device), [SERIES], recurrent
    yield "LSTM", nn.LSTM(6, 4, 2, bidirectional=True, proj_size=2, device=device), [SERIES], recurrent
    yield "LSTM", nn.LSTM(6, 4, batch_first=True, bias=False, device=device), [SERIES], lambda layer, x: recurrent(
        layer, nn.utils.rnn.pack_padded_sequence(x, [2, 5, 3, 5], True, enforce_sorted=False))[1:]
    yield "GRU", nn.GRU(6, 3, 2, device=device), [SERIES], recurrent
    yield "RNNCell", nn.RNNCell(6, 3, device=device), [X], call
    yield "LSTMCell", nn.LSTMCell(6, 3, device=device), [X], call
    yield "GRUCell", nn.GRUCell(6, 3, device=device), [X, numbers(4, 3)], call
    yield "Embedding", nn.Embedding(7, 3, max_norm=1.0, scale_grad_by_freq=True, device=device), [below(7, 2, 5)], call
    for mode in ("sum", "mean", "max"):
        yield "EmbeddingBag", nn.EmbeddingBag(7, 3, mode=mode, padding_idx=1, device=device), [below(7, 9), np.array([0, 2, 2, 5])], call
    yield "SyncBatchNorm", nn.SyncBatchNorm(4, device=device), [IMAGE], call
    yield "Softmax2d", nn.Softmax2d(), [IMAGE], call
    yield "Bilinear", nn.Bilinear(6, 5, 3, device=device), [X, chances(4, 5)], call
    yield "AdaptiveLogSoftmaxWithLoss", nn.AdaptiveLogSoftmaxWithLoss(6, 9, [3, 6], 1.5, device=device), [X, below(9, 4)], lambda layer, *xs: list(layer(*xs))
    yield "CTCLoss", nn.CTCLoss(), [numbers(5, 4, 6), below(5, 4, 2) + 1], lambda layer, x, labels: layer(F.log_softmax(x, 2), labels, [5, 4, 5, 3], [2, 1, 0, 2])
    where = {"dim_feedforward": 6, "dropout": 0.0, "batch_first": True, "device": device}
    encoder, decoder = nn.TransformerEncoderLayer(8, 2, activation="gelu", **where), nn.TransformerDecoderLayer(8, 2, norm_first=True, **where)
    yield "TransformerEncoderLayer", encoder, [Q], call
    yield "TransformerDecoderLayer", decoder, [Q, KV], call
    yield "TransformerEncoder", nn.TransformerEncoder(encoder, 2), [Q, truths(2, 3) & (np.arange(3) > 0)], lambda layer, x, hidden: layer(x, src_key_padding_mask=hidden)
    yield "TransformerDecoder", nn.TransformerDecoder(decoder, 1, nn.LayerNorm(8, device=device)), [Q, KV], call
    yield "Transformer", nn.Transformer(8, 2, 1, 1, **where), [KV, Q], call
    everything = nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True, kdim=6, vdim=6, device=device)
    yield "MultiheadAttention", everything, [Q[0], X, X], call


def layers(device):
    """(name, layer, inputs, how it is called). What has no parameters takes no device."""
    plain = ["Identity", "ReLU", "GELU", "SiLU", "Sigmoid", "Tanh", "Softplus", "LeakyReLU", "Softmax", "LogSoftmax", "Flatten", "Dropout", "ELU", "CELU", "SELU",
             "ReLU6", "Hardtanh", "Hardsigmoid", "Hardswish", "Mish", "Softsign", "Tanhshrink", "LogSigmoid", "Softmin", "GLU", "Hardshrink", "Softshrink", "RReLU", "AlphaDropout"]
    yield from ((name, getattr(nn, name)(), [X], call) for name in plain)
    yield "Unflatten", nn.Unflatten(1, (2, 3)), [X], call
    yield "Threshold", nn.Threshold(0.1, 2.0), [X], call
    yield "Dropout1d", nn.Dropout1d(), [ROW], call
    yield "Dropout2d", nn.Dropout2d(), [IMAGE], call
    yield "Dropout3d", nn.Dropout3d(), [IMAGE], call
    yield "FeatureAlphaDropout", nn.FeatureAlphaDropout(), [IMAGE], call
    yield "PixelShuffle", nn.PixelShuffle(2), [IMAGE], call
    yield "PixelUnshuffle", nn.PixelUnshuffle(3), [numbers(2, 6, 3)], call
    yield "ChannelShuffle", nn.ChannelShuffle(2), [IMAGE], call
    yield "LocalResponseNorm", nn.LocalResponseNorm(3), [IMAGE], call
    yield "CrossMapLRN2d", nn.CrossMapLRN2d(3), [IMAGE], call
    yield "CosineSimilarity", nn.CosineSimilarity(), [X, chances(4, 6)], call
    yield "PairwiseDistance", nn.PairwiseDistance(3), [X, chances(4, 6)], call
    yield "PReLU", nn.PReLU(6, device=device), [X], call
    yield "Linear", nn.Linear(6, 3, device=device), [X], call
    yield "BatchNorm1d", nn.BatchNorm1d(4, device=device), [ROW], call
    yield "BatchNorm1d", nn.BatchNorm1d(4, momentum=None, device=device), [ROW], call
    yield "BatchNorm2d", nn.BatchNorm2d(4, device=device), [IMAGE], call
    yield "BatchNorm3d", nn.BatchNorm3d(4, device=device), [IMAGE[..., None] * np.ones(2, np.float32)], call
    yield "InstanceNorm1d", nn.InstanceNorm1d(4, affine=True, track_running_stats=True, device=device), [ROW], call
    yield "InstanceNorm2d", nn.InstanceNorm2d(4, device=device), [IMAGE], call
    yield "InstanceNorm3d", nn.InstanceNorm3d(4, device=device), [IMAGE[..., None] * np.ones(2, np.float32)], call
    yield "Upsample", nn.Upsample(scale_factor=1.7, mode="bicubic"), [IMAGE], call
    yield "UpsamplingNearest2d", nn.UpsamplingNearest2d((3, 9)), [IMAGE], call
    yield "UpsamplingBilinear2d", nn.UpsamplingBilinear2d(scale_factor=2), [IMAGE], call
    yield "GroupNorm", nn.GroupNorm(2, 4, device=device), [IMAGE], call
    yield "LayerNorm", nn.LayerNorm(6, device=device), [X], call
    yield "RMSNorm", nn.RMSNorm(6, device=device), [X], call
    yield "Embedding", nn.Embedding(7, 3, padding_idx=2, device=device), [below(7, 2, 5)], call
    yield "Conv1d", nn.Conv1d(4, 2, 3, padding=2, padding_mode="circular", device=device), [ROW], call
    yield "Conv2d", nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2, device=device), [IMAGE], call
    yield "Conv3d", nn.Conv3d(4, 2, 3, padding="same", padding_mode="replicate", device=device), [VOLUME], call
    yield "ConvTranspose1d", nn.ConvTranspose1d(4, 2, 3, stride=2, device=device), [ROW], lambda layer, x: layer(x, output_size=(20,))
    yield "ConvTranspose3d", nn.ConvTranspose3d(4, 2, 2, stride=2, device=device), [VOLUME], call
    yield "Unfold", nn.Unfold(2, padding=1), [IMAGE], call
    yield "Fold", nn.Fold((6, 5), 2, stride=(2, 1)), [numbers(2, 8, 12)], call
    for kind in ("Zero", "Reflection", "Replication", "Circular"):
        yield from ((f"{kind}Pad{d}d", getattr(nn, f"{kind}Pad{d}d")(1), [x], call) for d, x in ((1, ROW), (2, IMAGE), (3, VOLUME)))
    yield from ((f"ConstantPad{d}d", getattr(nn, f"ConstantPad{d}d")(1, 2.0), [x], call) for d, x in ((1, ROW), (2, IMAGE), (3, VOLUME)))
    yield "ConvTranspose2d", nn.ConvTranspose2d(4, 2, 3, stride=2, output_padding=1, device=device), [IMAGE], call
    yield "MaxPool1d", nn.MaxPool1d(3, return_indices=True), [ROW], call
    yield "MaxPool2d", nn.MaxPool2d(2, padding=1), [IMAGE], call
    yield "AvgPool1d", nn.AvgPool1d(2), [ROW], call
    yield "AvgPool2d", nn.AvgPool2d(3, padding=1, count_include_pad=False), [IMAGE], call
    yield "MaxPool3d", nn.MaxPool3d(2, padding=1, return_indices=True), [VOLUME], call
    yield "AvgPool3d", nn.AvgPool3d(2, ceil_mode=True, divisor_override=3), [VOLUME], call
    yield "AdaptiveAvgPool3d", nn.AdaptiveAvgPool3d((2, None, 3)), [VOLUME], call
    for d, x in ((1, ROW), (2, IMAGE), (3, VOLUME)):
        yield f"AdaptiveMaxPool{d}d", getattr(nn, f"AdaptiveMaxPool{d}d")(2, return_indices=True), [x], call
        yield f"LPPool{d}d", getattr(nn, f"LPPool{d}d")(3, 2), [np.abs(x)], call
        yield f"MaxUnpool{d}d", getattr(nn, f"MaxUnpool{d}d")(2), [x], lambda layer, x, f=getattr(F, f"max_pool{d}d"): layer(*f(x, 2, return_indices=True), output_size=x.shape)
    for d, x in ((2, IMAGE), (3, VOLUME)):
        sample = pf.tensor(chances(2, 4, d), device=device)
        yield f"FractionalMaxPool{d}d", getattr(nn, f"FractionalMaxPool{d}d")(2, output_ratio=0.6, _random_samples=sample), [x], call
    yield "AdaptiveAvgPool1d", nn.AdaptiveAvgPool1d(2), [ROW], call
    yield "AdaptiveAvgPool2d", nn.AdaptiveAvgPool2d((4, None)), [IMAGE], call
    for weights in (True, False):
        mha = nn.MultiheadAttention(8, 2, batch_first=True, device=device)
        yield "MultiheadAttention", mha, [Q, KV, KV], attention(need_weights=weights)
        yield "MultiheadAttention", mha, [KV, KV, KV], attention(need_weights=weights, is_causal=True)
        yield "MultiheadAttention", mha, [Q, KV, KV, truths(3, 5) & (np.arange(5) > 0)], lambda layer, q, k, v, hidden, w=weights: layer(q, k, v, attn_mask=hidden, need_weights=w)
        yield "MultiheadAttention", mha, [KV, KV, KV, np.arange(5) > np.array([[4], [2]])], lambda layer, q, k, v, hidden, w=weights: layer(
            q, k, v, key_padding_mask=hidden, is_causal=True, need_weights=w)
    yield from recurrent_layers(device)
    weight = pf.tensor(chances(6), device=device)
    yield "MSELoss", nn.MSELoss(), [X, numbers(4, 6)], call
    yield "L1Loss", nn.L1Loss("sum"), [X, chances(4, 6)], call
    yield "SmoothL1Loss", nn.SmoothL1Loss(), [X, chances(4, 6)], call
    yield "HuberLoss", nn.HuberLoss("none"), [X, chances(4, 6)], call
    yield "KLDivLoss", nn.KLDivLoss("batchmean"), [X, chances(4, 6)], call
    yield "LinearCrossEntropyLoss", nn.LinearCrossEntropyLoss(6, 9, bias=True, device=device, label_smoothing=0.1), [X, below(9, 4)], call
    yield "CrossEntropyLoss", nn.CrossEntropyLoss(weight, ignore_index=2, label_smoothing=0.1), [X, below(6, 4)], call
    yield "NLLLoss", nn.NLLLoss(weight), [X, below(6, 4)], call
    yield "NLLLoss2d", nn.NLLLoss2d(weight), [X, below(6, 4)], call
    yield "BCEWithLogitsLoss", nn.BCEWithLogitsLoss(weight, pos_weight=weight), [X, chances(4, 6)], call
    yield "BCELoss", nn.BCELoss(weight), [chances(4, 6), chances(4, 6)], call
    yield "MarginRankingLoss", nn.MarginRankingLoss(0.1), [X, chances(4, 6), SIGNS], call
    yield "HingeEmbeddingLoss", nn.HingeEmbeddingLoss(), [X, SIGNS], call
    yield "CosineEmbeddingLoss", nn.CosineEmbeddingLoss(), [X, chances(4, 6), SIGNS[:, 0].copy()], call
    yield "SoftMarginLoss", nn.SoftMarginLoss(), [X, SIGNS], call
    yield "MultiLabelSoftMarginLoss", nn.MultiLabelSoftMarginLoss(weight), [X, (SIGNS > 0).astype(np.float32)], call
    yield "MultiMarginLoss", nn.MultiMarginLoss(p=2, weight=weight), [X, below(6, 4)], call
    yield "MultiLabelMarginLoss", nn.MultiLabelMarginLoss(), [X, below(6, 4, 6) - (np.arange(6) > 2) * 7], call
    yield "PoissonNLLLoss", nn.PoissonNLLLoss(full=True), [X, below(6, 4, 6).astype(np.float32)], call
    yield "GaussianNLLLoss", nn.GaussianNLLLoss(full=True), [X, chances(4, 6), chances(4, 6) + 1], call
    yield "TripletMarginLoss", nn.TripletMarginLoss(swap=True), [X, chances(4, 6), X[::-1].copy()], call
    yield "TripletMarginWithDistanceLoss", nn.TripletMarginWithDistanceLoss(), [X, chances(4, 6), X[::-1].copy()], call
    yield "Sequential", nn.Sequential(nn.Linear(6, 3, device=device), nn.Tanh()), [X], call
    yield "ModuleList", nn.ModuleList([nn.Linear(6, 3, device=device)]), [X], lambda layer, x: layer[0](x)
    yield "ModuleDict", nn.ModuleDict({"a": nn.Linear(6, 3, device=device)}), [X], lambda layer, x: layer["a"](x)


def functions():
    """(name, the call, inputs) for each public function of nn.functional."""
    one = ["relu", "gelu", "silu", "sigmoid", "tanh", "softplus", "leaky_relu", "softmax", "log_softmax", "elu", "celu", "selu", "relu6", "hardtanh", "hardsigmoid",
           "hardswish", "mish", "softsign", "tanhshrink", "logsigmoid", "softmin", "glu", "normalize", "dropout", "hardshrink", "softshrink", "rrelu", "alpha_dropout"]
    yield from ((name, lambda x, f=getattr(F, name): f(x, dim=-1) if "softm" in f.__name__ or "log_softmax" == f.__name__ else f(x), [X]) for name in one)
    yield from ((name, getattr(F, name), [X, chances(4, 6)]) for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "binary_cross_entropy_with_logits"))
    yield "binary_cross_entropy", F.binary_cross_entropy, [chances(4, 6), chances(4, 6)]
    yield "relu_", lambda x: F.relu_(x * 1), [X]
    yield from (("interpolate", lambda x, m=mode: F.interpolate(x, (9, 4), mode=m), [IMAGE]) for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area"))
    yield from ((name, lambda x, f=getattr(F, name): f(x, scale_factor=2), [IMAGE]) for name in ("upsample", "upsample_nearest", "upsample_bilinear"))
    yield "threshold", lambda x: F.threshold(x, 0.1, 2.0), [X]
    yield from ((name, getattr(F, name), [IMAGE if name != "dropout1d" else ROW]) for name in ("dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout", "instance_norm"))
    yield "pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), [IMAGE]
    yield "pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 3), [numbers(2, 6, 3)]
    yield "channel_shuffle", lambda x: F.channel_shuffle(x, 2), [IMAGE]
    yield "native_channel_shuffle", lambda x: F.native_channel_shuffle(x, 2), [IMAGE]
    yield "local_response_norm", lambda x: F.local_response_norm(x, 3), [IMAGE]
    yield "bilinear", F.bilinear, [X, chances(4, 5), numbers(3, 6, 5), numbers(3)]
    yield "pairwise_distance", F.pairwise_distance, [X, chances(4, 6)]
    yield from ((name, getattr(F, name), [X, SIGNS]) for name in ("hinge_embedding_loss", "soft_margin_loss", "multilabel_soft_margin_loss"))
    yield "margin_ranking_loss", F.margin_ranking_loss, [X, chances(4, 6), SIGNS]
    yield "cosine_embedding_loss", F.cosine_embedding_loss, [X, chances(4, 6), SIGNS[:, 0].copy()]
    yield "multi_margin_loss", F.multi_margin_loss, [X, below(6, 4)]
    yield "multilabel_margin_loss", F.multilabel_margin_loss, [X, below(6, 4, 6) - (np.arange(6) > 2) * 7]
    yield "poisson_nll_loss", lambda x, y: F.poisson_nll_loss(x, y, full=True), [X, chances(4, 6) * 9]
    yield "gaussian_nll_loss", F.gaussian_nll_loss, [X, chances(4, 6), chances(4, 6) + 1]
    yield "triplet_margin_loss", F.triplet_margin_loss, [X, chances(4, 6), X[::-1].copy()]
    yield "triplet_margin_with_distance_loss", F.triplet_margin_with_distance_loss, [X, chances(4, 6), X[::-1].copy()]
    yield "embedding_bag", lambda i, w: F.embedding_bag(i, w, scale_grad_by_freq=True), [below(4, 5, 3), X]
    yield "gumbel_softmax", lambda x: F.gumbel_softmax(x, 0.7), [X]
    yield from ((name, lambda x, f=getattr(F, name): f(x * 1), [X]) for name in ("celu_", "elu_", "selu_", "hardtanh_", "leaky_relu_", "rrelu_"))
    yield "threshold_", lambda x: F.threshold_(x * 1, 0.1, 2.0), [X]
    yield "ctc_loss", lambda x, labels: F.ctc_loss(F.log_softmax(x, 2), labels, [5, 4, 5, 3], [2, 1, 0, 2]), [numbers(5, 4, 6), below(5, 4, 2) + 1]
    yield "multi_head_attention_forward", lambda x, w, o: F.multi_head_attention_forward(x, x, x, 8, 2, w, None, None, None, True, 0.0, o, None), [
        numbers(3, 2, 8), numbers(24, 8), numbers(8, 8)]
    yield "linear", F.linear, [X, numbers(3, 6), numbers(3)]
    yield "prelu", F.prelu, [X, numbers(6)]
    yield "cosine_similarity", F.cosine_similarity, [X, numbers(4, 1)]
    yield "cross_entropy", F.cross_entropy, [X, below(6, 4)]
    ends = np.array([2, 2, 9], np.int32)
    yield "grouped_mm", lambda x, w, offs: F.grouped_mm(x, w, offs=offs), [numbers(9, 6), numbers(3, 6, 4), ends]
    scale, whole = np.float32(0.5), F.ScalingType.TensorWise
    yield "scaled_mm", lambda a, b, s, t: F.scaled_mm(*(z.detach().to(pf.float8_e4m3fn) for z in (a, b)), s.detach(), whole, t.detach(), whole, output_dtype=pf.float32), [numbers(9, 16), numbers(16, 32), scale, scale]
    yield "linear_cross_entropy", F.linear_cross_entropy, [X, numbers(9, 6), below(9, 4)]
    yield "pdist", F.pdist, [X]
    yield "nll_loss", F.nll_loss, [X, below(6, 4)]
    yield "one_hot", lambda x: F.one_hot(x, 7), [below(7, 5)]
    yield "embedding", F.embedding, [below(4, 5), X]
    yield "layer_norm", lambda x: F.layer_norm(x, (6,)), [X]
    yield "rms_norm", lambda x: F.rms_norm(x, (6,)), [X]
    yield "group_norm", lambda x: F.group_norm(x, 2), [IMAGE]
    yield "batch_norm", lambda x: F.batch_norm(x, None, None, training=True), [IMAGE]
    yield from (("pad", lambda x, m=mode: F.pad(x, (1, -1, 2, 0), m), [IMAGE]) for mode in ("constant", "reflect", "replicate", "circular"))
    yield "conv_tbc", lambda x, w, b: F.conv_tbc(x, w, b, 1), [numbers(9, 2, 4), numbers(3, 4, 2), numbers(2)]
    yield "conv1d", lambda x, w: F.conv1d(x, w, padding=1), [ROW, numbers(2, 4, 3)]
    yield "conv2d", lambda x, w: F.conv2d(x, w, stride=2), [IMAGE, numbers(2, 4, 3, 3)]
    yield "conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, stride=2), [IMAGE, numbers(4, 2, 3, 3)]
    yield "max_pool1d", lambda x: F.max_pool1d(x, 3), [ROW]
    yield "avg_pool1d", lambda x: F.avg_pool1d(x, 3), [ROW]
    yield "max_pool2d", lambda x: F.max_pool2d(x, 3), [IMAGE]
    yield "avg_pool2d", lambda x: F.avg_pool2d(x, 3), [IMAGE]
    yield "adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 4), [ROW]
    yield "adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (2, 3)), [IMAGE]
    yield "conv3d", lambda x, w: F.conv3d(x, w, stride=2), [VOLUME, numbers(2, 4, 3, 3, 3)]
    yield "conv_transpose1d", F.conv_transpose1d, [ROW, numbers(4, 2, 3)]
    yield "conv_transpose3d", F.conv_transpose3d, [VOLUME, numbers(4, 2, 2, 3, 2)]
    yield "unfold", lambda x: F.unfold(x, 2), [IMAGE]
    yield "fold", lambda x: F.fold(x, (6, 5), 2, stride=(2, 1)), [numbers(2, 8, 12)]
    yield "max_pool3d", lambda x: F.max_pool3d(x, 2), [VOLUME]
    yield "avg_pool3d", lambda x: F.avg_pool3d(x, 2), [VOLUME]
    yield "adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, 3), [VOLUME]
    for d, x in ((1, ROW), (2, IMAGE), (3, VOLUME)):
        yield f"max_pool{d}d_with_indices", lambda x, f=getattr(F, f"max_pool{d}d_with_indices"): f(x, 2), [x]
        yield f"adaptive_max_pool{d}d", lambda x, f=getattr(F, f"adaptive_max_pool{d}d"): f(x, 2), [x]
        yield f"adaptive_max_pool{d}d_with_indices", lambda x, f=getattr(F, f"adaptive_max_pool{d}d_with_indices"): f(x, 2), [x]
        yield f"lp_pool{d}d", lambda x, f=getattr(F, f"lp_pool{d}d"): f(x, 2, 2), [x]
        yield f"max_unpool{d}d", lambda x, f=getattr(F, f"max_unpool{d}d"), p=getattr(F, f"max_pool{d}d"): f(*p(x, 2, return_indices=True), 2, output_size=x.shape), [x]
    for d, x in ((2, IMAGE), (3, VOLUME)):
        for name in (f"fractional_max_pool{d}d", f"fractional_max_pool{d}d_with_indices"):
            yield name, lambda x, s, f=getattr(F, name): f(x, 2, 3, _random_samples=s.detach()), [x, chances(2, 4, d)]
    for mode, padding in (("bilinear", "zeros"), ("nearest", "border"), ("bicubic", "reflection")):
        yield "grid_sample", lambda x, g, m=mode, p=padding: F.grid_sample(x, g, m, p), [IMAGE, numbers(2, 3, 5, 2)]
    yield "grid_sample", F.grid_sample, [VOLUME, numbers(2, 3, 2, 4, 3)]
    yield "affine_grid", lambda t: F.affine_grid(t, (2, 1, 3, 4)), [numbers(2, 2, 3)]
    for causal in (False, True):
        yield "scaled_dot_product_attention", lambda q, k, v, c=causal: F.scaled_dot_product_attention(q, k, v, is_causal=c), [numbers(2, 2, 5, 8)] * 3


def tensors_of(result):
    return [t for t in (result if isinstance(result, (tuple, list)) else [result]) if t is not None]


def results_and_gradients(f, inputs, device, parameters=()):
    """As arrays; everything lies on the device."""
    pf.manual_seed(5)
    for p in parameters:
        p.grad = None
    xs = [pf.tensor(a, device=device, requires_grad=a.dtype.kind == "f") for a in inputs]
    results = tensors_of(f(*xs))
    differentiable = [t for t in results if t.requires_grad]
    if differentiable:
        pf.autograd.backward([(t * t * pf.tensor(chances(*t.shape), device=device)).sum() for t in differentiable])
    found = results + [x.grad for x in xs if x.grad is not None] + [p.grad for p in parameters]
    assert {str(t.device) for t in found} == {device}
    return [t.detach().cpu().numpy() for t in found]


def same(got, want):
    assert len(got) == len(want) and got
    for g, w in zip(got, want):
        scale = max(1.0, float(np.abs(w).max(initial=0))) if w.dtype.kind == "f" and np.isfinite(w).all() else 1.0  # an element may be the difference of large terms
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5 * scale)


LAYER_NAMES = [name for name, *_ in layers("cpu")]
FUNCTION_NAMES = [name for name, *_ in functions()]


@pytest.mark.parametrize("at", range(len(LAYER_NAMES)), ids=[f"{name}-{i}" for i, name in enumerate(LAYER_NAMES)])
def test_layer(other, at):
    _, layer, inputs, f = list(layers(other))[at]
    _, here, _, _ = list(layers("cpu"))[at]
    here.load_state_dict({k: v.cpu() for k, v in layer.state_dict().items()})
    got = results_and_gradients(lambda *xs: f(layer, *xs), inputs, other, list(layer.parameters()))
    same(got, results_and_gradients(lambda *xs: f(here, *xs), inputs, "cpu", list(here.parameters())))
    assert {str(b.device) for b in layer.buffers()} <= {other}
    for a, b in zip(layer.buffers(), here.buffers()):
        np.testing.assert_allclose(a.cpu().numpy(), b.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("at", range(len(FUNCTION_NAMES)), ids=[f"{name}-{i}" for i, name in enumerate(FUNCTION_NAMES)])
def test_function(other, at):
    _, f, inputs = list(functions())[at]
    same(results_and_gradients(f, inputs, other), results_and_gradients(f, inputs, "cpu"))


def one_case_of_each_op():
    """Small ones, with a gradient where the op has one."""
    found = {}
    for case in all_cases():
        if case.inputs and sum(np.prod(s.shape) for s in case.inputs) < 5000 and (case.functions not in found or case.grad and not found[case.functions].grad):
            found[case.functions] = case
    return found.values()


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in one_case_of_each_op()])
def test_op(other, case):
    if case.cpu_only and not other.startswith(("cpu", "reference")):
        pytest.skip("only the CPU has this op")
    arrays = case.arrays()
    xs = harness.tensors(case, arrays, other)
    for i in case.grad:
        xs[i].requires_grad_()
    with np.errstate(all="ignore"):
        ys = harness.as_tuple(case.call(pf, *xs))
        wrong = harness.check_outputs(case, ys, arrays)
    assert not wrong, wrong
    differentiable = [y for y in ys if y.requires_grad]
    gradients = pf.autograd.grad([(y * y).sum() for y in differentiable], [xs[i] for i in case.grad], allow_unused=True) if differentiable else ()
    assert {str(t.device) for t in (*ys, *gradients) if t is not None} == {other}
    pf.synchronize()


def test_none_is_left_out():
    classes = {name for name, c in vars(nn).items() if inspect.isclass(c) and issubclass(c, nn.Module) and c is not nn.Module}
    assert {c for c in classes - BASES if not c.startswith("Lazy")} == set(LAYER_NAMES)
    assert {name for name, f in vars(F).items() if callable(f) and not inspect.isclass(f) and not name.startswith("_")} == set(FUNCTION_NAMES)


@pytest.mark.parametrize("name", [n for n, f in vars(nn.init).items() if n.endswith("_") and not n.startswith("_") and callable(f)])
def test_initial_values(other, name):
    arguments = (0.5,) if name in ("constant_", "sparse_") else ()
    filled = []
    for device in (other, "cpu"):
        pf.manual_seed(1)
        t = pf.empty(*((3, 5, 2) if name == "dirac_" else (3, 5)), device=device)
        assert getattr(nn.init, name)(t, *arguments) is t and str(t.device) == device
        filled.append(t.cpu().numpy())
    np.testing.assert_allclose(*filled, rtol=1e-5, atol=1e-6)


OPTIMIZERS = {
    "SGD": dict(momentum=0.9), "Adam": dict(amsgrad=True), "AdamW": {}, "Adamax": {}, "NAdam": {}, "RAdam": {}, "Adagrad": {}, "Adadelta": {},
    "RMSprop": dict(momentum=0.9, centered=True, eps=1e-3), "ASGD": {}, "Rprop": {}, "Adafactor": {},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(other, name):
    after = []
    for device in (other, "cpu"):
        p = nn.Parameter(pf.tensor(X, device=device))
        optimizer = getattr(pf.optim, name)([p], lr=0.1, **OPTIMIZERS[name])
        for _ in range(2):
            p.grad = None
            (p * p).sum().backward()
            nn.utils.clip_grad_norm_([p], 1.0)
            optimizer.step()
        after.append(p.detach().cpu().numpy())
    np.testing.assert_allclose(*after, rtol=1e-5, atol=1e-6)


class Halves(pf.autograd.Function):
    """Returns twice the input, and its signs, which have no gradient; backward receives zeros for them."""

    @staticmethod
    def forward(ctx, x):
        signs = x.sign()
        ctx.mark_non_differentiable(signs)
        return x * 2, signs

    @staticmethod
    def backward(ctx, g, of_signs):
        return g * 2 + of_signs


def test_functions_written_in_python(other):
    x = pf.tensor(X, dtype=pf.float64, device=other, requires_grad=True)
    Halves.apply(x)[0].sum().backward()
    assert str(x.grad.device) == other and x.grad.tolist() == [[2.0] * 6] * 4
    assert pf.autograd.gradcheck(lambda t: t.sin() * 3, [x[:1].detach().requires_grad_()])


def test_data(other):
    x = pf.tensor(X, device=other)
    data = pf.data.TensorDataset(x, pf.arange(4, device="cpu"))
    batches = list(pf.data.DataLoader(data, 2, shuffle=True, seed=0, prefetch_factor=0))
    for rows, numbers_of_rows in batches:
        assert str(rows.device) == other and numbers_of_rows.device == "cpu"
        np.testing.assert_array_equal(rows.cpu().numpy(), X[numbers_of_rows.numpy()])
    for collated in (pf.data.default_collate([1.0, 2.0]), pf.data.default_collate([X, X])):
        assert collated.device == "cpu"
    assert pf.frombuffer(b"\0" * 8, dtype=pf.float32).device == pf.frombuffer(bytearray(8), dtype=pf.float32).device == "cpu"


MAKES = {"arange", "empty", "eye", "full", "linspace", "ones", "rand", "randint", "randn", "randperm", "tensor", "zeros"}
ON_THE_CURRENT_DEVICE = {("_elementwise.py", "float_power"), ("nn/parameter.py", "__init__"), ("nn/utils/clip_grad.py", "clip_grad_norm_"), ("nn/module.py", "to"), ("_shapes.py", "block_diag"),
                         ("_old_types.py", "_new"), ("nn/attention/bias.py", "causal_upper_left"),
                         ("nn/attention/bias.py", "causal_lower_right")}  # nothing says another one


def test_whoever_makes_a_tensor_says_where():
    left = set()
    for file in PACKAGE.rglob("*.py"):
        name = file.relative_to(PACKAGE).as_posix()
        if name.startswith("testing/"):
            continue
        for function in ast.walk(ast.parse(file.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or getattr(node.func.value, "id", "") != "_C":
                    continue
                if node.func.attr in MAKES and "device" not in {k.arg for k in node.keywords}:
                    left.add((name, function.name))
    assert left == ON_THE_CURRENT_DEVICE
