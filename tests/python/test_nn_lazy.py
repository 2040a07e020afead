"""Lazy layers, and lists and dicts of parameters."""
import copy
import pickle

import pytest

import pyflame as pf
from pyflame import nn


@pytest.mark.parametrize("name,args,shape", [
    ("LazyLinear", (3,), (2, 5)), ("LazyConv1d", (4, 3), (2, 6, 7)), ("LazyConv2d", (4, 3), (2, 6, 7, 7)), ("LazyConvTranspose2d", (4, 3), (6, 7, 7)),
    ("LazyBatchNorm1d", (), (2, 5)), ("LazyBatchNorm2d", (), (2, 5, 3, 3)), ("LazyBatchNorm3d", (), (2, 5, 3, 3, 3)), ("LazyInstanceNorm2d", (1e-5, 0.1, True, True), (5, 3, 3)),
])
def test_they_become_the_others(name, args, shape):
    layer = getattr(nn, name)(*args)
    x = pf.randn(*shape)
    wanted = [k for k, p in layer.named_parameters()]
    assert layer.has_uninitialized_params()
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)) if name == "LazyLinear" else layer):
        y = other(x)
        assert type(other) is getattr(nn, name[4:]) and [k for k, _ in other.named_parameters()] == wanted
        assert all(type(p) is nn.Parameter and p.requires_grad for p in other.parameters()) and not other._forward_pre_hooks
        filled = type(other)(*_sizes(name, args, shape))
        filled.load_state_dict(other.state_dict())
        assert pf.allclose(filled(x), y if "Norm" not in name else other(x), equal_nan=True)
        assert repr(filled) == repr(other)


def _sizes(name, args, shape):
    if name == "LazyLinear":
        return (shape[-1], *args)
    channels = shape[0] if len(shape) == 3 and name.endswith("2d") else shape[1]
    return (channels, *args)


def test_states_of_lazy_layers():
    layer = nn.LazyLinear(3).to(pf.float64)
    layer.load_state_dict(nn.Linear(7, 3).state_dict())
    assert layer.weight.shape == (3, 7) and layer.weight.dtype == pf.float64
    lazy = nn.LazyLinear(3)
    assert type(lazy.state_dict()["weight"]) is nn.UninitializedParameter and repr(lazy.weight) == "<UninitializedParameter>"
    with pytest.raises(RuntimeError, match="UninitializedParameter: it has no shape yet; hint: call the lazy module"):
        lazy.weight.shape
    for name in ("ndim", "nbytes", "T", "mT", "H", "mH"):
        with pytest.raises(RuntimeError, match=f"^{name}: the tensor has no shape yet; got UninitializedParameter"):
            getattr(lazy.weight, name)
    with pytest.raises(ValueError, match="size: the tensor has no shape yet; got UninitializedParameter"):
        lazy.weight.size()
    with pytest.raises(RuntimeError, match="got a tensor without a shape"):
        nn.Linear(7, 3).load_state_dict(lazy.state_dict())
    with pytest.raises(RuntimeError, match="LazyConv2d: the input has 2 dimensions; expected 3 without a batch or 4 with one"):
        nn.LazyConv2d(1, 1)(pf.ones(1, 1))
    with pytest.raises(ValueError, match="LazyConv2d: groups must divide the channels"):
        nn.LazyConv2d(2, 1, groups=2)(pf.ones(1, 3, 1, 1))


def test_optimizers_keep_the_parameters():
    net = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(1))
    before = list(net.parameters())
    net(pf.ones(2, 3))
    assert all(a is b for a, b in zip(before, net.parameters())) and [tuple(p.shape) for p in before] == [(4, 3), (4,), (1, 4), (1,)]


@pytest.mark.parametrize("name", ["Adagrad", "Muon"])
def test_optimizers_that_read_shapes_ask_for_a_first_batch(name):
    net, make = nn.LazyLinear(4, bias=False), getattr(pf.optim, name)
    with pytest.raises(ValueError, match=f"{name}: a parameter has no shape yet; got UninitializedParameter of a lazy module; .* hint: call the module with a first batch before"):
        make(net.parameters())
    net(pf.ones(2, 3)).sum().backward()
    before = net.weight.tolist()
    make(net.parameters()).step()
    assert net.weight.tolist() != before


def test_parameter_list():
    things = nn.ParameterList([pf.ones(1), nn.Parameter(pf.zeros(2)), "x"])
    assert [k for k, _ in things.named_parameters()] == ["0", "1"]
    things += [pf.ones(3)]
    assert len(things) == 4 and list(things.state_dict()) == ["0", "1", "3"] and things[-2] == "x"
    things[0] = pf.ones(7)
    assert [tuple(p.shape) for p in (things[0], *things[3:])] == [(7,), (3,)]
    assert things.pop(1).shape == (2,) and len(things) == 3 and list(things.state_dict()) == ["0", "2"]
    assert "(0): Parameter containing: [float32 of size 7]" in repr(things).replace("pyflame.", "") and "(1): Object of type: str" in repr(things)
    for wrong, error in ((lambda: things[9], IndexError), (lambda: things.extend(3), TypeError), (lambda: things(), RuntimeError)):
        with pytest.raises(error, match="ParameterList"):
            wrong()


