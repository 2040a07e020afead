"""Batches of 0 samples through every layer and loss: shapes, dtypes, reduced values, gradients and running statistics are PyTorch's.

data/empty_batches.json has what PyTorch 2.15 gives for each case on a CPU. `python tests/python/test_empty_batches.py`, beside an installed PyTorch, writes it."""
import json
import os
import pathlib

import pytest

import pyflame as pf
from pyflame import nn

DATA = pathlib.Path(__file__).parent / "data" / "empty_batches.json"
SPACE = {1: (9,), 2: (9, 8), 3: (5, 6, 7)}


def f(*shape):
    return ("float32", shape)


def i(*shape):
    return ("int64", shape)


def cases():
    """(layer, its arguments, inputs as (dtype, shape), keywords); mode is 'eval' or absent."""
    for name in ("ReLU ReLU6 Sigmoid Tanh SiLU Mish GELU ELU CELU SELU LeakyReLU Hardtanh Hardswish Hardsigmoid Softplus Softsign Tanhshrink Hardshrink Softshrink LogSigmoid RReLU Identity"
                 " Dropout AlphaDropout FeatureAlphaDropout PReLU").split():  # fmt: skip
        yield name, (), [f(0, 4)], {}
    for name in ("Softmax", "LogSoftmax", "Softmin"):
        yield from ((name, (dim,), [f(0, 4)], {}) for dim in (0, 1))
    yield from ((f"Dropout{d}d", (), [f(0, 4, *SPACE[d])], {}) for d in (1, 2, 3))
    yield from [("Threshold", (0.1, 2.0), [f(0, 4)], {}), ("GLU", (), [f(0, 4)], {}), ("Softmax2d", (), [f(0, 4, 3, 3)], {})]
    yield from [("Linear", (4, 3), [f(0, 4)], {}), ("Linear", (4, 3), [f(2, 0, 4)], {}), ("Linear", (4, 0), [f(2, 4)], {}), ("Linear", (0, 3), [f(2, 0)], {}), ("LazyLinear", (3,), [f(0, 4)], {}),
                ("Bilinear", (4, 5, 3), [f(0, 4), f(0, 5)], {})]  # fmt: skip
    for d in (1, 2, 3):
        yield from of_images(d, f(0, 4, *SPACE[d]))
    yield from [("FractionalMaxPool2d", (2, 3), [f(0, 4, 9, 9)], {}), ("FractionalMaxPool3d", (2, 3), [f(0, 4, 9, 9, 9)], {})]
    yield from norms()
    yield from of_indices_and_shapes()
    yield from sequences()
    for reduction in ("mean", "sum", "none"):
        yield from losses({"reduction": reduction})
    yield "KLDivLoss", (), [f(0, 4), f(0, 4)], {"reduction": "batchmean"}


def of_images(d, x):
    for name in ("Conv", "ConvTranspose"):
        yield f"{name}{d}d", (4, 6, 3), [x], {}
    yield f"Conv{d}d", (4, 6, 3, 1, 1, 1, 2, True, "circular"), [x], {}
    yield f"LazyConv{d}d", (6, 3), [x], {}
    for name in ("MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool"):
        yield f"{name}{d}d", (2,), [x], {}
    yield f"MaxPool{d}d", (2, None, 0, 1, True), [x], {}
    yield f"AdaptiveMaxPool{d}d", (2, True), [x], {}
    yield f"LPPool{d}d", (2.0, 2), [x], {}
    yield f"MaxUnpool{d}d", (2,), [x, i(*x[1])], {}
    for args in ((4,), (4, 1e-5, 0.1, False, False), (4, 1e-5, None)):
        yield f"BatchNorm{d}d", args, [x], {}
        yield f"BatchNorm{d}d", args, [x], {"mode": "eval"}
    yield f"LazyBatchNorm{d}d", (), [x], {}
    yield f"InstanceNorm{d}d", (4,), [x], {}
    yield f"InstanceNorm{d}d", (4, 1e-5, 0.1, True), [x], {}
    yield f"InstanceNorm{d}d", (4, 1e-5, 0.1, True, True), [x], {}
    yield from ((f"{name}Pad{d}d", (1,), [x], {}) for name in ("Reflection", "Replication", "Zero", "Circular"))
    yield f"ConstantPad{d}d", (1, 2.0), [x], {}


