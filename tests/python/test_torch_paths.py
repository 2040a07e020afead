"""Paths and private names of PyTorch that programs import: each is found when `import torch` means PyFlame, and does its work or says what to do instead."""
import subprocess
import sys

import numpy as np
import pyflame as pf
import pytest

IMPORTED = """
torch._C:_log_api_usage_once torch._jit_internal:_overload_method torch._jit_internal:boolean_dispatch torch._prims_common:DeviceLikeType torch._tensor:Tensor
torch._utils:_flatten_dense_tensors torch._utils:_take_tensors torch._utils:_unflatten_dense_tensors torch._VF:lstm torch.cuda.comm:broadcast torch.cuda.graphs:CUDAGraph
torch.hub:HASH_REGEX torch.hub:urlparse torch.jit.annotations:BroadcastingList2 torch.jit.annotations:List
torch.nn.attention.bias:causal_lower_right torch.nn.attention.flex_attention:create_block_mask
torch.nn.attention.flex_attention:flex_attention torch.nn.functional:_canonical_mask torch.nn.functional:_in_projection torch.nn.functional:_in_projection_packed
torch.nn.functional:_none_or_dtype torch.nn.functional:_pair torch.nn.functional:has_torch_function torch.nn.functional:handle_torch_function torch.nn.grad:conv2d_weight
torch.nn.modules.conv:_ConvTransposeNd torch.nn.modules.module:_IncompatibleKeys torch.nn.modules.module:register_module_forward_hook
torch.nn.modules.module:Tensor torch.nn.modules.pooling:_AdaptiveAvgPoolNd torch.nn.modules.pooling:_AdaptiveMaxPoolNd torch.nn.modules.pooling:_AvgPoolNd
torch.nn.modules.pooling:_MaxPoolNd torch.nn.modules.transformer:_get_activation_fn torch.nn.parallel._functions:Gather torch.nn.parallel.data_parallel:DataParallel
torch.nn.parallel.distributed:DistributedDataParallel torch.nn.parallel.parallel_apply:parallel_apply torch.nn.parallel.replicate:replicate
torch.nn.parallel.scatter_gather:gather torch.nn.parallel.scatter_gather:scatter_kwargs torch.nn.qat:Linear torch.nn.quantized.modules:Linear
torch.onnx.symbolic_helper:parse_args torch.optim.optimizer:ParamsT torch.optim.optimizer:_get_value torch.optim.optimizer:_use_grad_for_differentiable
torch.profiler.profiler:ProfilerAction torch.return_types:max torch.testing._internal:common_utils torch.torch_version:TorchVersion
torch.utils._foreach_utils:Indices torch.utils._python_dispatch:TorchDispatchMode torch.utils.checkpoint:CheckpointFunction torch.utils.checkpoint:detach_variable
torch.utils.checkpoint:get_device_states torch.utils.checkpoint:noop_context_fn torch.utils.collect_env:get_pretty_env_info
torch.utils.data._utils.collate:default_collate_fn_map torch.utils.data.datapipes.iter:IterableWrapper torch.utils.data.dataloader:get_worker_info
torch.utils.flop_counter:FlopCounterMode torch.utils.tensorboard.writer:SummaryWriter torch.utils.weak:WeakTensorKeyDictionary
""".split()
REACHED = "_utils._flatten_dense_tensors utils.data._utils.collate.default_collate utils.hooks.RemovableHandle nn.grad.conv2d_input return_types.max".split()
PROGRAM = f"""
import importlib
import pyflame.torch.as_torch
import torch
failed = []
for path in {REACHED!r}:
    place = torch
    try:
        for part in path.split("."):
            place = getattr(place, part)
    except AttributeError as error:
        failed.append((path, str(error)))
for entry in {IMPORTED!r}:
    path, _, name = entry.partition(":")
    try:
        getattr(importlib.import_module(path), name)
    except (ImportError, AttributeError) as error:
        failed.append((entry, str(error)))
assert not failed, failed
"""


def test_paths_of_pytorch_are_found():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_layers_are_of_their_bases():
    from pyflame.nn.modules.conv import _ConvNd, _ConvTransposeNd
    from pyflame.nn.modules.pooling import _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd

    nn = pf.nn
    bases = (_AvgPoolNd, _MaxPoolNd, _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd)
    for layer, kind in ((nn.AvgPool3d(2), _AvgPoolNd), (nn.MaxPool1d(2), _MaxPoolNd), (nn.AdaptiveAvgPool2d(1), _AdaptiveAvgPoolNd), (nn.AdaptiveMaxPool3d(1), _AdaptiveMaxPoolNd)):
        assert [base for base in bases if isinstance(layer, base)] == [kind]
    transposed = nn.ConvTranspose2d(1, 1, 1)
    assert isinstance(transposed, _ConvNd) and isinstance(transposed, _ConvTransposeNd) and not isinstance(nn.Conv2d(1, 1, 1), _ConvTransposeNd)


