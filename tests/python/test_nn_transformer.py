"""Multi-head attention in all its forms, and Transformers, against NumPy."""
import copy
import pickle

import numpy as np
import pytest

import pyflame as pf
import pyflame.nn as nn
import pyflame.nn.functional as F

RNG = np.random.default_rng(0)
E, HEADS, T, S, N = 8, 2, 3, 4, 2


def values(*shape):
    return RNG.standard_normal(shape)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(m, q, k, v, mask):
    """The formula for one sample: [T, E], [S, Ek], [S, Ev]; mask [HEADS, T, S'] is added, where S' counts what is added to the keys."""
    w = {name: p.detach().numpy() for name, p in m.named_parameters()}
    projections = np.split(w["in_proj_weight"], 3) if "in_proj_weight" in w else [w[f"{x}_proj_weight"] for x in "qkv"]
    bias = np.split(w.get("in_proj_bias", np.zeros(3 * E)), 3)
    q, k, v = (x @ p.T + b for x, p, b in zip((q, k, v), projections, bias))
    if "bias_k" in w:
        k, v = np.vstack([k, w["bias_k"][0]]), np.vstack([v, w["bias_v"][0]])
    if m.add_zero_attn:
        k, v = np.vstack([k, np.zeros(E)]), np.vstack([v, np.zeros(E)])
    q, k, v = (x.reshape(len(x), HEADS, -1).swapaxes(0, 1) for x in (q, k, v))
    weights = softmax(q @ k.swapaxes(1, 2) / (E / HEADS) ** 0.5 + mask)
    out = (weights @ v).swapaxes(0, 1).reshape(-1, E) @ w["out_proj.weight"].T + w.get("out_proj.bias", 0)
    return out, weights


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"kdim": 5, "vdim": 7}, {"add_bias_kv": True}, {"add_zero_attn": True},
                                     {"kdim": 5, "add_bias_kv": True, "add_zero_attn": True, "batch_first": True}])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("need_weights", [True, False])
def test_attention_is_its_formula(options, masked, need_weights):
    m = nn.MultiheadAttention(E, HEADS, dtype=pf.float64, **options)
    for p in m.parameters():
        nn.init.normal_(p)
    q, k, v = values(N, T, E), values(N, S, m.kdim), values(N, S, m.vdim)
    hidden = RNG.random((N * HEADS, T, S)) < 0.4 if masked else np.zeros((N * HEADS, T, S), bool)
    padding = np.array([[False] * 4, [False, False, False, True]]) if masked else np.zeros((N, S), bool)
    hidden[..., 0] = False
    added = bool(options.get("add_bias_kv")) + bool(options.get("add_zero_attn"))
    mask = np.pad(np.where(hidden.reshape(N, HEADS, T, S) | padding[:, None, None], -np.inf, 0.0), ((0, 0), (0, 0), (0, 0), (0, added)))
    turn = (lambda x: x) if m.batch_first else (lambda x: np.ascontiguousarray(x.swapaxes(0, 1)))
    masks = {"attn_mask": pf.tensor(hidden), "key_padding_mask": pf.tensor(padding)} if masked else {}
    y, weights = m(*(pf.tensor(turn(x)) for x in (q, k, v)), need_weights=need_weights, average_attn_weights=False, **masks)
    for i in range(N):
        want, want_weights = attention(m, q[i], k[i], v[i], mask[i])
        np.testing.assert_allclose(turn(y.detach().numpy())[i], want, rtol=1e-9, atol=1e-12)
        if need_weights:
            np.testing.assert_allclose(weights[i].detach().numpy(), want_weights, rtol=1e-9, atol=1e-12)
        masks1 = {"attn_mask": pf.tensor(hidden.reshape(N, HEADS, T, S)[i]), "key_padding_mask": pf.tensor(padding[i])} if masked else {}
        one, one_weights = m(*(pf.tensor(x[i]) for x in (q, k, v)), need_weights=need_weights, **masks1)  # without a batch
        np.testing.assert_allclose(one.detach().numpy(), want, rtol=1e-9, atol=1e-12)
        assert (one_weights is None) == (not need_weights) and (one_weights is None or one_weights.shape == (T, S + added))


