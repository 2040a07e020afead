"""Idioms of PyTorch programs that stopped on a missing path, keyword or kind of argument."""
import collections
import copy
import io
import os
import subprocess
import sys

import numpy as np
import pyflame as pf
import pytest
from pyflame import nn


def test_type_takes_an_old_type():
    x = pf.tensor([1.5, -2.0], dtype=pf.float64)
    assert x.type(pf.FloatTensor).dtype == pf.float32 and x.type(pf.LongTensor).tolist() == [1, -2]
    assert x.type(pf.DoubleTensor) is x and x.type(dtype=pf.FloatTensor).type() == "torch.FloatTensor"
    assert x.type("torch.IntTensor").dtype == pf.int32 and x.type(pf.float16, non_blocking=True).dtype == pf.float16
    mask = (x < 0).type(pf.Tensor)
    assert mask.dtype == pf.float32 and mask.tolist() == [0, 1] and x.type(dtype=pf.Tensor).type() == "torch.FloatTensor"
    with pytest.raises(TypeError, match="not a dtype"):
        x.type(int.__add__)
    if not pf.cuda.is_available():
        with pytest.raises(pf.DeviceError, match="there is no GPU"):
            x.type(pf.cuda.FloatTensor)


def test_roll_takes_a_shift_that_is_a_tensor():
    x = pf.arange(6).reshape(2, 3)
    assert x.roll(pf.tensor(1)).tolist() == [[5, 0, 1], [2, 3, 4]] and pf.roll(x, pf.tensor(-1), 1).tolist() == [[1, 2, 0], [4, 5, 3]]
    assert pf.roll(x, pf.tensor([1]), dims=(0,)).tolist() == [[3, 4, 5], [0, 1, 2]]
    with pytest.raises(TypeError, match="roll"):
        x.roll(pf.tensor(1.5))


def test_grad_takes_only_inputs_where_pytorch_has_it():
    x = pf.tensor([2.0], requires_grad=True)
    unused = pf.ones(1, requires_grad=True)
    assert pf.autograd.grad(x * x, x, only_inputs=True)[0].item() == 4
    assert pf.autograd.grad(x * x, [x, unused], None, None, False, True, True)[1] is None  # allow_unused is the seventh
    with pytest.raises(NotImplementedError, match=r"grad: only_inputs=False is not available.*backward\(\)"):
        pf.autograd.grad(x * x, x, only_inputs=False)


def test_a_deque_is_a_sequence_of_numbers():
    returns = collections.deque([1.0, 2.5])
    returns.appendleft(0.5)
    t = pf.tensor(returns)
    assert t.dtype == pf.float32 and t.tolist() == [0.5, 1.0, 2.5]
    assert pf.tensor(collections.deque([collections.deque([1, 2]), [3, 4]])).tolist() == [[1, 2], [3, 4]]
    assert pf.tensor(collections.deque()).shape == (0,)
    with pytest.raises(ValueError, match="ragged data"):
        pf.tensor(collections.deque([[1], 2]))


def test_a_file_that_is_not_there(tmp_path):
    for name in ("nothing.pt", "nothing.safetensors"):
        with pytest.raises(FileNotFoundError, match="load: no such file.*nothing") as caught:
            pf.load(tmp_path / name)
        assert caught.value.filename == str(tmp_path / name)


DISTRIBUTION_PATHS = {"normal": "Normal", "categorical": "Categorical", "bernoulli": "Bernoulli", "multivariate_normal": "MultivariateNormal", "independent": "Independent", "beta": "Beta",
                      "transformed_distribution": "TransformedDistribution", "distribution": "Distribution", "utils": "logits_to_probs", "kl": "kl_divergence", "relaxed_categorical": "RelaxedOneHotCategorical",
                      "exp_family": "ExponentialFamily", "mixture_same_family": "MixtureSameFamily", "log_normal": "LogNormal", "half_normal": "HalfNormal", "lowrank_multivariate_normal": "LowRankMultivariateNormal"}