def test_tensors_in_one():
    from pyflame.torch._utils import _flatten_dense_tensors, _take_tensors, _unflatten_dense_tensors

    tensors = [pf.arange(6.0).view(2, 3), pf.ones(2), pf.zeros(())]
    flat = _flatten_dense_tensors(tensors)
    assert flat.shape == (9,) and _flatten_dense_tensors(tensors[:1]).shape == (6,)
    for a, b in zip(_unflatten_dense_tensors(flat * 2, tensors), tensors):
        assert a.shape == b.shape and pf.equal(a, b * 2)
    parts = list(_take_tensors([pf.ones(4), pf.ones(4, dtype=pf.int64), pf.ones(4), pf.ones(8)], 32))
    assert [[t.numel() for t in part] for part in parts] == [[4, 4], [8], [4]] and parts[2][0].dtype == pf.int64


def test_gradients_of_convolutions_as_functions():
    from pyflame.nn import grad

    rng = np.random.RandomState(0)
    for n, size in ((1, (7,)), (2, (7, 6)), (3, (5, 4, 4))):
        x, w = (pf.tensor(rng.standard_normal(s), requires_grad=True) for s in ((2, 4, *size), (6, 2, *[3] * n)))
        settings = {"stride": 2, "padding": 1, "dilation": 1, "groups": 2}
        y = getattr(pf.nn.functional, f"conv{n}d")(x, w, **settings)
        dy = pf.tensor(rng.standard_normal(tuple(y.shape)))
        dx, dw = pf.autograd.grad(y, (x, w), dy)
        assert pf.allclose(getattr(grad, f"conv{n}d_input")(x.shape, w, dy, **settings), dx)
        assert pf.allclose(getattr(grad, f"conv{n}d_weight")(x, w.shape, dy, **settings), dw)


def test_an_optimizer_of_its_own_by_private_names():
    from pyflame.optim.optimizer import Optimizer, ParamsT, _get_value, _use_grad_for_differentiable

    class Plain(Optimizer):
        def __init__(self, params: ParamsT, lr):
            super().__init__(params, {"lr": lr, "differentiable": False})

        @_use_grad_for_differentiable
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad, alpha=-_get_value(pf.tensor(group["lr"])))

    w = pf.ones(2, requires_grad=True)
    (w * w).sum().backward()
    Plain([w], 0.25).step()
    assert w.tolist() == [0.5, 0.5] and w.requires_grad and w.is_leaf


def test_what_runs_on_several_devices_says_what_to_do():
    from pyflame.torch.nn.parallel.scatter_gather import gather

    with pytest.raises(NotImplementedError, match="nn.parallel.gather: not available in PyFlame; DataParallel computes on one device"):
        gather([pf.ones(1)], 0)


def test_tensors_for_a_checkpoint():
    from pyflame.utils.checkpoint import detach_variable

    x = pf.ones(2, requires_grad=True)
    y, n = detach_variable((x * 2, 3))
    assert y.requires_grad and y.is_leaf and y.tolist() == [2.0, 2.0] and n == 3


def test_masks_as_functions():
    from pyflame.nn.attention.bias import causal_lower_right, causal_upper_left

    assert causal_upper_left(2, 3).tolist() == [[True, False, False], [True, True, False]]
    assert causal_lower_right(2, 3).tolist() == [[True, True, False], [True, True, True]]


def test_versions_compare_by_numbers():
    import pyflame.torch as torch

    assert torch.__version__ >= "2.4" and torch.__version__ > "2.9.1" and torch.__version__ < "10.0" and not torch.__version__ < "2.0" and torch.__version__ >= (2, 1)
    assert isinstance(torch.__version__, str) and torch.__version__.split(".")[0] == "2"


class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b


def test_a_batch_of_further_types():
    from pyflame.utils.data._utils.collate import collate, default_collate_fn_map

    def pairs(batch, *, collate_fn_map=None):
        return Pair(collate([p.a for p in batch], collate_fn_map=collate_fn_map), [p.b for p in batch])

    made = collate([(Pair(1, 2), 3.0), (Pair(4, 5), 6.0)], collate_fn_map={Pair: pairs})
    assert made[0].a.tolist() == [1, 4] and made[0].b == [2, 5] and made[1].tolist() == [3.0, 6.0]
    with pytest.raises(TypeError, match="cannot make a batch of Pair"):
        pf.data.default_collate([Pair(1, 2)])
    default_collate_fn_map[Pair] = pairs
    try:
        assert pf.data.default_collate([{"x": Pair(1, 2)}])["x"].b == [2]
    finally:
        del default_collate_fn_map[Pair]