def test_parameter_dict():
    things = nn.ParameterDict({"a": pf.ones(1), "b": pf.ones(2)})
    things.update([("c", pf.ones(3))])
    assert list(things) == list(things.state_dict()) == ["a", "b", "c"] and "a" in things and len(things) == 3
    assert things.popitem()[0] == "c" and list((things | {"z": pf.ones(1)}).keys()) == ["a", "b", "z"] and list(reversed(things)) == ["b", "a"]
    assert things.get("none") is None and things.setdefault("b").shape == (2,) and isinstance(things.setdefault("d", pf.ones(1)), nn.Parameter)
    assert list(things.fromkeys("xy", 1.0).items()) == [("x", 1.0), ("y", 1.0)]
    things |= {"e": pf.ones(1)}
    assert things.pop("e").shape == (1,) and [k for k, _ in things.copy().items()] == ["a", "b", "d"] and list(({"q": pf.ones(1)} | things).keys()) == ["q", "a", "b", "d"]
    things.clear()
    assert len(things) == 0 and not list(things.parameters())
    for wrong, error in ((lambda: things["a"], KeyError), (lambda: things.__setitem__(1, pf.ones(1)), TypeError), (lambda: things(), RuntimeError), (lambda: things.update(3), TypeError)):
        with pytest.raises(error):
            wrong()


def test_lazy_instance_norm_learns_and_tracks_unless_told():
    layer = nn.LazyInstanceNorm2d()
    assert layer.affine and layer.track_running_stats
    layer(pf.randn(2, 5, 3, 3))
    assert layer.weight.shape == layer.running_mean.shape == (5,) and "affine=True" in repr(layer)
    for plain, shape in ((nn.LazyInstanceNorm1d, (2, 5, 3)), (nn.LazyBatchNorm1d, (4, 5))):
        layer = plain(affine=False, track_running_stats=False)
        assert layer(pf.randn(*shape)).shape == shape and layer.num_features == 5


def test_a_lazy_norm_that_was_loaded_knows_its_channels():
    layer, done = nn.LazyInstanceNorm1d(), nn.InstanceNorm1d(5, affine=True, track_running_stats=True)
    done.weight.data.fill_(2)
    layer.load_state_dict(done.state_dict())
    x = pf.randn(2, 5, 3)
    assert pf.equal(layer(x), done(x)) and layer.num_features == 5


def test_arguments_by_place():
    """They have the order of the layers without Lazy in their names, and so PyTorch's."""
    for name, args, shape in [("Conv1d", (6, 3, 2, 1, 1, 2, False, "reflect"), (2, 4, 9)), ("Conv2d", (6, 3, 1, 1, 2, 2, True), (2, 4, 9, 9)), ("ConvTranspose2d", (6, 3, 2, 0, 1, 2, True, 2), (2, 4, 5, 5))]:
        lazy, layer = getattr(nn, "Lazy" + name)(*args), getattr(nn, name)(4, *args)
        lazy(pf.zeros(*shape))
        assert repr(lazy) == repr(layer) and {k: v.shape for k, v in lazy.state_dict().items()} == {k: v.shape for k, v in layer.state_dict().items()}
    norm = nn.LazyBatchNorm1d(bias=False)
    norm(pf.zeros(2, 3))
    assert norm.bias is None and norm.weight.shape == (3,)


@pytest.mark.parametrize("kind", [nn.UninitializedParameter, nn.UninitializedBuffer])
@pytest.mark.parametrize("call, name", [
    (lambda t: t + 1, "add"), (lambda t: 1 - t, "rsub"), (lambda t: pf.ones(2) * t, "rmul"), (lambda t: t.sum(), "sum"), (lambda t: t == 1, "eq"),
    (lambda t: t[0], "getitem"), (lambda t: len(t), "len"), (lambda t: t.numel(), "numel"), (lambda t: t.clone(), "clone"), (lambda t: t.tolist(), "tolist"),
    (lambda t: t.fill_(1), "fill"), (lambda t: t.matmul(pf.ones(1)), "matmul"), (lambda t: t.numpy(), "numpy"),
])
def test_nothing_is_computed_without_a_shape(kind, call, name):
    tensor = kind()
    with pytest.raises(ValueError, match=f"{name}: the tensor has no shape yet; got {kind.__name__}"):
        call(tensor)
    assert len({tensor, tensor}) == 1 and tensor.dtype == pf.float32 and tensor.is_floating_point()
    assert pf.nn.LazyLinear(3).half().weight.dtype == pf.float16
    tensor.materialize((2, 3))
    assert (tensor.detach() * 0).sum().item() == 0 and len(tensor) == 2


def test_a_lazy_layer_is_not_saved(tmp_path):
    """The file had empty tensors, which an ordinary layer could not load."""
    with pytest.raises(ValueError, match="save: a tensor has no shape yet; got UninitializedParameter at weight"):
        pf.save(nn.LazyLinear(3).state_dict(), tmp_path / "lazy.pf")


def test_a_snapshot_while_a_parameter_has_no_shape():
    lazy, t = nn.LazyLinear(3), pf.ones(1000)
    t.tolist()
    held = [row["holder"] for row in pf.memory.snapshot("cpu").document["blocks"]]
    assert lazy.has_uninitialized_params() and any("t in test_a_snapshot" in name for name in held)