PATHS = [f"distributions.{file}:{name}" for file, name in DISTRIBUTION_PATHS.items()] + [
    "nn.common_types:_size_2_t", "nn.common_types:_size_any_t", "types:Number", "types:Device", "types:_size", "types:_TensorOrTensors", "overrides:has_torch_function", "overrides:handle_torch_function",
    "overrides:is_tensor_like", "utils.hooks:RemovableHandle", "utils.data._utils.collate:default_collate", "utils.data.dataset:T_co", "optim.adamw:AdamW", "optim.rmsprop:RMSprop", "optim.adadelta:Adadelta",
    "optim.nadam:NAdam", "optim.radam:RAdam", "optim.rprop:Rprop", "optim.optimizer:required", "nn.modules.dropout:_DropoutNd", "nn.modules.transformer:_get_clones",
    "nn.modules.linear:NonDynamicallyQuantizableLinear", "nn.modules.module:_addindent", "functional:einsum", "amp.grad_scaler:GradScaler", "amp.autocast_mode:autocast", "storage:UntypedStorage",
    "nn.init:_no_grad_trunc_normal_", "nn:NLLLoss2d", "nn:CrossMapLRN2d", "nn.modules:_DropoutNd"]  # fmt: skip


def test_paths_of_pytorch_import():
    lines = [f"from pyflame.torch.{path} import {name}" for path, _, name in (p.partition(":") for p in PATHS)]
    lines += ["import pyflame.torch as t", "assert t.distributions.normal.Normal is t.distributions.Normal and t.optim.adamw.AdamW is t.optim.AdamW",
              "assert t.amp.grad_scaler.GradScaler is t.GradScaler and t.functional.einsum is t.einsum"]  # fmt: skip
    run = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    assert run.returncode == 0, run.stderr


def test_nothing_overrides_a_function():
    from pyflame import overrides

    x = pf.ones(1)
    assert not overrides.has_torch_function((x,)) and not overrides.has_torch_function_unary(x) and not overrides.has_torch_function_variadic(x, x)
    assert overrides.is_tensor_like(x) and not overrides.is_tensor_like(np.ones(1))
    with pytest.raises(NotImplementedError, match="overrides.handle_torch_function"):
        overrides.handle_torch_function(abs, (x,))
    with pytest.raises(NotImplementedError, match="overrides.TorchFunctionMode"):
        overrides.TorchFunctionMode()


def test_an_option_that_must_be_given():
    from pyflame.optim.optimizer import Optimizer, required

    class Plain(Optimizer):
        def __init__(self, params, lr=required):
            super().__init__(params, {"lr": lr})

    parameter = nn.Parameter(pf.ones(1))
    assert Plain([parameter], 0.5).param_groups[0]["lr"] == 0.5 and Plain([{"params": [parameter], "lr": 1.0}]).param_groups[0]["lr"] == 1.0
    with pytest.raises(ValueError, match="lr"):
        Plain([parameter])
    assert repr(required) == "<required parameter>"


def test_equal_children_are_printed_once():
    block = nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Linear(1, 2), nn.Linear(1, 3), nn.Linear(1, 3), nn.Linear(1, 3)])
    assert repr(block).splitlines() == ["ModuleList(", "  (0-1): 2 x ReLU()", "  (2): Linear(in_features=1, out_features=2, bias=True)",
                                        "  (3-5): 3 x Linear(in_features=1, out_features=3, bias=True)", ")"]  # fmt: skip
    nested = nn.ModuleList([nn.Sequential(nn.ReLU()) for _ in range(2)])
    assert repr(nested).splitlines() == ["ModuleList(", "  (0-1): 2 x Sequential(", "    (0): ReLU()", "  )", ")"]
    assert repr(nn.ModuleList()) == "ModuleList()"


