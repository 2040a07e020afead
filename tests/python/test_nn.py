"""nn: modules, layers, losses, initial values, clipping. NumPy is the truth."""
import copy
import math
import pickle

import numpy as np
import pytest

import pyflame as pf
import pyflame.nn as nn
import pyflame.nn.functional as F


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(x, want, tol=1e-5):
    np.testing.assert_allclose(x.detach().numpy(), want, rtol=tol, atol=tol)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.blocks = nn.ModuleList([nn.Linear(4, 4, bias=False) for _ in range(2)])
        self.scale = nn.Parameter(pf.ones(4))
        self.register_buffer("count", pf.zeros((), dtype=pf.int64))
        self.register_buffer("scratch", pf.zeros(1), persistent=False)

    def forward(self, x):
        x = self.first(x)
        for b in self.blocks:
            x = x + b(x).relu()
        return x * self.scale


NAMES = ["scale", "first.weight", "first.bias", "blocks.0.weight", "blocks.1.weight"]


# ---- Module


def test_registration_and_walks():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == NAMES
    assert list(net.state_dict()) == ["scale", "count", "first.weight", "first.bias", "blocks.0.weight", "blocks.1.weight"]
    assert [n for n, _ in net.named_buffers()] == ["count", "scratch"] and [n for n, _ in net.named_children()] == ["first", "blocks"]
    assert [n for n, _ in net.named_modules()] == ["", "first", "blocks", "blocks.0", "blocks.1"]
    assert sum(p.numel() for p in net.parameters()) == 4 + 16 + 32
    assert net.get_submodule("blocks.1") is net.blocks[1] and net.get_parameter("first.bias") is net.first.bias
    assert all(p.requires_grad and p.is_leaf for p in net.parameters()) and len(list(net.parameters(recurse=False))) == 1


def test_shared_parameters_appear_once():
    net = nn.Module()
    net.a, net.b = nn.Linear(2, 2), nn.Linear(2, 2)
    net.b.weight = net.a.weight
    assert [n for n, _ in net.named_parameters()] == ["a.weight", "a.bias", "b.bias"] and "b.weight" in net.state_dict()


def test_attribute_replacement():
    net = Net()
    net.scale = nn.Parameter(pf.zeros(4))
    assert net.scale.tolist() == [0] * 4
    net.scale = None
    assert "scale" not in dict(net.named_parameters())
    del net.first
    assert not hasattr(net, "first")


def test_modes_and_grad_switches():
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    assert net.training and not net.eval()[1].training and net.train()[1].training
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_zero_grad():
    net = Net()
    net(pf.ones(1, 3)).sum().backward()
    assert net.scale.grad is not None
    net.zero_grad(set_to_none=False)
    assert net.scale.grad.tolist() == [0] * 4
    net.zero_grad()
    assert net.scale.grad is None


def test_apply_and_cast_keep_identity():
    net = Net()
    p = net.scale
    net.double()
    assert net.scale is p and p.dtype == pf.float64 and p.requires_grad and isinstance(p, nn.Parameter) and net.count.dtype == pf.int64
    assert net(pf.ones(1, 3, dtype=pf.float64)).dtype == pf.float64
    net.to(pf.float16)
    assert net.first.weight.dtype == pf.float16
    net.to(device="cpu", dtype="float32")
    assert net.first.weight.dtype == pf.float32
    seen = []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "Linear", "Linear", "ModuleList", "Net"]


def test_hooks():
    lin = nn.Linear(2, 2)
    calls = []
    a = lin.register_forward_pre_hook(lambda m, args: (args[0] * 0,))
    b = lin.register_forward_hook(lambda m, args, out: calls.append(args[0].tolist()) or out + 1)
    out = lin(pf.ones(1, 2))
    close(out, lin.bias.detach().numpy()[None] + 1)
    assert calls == [[[0, 0]]]
    a.remove()
    b.remove()
    close(lin(pf.zeros(1, 2)), lin.bias.detach().numpy()[None])