def norms():
    yield from [("BatchNorm1d", (4,), [f(0, 4)], {}), ("SyncBatchNorm", (4,), [f(0, 4)], {}), ("GroupNorm", (2, 4), [f(0, 4)], {}), ("GroupNorm", (2, 4), [f(0, 4, 5)], {}),
                ("LayerNorm", (4,), [f(0, 4)], {}), ("LayerNorm", ((3, 4),), [f(0, 3, 4)], {}), ("LayerNorm", (0,), [f(2, 0)], {}), ("RMSNorm", (4,), [f(0, 4)], {}), ("RMSNorm", (0,), [f(2, 0)], {}),
                ("LocalResponseNorm", (2,), [f(0, 4, 5)], {}), ("CrossMapLRN2d", (2,), [f(0, 4, 5, 5)], {})]  # fmt: skip


def of_indices_and_shapes():
    yield from [("Embedding", (5, 3), [i(0)], {}), ("Embedding", (5, 3, 1, 0.5), [i(0, 2)], {}), ("EmbeddingBag", (5, 3), [i(0, 2)], {}), ("EmbeddingBag", (5, 3), [i(0), i(0)], {}),
                ("EmbeddingBag", (5, 3), [i(0), i(2)], {}), ("EmbeddingBag", (5, 3, None, 2.0, False, "max"), [i(0), i(2)], {})]  # fmt: skip
    yield from [("Flatten", (), [f(0, 4, 5)], {}), ("Flatten", (0,), [f(0, 4)], {}), ("Unflatten", (1, (2, 2)), [f(0, 4)], {}), ("Unflatten", (1, (2, -1)), [f(0, 4)], {}),
                ("Fold", ((4, 5), 2), [f(0, 12, 12)], {}), ("Unfold", (2,), [f(0, 3, 4, 5)], {}), ("PixelShuffle", (2,), [f(0, 4, 3, 3)], {}), ("PixelUnshuffle", (2,), [f(0, 4, 4, 4)], {}),
                ("ChannelShuffle", (2,), [f(0, 4, 3, 3)], {})]  # fmt: skip
    yield from (("Upsample", (None, 2.0, mode), [f(0, 3, 4, 4)], {}) for mode in ("nearest", "bilinear", "bicubic", "area"))
    yield from [("Upsample", (None, 2.0, "linear"), [f(0, 3, 4)], {}), ("Upsample", (None, 2.0, "trilinear"), [f(0, 3, 4, 4, 4)], {}), ("UpsamplingNearest2d", (None, 2), [f(0, 3, 4, 4)], {}),
                ("UpsamplingBilinear2d", (None, 2), [f(0, 3, 4, 4)], {}), ("CosineSimilarity", (), [f(0, 4), f(0, 4)], {}), ("PairwiseDistance", (), [f(0, 4), f(0, 4)], {})]  # fmt: skip


def sequences():
    for name in ("RNN", "GRU", "LSTM"):
        for layers in (1, 2):
            yield from ((name, (4, 3, layers), [f(*shape)], {}) for shape in ((5, 0, 4), (0, 2, 4), (0, 4)))
        yield from ((name, (4, 3), [f(*shape)], {"batch_first": True, "bidirectional": True}) for shape in ((0, 5, 4), (2, 0, 4)))
        yield f"{name}Cell", (4, 3), [f(0, 4)], {}
    for first in (False, True):
        def x(length, batch, first=first):
            return f(batch, length, 4) if first else f(length, batch, 4)

        for q, k in (((3, 0), (5, 0)), ((0, 2), (5, 2))):
            yield "MultiheadAttention", (4, 2), [x(*q), x(*k), x(*k)], {"batch_first": first}
        block = {"batch_first": first, "dropout": 0.0}
        for shape in ((3, 0), (0, 2)):
            yield "TransformerEncoderLayer", (4, 2, 8), [x(*shape)], block
        yield "TransformerEncoderLayer", (4, 2, 8), [x(3, 0)], {**block, "mode": "eval"}
        yield "TransformerDecoderLayer", (4, 2, 8), [x(3, 0), x(5, 0)], block
    yield "Transformer", (4, 2, 1, 1, 8, 0.0), [f(3, 0, 4), f(2, 0, 4)], {}