def attention(q, k, v, scores_of, shown):
    scores = scores_of(q @ k.mT / 2)
    return pf.where(shown, scores, -float("inf")).softmax(-1) @ v


def test_attention_with_functions():
    from pyflame.nn.attention.flex_attention import and_masks, create_block_mask, create_mask, flex_attention, or_masks

    rng = np.random.RandomState(0)
    q, k, v = (pf.tensor(rng.standard_normal((2, 2, 5, 4)), requires_grad=True) for _ in range(3))
    document = pf.tensor([0, 0, 1, 1, 1])
    slopes = pf.tensor([0.5, 0.25], dtype=pf.float64)
    causal = lambda b, h, q_idx, kv_idx: q_idx >= kv_idx  # noqa: E731
    same = lambda b, h, q_idx, kv_idx: document[q_idx] == document[kv_idx]  # noqa: E731
    mask = create_block_mask(and_masks(causal, same), None, None, 5, 5, device="cpu", BLOCK_SIZE=2)
    shown = (document[:, None] == document).tril()
    far = (pf.arange(5)[:, None] - pf.arange(5)).double()
    y = flex_attention(q, k, v, lambda score, b, h, q_idx, kv_idx: score - slopes[h] * (q_idx - kv_idx), mask)
    want = attention(q, k, v, lambda s: s - slopes[:, None, None] * far, shown)
    assert pf.allclose(y, want)
    for a, b in zip(pf.autograd.grad((y * y).sum(), (q, k, v)), pf.autograd.grad((want * want).sum(), (q, k, v))):
        assert pf.allclose(a, b)
    assert mask.to_dense()[0, 0].tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 1]] and round(mask.sparsity(), 2) == 55.56
    assert create_mask(or_masks(causal, same), None, None, 3, 3)[0, 0].tolist() == [[True, True, False], [True, True, False], [True, True, True]]
    with pytest.raises(RuntimeError, match="block_mask does not fit; got one for .5, 5."):
        flex_attention(q, k[:, :, :3], v[:, :, :3], block_mask=mask)


def test_attention_of_grouped_heads_and_queries_that_see_nothing():
    from pyflame.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = pf.randn(1, 4, 3, 4), pf.randn(1, 2, 3, 4), pf.randn(1, 2, 3, 4)
    mask = create_block_mask(lambda b, h, q_idx, kv_idx: q_idx > kv_idx, 1, 1, 3, 3)
    y, lse = flex_attention(q, k, v, block_mask=mask, scale=0.5, enable_gqa=True, return_lse=True)
    assert y.shape == (1, 4, 3, 4) and y[:, :, 0].tolist() == [[[0.0] * 4] * 4] and pf.allclose(y[0, 3, 1], v[0, 1, 0]) and lse[0, 0, 0].item() == -float("inf")
    assert pf.allclose(lse[0, 1, 1], (q[0, 1, 1] * k[0, 0, 0]).sum() * 0.5)
    with pytest.raises(ValueError, match="heads do not fit; got 4 of query and 2 of key"):
        flex_attention(q, k, v)
    empty = pf.zeros(1, 1, 2, 0)
    assert flex_attention(empty, empty, pf.ones(1, 1, 2, 3)).tolist() == [[[[1.0] * 3] * 2]]  # the mean of the values


def test_jit_isinstance():
    import typing

    x = pf.ones(1)
    for obj, target, want in (
        ([1, 2], typing.List[int], True), ([1, 2.0], typing.List[int], False), ([], typing.List[int], True), ((1,), typing.List[int], False), ([1], list[int], True), ([[1], ["a"]], typing.List[typing.List[int]], False),
        ({"a": [1]}, typing.Dict[str, typing.List[int]], True), ({"a": 1}, typing.Dict[str, str], False), ((1, "a"), typing.Tuple[int, str], True), ((1,), typing.Tuple[int, str], False), ((1, 2), typing.Tuple[int, ...], True),
        (None, typing.Optional[int], True), ([1], typing.Optional[typing.List[int]], True), ("a", typing.Union[int, typing.List[int]], False), (1, int | None, True), ([x], typing.List[pf.Tensor], True), ([1], (typing.List[int], int), True),
        (True, int, True), ([1, "a"], typing.List[typing.Any], True), (x, pf.Tensor, True),
    ):
        assert pf.jit.isinstance(obj, target) is want, (obj, target)
    with pytest.raises(RuntimeError, match="jit.isinstance: a type without a parameter; got typing.List"):
        pf.jit.isinstance([1], typing.List)
    with pytest.raises(TypeError, match=r"jit.isinstance: not a type that is checked; got typing.Set\[int\]"):
        pf.jit.isinstance({1}, typing.Set[int])