def test_hooks_replace_and_remove_themselves():
    lin = nn.Linear(2, 2)
    once = lin.register_forward_hook(lambda m, args, out: once.remove() or out * 0)
    pair = lin.register_forward_pre_hook(lambda m, args: args[0] * 0)  # what is no tuple is the only argument
    assert lin(pf.ones(1, 2)).tolist() == [[0, 0]]
    assert lin(pf.ones(1, 2)).tolist() == [lin.bias.tolist()]
    pair.remove()

    def fails(m, args):
        raise KeyError("hook")

    lin.register_forward_pre_hook(fails)
    with pytest.raises(KeyError, match="hook"):
        lin(pf.ones(1, 2))


def test_calls_take_any_arguments():
    class Many(nn.Module):
        def forward(self, *args, scale=1, **others):
            return args, scale, others

    m = Many()
    assert m() == ((), 1, {}) and m(*range(20), scale=2, a=3) == (tuple(range(20)), 2, {"a": 3}) and m(1, b=2) == ((1,), 1, {"b": 2})
    m.forward = lambda *args: args  # of the instance
    assert m(1, 2) == (1, 2)
    del m.forward
    assert m(1) == ((1,), 1, {})

    class Wrapped(Many):
        def __call__(self, *args, **kwargs):
            return "wrapped", super().__call__(*args, **kwargs)

        forward = staticmethod(lambda *args: args)  # no function of the class

    assert Wrapped()(1, 2) == ("wrapped", (1, 2))
    with pytest.raises(TypeError, match="forward"):
        nn.Linear(2, 2)(pf.ones(1, 2), 3)


def test_attributes_are_found_as_in_python():
    class Named(nn.Module):
        kind = "of the class"

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(pf.ones(1))
            self.child = nn.Identity()

        @property
        def broken(self):
            raise AttributeError("what was wrong in it")

        @property
        def size(self):
            return self.weight.numel()

    m = Named()
    assert m.kind == "of the class" and m.size == 1 and m.weight is m._parameters["weight"] and isinstance(m.child, nn.Identity)
    m.kind = "of the instance"
    assert m.kind == "of the instance" and getattr(m, "none", 3) == 3
    with pytest.raises(AttributeError, match="what was wrong in it"):
        m.broken
    with pytest.raises(AttributeError, match="'Named' object has no attribute 'none'"):
        m.none
    del m.weight
    m.weight = pf.zeros(2)  # a tensor that is no parameter takes its name
    assert m.size == 2 and not list(m.parameters())
    Named.__getattr__ = lambda self, name: name
    assert m.anything == "anything" and m.child == "child"
    del Named.__getattr__
    assert isinstance(m.child, nn.Identity) and not hasattr(m, "anything")


def test_attributes_of_a_class_with_getattr():
    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __getattr__(self, name):
            if name == "shadowed":
                return "mine"
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.inner, name)

    class Below(Wrapper):
        def __getattribute__(self, name):
            return "always" if name == "anything" else super().__getattribute__(name)

    w = Wrapper(nn.Linear(2, 3))
    w.shadowed = nn.Identity()
    assert w.inner.out_features == w.out_features == 3 and w.weight is w.inner.weight and w.shadowed == "mine"
    assert Below(w).anything == "always" and Below(w).weight is w.weight
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'none'"):
        w.none
    assert pickle.loads(pickle.dumps(nn.Sequential(nn.Linear(2, 3))))[0].weight.shape == (3, 2)


def test_classes_with_init_subclass():
    seen = []

    class Mixin:
        def __init_subclass__(cls, tag=None, **kwargs):
            super().__init_subclass__(**kwargs)
            seen.append((cls.__name__, tag))

    class A(Mixin, nn.Module, tag=1):
        pass

    class B(nn.Module, Mixin, tag=2):
        pass

    assert seen == [("A", 1), ("B", 2)]
    for cls in (A, B):
        m = cls()
        m.weight = nn.Parameter(pf.ones(1))
        assert m.weight.tolist() == [1]
    with pytest.raises(TypeError, match="takes no keyword arguments"):

        class C(nn.Module, tag=3):
            pass


def test_call_before_init():
    class Late(nn.Module):
        def __init__(self):
            pass

    with pytest.raises(RuntimeError, match=r"Late: super\(\).__init__\(\) was not called"):
        Late()(1)