def test_functions_with_pytorchs_second_names():
    x = pf.tensor([-1.0, 0.2, 2.0])
    assert pf.allclose(x.prelu(pf.tensor([0.25])), pf.tensor([-0.25, 0.2, 2.0])) and pf.allclose(x.hardshrink(0.5), pf.tensor([-1.0, 0.0, 2.0]))
    assert pf.select_copy(x, 0, 1).item() == pf.tensor(0.2).item() and [p.tolist() for p in pf.split_copy(pf.arange(3), 2)] == [[0, 1], [2]]
    assert pf.detach_copy(x).data_ptr() != x.data_ptr() and pf.slice_copy(pf.arange(5), 0, 1, 5, 2).tolist() == [1, 3]
    for wrong, dim in ((pf.arange(5), 5), (pf.arange(5), -2), (pf.tensor(1.0), 0)):
        with pytest.raises(IndexError, match="slice_copy: "):
            pf.slice_copy(wrong, dim, 0, 1)
    assert pf.sym_max(2, 3) == 3 and pf.sym_min(2, 3) == 2 and pf.sym_int(2.5) == 2 and pf.sym_float(2) == 2.0 and pf.sym_not(False)
    assert not isinstance(3, pf.SymInt)
    pf._assert(True, "not raised")
    with pytest.raises(AssertionError, match="the size"):
        pf._assert(pf.tensor(False), "the size")
    assert not pf.is_autocast_cpu_enabled() and pf.get_autocast_cpu_dtype() == pf.bfloat16 and pf.get_autocast_gpu_dtype() == pf.float16


@pytest.mark.parametrize("cell, function", [(nn.LSTMCell(3, 2), pf.lstm_cell), (nn.GRUCell(3, 2), pf.gru_cell), (nn.RNNCell(3, 2), pf.rnn_tanh_cell),
                                            (nn.RNNCell(3, 2, nonlinearity="relu"), pf.rnn_relu_cell)])  # fmt: skip
def test_cells_as_functions(cell, function):
    x, h = pf.randn(4, 3), pf.randn(4, 2)
    state = (h, pf.randn(4, 2)) if isinstance(cell, nn.LSTMCell) else h
    found, expected = function(x, state, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh), cell(x, state)
    for a, b in zip(found, expected):
        assert pf.equal(a, b)
    without = type(cell)(3, 2, bias=False)
    if function is not pf.rnn_relu_cell:
        assert pf.allclose(function(x, state, without.weight_ih, without.weight_hh)[0], without(x, state)[0])
    right = [cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh]
    for at, name in enumerate(("w_ih", "w_hh", "b_ih", "b_hh")):
        wrong = pf.cat([right[at], right[at]])  # more rows than gates * H
        with pytest.raises(pf.ArgumentError, match=f"^{function.__name__}: {name} does not fit; got shape"):
            function(x, state, *right[:at], wrong, *right[at + 1:])


def test_norm_across_maps_is_local_response_norm():
    x = pf.randn(2, 5, 3, 3)
    assert pf.equal(nn.CrossMapLRN2d(3)(x), nn.LocalResponseNorm(3)(x))


def test_view_of_another_dtype_shares_memory():
    x = pf.tensor([[1.0, -2.0, 0.0, 3.5], [0.5, 8.0, -0.25, 100.0]])
    for dtype in (pf.int32, pf.int16, pf.uint8, pf.int64, pf.float64, pf.float16):
        assert x.view(dtype).numpy().tobytes() == x.numpy().tobytes() and x.view(dtype).dtype == dtype
    assert x.view(pf.uint8).shape == (2, 16) and x.view(pf.int64).shape == (2, 2) and x[:, 2:].view(pf.int64).shape == (2, 1)
    bits = x.view(pf.int32)
    bits[0, 0] = 0x40000000
    assert x[0, 0].item() == 2.0 and pf.equal(bits.view(pf.float32), x)
    halves = pf.tensor([1.0, 2.0], dtype=pf.bfloat16).view(pf.int16)
    assert halves.tolist() == [0x3F80, 0x4000] and x.T.view(pf.int32).T.equal(x.view(pf.int32))
    assert x.view(pf.float32).shape == x.shape and pf.tensor(1.0).view(pf.int32).item() == 0x3F800000


