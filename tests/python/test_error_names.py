"""Errors begin with the name of the function that was called, also where it is composed of others."""
import pickle
import re
import subprocess
import sys
import types

import pytest

import pyflame as pf
import pyflame.nn.functional as F
from pyflame.nn import functional

VALUES = {
    "matrix": pf.ones(2, 3), "vector": pf.ones(3), "other": pf.ones(4, 5), "scalar": pf.ones(()), "bool": pf.ones(2, 3, dtype=pf.bool_), "integer": pf.ones(2, 3, dtype=pf.int64), "empty": pf.ones(0),
    "image": pf.ones(1, 2, 4, 4), "complex": pf.ones(2, 3, dtype=pf.complex64), "half": pf.ones(7, dtype=pf.float16),
}  # fmt: skip
FIRST = ("matrix", "integer", "complex", "image", "empty", "bool")
OTHERS = (
    [], ["other"], ["vector"], ["half", "bool"], ["integer", "vector"], ["complex", "empty"], [99], [-99], [1.5], [None], [(7, 7)], [7, 7], ["other"] * 3, ["scalar", "integer"], ["image", "vector", "integer"], [-1, -1, -1],
)  # fmt: skip
ALIASES = {
    "expit": "sigmoid", "gammainc": "igamma", "gammaincc": "igammac", "gammaln": "lgamma", "multigammaln": "mvlgamma", "psi": "digamma", "concat": "cat", "modified_bessel_i0": "i0", "modified_bessel_i1": "i1",
}  # fmt: skip
# A compiled function says what an argument is not before it is called; its errors are about the argument: `bool`, `device`, `cast` to the common dtype.
ARGUMENT = {"bool", "cast", "device", "dtype", "float", "gt"}
# Compiled functions that are computed from another one with its checks.
COMPUTED_FROM = {("i0", "i0e"), ("i1", "i1e"), ("modified_bessel_i0", "i0e"), ("modified_bessel_i1", "i1e"), ("modified_bessel_k0", "scaled_modified_bessel_k0"), ("modified_bessel_k1", "scaled_modified_bessel_k1")}


def functions():
    for space in (F, pf.linalg, pf.fft, pf.special):
        for name in sorted(getattr(space, "__all__", None) or dir(space)):
            function = getattr(space, name)
            if name[0] != "_" and callable(function) and not isinstance(function, type) and name not in functional._SMALL and getattr(function, "__name__", "") == name:
                yield name, function
    for name in sorted(dir(pf)):
        function = getattr(pf, name) if name in pf._ATTRIBUTES else pf.__dict__.get(name)  # also those that are imported when they are first used
        if getattr(function, "names_errors", False) and not name.startswith(("set_", "special_")):
            yield name, function


def test_the_walk_meets_many_functions():
    assert len(list(functions())) > 350


@pytest.mark.parametrize("first", FIRST)
def test_names(first):
    wrong, errors = {}, 0
    for name, function in functions():
        for others in OTHERS:
            arguments = [VALUES[first].clone()] + [VALUES[a] if isinstance(a, str) else a for a in others]
            try:
                function(*arguments)
            except Exception as error:
                errors += 1
                found = re.match(r"([A-Za-z_][\w.]*): ", str(error))
                # Errors that Python raises itself name no function; they are not counted.
                word = found[1].rpartition(".")[2].removeprefix("special_").strip("_") if found else None
                if word is None or word in ARGUMENT or word in (name.strip("_"), ALIASES.get(name), function.__name__) or (name, word) in COMPUTED_FROM:
                    continue
                wrong[name, word] = str(error)[:120]
    assert errors > 2000 and not wrong, wrong


def methods():
    """Methods of Tensor, and compiled functions; not those that complete what was recorded before."""
    later = re.compile(r"_|(backward|register|retain|numpy|data_ptr|cuda|share_memory|resize|item|tolist|storage|untyped|map_|apply_|set_|save|load|manual_seed|fork|cpu|to$)")
    for space in (pf.Tensor, pf):
        for name in sorted(dir(space)):
            function = space.__dict__.get(name)
            if later.match(name) or not callable(function) or isinstance(function, type) or (space is pf and type(function).__module__ != "nanobind"):
                continue
            yield name, function


# linalg's and PyTorch's old functions by another name.
OTHERWISE = {"adjoint", "inverse", "lu", "orgqr", "trapz"}


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.filterwarnings("ignore")
def test_names_of_methods(first):
    """A second name of a compiled function gives the first one."""
    wrong, errors = {}, 0
    for name, function in methods():
        own = {n.removeprefix("special_").strip("_") for n in (name, getattr(function, "__name__", name), ALIASES.get(name, name))}
        for others in OTHERS:
            try:
                function(VALUES[first].clone(), *(VALUES[a] if isinstance(a, str) else a for a in others))
            except Exception as error:
                errors += 1
                found = re.match(r"([A-Za-z_][\w.]*): ", str(error))
                word = found[1].rpartition(".")[2].removeprefix("special_").strip("_") if found else None
                if word is None or word in ARGUMENT or word in own or name.strip("_") in OTHERWISE:
                    continue
                wrong[name, word] = str(error)[:120]
    assert errors > 3000 and not wrong, wrong