def test_ops_of_layers_are_recorded_at_the_users_line():
    class Mine(nn.Module):
        def forward(self, x):
            return F.relu(x)

    lin, seq = nn.Linear(2, 3), nn.Sequential(nn.Sequential(nn.Linear(3, 4), Mine(), nn.Tanh()), nn.SiLU())
    hooked = nn.Sequential(nn.Sigmoid())

    def hook(m, args, out):
        return nn.functional.gelu(out)

    hooked[0].register_forward_hook(hook)

    def run(x):
        y = lin(x)
        y = seq(y)
        return hooked(y).exp()

    text = pf.explain(run, pf.ones(1, 2))
    lines = {line.split("(")[0].strip(): line.rsplit("  ", 1)[1] for line in text.splitlines() if line.startswith("    ") and " -> " in line and "test_nn.py" in line}
    first = run.__code__.co_firstlineno
    place = {op: (int(at.split(":")[1].split()[0]), at.rsplit(".", 1)[1]) for op, at in lines.items()}
    assert place["add"] == place["matmul"] == place["tanh"] == place["silu"] == (first + 2, "run")  # add, matmul: the last ones
    assert place["relu"][1] == "forward" and place["gelu"][1] == "hook" and place["sigmoid"] == place["exp"] == (first + 3, "run")


def test_load_state_dict():
    a, b = Net(), Net()
    with pf.no_grad():
        a.count.add_(3)
    result = b.load_state_dict(a.state_dict())
    assert not result.missing_keys and not result.unexpected_keys
    assert b.count.item() == 3 and pf.equal(a.first.weight, b.first.weight)
    part = {k: v for k, v in a.state_dict().items() if k != "scale"}
    part["new"] = pf.zeros(1)
    result = b.load_state_dict(part, strict=False)
    assert result.missing_keys == ["scale"] and result.unexpected_keys == ["new"]


def test_load_state_dict_changes_nothing_on_error():
    net = Net()
    before = {k: v.tolist() for k, v in net.state_dict().items()}
    bad = {k: v + 1 for k, v in net.state_dict().items() if k != "scale"}
    bad["blocks.0.weight"] = pf.zeros(2, 2)
    bad["extra"] = pf.zeros(1)
    with pytest.raises(RuntimeError) as e:
        net.load_state_dict(bad)
    text = str(e.value)
    assert text.startswith("load_state_dict: Error(s) in loading state_dict for Net:") and text.endswith("hint: strict=False ignores missing and unexpected keys")
    assert 'Missing key(s) in state_dict: "scale".' in text and 'Unexpected key(s) in state_dict: "extra".' in text
    assert "size mismatch for blocks.0.weight: copying a param with shape (2, 2) from checkpoint, the shape in current model is (4, 4)." in text
    assert {k: v.tolist() for k, v in net.state_dict().items()} == before


def test_pickle_and_deepcopy_of_modules():
    net = Net()
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert isinstance(other.scale, nn.Parameter) and other.scale is not net.scale and other.scale.requires_grad
        assert {k: v.tolist() for k, v in other.state_dict().items()} == {k: v.tolist() for k, v in net.state_dict().items()}
        with pf.no_grad():
            other.scale.add_(1)
        assert net.scale.tolist() == [1] * 4
    net.scale.sum().backward()
    assert net.scale.grad is not None and copy.deepcopy(net).scale.grad is None  # so a copy that takes steps of its own begins without gradients
    tied = nn.Module()
    tied.a = tied.b = nn.Parameter(pf.ones(1))
    c = copy.deepcopy(tied)
    assert c.a is c.b


def test_repr():
    text = repr(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    assert text == "Sequential(\n  (0): Linear(in_features=2, out_features=3, bias=True)\n  (1): ReLU()\n)"
    assert repr(nn.Parameter(pf.ones(1))).startswith("Parameter containing:\ntensor(")


def test_containers():
    s = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert len(s) == 3 and isinstance(s[-1], nn.Linear) and len(s[:2]) == 2 and s(pf.ones(4, 2)).shape == (4, 1)
    d = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Linear(1, 1)})
    assert list(d) == ["a", "b"] and "a" in d and list(d.state_dict()) == ["b.weight", "b.bias"]
    m = nn.ModuleList([nn.ReLU()])
    m.append(nn.Tanh()).insert(0, nn.SiLU())
    assert [type(x).__name__ for x in m] == ["SiLU", "ReLU", "Tanh"] and isinstance(m[1:], nn.ModuleList)