def test_view_of_another_dtype_of_a_delayed_result():
    x = pf.arange(1.0, 9.0)
    y = x * 2 + 1
    exponents = (y.view(pf.int32) >> 23) - 127
    assert exponents.tolist() == [1, 2, 2, 3, 3, 3, 3, 4]
    z = ((y.view(pf.int32) & 0x007FFFFF) | 0x3F800000).view(pf.float32) + 0.0  # mantissas
    assert pf.equal(z * 2.0 ** exponents.float(), y)
    y.view(pf.int32).add_(1 << 23)  # twice the number
    assert pf.equal(y, (x * 2 + 1) * 2)
    leaf = pf.ones(2, requires_grad=True)
    assert not (leaf * 3).view(pf.int32).requires_grad and not leaf.view(pf.int32).requires_grad


def test_view_of_another_dtype_refuses():
    x = pf.ones(2, 3)
    for wrong, error, message in [
        (lambda: x.view(pf.bool), TypeError, "view: bytes of float32 are no truth values.*hint: x != 0"),
        (lambda: x.view(pf.int64), pf.ArgumentError, "the bytes do not divide into elements of 8 bytes"),
        (lambda: pf.ones(4)[1:3].view(pf.int64), pf.ArgumentError, "the bytes do not divide"),
        (lambda: pf.ones(4, 4).T.view(pf.int64), pf.ArgumentError, "expected a last stride of 1; hint: contiguous"),
        (lambda: pf.tensor(1.0).view(pf.int64), pf.ArgumentError, "elements of 4 bytes have no view of 8 bytes"),
        (lambda: x.view(1.5), TypeError, "view: not sizes"),
    ]:
        with pytest.raises(error, match=message):
            wrong()


def test_meta_names_the_device_without_values():
    assert str(pf.device("meta")) == "null" and pf.empty(1, device="meta").is_meta and not pf.empty(1).is_meta
    with pf.device("meta"):
        model = nn.Linear(3, 2)
    model.load_state_dict({"weight": pf.ones(2, 3), "bias": pf.zeros(2)}, assign=True)
    assert model(pf.ones(1, 3)).tolist() == [[3.0, 3.0]]
    skeleton = nn.Linear(3, 2).to("meta")
    assert pf.func.functional_call(skeleton, {"weight": pf.ones(2, 3), "bias": pf.zeros(2)}, (pf.ones(1, 3),)).tolist() == [[3.0, 3.0]]
    assert pf.empty(10**9, 1000, device="meta").shape == (10**9, 1000)


def test_values_of_meta_cannot_be_read():
    t = pf.arange(6.0, device="meta").view(2, 3)
    one = (t * 2).sum()
    for read in (t.tolist, one.item, t.cpu, lambda: float(one), lambda: bool(one), lambda: t.to("cpu"), lambda: pf.zeros(2, 3).copy_(t),
                 lambda: nn.Linear(3, 2, device="meta").to("cpu"), lambda: pf.save({"t": t}, io.BytesIO())):
        with pytest.raises(NotImplementedError, match="read: a tensor of the device 'null' .'meta'. has no values; got shape .*hint"):
            read()
    assert repr(t) == "tensor(..., size=(2, 3), dtype=pyflame.float32, device='null')" and str(one).startswith("tensor(..., size=()")
    assert pf.zeros(0, device="meta").tolist() == []
    assert nn.Linear(3, 2, device="meta").to_empty(device="cpu").weight.cpu().shape == (2, 3)
    made = pf.empty(2, 3, device="meta").copy_(pf.ones(2, 3))  # values may be given to it, and are forgotten
    assert made.is_meta and copy.deepcopy(made).is_meta


def test_dropouts_are_not_each_other():
    assert not isinstance(nn.Dropout2d(), nn.Dropout) and isinstance(nn.AlphaDropout(), nn.modules.dropout._DropoutNd)