def test_examples():
    for call, error, text in (
        (lambda: pf.addmm(pf.ones(2), pf.ones(2, 2), pf.ones(3, 3)), RuntimeError, "addmm: inner dimensions differ; got "),
        (lambda: pf.ones(2).addmm(pf.ones(2, 2), pf.ones(3, 3)), RuntimeError, "addmm: "),
        (lambda: pf.kthvalue(pf.ones(4), "q"), TypeError, "kthvalue: "),
        (lambda: F.max_pool1d(pf.ones(1, 2, 4), 99), ValueError, "max_pool1d: "),
        (lambda: pf.mv(3, pf.ones(3)), TypeError, "mv: an argument is not a tensor; got int; expected a tensor"),
        (lambda: pf.fft.fftn(pf.ones(3), dim="x"), Exception, "fftn: "),
        (lambda: pf.mm(pf.ones(2, 3), pf.ones(4, 5)), RuntimeError, "mm: inner dimensions differ; got "),
        (lambda: pf.ones(2).dot(pf.ones(3)), RuntimeError, "dot: inner dimensions differ; got "),
        (lambda: pf.ones(2).masked_fill_(pf.ones(3, dtype=pf.bool_), 1.0), RuntimeError, "masked_fill: shapes do not broadcast"),
        (lambda: pf.ones(2).multiply_(pf.ones(3)), RuntimeError, "multiply: shapes do not broadcast"),
        (lambda: pf.ones(2, 3).normal_(pf.ones(4, 5)), RuntimeError, "normal_: shapes do not broadcast"),
        (lambda: pf.ones(2, 3).byte("x"), TypeError, "byte: "),
        (lambda: F.one_hot(pf.tensor([5]), 3), IndexError, "one_hot: index out of range; got 5"),
        (lambda: F.elu(pf.ones(2), pf.ones(3)), pf.ArgumentError, "elu: shapes do not broadcast; got (3,) and (2,)"),
        (lambda: F.hardswish(pf.ones(2, dtype=pf.complex64)), TypeError, "hardswish: not available for complex tensors"),
        (lambda: pf.elementwise("a * b")(pf.ones(2), pf.ones(3)), pf.ArgumentError, "elementwise: shapes do not broadcast; got (2,) and (3,)"),
        (lambda: pf.elementwise("a * b + 1", "scaled")(pf.ones(2), pf.ones(3)), pf.ArgumentError, "scaled: shapes do not broadcast; got (2,) and (3,)"),
        (lambda: pf.load("there is no such file"), FileNotFoundError, "[Errno 2] load: no such file; expected a file or a folder of tensors: 'there is no such file'"),
        (lambda: pf.ones(2, dtype=pf.bool_).absolute(), TypeError, "absolute: not defined for bool"),
        (lambda: pf.negative(pf.ones(2, dtype=pf.bool_)), TypeError, "negative: not defined for bool"),
        (lambda: F.mse_loss(pf.ones(2, dtype=pf.int64), pf.ones(2, dtype=pf.int64)), TypeError, "mse_loss: needs a float dtype"),
        (lambda: F.l1_loss(pf.ones(2, dtype=pf.bool_), pf.ones(2, dtype=pf.bool_)), TypeError, "l1_loss: not defined for two bool tensors"),
        (lambda: pf.polygamma(1, pf.ones(2, dtype=pf.complex64)), Exception, "polygamma: not available for complex tensors"),
        (lambda: pf.ones(2).index_fill_(0, pf.ones(2, 3, dtype=pf.int64), 1.0), Exception, "index_fill_: the index is not a vector"),
        (lambda: F.pdist(pf.ones(2, 3, dtype=pf.bool_)), Exception, "pdist: "),
        (lambda: pf.svd(3), TypeError, "svd: an argument is not a tensor; got int; expected a tensor"),
        (lambda: pf.linalg.svd([[1.0]]), TypeError, "svd: an argument is not a tensor; got list; expected a tensor"),
        (lambda: pf.pinverse(3), TypeError, "pinverse: an argument is not a tensor; got int; expected a tensor"),
        (lambda: pf.matrix_exp(3), TypeError, "matrix_exp: an argument is not a tensor; got int; expected a tensor"),
    ):
        with pytest.raises(error) as caught:
            call()
        assert str(caught.value).startswith(text), str(caught.value)


def test_late_errors_keep_the_op_that_failed():
    """A kernel's error is that of the op which recorded it, in whichever function its value is read."""
    quotient = pf.ones(3, dtype=pf.int64) // pf.zeros(3, dtype=pf.int64)
    with pytest.raises(RuntimeError, match="recorded at") as caught:
        pf.cov(pf.ones(2, 3), fweights=quotient)
    assert not str(caught.value).startswith("cov: ")


@pytest.mark.parametrize("space", [pf, F, pf.fft, pf.linalg, pf.special], ids=lambda m: m.__name__)
def test_functions_are_pickled_by_name(space):
    functions = [f for name, f in vars(space).items() if name[0] != "_" and isinstance(f, types.FunctionType) and f.__module__.startswith("pyflame")]
    assert len(functions) > 15 and [f.__name__ for f in functions if pickle.loads(pickle.dumps(f)) is not f] == []