def losses(kw):
    for name in "L1Loss MSELoss SmoothL1Loss HuberLoss KLDivLoss BCEWithLogitsLoss PoissonNLLLoss SoftMarginLoss HingeEmbeddingLoss MultiLabelSoftMarginLoss BCELoss".split():
        yield from ((name, (), [f(*shape), f(*shape)], kw) for shape in ((0, 4), (2, 0), (0,)))
    for name in ("CrossEntropyLoss", "NLLLoss"):
        yield from ((name, (), [f(*shape), i(*target)], kw) for shape, target in (((0, 4), (0,)), ((0, 4, 3), (0, 3)), ((2, 4, 0), (2, 0))))
    yield "LinearCrossEntropyLoss", (4, 3), [f(0, 4), i(0)], kw
    yield "CrossEntropyLoss", (), [f(0, 4), f(0, 4)], kw
    yield "CrossEntropyLoss", (), [f(0, 4), i(0)], {**kw, "label_smoothing": 0.1}
    yield from [("GaussianNLLLoss", (), [f(0, 4)] * 3, kw), ("MarginRankingLoss", (), [f(0)] * 3, kw), ("CosineEmbeddingLoss", (), [f(0, 4), f(0, 4), f(0)], kw),
                ("TripletMarginLoss", (), [f(0, 4)] * 3, kw), ("TripletMarginWithDistanceLoss", (), [f(0, 4)] * 3, kw), ("CTCLoss", (), [f(5, 0, 4), i(0, 3), i(0), i(0)], kw)]  # fmt: skip
    if kw["reduction"] == "none":  # PyTorch leaves the memory of the others' results as it is
        yield from [("MultiMarginLoss", (), [f(0, 4), i(0)], kw), ("MultiLabelMarginLoss", (), [f(0, 4), i(0, 4)], kw)]


def key(name, args, inputs, kw):
    return f"{name}{args} {[s for _, s in inputs]} {kw}"


def tensors(result):
    if isinstance(result, (tuple, list)):
        return [t for part in result for t in tensors(part)]
    return [] if result is None else [result]


def outcome(lib, name, args, inputs, kw):
    """{'results': [[shape, dtype, value of a number]], 'gradients': [shape; 'not zero' with it, or None], 'buffers': {name: value}}, or {'error': its type}."""
    kw = dict(kw)
    mode = kw.pop("mode", "train")
    try:
        layer = getattr(lib.nn, name)(*args, **kw)
        layer.train(mode == "train")
        made = [lib.zeros(*shape, dtype=getattr(lib, dtype)) for dtype, shape in inputs]
        differentiable = made[:1] if name.endswith("Loss") else made  # not targets
        floats = [t.requires_grad_() for t in differentiable if t.is_floating_point()]
        results = tensors(layer(*made))
        if any(r.requires_grad for r in results):
            sum(r.sum() for r in results if r.requires_grad).backward()
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        return {"error": type(error).__name__}
    gradients = [t.grad for t in (*floats, *layer.parameters())]
    return {"results": [[list(r.shape), str(r.dtype).split(".")[-1], *([str(r.item() + 0.0)] if r.ndim == 0 else [])] for r in results],
            "gradients": [None if g is None else [list(g.shape), *(["not zero"] if g.numel() and not bool((g == 0).all()) else [])] for g in gradients],
            "buffers": {k: str(b.tolist()) for k, b in layer.named_buffers() if b is not None and b.is_floating_point()}}  # fmt: skip