def test_a_value_may_have_more_leading_dims_of_size_one():
    x = pf.zeros(3, 2)
    x[0] = pf.tensor([[1.0, 2.0]])
    x[1, 1] = pf.tensor([[[5.0]]])
    x[2:] = pf.full((1, 1, 1, 2), 7.0)
    assert x.tolist() == [[1.0, 2.0], [0.0, 5.0], [7.0, 7.0]]
    x[pf.tensor([0, 2])] = pf.tensor([[[3.0, 4.0]]])
    x[x == 5] = pf.tensor([[9.0]])
    assert x.tolist() == [[3.0, 4.0], [0.0, 9.0], [3.0, 4.0]]
    x[0] = np.array([[8.0, 8.0]])
    value = pf.ones(1, 1, 2, requires_grad=True)
    y = x.clone()
    y[1] = value * 2
    (y * y).sum().backward()
    assert value.grad.tolist() == [[[8.0, 8.0]]] and x[0].tolist() == [8.0, 8.0]
    with pytest.raises(pf.ArgumentError, match="a larger shape than the tensor"):
        x[0] = pf.zeros(2, 2)
    with pytest.raises(pf.ArgumentError, match="a larger shape than the tensor"):
        x[0].copy_(pf.zeros(1, 2))


def test_norms_without_a_bias():
    for layer, shape in [(nn.BatchNorm2d(4, bias=False), (2, 4, 3, 3)), (nn.GroupNorm(2, 4, bias=False), (2, 4, 3)), (nn.InstanceNorm1d(4, affine=True, bias=False), (2, 4, 3)),
                         (nn.SyncBatchNorm(4, bias=False), (3, 4))]:  # fmt: skip
        assert layer.bias is None and layer.weight.shape == (4,) and "affine=True, bias=False" in repr(layer)
        with pf.no_grad():
            layer.weight.copy_(pf.arange(1.0, 5.0))
        whole = type(layer)(4, affine=True) if not isinstance(layer, nn.GroupNorm) else nn.GroupNorm(2, 4)
        whole.load_state_dict({**layer.state_dict(), "bias": pf.zeros(4)})
        x = pf.randn(shape)
        assert pf.allclose(layer(x), whole(x))
        (layer(x) ** 2).sum().backward()
        assert layer.weight.grad.abs().sum().item() > 0
    assert "affine=False, bias=False" in repr(nn.InstanceNorm2d(3)) and "affine=True, bias=True" in repr(nn.BatchNorm1d(3))


def test_old_keywords_of_losses():
    x, y = pf.randn(3, 4), pf.randn(3, 4)
    assert pf.equal(nn.L1Loss(size_average=False)(x, y), nn.L1Loss(reduction="sum")(x, y)) and nn.MSELoss(reduce=False)(x, y).shape == (3, 4)
    loss = nn.CrossEntropyLoss(pf.ones(4), size_average=True, ignore_index=1)
    assert loss.reduction == "mean" and loss.ignore_index == 1 and nn.NLLLoss(reduce=True, size_average=False).reduction == "sum"

    class Own(nn.modules.loss._Loss):
        def __init__(self):
            super().__init__(size_average=False)

    assert Own().reduction == "sum" and nn.BCELoss(reduction="none").reduction == "none"


def test_floats_that_an_integer_cannot_hold():
    for device in ("cpu", "reference"):
        x = pf.tensor([300.0, -1.0, float("nan"), float("inf"), -float("inf"), 1.9, -1.9], device=device)
        assert x.to(pf.uint8).tolist() == [255, 0, 0, 255, 0, 1, 0] and x.to(pf.int8).tolist() == [127, -1, 0, 127, -128, 1, -1]
        assert x.to(pf.int64).tolist() == [300, -1, 0, 2**63 - 1, -(2**63), 1, -1]


def lists():
    return [pf.tensor([1.0, 4.0]), pf.tensor([[9.0]])], [pf.tensor([2.0, 3.0]), pf.tensor([[0.5]])]