@pytest.mark.parametrize("indices", ["()", "(None,)", "[]", "pf.ones(0)"])
def test_index_put_without_an_index(indices):
    """In a process of its own: it ended the process once."""
    for name in ("index_put", "index_put_"):
        code = f"import pyflame as pf\ntry:\n    pf.ones(2, 3).{name}({indices}, pf.ones(2, 3))\nexcept IndexError as e:\n    print(e)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0 and done.stdout.startswith(f"{name}: no index; got "), (done.stdout, done.stderr)
    with pytest.raises(TypeError, match="index_put: indices are not a tuple; got int"):
        pf.index_put(pf.ones(2), 5, pf.ones(2))


# ---- what was computed in silence


def test_values_that_are_refused_or_nan():
    prune, nan = pf.nn.utils.prune, float("nan")
    for call, error, text in (
        (lambda: F.celu(pf.ones(2), alpha=0), pf.ArgumentError, "celu: alpha is 0"),
        (lambda: pf.nn.init.trunc_normal_(pf.zeros(3), a=2.0, b=-2.0), pf.ArgumentError, "trunc_normal_: an empty range"),
        (lambda: prune.custom_from_mask(pf.nn.Linear(3, 2), "weight", pf.ones(1, 3)), pf.ArgumentError, "custom_from_mask: the mask has another shape"),
        (lambda: F.triplet_margin_loss(pf.ones(1, 2), pf.ones(1, 2), pf.ones(1, 2), margin=0), ValueError, "triplet_margin_loss: the margin is not positive"),
        (lambda: F.triplet_margin_with_distance_loss(pf.ones(1, 2), pf.ones(1, 2), pf.ones(1, 2), margin=-1), ValueError, "triplet_margin_with_distance_loss: the margin"),
        (lambda: pf.distributions.Multinomial(-1, pf.tensor([0.5, 0.5])), ValueError, "Multinomial: a negative total_count"),
        (lambda: F.gaussian_nll_loss(pf.ones(2), pf.ones(2), -1.0), ValueError, "gaussian_nll_loss: a negative variance"),
    ):
        with pytest.raises(error, match=text):
            call()
    loss = F.gaussian_nll_loss(pf.ones(3), pf.ones(3), pf.tensor([1.0, -1.0, 0.0]), reduction="none")
    assert loss.isnan().tolist() == [False, True, False]
    loss = F.kl_div(pf.zeros(3), pf.tensor([-1.0, 0.0, 1.0]), reduction="none")
    assert loss.isnan().tolist() == [True, False, False]
    assert nan != F.gumbel_softmax(pf.zeros(3), tau=0).sum().item()  # as in PyTorch


def test_values_as_in_pytorch():
    linear = pf.nn.Linear(3, 2)
    pf.nn.utils.vector_to_parameters(pf.arange(9).float(), linear.parameters())  # what is left over has no place
    assert linear.weight.tolist() == [[0, 1, 2], [3, 4, 5]] and linear.bias.tolist() == [6, 7]
    optimizer = pf.optim.SGD([pf.zeros(1, requires_grad=True)], lr=1.0)
    schedule = pf.optim.lr_scheduler.ConstantLR(optimizer, factor=0, total_iters=1)
    with pytest.raises(ZeroDivisionError):
        optimizer.step(), schedule.step()


def test_retained_gradients_add_up():
    x = pf.ones(2, requires_grad=True)
    y = x * 2
    y.retain_grad()
    z = (y * 3).sum()
    z.backward(retain_graph=True)
    first = y.grad
    z.backward(retain_graph=True)
    assert y.grad.tolist() == [6, 6] and x.grad.tolist() == [12, 12] and first.tolist() == [3, 3] and not y.grad.requires_grad
    y.grad = None
    z.backward()
    assert y.grad.tolist() == [3, 3]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_old_files_of_each_pickle_protocol(protocol, tmp_path):
    """A file of PyTorch's old format, written here: four pickles, the list of storages, their elements."""
    parts = (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}, {"step": 7, "name": "a"}, [])
    path = tmp_path / "old.pt"
    path.write_bytes(b"".join(pickle.dumps(part, protocol=protocol) for part in parts))
    assert pf.load(path) == {"step": 7, "name": "a"}
    (tmp_path / "cut.pt").write_bytes(path.read_bytes()[:9])
    with pytest.raises(ValueError, match="no format that is known"):
        pf.load(tmp_path / "cut.pt")


def test_warnings_name_the_callers_line(monkeypatch):
    """What gives errors their names adds a frame, which warnings pass by."""
    monkeypatch.setattr(pf._notes, "_said", set())
    with pytest.warns(UserWarning, match="dropout3d: an input of 2 dims") as seen:
        line = pf.nn.functional.dropout3d(pf.ones(2, 3)) is not None and sys._getframe().f_lineno
    assert (seen[0].filename, seen[0].lineno) == (__file__, line)