# ---- layers


def test_linear():
    x = array(5, 3)
    lin = nn.Linear(3, 4)
    w, b = lin.weight.detach().numpy(), lin.bias.detach().numpy()
    close(lin(pf.tensor(x)), x @ w.T + b)
    close(nn.Linear(3, 4, bias=False)(pf.zeros(2, 3)), np.zeros((2, 4)))


def test_conv2d():
    x = array(2, 4, 6, 5)
    conv = nn.Conv2d(4, 6, 3, stride=(2, 1), padding=1, groups=2)
    w, b = conv.weight.detach().numpy(), conv.bias.detach().numpy()
    p = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = np.zeros((2, 6, 3, 5), np.float32)
    for o in range(6):
        g = o // 3
        for i in range(3):
            for j in range(5):
                want[:, o, i, j] = (p[:, 2 * g : 2 * g + 2, 2 * i : 2 * i + 3, j : j + 3] * w[o]).sum((1, 2, 3)) + b[o]
    close(conv(pf.tensor(x)), want, 1e-4)
    assert nn.Conv2d(1, 1, 3, padding="same")(pf.zeros(1, 1, 5, 5)).shape == (1, 1, 5, 5)


def test_batch_norm():
    x = array(4, 3, 2, 2)
    bn = nn.BatchNorm2d(3)
    mean, var = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    close(bn(pf.tensor(x)), (x - mean) / np.sqrt(var + 1e-5), 1e-4)
    close(bn.running_mean, 0.1 * mean.ravel())
    close(bn.running_var, 0.9 + 0.1 * x.var((0, 2, 3), ddof=1))
    assert bn.num_batches_tracked.item() == 1
    bn.eval()
    rm, rv = (t.numpy()[None, :, None, None] for t in (bn.running_mean, bn.running_var))
    close(bn(pf.tensor(x)), (x - rm) / np.sqrt(rv + 1e-5), 1e-4)
    assert bn.num_batches_tracked.item() == 1


def test_layer_and_rms_norm():
    x = array(2, 3, 4)
    close(nn.LayerNorm(4)(pf.tensor(x)), (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5), 1e-4)
    m, v = x.mean((1, 2), keepdims=True), x.var((1, 2), keepdims=True)
    close(nn.LayerNorm((3, 4))(pf.tensor(x)), (x - m) / np.sqrt(v + 1e-5), 1e-4)
    close(nn.RMSNorm(4, eps=1e-6)(pf.tensor(x)), x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6), 1e-4)
    assert nn.LayerNorm(4, bias=False).bias is None and not list(nn.LayerNorm(4, elementwise_affine=False).parameters())


def test_pools():
    x = array(1, 2, 4, 4)
    blocks = x.reshape(1, 2, 2, 2, 2, 2)
    close(nn.MaxPool2d(2)(pf.tensor(x)), blocks.max((3, 5)))
    close(nn.AvgPool2d(2)(pf.tensor(x)), blocks.mean((3, 5)))
    values, indices = F.max_pool2d(pf.tensor(x), 2, return_indices=True)
    np.testing.assert_array_equal(x.reshape(2, 16)[np.arange(2)[:, None], indices.numpy().reshape(2, 4)], values.numpy().reshape(2, 4))


def test_dropout():
    x = pf.ones(10000)
    d = nn.Dropout(0.25)
    y = d(x)
    assert set(np.unique(y.numpy()).tolist()) <= {0.0, np.float32(1 / 0.75)} and abs(y.mean().item() - 1) < 0.05
    assert d.eval()(x) is x
    state = pf.get_rng_state()
    nn.Dropout(0.0)(x)
    assert pf.get_rng_state() == state


def test_embedding():
    e = nn.Embedding(5, 3, padding_idx=-1)
    assert e.weight[4].tolist() == [0, 0, 0]
    i = pf.tensor([[0, 4], [2, 2]])
    close(e(i), e.weight.detach().numpy()[i.numpy()])
    e(i).sum().backward()
    assert e.weight.grad.tolist() == [[1] * 3, [0] * 3, [2] * 3, [0] * 3, [0] * 3]


