"""The layers of the C++ library and those of this package are the same: names of state dicts, initial values for a seed, outputs,
gradients, and what a training call does to buffers — all bit for bit, because both record the same ops.

The C++ side is written by pyflame_parity_dump (tests/cpp/nn/parity_dump.cpp), which `make test` builds; PYFLAME_PARITY_DUMP names it
elsewhere."""
import importlib.util
import os
import pathlib
import re
import subprocess

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYER_SEED, CALL_SEED = 11, 13


def example():
    spec = importlib.util.spec_from_file_location("train_gpt", ROOT / "examples" / "train_gpt.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def attend(**kwargs):
    return lambda layer, x: layer(x, x, x, need_weights=False, **kwargs)[0]


LAYERS = {
    "linear": lambda: nn.Linear(5, 7),
    "linear_without_bias": lambda: nn.Linear(5, 7, bias=False),
    "conv2d": lambda: nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), groups=2),
    "conv_transpose2d": lambda: nn.ConvTranspose2d(4, 6, (3, 2), stride=2, padding=(1, 0), output_padding=(1, 0), groups=2),
    "conv1d": lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2),
    "adaptive_avg_pool2d": lambda: nn.AdaptiveAvgPool2d((2, 3)),
    "batch_norm2d": lambda: nn.BatchNorm2d(4),
    "layer_norm": lambda: nn.LayerNorm(8),
    "layer_norm_two_dims": lambda: nn.LayerNorm((4, 8), eps=1e-3, bias=False),
    "rms_norm": lambda: nn.RMSNorm(8),
    "max_pool2d": lambda: nn.MaxPool2d(3, 2, 1),
    "dropout": lambda: nn.Dropout(0.3),
    "embedding": lambda: nn.Embedding(9, 5, padding_idx=-1),
    "flatten": lambda: nn.Flatten(),
    "relu": lambda: nn.ReLU(),
    "silu": lambda: nn.SiLU(),
    "tanh": lambda: nn.Tanh(),
    "sigmoid": lambda: nn.Sigmoid(),
    "softplus": lambda: nn.Softplus(),
    "identity": lambda: nn.Identity(),
    "gelu": lambda: nn.GELU(),
    "gelu_tanh": lambda: nn.GELU("tanh"),
    "leaky_relu": lambda: nn.LeakyReLU(0.1),
    "softmax": lambda: nn.Softmax(1),
    "attention": lambda: nn.MultiheadAttention(8, 2, batch_first=True),
    "attention_sequence_first": lambda: nn.MultiheadAttention(8, 4, bias=False),
    "sequential": lambda: nn.Sequential(nn.Conv2d(4, 3, 3, 1, 1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(27, 4)),
    "gpt": lambda: example().GPT(11, 8, n_layer=2, n_head=2, n_embd=16),
    "gpt_with_dropout": lambda: example().GPT(11, 8, n_layer=2, n_head=2, n_embd=16, dropout=0.25),
}
# What C++ alone needs a name for: part of attention, and what its Gpt holds its blocks in.
WITHOUT_A_CASE = {"OutProjection", "ModuleList"}
CALLS = {"attention": attend(is_causal=True), "attention_sequence_first": attend()}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    program = os.environ.get("PYFLAME_PARITY_DUMP") or str(ROOT / "build" / "release" / "bin" / "pyflame_parity_dump")
    if not os.path.exists(program):
        pytest.skip(f"{os.path.basename(program)} is not built (make build, or set PYFLAME_PARITY_DUMP)")
    path = tmp_path_factory.mktemp("parity") / "layers.safetensors"
    subprocess.run([program, str(path)], check=True)
    return pf.load(path)


def test_each_layer_of_cpp_has_a_case():
    header = (ROOT / "src" / "pyflame" / "nn" / "layers.h").read_text(encoding="utf-8")
    layers = set(re.findall(r"^ *struct (\w+) \{|^PF_NN_ACTIVATION\((\w+)", header, re.M))
    layers = {a or b for a, b in layers} - {"Name"}
    assert "Linear" in layers and "Tanh" in layers
    assert layers - WITHOUT_A_CASE == {type(make()).__name__ for name, make in LAYERS.items() if not name.startswith("gpt")}


def part(written, prefix):
    return {name[len(prefix):]: t for name, t in written.items() if name.startswith(prefix)}


def same(actual, expected, what):
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), what
    np.testing.assert_array_equal(actual.detach().numpy(), expected.numpy(), err_msg=what)


def same_tensors(actual, expected, what):
    assert list(actual) == list(expected), f"{what}: other names or another order"
    for name, t in actual.items():
        same(t, expected[name], f"{what} {name}")


def test_every_layer_is_on_both_sides(written):
    assert {name.split("/")[0] for name in written} == set(LAYERS)


@pytest.mark.parametrize("name", LAYERS)
def test_same_as_cpp(written, name):
    pf.manual_seed(LAYER_SEED)
    layer = LAYERS[name]()
    same_tensors(layer.state_dict(), part(written, f"{name}/before/"), "initial")

    x = written[f"{name}/input"].clone()
    if x.is_floating_point():
        x.requires_grad_()
    pf.manual_seed(CALL_SEED)
    y = CALLS.get(name, lambda layer, x: layer(x))(layer, x)
    same(y, written[f"{name}/output"], "output")
    if y.requires_grad:
        (y.flatten() * written[f"{name}/weights"]).sum().backward()
    same_tensors(layer.state_dict(), part(written, f"{name}/after/"), "after a call:")
    same_tensors({n: p.grad for n, p in layer.named_parameters()}, part(written, f"{name}/grad/"), "gradient of")
    if x.requires_grad:
        same(x.grad, written[f"{name}/input_grad"], "gradient of the input")


def test_files_go_both_ways(written, tmp_path):
    """What Python saves under the C++ names loads in Python again, bit for bit; the C++ side of it is tests/cpp/io."""
    state = part(written, "gpt/before/")
    pf.save(state, tmp_path / "gpt.safetensors")
    model = LAYERS["gpt"]()
    model.load_state_dict(pf.load(tmp_path / "gpt.safetensors"))
    same_tensors(model.state_dict(), state, "loaded")