@pytest.mark.parametrize("name,arguments,want", [
    ("add", lambda a, b: (b,), [[3, 7], [[9.5]]]), ("add", lambda a, b: (1.0,), [[2, 5], [[10]]]), ("add", lambda a, b: ([1, 2],), [[2, 5], [[11]]]),
    ("sub", lambda a, b: (b,), [[-1, 1], [[8.5]]]), ("mul", lambda a, b: (pf.tensor(2.0),), [[2, 8], [[18]]]), ("div", lambda a, b: (2,), [[0.5, 2], [[4.5]]]),
    ("pow", lambda a, b: (2,), [[1, 16], [[81]]]), ("maximum", lambda a, b: (b,), [[2, 4], [[9]]]), ("minimum", lambda a, b: (2.0,), [[1, 2], [[2]]]),
    ("clamp_min", lambda a, b: (3.0,), [[3, 4], [[9]]]), ("clamp_max", lambda a, b: ([3.0, 8.0],), [[1, 3], [[8]]]), ("sqrt", lambda a, b: (), [[1, 2], [[3]]]),
    ("neg", lambda a, b: (), [[-1, -4], [[-9]]]), ("lerp", lambda a, b: (b, 0.5), [[1.5, 3.5], [[4.75]]]), ("lerp", lambda a, b: (b, [0.0, 1.0]), [[1, 4], [[0.5]]]),
    ("addcmul", lambda a, b: (b, b, 0.5), [[3, 8.5], [[9.125]]]), ("addcdiv", lambda a, b: (a, b, pf.tensor([2.0, 1.0])), [[2, 4 + 8 / 3], [[27]]]),
])
def test_functions_of_lists_of_tensors(name, arguments, want):
    a, b = lists()
    for got in (getattr(pf, f"_foreach_{name}")(a, *arguments(a, b)), getattr(pf, f"_foreach_{name}_")(a, *arguments(a, b))):
        assert [t.shape for t in got] == [(2,), (1, 1)]
        np.testing.assert_allclose(np.concatenate([t.numpy().ravel() for t in got]), np.concatenate([np.ravel(w) for w in want]), rtol=1e-6)
        assert isinstance(got, tuple) or got is a


def test_more_functions_of_lists_of_tensors():
    a, b = lists()
    assert [t.item() for t in pf._foreach_norm(b, 1)] == [5.0, 0.5] and pf._foreach_norm(a, dtype=pf.float64)[0].dtype == pf.float64
    assert [t.tolist() for t in pf._foreach_add(a, b, alpha=2)] == [[5, 10], [[10]]] and pf._foreach_pow(2.0, a)[0].tolist() == [2, 16]
    assert [t.item() for t in pf._foreach_max(a)] == [4, 9] and pf._foreach_copy_(a, b) is a and a[0].tolist() == [2, 3] and a[0] is not b[0]
    pf._foreach_zero_(a)
    assert a[0].tolist() == [0, 0] and b[0].tolist() == [2, 3]
    for wrong, error, text in ((lambda: pf._foreach_add(a, [pf.ones(1)]), RuntimeError, "_foreach_add: the lists differ in length; got 2 and 1"),
                               (lambda: pf._foreach_mul_(pf.ones(2), 2), TypeError, "_foreach_mul_: not a list of tensors; got Tensor"),
                               (lambda: pf._foreach_sqrt([]), RuntimeError, "_foreach_sqrt: the list is empty"), (lambda: pf._foreach_nothing, AttributeError, "_foreach_nothing")):
        with pytest.raises(error, match=text):
            wrong()


def test_grad_leaves_what_lies_behind_its_inputs_for_a_later_pass():
    w = pf.tensor([1.0, 2.0], requires_grad=True)
    start = w * w
    inner, loss = start, None
    for _ in range(3):  # the steps of MAML without second derivatives
        (g,) = pf.autograd.grad((inner * inner).sum(), [inner])
        inner = inner - 0.1 * g
        loss = (inner**3).sum()
    loss.backward()
    d = 3 * (np.array([1.0, 4.0]) * 0.8**3) ** 2 * 2 * np.array([1.0, 2.0])
    np.testing.assert_allclose(w.grad.numpy(), d, rtol=1e-5)


def test_grad_runs_no_hook_and_frees_no_node_that_leads_to_no_input():
    a, b = pf.ones(2, requires_grad=True), pf.ones(2, requires_grad=True)
    other, seen = b * b, []
    other.register_hook(lambda g: seen.append(g))
    (g,) = pf.autograd.grad((a * 3 + other).sum(), [a])
    assert g.tolist() == [3, 3] and seen == []
    other.sum().backward()
    assert b.grad.tolist() == [2, 2] and len(seen) == 1
    y = (a * a).sum()
    pf.autograd.grad(y, [a])
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward()
