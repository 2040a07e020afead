"""The order of parameters and children, and the containers that change."""
import pytest

import pyflame as pf
from pyflame import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 2)
        self.w = nn.Parameter(pf.zeros(1))
        self.b = nn.Linear(2, 3)
        self.v = nn.Parameter(pf.zeros(2))


def test_what_is_assigned_again_keeps_its_place():
    net = Net()
    before = list(net.state_dict())
    net.a = nn.Linear(2, 2)
    net.w = nn.Parameter(pf.ones(1))
    assert [n for n, _ in net.named_children()] == ["a", "b"]
    assert list(net.state_dict()) == before == ["w", "v", "a.weight", "a.bias", "b.weight", "b.bias"]
    x = pf.randn(1, 2)
    assert pf.equal(nn.Sequential(*net.children())(x), net.b(net.a(x)))


def test_a_name_changes_its_kind():
    net = Net()
    net.register_buffer("steps", pf.zeros(1), persistent=False)
    net.steps = nn.Parameter(pf.ones(1))
    assert "steps" in net.state_dict() and "steps" in dict(net.named_parameters())
    net.w = nn.Linear(1, 1)
    assert [n for n, _ in net.named_children()] == ["a", "b", "w"] and "w" not in dict(net.named_parameters())


def layers(n=4):
    return [nn.Linear(i + 1, i + 2) for i in range(n)]


def test_sequential_items():
    ls = layers()
    seq = nn.Sequential(*ls)
    new = nn.Linear(2, 3)
    seq[1] = new
    setattr(seq, "0", ls[0])
    assert list(seq) == [ls[0], new, ls[2], ls[3]] and seq(pf.randn(1, 1)).shape == (1, 5)
    seq[-1] = nn.Tanh()
    del seq[1]
    assert list(seq._modules) == ["0", "1", "2"] and seq[1] is ls[2] and seq.pop(0) is ls[0]
    seq.insert(0, ls[1])
    seq.extend([nn.ReLU()])
    seq += nn.Sequential(nn.SiLU())
    assert [type(m).__name__ for m in seq] == ["Linear", "Linear", "Tanh", "ReLU", "SiLU"]
    del seq[1:]
    assert len(seq) == 1 and ls[1] in seq
    assert len(seq + nn.Sequential(nn.ReLU())) == 2 and len(seq * 3) == 3
    for wrong, error in [
        (lambda: seq.__setitem__(4, nn.ReLU()), IndexError),
        (lambda: seq.__delitem__(4), IndexError),
        (lambda: seq.insert(4, nn.ReLU()), IndexError),
        (lambda: seq.insert(0, 3), TypeError),
        (lambda: seq.extend(3), TypeError),
        (lambda: seq * 0, ValueError),
    ]:
        with pytest.raises(error):
            wrong()


def test_named_children_of_a_sequential_keep_their_names():
    seq = nn.Sequential({"first": nn.Linear(1, 2), "second": nn.Linear(2, 1)})
    seq[0] = nn.Linear(1, 2, bias=False)
    assert list(seq.state_dict()) == ["first.weight", "second.weight", "second.bias"]


def test_module_list_items():
    ls = layers()
    m = nn.ModuleList(ls[:2])
    m += ls[2:3]
    m.extend(ls[3:])
    assert list(m) == ls
    m[0], m[-1] = nn.ReLU(), nn.Tanh()
    assert [type(x).__name__ for x in m] == ["ReLU", "Linear", "Linear", "Tanh"]
    del m[1:3]
    assert list(m._modules) == ["0", "1"] and m.pop(0) is not None and len(m) == 1
    assert isinstance(m + [nn.ReLU()], nn.ModuleList) and len(nn.ModuleList()) == 0


def test_module_dict():
    d = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
    d["a"] = nn.SiLU()
    assert list(d) == ["a", "b"] and isinstance(d.pop("a"), nn.SiLU) and list(d) == ["b"]
    d.update(nn.ModuleDict({"c": nn.ReLU()}))
    assert list(d) == ["b", "c"]
    d.clear()
    assert len(d) == 0
