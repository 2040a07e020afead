"""Hooks of modules around forward and around gradients, for one module and for all; what a class adds to its state dict."""
import collections
import copy
import gc
import pickle
import warnings

import numpy as np
import pytest

import pyflame as pf
from pyflame import nn
from pyflame.nn import hooks


def network():
    first = nn.Linear(2, 2)
    with pf.no_grad():
        first.weight.copy_(pf.tensor([[1.0, 2.0], [3.0, 4.0]]))
        first.bias.fill_(0.5)
    return nn.Sequential(first, nn.Tanh(), nn.Identity())


def rounded(grads):
    return [None if g is None else np.round(g.numpy(), 5).tolist() for g in grads]


def test_hooks_around_gradients():
    """Numbers of PyTorch 2.15."""
    net, log = network(), []
    handles = [m.register_full_backward_hook(lambda m, gi, go: log.append((type(m).__name__, rounded(gi), rounded(go)))) for m in net]
    handles.append(net[1].register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,)))
    handles.append(net[1].register_full_backward_pre_hook(lambda m, go: (go[0] * 3,)))
    x = pf.tensor([[1.0, -1.0]], requires_grad=True)
    net(x).sum().backward()
    assert [entry[0] for entry in log] == ["Identity", "Tanh", "Linear"] and log[1][2] == [[[3.0, 3.0]]]
    np.testing.assert_allclose(log[1][1], [[[2.35934, 2.35934]]], rtol=1e-5)
    np.testing.assert_allclose(log[2][1], [[[18.87474, 28.31212]]], rtol=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), [[18.87474, 28.31212]], rtol=1e-5)
    net(pf.tensor([[1.0, -1.0]])).sum().backward()  # the input needs no gradient
    assert log[-1][0] == "Linear" and log[-1][1] == [None]
    for h in handles:
        h.remove()
    assert not hooks._special
    net(x).sum().backward()
    assert len(log) == 6


def test_a_hook_that_returns_too_many_gradients():
    layer = nn.Linear(2, 2)
    with layer.register_full_backward_hook(lambda m, gi, go: gi + gi), pytest.raises(RuntimeError, match="full_backward_hook: the hook returned 2 gradients; expected 1"):
        layer(pf.ones(1, 2, requires_grad=True)).sum().backward()
    with layer.register_full_backward_hook(lambda m, gi, go: gi), pytest.raises(RuntimeError, match="but no input needs one"):
        layer(pf.ones(1, 2)).sum().backward()
    with pytest.warns(FutureWarning, match="register_full_backward_hook"):
        layer.register_backward_hook(lambda m, gi, go: None).remove()


def test_a_hook_that_is_always_called():
    calls = []

    class Picky(nn.Module):
        def forward(self, x, fail=False):
            if fail:
                raise KeyError("x")
            return x

    m = Picky()
    m.register_forward_hook(lambda m, args, kwargs, out: calls.append((out is None, sorted(kwargs))), always_call=True, with_kwargs=True)
    m.register_forward_hook(lambda m, args, out: calls.append("plain"))
    m(pf.ones(1))
    with pytest.raises(KeyError):
        m(pf.ones(1), fail=True)
    assert calls == [(False, []), "plain", (True, ["fail"])]

    def broken(*args):
        raise ValueError("hook")

    m.register_forward_hook(broken, always_call=True)
    with pytest.raises(KeyError), pytest.warns(UserWarning, match="raised after an exception of forward: hook"):
        m(pf.ones(1), fail=True)
    del m
    gc.collect()
    assert not hooks._special  # modules are called in C again


def test_hooks_for_all_modules():
    log = []
    net = network()
    named = lambda m, *rest: log.append(type(m).__name__)  # noqa: E731
    with hooks.register_module_forward_pre_hook(lambda m, args: log.append("before")), hooks.register_module_forward_hook(named):
        net[1:](pf.ones(1))
    assert log == ["before", "before", "Tanh", "before", "Identity", "Sequential"]
    log.clear()
    with hooks.register_module_full_backward_hook(named), hooks.register_module_full_backward_pre_hook(lambda m, go: (go[0] * 2,)):
        x = pf.ones(1, requires_grad=True)
        nn.Identity()(x).sum().backward()
    assert log == ["Identity"] and x.grad.item() == 2
    with hooks.register_module_parameter_registration_hook(lambda m, name, p: log.append(name)), hooks.register_module_module_registration_hook(
            lambda m, name, child: nn.ReLU() if isinstance(child, nn.Tanh) else None), hooks.register_module_buffer_registration_hook(lambda m, name, b: log.append(name)):
        made = nn.Sequential(nn.Linear(1, 1), nn.Tanh(), nn.BatchNorm1d(1, affine=False))
    assert log[1:] == ["weight", "bias", "weight", "bias", "running_mean", "running_var", "num_batches_tracked"] and isinstance(made[1], nn.ReLU)
    with pytest.raises(TypeError, match="not callable"):
        hooks.register_module_forward_hook(3)


def test_state_besides_tensors():
    class Counting(nn.Module):
        def __init__(self, count):
            super().__init__()
            self.count, self.p = count, nn.Parameter(pf.zeros(2))

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    state = nn.Sequential(Counting(3), Counting(4)).state_dict()
    assert list(state) == ["0.p", "0._extra_state", "1.p", "1._extra_state"]
    other = nn.Sequential(Counting(0), Counting(0))
    other.load_state_dict(state)
    assert [m.count for m in other] == [3, 4]
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "1._extra_state"'):
        other.load_state_dict({k: v for k, v in state.items() if k != "1._extra_state"})
    with pytest.raises(RuntimeError, match="get_extra_state is not implemented"):
        nn.Identity().get_extra_state()