def test_the_function_is_the_layer():
    m = nn.MultiheadAttention(E, HEADS, add_bias_kv=True)
    q, k = pf.randn(T, N, E), pf.randn(S, N, E)
    want, weights = m(q, k, k)
    got = F.multi_head_attention_forward(q, k, k, E, HEADS, m.in_proj_weight, m.in_proj_bias, m.bias_k, m.bias_v, False, 0.0, m.out_proj.weight, m.out_proj.bias)
    assert pf.equal(got[0], want) and pf.equal(got[1], weights)
    args = (E, HEADS, m.in_proj_weight, m.in_proj_bias, None, None, False, 0.0, m.out_proj.weight, m.out_proj.bias)
    with pytest.raises(RuntimeError, match="is_causal without attn_mask"):
        F.multi_head_attention_forward(q, q, q, *args, is_causal=True)
    with pytest.raises(NotImplementedError, match="static_k and static_v"):
        F.multi_head_attention_forward(q, q, q, *args, static_k=q)
    with pytest.raises(ValueError, match="sizes do not fit"):
        F.multi_head_attention_forward(q, q, q, E, 3, *args[2:])


def encoder_layer(layer, x, mask, norm_first):
    def norm(y, n):
        return F.layer_norm(y, (E,), n.weight, n.bias)

    def attend(y):
        return layer.self_attn(y, y, y, attn_mask=mask, need_weights=False)[0]

    def feed(y):
        return layer.linear2(layer.activation(layer.linear1(y)))

    if norm_first:
        x = x + attend(norm(x, layer.norm1))
        return x + feed(norm(x, layer.norm2))
    x = norm(x + attend(x), layer.norm1)
    return norm(x + feed(x), layer.norm2)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder(norm_first, activation):
    layer = nn.TransformerEncoderLayer(E, HEADS, 12, dropout=0.0, activation=activation, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(E))
    for p in encoder.parameters():
        nn.init.normal_(p, std=0.3)
    x, mask = pf.randn(T, N, E), nn.Transformer.generate_square_subsequent_mask(T)
    want = x
    for one in encoder.layers:
        want = encoder_layer(one, want, mask, norm_first)
    want = encoder.norm(want)
    for more in ({}, {"is_causal": True}):
        np.testing.assert_allclose(encoder(x, mask, **more).detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_transformer():
    model = nn.Transformer(E, HEADS, 1, 2, 12, dropout=0.0, batch_first=True)
    src, tgt = pf.randn(N, S, E), pf.randn(N, T, E, requires_grad=True)
    mask = model.generate_square_subsequent_mask(T)
    assert mask.tolist()[0] == [0.0, -np.inf, -np.inf]
    padding = pf.tensor([[False] * 4, [False, False, True, True]])
    y = model(src, tgt, tgt_mask=mask, src_key_padding_mask=padding, memory_key_padding_mask=padding)
    short = model(src[1:, :2], tgt[1:], tgt_mask=mask, tgt_is_causal=True)
    np.testing.assert_allclose(y[1].detach().numpy(), short[0].detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model(src[1, :2], tgt[1], tgt_mask=mask).detach().numpy(), short[0].detach().numpy(), rtol=1e-4, atol=1e-5)
    y[0, 1].sum().backward()  # nothing later has an influence
    assert (tgt.grad[0, 2] == 0).all().item() and (tgt.grad[1] == 0).all().item()
    assert [name for name, _ in model.decoder.layers[0].named_children()] == [
        "self_attn", "multihead_attn", "linear1", "dropout", "linear2", "norm1", "norm2", "norm3", "dropout1", "dropout2", "dropout3"]
    assert len(set(map(id, model.parameters()))) == 12 + 2 * 18 + 4
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert pf.equal(other(src, tgt), model(src, tgt))


def test_a_wrapper_of_the_attention_can_ask_for_its_weights():
    model, seen = nn.Transformer(E, HEADS, 1, 1, 16, batch_first=True).eval(), []

    def watched(attention):
        def forward(*args, _forward=attention.forward, **kwargs):
            assert len(args) == 3 and kwargs.keys() == {"attn_mask", "key_padding_mask", "need_weights", "is_causal"}
            result = _forward(*args, **{**kwargs, "need_weights": True, "average_attn_weights": False})
            seen.append(result[1].shape)
            return result

        attention.forward = forward

    for module in model.modules():
        if isinstance(module, nn.MultiheadAttention):
            watched(module)
    model(pf.randn(N, S, E), pf.randn(N, T, E))
    assert seen == [(N, HEADS, S, S), (N, HEADS, T, T), (N, HEADS, T, S)]


@pytest.mark.parametrize("wrong,error,text", [
    (lambda: nn.TransformerEncoderLayer(E, HEADS, activation="swish"), RuntimeError, "TransformerEncoderLayer: unknown activation; got 'swish'"),
    (lambda: nn.Transformer(E, HEADS, 1, 1)(pf.ones(S, 2, E), pf.ones(T, 3, E)), RuntimeError, "Transformer: the batches differ"),
    (lambda: nn.Transformer(E, HEADS, 1, 1)(pf.ones(S, 2, E), pf.ones(T, 2, 5)), RuntimeError, "Transformer: the last sizes do not fit"),
    (lambda: nn.MultiheadAttention(0, 1), ValueError, "MultiheadAttention: embed_dim is too small; got 0"),
    (lambda: nn.MultiheadAttention(E, 0), ValueError, "MultiheadAttention: num_heads is too small; got 0"),
    (lambda: nn.MultiheadAttention(E, HEADS, kdim=-1), ValueError, "MultiheadAttention: kdim is too small; got -1"),
    (lambda: nn.MultiheadAttention(E, HEADS, vdim="3"), TypeError, "MultiheadAttention: vdim is not an integer; got '3'"),
    (lambda: nn.MultiheadAttention(E, HEADS, 2.0), ValueError, "MultiheadAttention: dropout is out of range; got 2.0; expected 0 to 1"),
    (lambda: nn.MultiheadAttention(E, HEADS, "x"), TypeError, "MultiheadAttention: dropout is not a number; got 'x'"),
    (lambda: nn.MultiheadAttention(E, HEADS)(pf.ones(3, 2, E), pf.ones(5, 2, E), pf.ones(6, 2, E)), ValueError, "MultiheadAttention: keys and values do not fit"),
    (lambda: nn.MultiheadAttention(E, HEADS)(pf.ones(3, 2, E), *[pf.ones(5, 3, E)] * 2), ValueError, "MultiheadAttention: keys and values do not fit"),
    (lambda: nn.MultiheadAttention(E, HEADS)([1.0], pf.ones(5, 2, E), pf.ones(5, 2, E)), TypeError, "MultiheadAttention: query is not a tensor; got list"),
    (lambda: nn.MultiheadAttention(E, HEADS)(pf.ones(3, 2, E), [1.0], pf.ones(3, 2, E)), TypeError, "MultiheadAttention: key is not a tensor; got list"),
    (lambda: nn.MultiheadAttention(E, HEADS)(*[pf.ones(3, 2, E)] * 3, attn_mask=[1]), TypeError, "MultiheadAttention: attn_mask is not a tensor; got list"),
    (lambda: nn.MultiheadAttention(E, HEADS)(*[pf.ones(T, 1, N, E)] * 3), ValueError, "query must have 2 or 3 dimensions"),
])
def test_errors(wrong, error, text):
    with pytest.raises(error, match=text):
        wrong()
