"""pf.models: names and shapes of the weights as the libraries have them, and the same numbers for the same weights."""
import hashlib
import json
import pathlib

import numpy as np
import pyflame as pf
import pytest

RECORDED = json.loads((pathlib.Path(__file__).parent / "data" / "models.json").read_text())
IMAGES = RECORDED["images"]


def weights(shapes):
    """Weights that any library can be given: NumPy's generator is the same everywhere. shapes: (name, shape, whether floating point) of each."""
    made = {}
    for i, (name, shape, floating) in enumerate(shapes):
        rng = np.random.default_rng(i)
        if not floating:
            made[name] = np.zeros(shape, np.int64)
        elif "running_var" in name:
            made[name] = rng.uniform(0.5, 1.5, shape).astype(np.float32)
        elif len(shape) < 2:
            made[name] = (rng.standard_normal(shape) * 0.1 + ("weight" in name)).astype(np.float32)
        else:
            made[name] = (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
    return made


def image(size):
    return np.random.default_rng(99).standard_normal((2, 3, size, size)).astype(np.float32)


def described(model):
    return [(k, tuple(v.shape), v.dtype.is_floating_point) for k, v in model.state_dict().items()]


def made(name):
    return getattr(pf.models, name)(**IMAGES[name].get("arguments", {}))


@pytest.mark.parametrize("name", IMAGES)
def test_names_and_shapes(name):
    model = made(name)
    shapes = json.dumps([[k, list(s)] for k, s, _ in described(model)])
    assert sum(p.numel() for p in model.parameters()) == IMAGES[name]["parameters"]
    assert hashlib.sha256(shapes.encode()).hexdigest()[:16] == IMAGES[name]["names"]


def check(name, expected, tolerance):
    model = made(name).eval()
    model.load_state_dict({k: pf.tensor(v) for k, v in weights(described(model)).items()})
    with pf.no_grad():
        logits = model(pf.tensor(image(64))).numpy()
    assert np.abs(logits[:, :6] - expected).max() <= tolerance * np.abs(logits).max(), logits[:, :6]


@pytest.mark.parametrize("name", [n for n in IMAGES if "logits" in IMAGES[n]])
def test_the_logits_that_torchvision_computes(name):
    check(name, np.array(IMAGES[name]["logits"], np.float32), 2e-5)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_torchvision_itself(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torchvision = pytest.importorskip("torchvision", reason="TorchVision is not installed")
    model = getattr(torchvision.models, name)().eval()
    shapes = [(k, tuple(v.shape), v.dtype.is_floating_point) for k, v in model.state_dict().items()]
    model.load_state_dict({k: torch.tensor(v) for k, v in weights(shapes).items()})
    with torch.no_grad():
        logits = model(torch.tensor(image(64))).numpy()
    check(name, logits[:, :6], 2e-5)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "convnext_tiny", "vit_b_32"])
def test_a_training_step(name):
    model = made(name).train()
    optimizer = pf.optim.SGD(model.parameters(), lr=1e-3)
    loss = pf.nn.functional.cross_entropy(model(pf.tensor(image(64))), pf.tensor([1, 2]))
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    optimizer.step()
    assert np.isfinite(loss.item())


def test_unet():
    for bilinear in (False, True):
        model = pf.models.UNet(1, 3, bilinear=bilinear, width=4)
        out = model(pf.randn(2, 1, 37, 33))
        assert out.shape == (2, 3, 37, 33)
        out.square().mean().backward()
    assert "down4.maxpool_conv.1.double_conv.0.weight" in model.state_dict() and "up1.up.weight" in pf.models.UNet(width=4).state_dict()