def erf(x):
    return np.vectorize(math.erf)(x)


@pytest.mark.parametrize("layer, f", [
    (nn.ReLU(), lambda x: np.maximum(x, 0)), (nn.Sigmoid(), lambda x: 1 / (1 + np.exp(-x))), (nn.Tanh(), np.tanh),
    (nn.SiLU(), lambda x: x / (1 + np.exp(-x))), (nn.GELU(), lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2)))),
    (nn.GELU("tanh"), lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    (nn.Softplus(), lambda x: np.log1p(np.exp(x))), (nn.LeakyReLU(0.1), lambda x: np.where(x > 0, x, 0.1 * x)),
    (nn.Softmax(-1), lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)), (nn.LogSoftmax(-1), lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True))),
    (nn.Identity(), lambda x: x), (nn.Flatten(), lambda x: x.reshape(3, -1)),
], ids=lambda v: type(v).__name__)
def test_activations(layer, f):
    x = array(3, 2, 4)
    close(layer(pf.tensor(x)), f(x), 1e-5)


def reference_attention(mha, q, k, v, mask=None):
    e, h = mha.embed_dim, mha.num_heads
    w, b = mha.in_proj_weight.detach().numpy(), mha.in_proj_bias.detach().numpy()
    q, k, v = (x @ w[i * e : (i + 1) * e].T + b[i * e : (i + 1) * e] for i, x in enumerate((q, k, v)))
    split = lambda x: x.reshape(x.shape[0], x.shape[1], h, e // h).transpose(0, 2, 1, 3)  # noqa: E731
    q, k, v = split(q), split(k), split(v)
    s = q @ k.transpose(0, 1, 3, 2) / math.sqrt(e // h)
    if mask is not None:
        s = np.where(mask, -np.inf, s)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    o = (p @ v).transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[2], e)
    return o @ mha.out_proj.weight.detach().numpy().T + mha.out_proj.bias.detach().numpy(), p.mean(1)


@pytest.mark.parametrize("weights", [True, False])
def test_multihead_attention(weights):
    mha = nn.MultiheadAttention(8, 2, batch_first=True)
    with pf.no_grad():
        mha.in_proj_bias.normal_()
    q, kv = array(2, 3, 8), array(2, 5, 8, seed=1)
    want, p = reference_attention(mha, q, kv, kv)
    out, w = mha(pf.tensor(q), pf.tensor(kv), pf.tensor(kv), need_weights=weights)
    close(out, want, 1e-4)
    assert w is None if not weights else w.shape == (2, 3, 5)
    if weights:
        close(w, p, 1e-4)
    x = pf.tensor(kv)
    causal = np.triu(np.ones((5, 5), bool), 1)
    want, _ = reference_attention(mha, kv, kv, kv, causal)
    for kwargs in ({"is_causal": True}, {"attn_mask": pf.tensor(causal)}, {"attn_mask": pf.zeros(5, 5).masked_fill(pf.tensor(causal), float("-inf"))}):
        close(mha(x, x, x, need_weights=weights, **kwargs)[0], want, 1e-4)
    pad = np.zeros((2, 5), bool)
    pad[1, 3:] = True
    want, _ = reference_attention(mha, kv, kv, kv, pad[:, None, None])
    close(mha(x, x, x, key_padding_mask=pf.tensor(pad), need_weights=weights)[0], want, 1e-4)


def test_multihead_attention_sequence_first():
    mha = nn.MultiheadAttention(4, 2)
    x = array(3, 2, 4)
    want, _ = reference_attention(mha, *[x.transpose(1, 0, 2)] * 3)
    close(mha(*[pf.tensor(x)] * 3)[0], want.transpose(1, 0, 2), 1e-4)


# ---- losses


def test_losses():
    x, t = array(4, 5), np.array([1, 0, 4, 2])
    logp = x - np.log(np.exp(x).sum(-1, keepdims=True))
    rows = -logp[np.arange(4), t]
    X, T = pf.tensor(x), pf.tensor(t)
    close(nn.CrossEntropyLoss()(X, T), rows.mean())
    close(nn.CrossEntropyLoss(reduction="none")(X, T), rows)
    close(nn.CrossEntropyLoss(ignore_index=4, reduction="sum")(X, T), rows[[0, 1, 3]].sum())
    close(nn.CrossEntropyLoss(label_smoothing=0.1)(X, T), (0.9 * rows - 0.1 * logp.mean(-1)).mean())
    close(nn.NLLLoss()(pf.tensor(logp), T), rows.mean())
    y = array(4, 5, seed=1)
    close(nn.MSELoss()(X, pf.tensor(y)), ((x - y) ** 2).mean())
    close(nn.L1Loss(reduction="sum")(X, pf.tensor(y)), abs(x - y).sum(), 1e-4)
    z = (y > 0).astype(np.float32)
    close(nn.BCEWithLogitsLoss()(X, pf.tensor(z)), (np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0) - x * z).mean())