# PyTorch refuses these, some of them only in the backward pass. Here they give results without elements, as their neighbours.
ANSWERED = {"InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "PixelShuffle", "PixelUnshuffle", "CTCLoss"}
EXPECTED = json.loads(DATA.read_text()) if DATA.exists() else {}


@pytest.mark.parametrize("name", sorted({name for name, *_ in cases()}))
def test_as_pytorch(name):
    for case in cases():
        if case[0] == name:
            want, got = EXPECTED[key(*case)], outcome(pf, *case)
            if "error" in want:
                assert ("error" in got) != (name in ANSWERED), (case, want, got)
            else:
                assert got == want, case


def test_every_layer_has_a_case():
    """But for containers and what takes no batch."""
    others = {"AdaptiveLogSoftmaxWithLoss", "Container", "NLLLoss2d", "RNNBase", "RNNCellBase", "DataParallel", "TransformerEncoder", "TransformerDecoder", "Module", "Sequential", "ModuleList",
              "ModuleDict", "ParameterList", "ParameterDict", "Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter"}  # fmt: skip
    layers = {n for n in dir(nn) if isinstance(getattr(nn, n), type) and issubclass(getattr(nn, n), nn.Module) and not n.startswith("_")}
    tested = {name for name, *_ in cases()}
    missing = {n for n in layers - others - tested if not n.startswith("Lazy")}
    assert not missing, missing


def test_running_statistics_stay_as_they_are():
    layer = nn.InstanceNorm1d(2, track_running_stats=True)
    layer(pf.zeros(0, 2, 5))
    assert layer.running_mean.tolist() == [0, 0] and layer.running_var.tolist() == [1, 1]
    layer(pf.tensor([[[1.0, 3.0], [2.0, 2.0]]]))
    assert pf.allclose(layer.running_mean, pf.tensor([0.2, 0.2]))


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_integers_without_elements(dtype):
    """What takes integers gives them. Of what needs floats, some layers take integers with 0 samples, and all refuse them with 2."""
    dtype = getattr(pf, dtype)
    for layer, shape in [(nn.ReLU(), (0, 4)), (nn.Flatten(), (0, 2, 2)), (nn.Unflatten(1, (2, -1)), (0, 4)), (nn.MaxPool1d(2), (0, 2, 4)), (nn.ZeroPad2d(1), (0, 2, 4, 4)), (nn.Identity(), (0,)),
                         (nn.PixelShuffle(2), (0, 4, 1, 1)), (nn.Dropout().eval(), (0, 4)), (nn.ConstantPad1d(1, 1), (0, 2, 3)), (nn.ChannelShuffle(2), (0, 4, 3)), (nn.CircularPad1d(1), (0, 2, 3))]:  # fmt: skip
        if not (dtype == pf.bool and isinstance(layer, nn.ReLU)):
            y = layer(pf.zeros(*shape, dtype=dtype))
            assert y.dtype == dtype and y.numel() == 0 and y.shape[0] == 0
    floats, as_given = pf.float32, dtype  # as PyTorch 2.15
    for layer, shape, result in [(nn.Softmax(1), (4,), as_given), (nn.LogSoftmax(1), (4,), as_given), (nn.Softmax2d(), (4, 2, 2), as_given), (nn.BatchNorm1d(4), (4,), floats), (nn.BatchNorm2d(4, affine=False), (4, 2, 2), as_given),
                                 (nn.InstanceNorm1d(4), (4, 3), as_given), (nn.AdaptiveAvgPool1d(2), (4, 6), as_given), (nn.AdaptiveAvgPool2d(3), (4, 6, 7), as_given), (nn.Conv1d(4, 2, 1), (4, 3), floats),
                                 (nn.ConvTranspose1d(4, 2, 3), (4, 3), floats), (nn.ConvTranspose2d(4, 2, 3), (4, 3, 3), floats)]:  # fmt: skip
        y = layer(pf.zeros(0, *shape, dtype=dtype))
        assert y.dtype == result and y.shape == (0, *layer(pf.zeros(2, *shape)).shape[1:])
        with pytest.raises((TypeError, RuntimeError, ValueError), match="float"):
            layer(pf.ones(2, *shape, dtype=dtype))
    for layer, shape in [(nn.Dropout(), (4,)), (nn.LayerNorm(4), (4,)), (nn.Linear(4, 2), (4,))]:
        for n in (0, 2):
            with pytest.raises((TypeError, RuntimeError, ValueError), match="float"):
                layer(pf.ones(n, *shape, dtype=dtype))
    with pytest.raises(ValueError, match="unflatten: -1 is ambiguous next to a size of 0; got .0, -1. for 0"):
        pf.zeros(0, dtype=dtype).unflatten(0, (0, -1))


if __name__ == "__main__":
    import torch

    os.makedirs(DATA.parent, exist_ok=True)
    DATA.write_text("{\n" + ",\n".join(f"{json.dumps(key(*case))}: {json.dumps(outcome(torch, *case))}" for case in cases()) + "\n}\n")