def save_folder(folder, config, model):
    """A folder as Hugging Face's libraries write it: a tied weight is stored once."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    pf.save({k: pf.tensor(v) for k, v in weights(described(model)).items() if k != "lm_head.weight"}, folder / "model.safetensors")


def save_with_own_weights(folder, config, model):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    tied = config.get("tie_word_embeddings", True)
    pf.save({k: v for k, v in model.state_dict().items() if k != "lm_head.weight" or not tied}, folder / "model.safetensors")


GPT2 = dict(model_type="gpt2", vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2)
BERT = dict(model_type="bert", vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=16)
IDS = [[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]]


def test_gpt2_computes_what_transformers_does(tmp_path):
    save_folder(tmp_path / "m", GPT2, pf.models.GPT2LMHeadModel(pf.models.GPT2Config.from_dict(GPT2)))
    model = pf.models.from_folder(tmp_path / "m")
    assert model.lm_head.weight is model.transformer.wte.weight and not model.training
    logits = model(pf.tensor(IDS)).detach().numpy()
    assert np.allclose(logits[:, -1, :6], RECORDED["gpt2"]["logits"], rtol=1e-4, atol=1e-5), logits[:, -1, :6]
    assert model.generate(pf.tensor(IDS), 8, temperature=0).tolist() == RECORDED["gpt2"]["generated"]
    with pytest.raises(ValueError, match="too many tokens; got 17; expected at most n_positions = 16"):
        model(pf.zeros(1, 17, dtype=pf.int64))


@pytest.mark.parametrize("options, factor", [({"scale_attn_weights": False}, lambda block: 8**-0.5), ({"scale_attn_by_inverse_layer_idx": True}, lambda block: block + 1.0)])
def test_gpt2_scales_scores_as_its_configuration_says(tmp_path, options, factor):
    plain = pf.models.GPT2LMHeadModel(pf.models.GPT2Config.from_dict(GPT2)).eval()
    with pf.no_grad():
        for block in plain.transformer.h:
            block.attn.c_attn.weight.mul_(20)
    want = plain(pf.tensor(IDS)).detach().numpy()
    with pf.no_grad():  # queries that undo what the option does
        for k, block in enumerate(plain.transformer.h):
            block.attn.c_attn.weight[:, :16] *= factor(k)
    save_with_own_weights(tmp_path / "m", GPT2 | options, plain)
    assert np.allclose(pf.models.from_folder(tmp_path / "m")(pf.tensor(IDS)).detach().numpy(), want, rtol=1e-4, atol=1e-5)
    assert not np.allclose(plain(pf.tensor(IDS)).detach().numpy(), want, rtol=1e-2, atol=1e-3)


def test_gpt2_with_a_head_of_its_own(tmp_path):
    own = pf.models.GPT2LMHeadModel(pf.models.GPT2Config.from_dict(GPT2 | {"tie_word_embeddings": False})).eval()
    assert own.lm_head.weight is not own.transformer.wte.weight
    save_with_own_weights(tmp_path / "m", GPT2 | {"tie_word_embeddings": False}, own)
    model = pf.models.from_folder(tmp_path / "m")
    assert pf.equal(model.lm_head.weight, own.lm_head.weight) and not pf.equal(model.lm_head.weight, model.transformer.wte.weight)
    assert np.allclose(model(pf.tensor(IDS)).detach().numpy(), own(pf.tensor(IDS)).detach().numpy())


def test_bert_computes_what_transformers_does(tmp_path):
    save_folder(tmp_path / "m", BERT, pf.models.BertModel(pf.models.BertConfig.from_dict(BERT)))
    model = pf.models.from_folder(tmp_path / "m")
    mask = pf.tensor([[1] * 7, [1] * 4 + [0] * 3])
    hidden, pooled = model(pf.tensor(IDS), mask)
    assert np.allclose(hidden[:, 0, :6].detach().numpy(), RECORDED["bert"]["hidden"], rtol=1e-4, atol=1e-5), hidden[:, 0, :6]
    assert np.allclose(pooled[:, :6].detach().numpy(), RECORDED["bert"]["pooled"], rtol=1e-4, atol=1e-5), pooled[:, :6]
    embedded = pf.models.mean_pooling(hidden, mask).detach().numpy()
    assert np.allclose(np.linalg.norm(embedded, axis=1), 1, atol=1e-6)
    mean = hidden[1, :4].mean(0).detach().numpy()
    assert np.allclose(embedded[1], mean / np.linalg.norm(mean), atol=1e-6)


def test_from_folder_refuses(tmp_path):
    with pytest.raises(OSError):
        pf.models.from_folder(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="not the description of a model"):
        pf.models.from_folder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5"}))
    with pytest.raises(ValueError, match="model_type is not available; got 't5'; expected one of gpt2, bert"):
        pf.models.from_folder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(GPT2 | {"activation_function": "odd"}))
    pf.save({"x": pf.ones(1)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(BERT | {"is_decoder": True}))
    with pytest.raises(ValueError, match="BERT as a decoder"):
        pf.models.from_folder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(GPT2 | {"activation_function": "odd"}))
    with pytest.raises(ValueError, match="unknown activation_function; got 'odd'"):
        pf.models.from_folder(tmp_path)


def test_lstm_language_model():
    model = pf.models.LSTMLanguageModel(50, 20, 20, 2, dropout=0.0, tie_weights=True)
    assert list(model.state_dict())[:2] == ["encoder.weight", "rnn.weight_ih_l0"]
    out, hidden = model(pf.randint(0, 50, (5, 3)), model.init_hidden(3))
    assert out.shape == (15, 50) and hidden[0].shape == (2, 3, 20) and np.allclose(out.exp().sum(1).detach().numpy(), 1, atol=1e-5)
    with pytest.raises(ValueError, match="tied weights need equal sizes; got nhid 20 and ninp 10"):
        pf.models.LSTMLanguageModel(50, 10, 20, tie_weights=True)


def test_other_errors():
    with pytest.raises(ValueError, match="wrong size of image; got .32, 32.; expected .64, 64."):
        pf.models.vit_b_32(image_size=64)(pf.zeros(1, 3, 32, 32))
    with pytest.raises(ValueError, match="no whole number of patches; got 50 and 32"):
        pf.models.vit_b_32(image_size=50)
    with pytest.raises(AttributeError, match="has no attribute 'alexnet9'"):
        pf.models.alexnet9