def test_a_class_that_loads_itself():
    class Renamed(nn.Module):
        def __init__(self):
            super().__init__()
            self.now, self.child = nn.Parameter(pf.zeros(2)), nn.Linear(1, 1)

        def _load_from_state_dict(self, state_dict, prefix, *rest):
            if prefix + "old" in state_dict:
                state_dict[prefix + "now"] = state_dict.pop(prefix + "old")
            super()._load_from_state_dict(state_dict, prefix, *rest)

    net = nn.ModuleDict({"a": Renamed()})
    net.load_state_dict({"a.old": pf.ones(2), "a.child.weight": pf.ones(1, 1), "a.child.bias": pf.ones(1)})
    assert net["a"].now.tolist() == [1, 1] and net["a"].child.weight.item() == 1
    with pytest.raises(RuntimeError, match=r'(?s)Missing key\(s\) in state_dict: "a.child.weight", "a.child.bias".*Unexpected key\(s\) in state_dict: "a.other"'):
        net.load_state_dict({"a.now": pf.ones(2), "a.other": pf.ones(1)})


def test_assign():
    layer, w = nn.Linear(2, 2, bias=False), pf.ones(2, 2)
    layer.load_state_dict({"weight": w}, assign=True)
    w[0, 0] = 5.0
    assert layer.weight.tolist() == [[5, 1], [1, 1]] and isinstance(layer.weight, nn.Parameter)
    norm = nn.BatchNorm1d(1)
    norm.load_state_dict({k: v.double() if v.is_floating_point() else v for k, v in norm.state_dict().items()}, assign=True)
    assert norm.running_mean.dtype == norm.weight.dtype == pf.float64


def test_more_of_module():
    net = nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2))
    assert net.get_buffer("1.running_mean") is net[1].running_mean
    with pytest.raises(AttributeError, match="there is no buffer '1.weight'"):
        net.get_buffer("1.weight")
    net.set_submodule("0", nn.ReLU())
    assert isinstance(net[0], nn.ReLU) and list(net._modules) == ["0", "1"]
    for wrong, error, text in ((("", nn.ReLU()), ValueError, "the name is empty"), (("0", 3), ValueError, "not a Module; got int"),
                               (("x.y", nn.ReLU()), AttributeError, "has no child 'x'"), (("2", nn.ReLU(), True), AttributeError, "has no child '2'"),
                               (("1.weight", nn.ReLU()), AttributeError, "is not a module")):
        with pytest.raises(error, match=text):
            net.set_submodule(*wrong)
    assert net.to_empty(device="cpu")[1].weight.shape == (2,)
    with pytest.raises(NotImplementedError, match="share_memory: processes do not share tensors"):
        net.share_memory()
    assert net.type(pf.float64)[1].num_batches_tracked.dtype == pf.float64
    net.buffer = nn.Buffer(pf.ones(2))
    net.temporary = nn.Buffer(pf.ones(2), persistent=False)
    assert "buffer" in net.state_dict() and "temporary" not in net.state_dict() and len(list(net.buffers())) == 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(net.buffer, nn.Buffer) and repr(pf.ones(1)) != ""


def test_a_state_dict_is_ordered_and_knows_versions():
    net = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3)))
    state = net.state_dict()
    assert type(state) is collections.OrderedDict
    assert state._metadata == {"": {"version": 1}, "0": {"version": 1}, "1": {"version": 1}, "1.0": {"version": 2}}
    for same in (copy.deepcopy(state), copy.copy(state), pickle.loads(pickle.dumps(state))):
        assert type(same) is collections.OrderedDict and list(same) == list(state) and same._metadata == state._metadata
    state.move_to_end("0.weight")
    assert list(state)[-1] == "0.weight"
    net.load_state_dict(state)
    into = {}
    assert net.state_dict(destination=into) is into and list(into)[0] == "0.weight"


def test_hooks_see_the_version():
    class Newer(nn.Linear):
        _version = 7

    seen, net = [], nn.Sequential(Newer(2, 3))
    net[0].register_state_dict_post_hook(lambda m, state, prefix, metadata: seen.append(metadata["version"]))
    net[0].register_load_state_dict_pre_hook(lambda m, state, prefix, metadata, *rest: seen.append(metadata.get("version")))
    net.load_state_dict(net.state_dict())
    net.load_state_dict(dict(net.state_dict()))
    assert seen == [7, 7, 7, None]


def test_batch_norm_loads_states_without_a_count():
    net = nn.Sequential(nn.BatchNorm1d(3))
    net(pf.randn(4, 3))
    old = net.state_dict()
    versions = copy.deepcopy(old._metadata)
    del old["0.num_batches_tracked"]
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "0.num_batches_tracked"'):
        net.load_state_dict(old)
    for version in (None, 1):
        old._metadata = {**versions, "0": {} if version is None else {"version": version}}
        assert net.load_state_dict(old).missing_keys == [] and net[0].num_batches_tracked.item() == 1
    net.load_state_dict(dict(old))
    assert "0.num_batches_tracked" not in old and net[0].num_batches_tracked.item() == 1
    other = nn.Sequential(nn.InstanceNorm1d(3))  # which counts nothing
    other.load_state_dict({})