# ---- initial values


def test_initial_values():
    pf.manual_seed(0)
    w = nn.Linear(400, 300).weight
    bound = 1 / math.sqrt(400)
    assert w.abs().max().item() <= bound and w.abs().max().item() > 0.99 * bound and abs(w.mean().item()) < 0.001
    t = pf.empty(300, 200)
    for f, std in ((nn.init.xavier_uniform_, math.sqrt(2 / 500)), (nn.init.xavier_normal_, math.sqrt(2 / 500)), (nn.init.kaiming_normal_, math.sqrt(2 / 200)),
                   (nn.init.kaiming_uniform_, math.sqrt(2 / 200)), (lambda t: nn.init.normal_(t, 0, 0.02), 0.02), (lambda t: nn.init.uniform_(t, -1, 1), math.sqrt(1 / 3))):
        assert f(t) is t and t.std().item() == pytest.approx(std, rel=0.03)
    nn.init.kaiming_uniform_(t, a=math.sqrt(5))
    assert t.abs().max().item() == pytest.approx(1 / math.sqrt(200), rel=0.01)
    assert nn.init.eye_(pf.empty(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]] and nn.init.ones_(pf.empty(2)).tolist() == [1, 1]
    x = nn.init.trunc_normal_(pf.empty(2000), std=1.0, a=-1.0, b=1.0)
    assert x.abs().max().item() <= 1
    assert nn.init.calculate_gain("relu") == math.sqrt(2)


def test_same_seed_same_model():
    def make():
        pf.manual_seed(7)
        return Net().state_dict()

    a, b = make(), make()
    assert all(a[k].tolist() == b[k].tolist() for k in a)


# ---- clipping


def test_clip_grad_norm():
    ps = [nn.Parameter(pf.zeros(3)), nn.Parameter(pf.zeros(2)), nn.Parameter(pf.zeros(1))]
    ps[0].grad, ps[1].grad = pf.tensor([3.0, 0, 0]), pf.tensor([0.0, 4])
    total = nn.utils.clip_grad_norm_(ps, 1.0)
    assert total.item() == pytest.approx(5)
    close(ps[0].grad, [0.6, 0, 0], 1e-4)
    close(ps[1].grad, [0, 0.8], 1e-4)
    assert nn.utils.clip_grad_norm_(ps, 10.0).item() == pytest.approx(1, rel=1e-4)
    close(ps[0].grad, [0.6, 0, 0], 1e-4)
    nn.utils.clip_grad_value_(ps, 0.5)
    close(ps[0].grad, [0.5, 0, 0])
    assert nn.utils.parameters_to_vector(ps).shape == (6,)


@pytest.mark.parametrize("dtype", [pf.float16, "float16", np.float16, np.dtype("float16")])
def test_to_a_dtype_by_any_of_its_names_keeps_integers(dtype):
    layer = nn.BatchNorm1d(2).to(dtype)
    assert layer.weight.dtype == layer.running_mean.dtype == pf.float16 and layer.num_batches_tracked.dtype == pf.int64
    layer.to("cpu", dtype)
    assert layer.num_batches_tracked.dtype == pf.int64
    with pytest.raises(TypeError, match="^to: a module takes only floating dtypes; got pyflame.int64$"):
        layer.to("int64")
    with pytest.raises(ValueError, match="^device: no such device; got 'cpuu'"):
        layer.to("cpuu")
