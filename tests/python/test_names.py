"""Names that programs of PyTorch ask for: the GPU there is, switches, refusals, dtypes by name, old constructors, keywords, methods of Tensor."""
import functools
import math
import operator
import pickle
import re
import subprocess
import sys
import warnings

import numpy as np
import pyflame as pf
import pytest

NO_GPU = not pf.cuda.is_available()


def test_cuda_answers_without_a_gpu():
    if not NO_GPU:
        pytest.skip("there is a GPU")
    assert pf.cuda.device_count() == 0 and pf.accelerator.current_accelerator() is None and not pf.accelerator.is_available()
    assert pf.cuda.memory_allocated() == pf.cuda.max_memory_allocated() == 0
    pf.cuda.manual_seed_all(3)
    assert pf.initial_seed() == 3
    pf.cuda.empty_cache(), pf.cuda.synchronize(), pf.cuda.reset_peak_memory_stats()
    for ask in (lambda: pf.ones(1).cuda(), lambda: pf.nn.Linear(1, 1).cuda(), pf.cuda.current_device, pf.cuda.get_device_name, lambda: pf.cuda.set_device(0)):
        with pytest.raises(pf.DeviceError, match="cuda: there is no GPU"):
            ask()
    assert not pf.mps.is_available() and not pf.backends.mps.is_available() and not pf.xpu.is_available()
    with pf.cuda.amp.autocast():
        assert not pf.is_autocast_enabled("rocm")
    scaler = pf.cuda.amp.GradScaler()
    assert not scaler.is_enabled()


def test_marks_and_sensors_of_cuda():
    assert pf.cuda.cudart().cudaProfilerStart() == pf.cuda.cudart().cudaProfilerStop() == pf.cuda.get_sync_debug_mode() == 0
    pf.cuda.set_sync_debug_mode(1), pf.cuda._lazy_init()
    for sensor in ("utilization", "temperature", "power_draw", "memory_usage", "clock_rate", "list_gpu_processes"):
        with pytest.raises(NotImplementedError, match=f"cuda.{sensor}: not available in PyFlame; `pyflame profile` samples"):
            getattr(pf.cuda, sensor)()
    assert not pf.backends.nnpack.is_available()


def test_capabilities_of_architectures():
    assert [pf.cuda._capability(a) for a in ("sm_90", "gfx942:sramecc+", "gfx1100", "gfx90a", "sm_120")] == [(9, 0), (9, 4), (11, 0), (9, 0), (12, 0)]


def test_events_measure():
    first, last = pf.cuda.Event(enable_timing=True), pf.cuda.Event(enable_timing=True)
    first.record()
    last.record()
    assert first.elapsed_time(last) >= 0
    with pytest.raises(ValueError, match="keeps no time"):
        pf.cuda.Event().elapsed_time(last)


def said(action):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = action()
    return result, [str(w.message) for w in caught]


@pytest.mark.parametrize("line", ["pf.compile(pf.nn.Linear(2, 2))", "pf.backends.cudnn.benchmark = True", "pf.jit.script(len)", "pf.nn.functional.dropout2d(pf.ones(2, 2))"])
def test_notes_name_the_line_of_the_program(tmp_path, line):
    program = tmp_path / "program.py"
    program.write_text(f"import pyflame as pf\n{line}\n")
    for words in ([program], ["-m", "pyflame.torch", program]):
        run = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, timeout=120)
        assert run.returncode == 0 and f"{program}:2: UserWarning: " in run.stderr, run.stderr


def test_notes_are_given_once():
    pf._notes._said.clear()
    f = lambda x: x  # noqa: E731
    result, first = said(lambda: pf.compile(f, mode="max-autotune"))
    assert result is f and len(first) == 1 and "compiled by itself" in first[0]
    assert said(lambda: pf.compile()(f)) == (f, [])
    _, notes = said(lambda: setattr(pf.backends.cudnn, "benchmark", True))
    assert len(notes) == 1 and notes[0].startswith("backends.cudnn.benchmark: accepted")
    assert pf.backends.cudnn.benchmark and not said(lambda: setattr(pf.backends.cudnn, "benchmark", False))[1]
    assert said(lambda: pf.jit.script(f))[0] is f


def test_tf32_is_a_precision():
    before = pf.get_float32_matmul_precision()
    try:
        pf.backends.cuda.matmul.allow_tf32 = True
        assert pf.get_float32_matmul_precision() == "high" and pf.backends.cuda.matmul.allow_tf32
        pf.backends.cuda.matmul.allow_tf32 = False
        assert pf.get_float32_matmul_precision() == "highest"
    finally:
        pf.set_float32_matmul_precision(before)


def test_tf32_of_convolutions_is_a_precision():
    cudnn = pf.backends.cudnn
    assert pf.get_float32_conv_precision() == "highest" and not cudnn.allow_tf32 and cudnn.conv.fp32_precision == "ieee"
    try:
        cudnn.allow_tf32 = True
        assert pf.get_float32_conv_precision() == "high" and cudnn.conv.fp32_precision == "tf32"
        assert pf.get_float32_matmul_precision() == "highest"
        for exact in ("ieee", "none"):  # none: what the level above says, and that is float32
            cudnn.conv.fp32_precision = "tf32"
            assert pf.get_float32_conv_precision() == "high"
            cudnn.conv.fp32_precision = exact
            assert pf.get_float32_conv_precision() == "highest" and not cudnn.allow_tf32
        with cudnn.flags(allow_tf32=True, benchmark=False):
            assert pf.get_float32_conv_precision() == "high"
        assert pf.get_float32_conv_precision() == "highest"
    finally:
        pf.set_float32_conv_precision("highest")
    with pytest.raises(ValueError, match="set_float32_conv_precision.*got 'tf32'.*'highest', 'high' or 'medium'"):
        pf.set_float32_conv_precision("tf32")


REFUSED = {
    "jit.script: not available": lambda: pf.jit.script(pf.nn.Linear(1, 1)),
    "jit.trace: not available": lambda: pf.jit.trace(pf.nn.Linear(1, 1), pf.ones(1)),
    "jit.load: not available": lambda: pf.jit.load("model.pt"),
    "jit.ScriptModule: not available": lambda: pf.jit.ScriptModule(),
    "fx.symbolic_trace: not available": lambda: pf.fx.symbolic_trace(pf.nn.Linear(1, 1)),
    "hub.load: not available": lambda: pf.hub.load("a/b", "c"),
    "export.export: not available": lambda: pf.export.export(None),
    "sparse.softmax: not available": lambda: pf.sparse.softmax(None, 0),
    "sparse_coo_tensor: not available": lambda: pf.sparse_coo_tensor([[0]], [1.0]),
    "quantize_per_tensor: not available": lambda: pf.quantize_per_tensor(pf.ones(1), 1.0, 0, pf.quint8),
    "Tensor.to_sparse: not available": lambda: pf.ones(2).to_sparse(),
    "Tensor.share_memory_: not available": lambda: pf.ones(2).share_memory_(),
    "distributed.FileStore: not available": lambda: pf.distributed.FileStore("file", 2),
    "cuda.CUDAGraph: not available": lambda: pf.cuda.CUDAGraph(),
    "autograd.graph.allow_mutation_on_saved_tensors: not available": lambda: pf.autograd.graph.allow_mutation_on_saved_tensors(),
    "checkpoint: context_fn is not available": lambda: pf.utils.checkpoint.checkpoint(abs, pf.ones(1), context_fn=abs),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused_says_what_to_do(message):
    with pytest.raises(NotImplementedError, match=message):
        REFUSED[message]()


def test_products_of_sparse_matrices_take_dense_ones():
    a, b, c = pf.randn(3, 4, requires_grad=True), pf.randn(4, 2), pf.randn(3, 2)
    for product in (pf.spmm, pf.dsmm, pf.sparse.mm):
        assert pf.equal(product(a, b), a @ b)
    assert pf.allclose(pf.sparse.addmm(c, a, b, beta=0.5, alpha=2.0), 0.5 * c + 2 * (a @ b))
    pf.spmm(a, b).sum().backward()
    assert pf.allclose(a.grad, b.sum(1).expand(3, 4))
    with pytest.raises(pf.ArgumentError):
        pf.sparse.mm(a, a)
    with pytest.raises(TypeError):
        pf.sparse.mm(a, None)


@pytest.mark.parametrize("name", ["pipelining", "rpc", "elastic", "algorithms"])
def test_absent_modules_of_distributed(name):
    with pytest.raises(AttributeError, match=f"module 'pyflame.distributed' has no attribute '{name}'"):
        getattr(pf.distributed, name)


def test_decorators_give_the_function_back():
    f = lambda x: x  # noqa: E731
    for decorate in (pf.jit.ignore, pf.jit.unused, pf.jit.export, pf.compiler.disable, pf._dynamo.disable, pf.compiler.allow_in_graph, pf.fx.wrap):
        assert decorate(f) is f
    assert pf.jit.ignore(drop=True)(f) is f and pf.compiler.disable(recursive=False)(f) is f
    assert not pf.jit.is_scripting() and not pf.compiler.is_compiling() and not isinstance(f, pf.jit.ScriptModule)


def test_one_process():
    assert pf.distributed.is_available() and not pf.distributed.is_initialized()
    assert pf.distributed.get_rank() == 0 and pf.distributed.get_world_size() == 1
    model = pf.nn.DataParallel(pf.nn.Linear(2, 1), device_ids=[0])
    assert list(model.state_dict()) == ["module.weight", "module.bias"] and model(pf.ones(3, 2)).shape == (3, 1)


def test_dtypes_by_name():
    assert repr(pf.uint16) == "pyflame.uint16" and pf.float8_e4m3fn.itemsize == 1 and pf.uint16 != pf.float32
    assert pickle.loads(pickle.dumps(pf.uint16)) is pf.uint16
    with pytest.raises(TypeError, match="dtype: not a dtype of PyFlame; got pyflame.uint16"):
        pf.zeros(2, dtype=pf.uint16)
    for name in ("float64", "float32", "float16"):
        ours, theirs = pf.finfo(getattr(pf, name)), np.finfo(name)
        for field in ("bits", "eps", "max", "min", "tiny", "resolution"):
            assert math.isclose(getattr(ours, field), float(getattr(theirs, field)), rel_tol=1e-3), (name, field)
    assert pf.finfo(pf.bfloat16).max == 3.3895313892515355e38 and pf.finfo().dtype == "float32"
    for name in ("int64", "int32", "int16", "int8", "uint8"):
        ours, theirs = pf.iinfo(getattr(pf, name)), np.iinfo(name)
        assert (ours.min, ours.max, ours.bits) == (theirs.min, theirs.max, theirs.bits)
    for wrong in (lambda: pf.finfo(pf.int32), lambda: pf.iinfo(pf.float32), lambda: pf.iinfo(pf.bool), lambda: pf.iinfo(pf.complex64)):
        with pytest.raises(TypeError, match="info: not an? .*dtype"):
            wrong()
    assert pf.can_cast(pf.int32, pf.float16) and not pf.can_cast(pf.float16, pf.int64)
    assert pf.result_type(pf.ones(2, dtype=pf.int32), 1.5) == pf.float32 and pf.result_type(pf.ones(2, dtype=pf.uint8), pf.ones(2, dtype=pf.int8)) == pf.int16
    assert pf.int8.is_signed and not pf.uint8.is_signed and pf.ones(1).is_signed()


def test_default_dtype():
    try:
        pf.set_default_dtype(pf.float64)
        assert pf.get_default_dtype() == pf.float64
        made = [pf.zeros(1), pf.tensor([1.0]), pf.rand(1), pf.arange(0.0, 1.0), pf.eye(2), pf.linspace(0, 1, 3), pf.full((1,), 0.5), pf.nn.Linear(1, 1).weight]
        assert all(x.dtype == pf.float64 for x in made)
        ints = pf.arange(1, 3)
        assert (ints / 2).dtype == (ints + 0.5).dtype == ints.sqrt().dtype == pf.float64
    finally:
        pf.set_default_dtype(pf.float32)
    assert pf.zeros(1).dtype == pf.float32
    with pytest.raises(TypeError, match="set_default_dtype: not a floating dtype; got int64"):
        pf.set_default_dtype(pf.int64)
    try:
        pf.set_default_tensor_type("torch.DoubleTensor")
        assert pf.zeros(1).dtype == pf.float64
    finally:
        pf.set_default_tensor_type(pf.FloatTensor)


def test_old_constructors():
    assert pf.FloatTensor(2, 3).shape == (2, 3) and pf.LongTensor([1, 2]).tolist() == [1, 2] and pf.ByteTensor([1]).dtype == pf.uint8
    assert isinstance(pf.ones(1), pf.FloatTensor) and not isinstance(pf.ones(1), pf.LongTensor)
    assert pf.typename(pf.ones(1)) == "torch.FloatTensor" and isinstance(pf.autograd.Variable(pf.ones(1)), pf.autograd.Variable)
    with pytest.raises(AttributeError, match="NosuchTensor"):
        pf.NosuchTensor


def test_print_options():
    x = pf.tensor([1 / 3, 2 / 3])
    try:
        pf.set_printoptions(precision=2)
        assert "[0.33, 0.67]" in repr(x)
        pf.set_printoptions(sci_mode=True)
        assert "3.33e-01" in repr(x)
        pf.set_printoptions(precision=2)
        assert "[0.33, 0.67]" in repr(x), "as in PyTorch, a call without sci_mode lets the numbers decide again"
        pf.set_printoptions(profile="default", threshold=2, edgeitems=1)
        assert "..." in repr(pf.arange(4))
    finally:
        pf.set_printoptions(profile="default")
    with pytest.raises(ValueError, match="set_printoptions: no such profile"):
        pf.set_printoptions(profile="nosuch")


def test_make_tensor():
    make = functools.partial(pf.testing.make_tensor, device="cpu")
    whole = make(2000, dtype=pf.int64, low=0, high=2)
    assert set(whole.tolist()) == {0, 1}, "high is not reached"
    assert make((2, 3), dtype=pf.float32).shape == make(2, 3, dtype=pf.float32).shape == (2, 3)
    assert set(make(2000, dtype=pf.uint8).tolist()) == set(range(10)) and set(make(2000, dtype=pf.int8).tolist()) == set(range(-9, 10))
    assert make(2000, dtype=pf.uint8, low=250, high=300).tolist().count(255) and make(2000, dtype=pf.uint8, low=250, high=300).min().item() == 250
    assert not (make(2000, dtype=pf.int64, exclude_zero=True) == 0).any().item() and make(100, dtype=pf.bool_, exclude_zero=True).all().item()
    apart = make(4, 3, dtype=pf.float32, noncontiguous=True)
    assert apart.shape == (4, 3) and not apart.is_contiguous() and make(1, dtype=pf.float32, noncontiguous=True).is_contiguous()
    assert make(1, 2, 3, 3, dtype=pf.float32, memory_format=pf.channels_last).stride() == (18, 1, 6, 2)
    both = make(100, dtype=pf.complex64, low=1, high=2, requires_grad=True)
    assert both.requires_grad and both.imag.min().item() >= 1 and both.real.max().item() < 2
    assert make(2, dtype=pf.float8_e4m3fn).dtype == pf.float8_e4m3fn
    for wrong, message in ((dict(dtype=pf.int64, requires_grad=True), "no gradients"), (dict(dtype=pf.float32, low=1, high=1), "empty range"),
                           (dict(dtype=pf.float32, noncontiguous=True, memory_format=pf.channels_last), "exclude each other")):
        with pytest.raises(ValueError, match=f"make_tensor: .*{message}"):
            make(2, **wrong)


def test_keywords_of_numpy():
    x = pf.arange(6.0).view(2, 3)
    assert x.sum(axis=1).tolist() == [3, 12] and pf.sum(x, axis=0, keepdims=True).shape == (1, 3)
    assert pf.cat([x, x], axis=1).shape == (2, 6) and pf.mean(x, axis=(0, 1)).item() == 2.5 and x.argmax(axis=1).tolist() == [2, 2]
    assert x.swapaxes(axis0=0, axis1=1).shape == pf.swapaxes(x, axis0=0, axis1=1).shape == (3, 2)
    assert pf.tile(x[0], dims=(2,)).tolist() == x[0].tile(2).tolist() == [0, 1, 2, 0, 1, 2] and x.tile(dims=(2, 1)).shape == (4, 3)
    assert pf.gather(x, 0, pf.tensor([[1, 0, 1]]), sparse_grad=True).tolist() == x.gather(0, index=pf.tensor([[1, 0, 1]]), sparse_grad=False).tolist() == [[3, 1, 5]]
    with pytest.raises(TypeError, match="sum: wrong arguments"):
        pf.sum(x, sparse_grad=True)
    with pytest.raises(TypeError, match="sum: wrong arguments"):
        pf.sum(x, axis="a")


def test_out():
    x = pf.arange(3.0)
    out = pf.empty(3)
    assert pf.exp(x, out=out) is out and np.allclose(out.numpy(), np.exp(x.numpy()))
    empty = pf.empty(0)
    pf.add(x, 1, out=empty)
    assert empty.tolist() == [1, 2, 3]
    double = pf.empty(3, dtype=pf.float64)
    pf.mul(x, 2, out=double)
    assert double.dtype == pf.float64 and double.tolist() == [0, 2, 4]
    values, indices = pf.empty(1), pf.empty(1, dtype=pf.int64)
    pf.topk(x, 1, out=(values, indices))
    assert values.item() == 2 and indices.item() == 2
    assert pf.hstack([x, x], out=pf.empty(6)).shape == (6,)
    with pytest.raises(ValueError, match="hstack: no tensors; got an empty list"):
        pf.hstack([])
    with pytest.raises(RuntimeError, match="exp: the result cannot be cast to the dtype of out"):
        pf.exp(x, out=pf.empty(3, dtype=pf.int64))
    with pytest.raises(RuntimeError, match="exp: out= has no gradient"):
        pf.exp(x.requires_grad_(), out=out)
    with pytest.warns(UserWarning, match="out of shape"):
        pf.exp(pf.ones(2), out=pf.empty(3))
    with pytest.raises(TypeError, match="exp: out is not a tensor"):
        pf.exp(pf.ones(2), out=3)


def test_generator_is_a_keyword_of_random_functions():
    def draw(make):
        return [make(pf.Generator().manual_seed(5)) for _ in range(2)]

    state = pf.get_rng_state()
    for make in (lambda g: pf.rand(3, generator=g), lambda g: pf.randn(3, generator=g), lambda g: pf.randint(0, 9, (3,), generator=g), lambda g: pf.randperm(5, generator=g),
                 lambda g: pf.bernoulli(pf.full((9,), 0.5), generator=g), lambda g: pf.empty(3).normal_(generator=g), lambda g: pf.empty(3).uniform_(generator=g),
                 lambda g: pf.empty(3).exponential_(generator=g), lambda g: pf.empty(3).random_(generator=g)):
        a, b = draw(make)
        assert pf.equal(a, b)
    assert pf.get_rng_state() == state
    g = pf.Generator().manual_seed(5)
    assert not pf.equal(pf.rand(3, generator=g), pf.rand(3, generator=g))


def test_arguments_of_memory():
    x = pf.ones(1, 2, 3, 3)
    assert pf.zeros(2, layout=pf.strided, pin_memory=True).shape == (2,) and pf.zeros_like(x, memory_format=pf.preserve_format).shape == x.shape
    assert x.to(memory_format=pf.channels_last).is_contiguous(memory_format=pf.channels_last) and x.double(memory_format=pf.preserve_format).dtype == pf.float64
    assert x.clone(memory_format=pf.channels_last).stride() == (18, 1, 6, 2)
    with pytest.raises(NotImplementedError, match="only strided tensors"):
        pf.zeros(2, layout=pf.sparse_coo)
    with pytest.raises(NotImplementedError, match="channels_last_3d is not available"):
        pf.ones(1, 1, 1, 1, 1).to(memory_format=pf.channels_last_3d)
    assert pf.empty_permuted((2, 3), (1, 0)).stride() == (1, 2)
    for order in ((1, 1), (0,), (0, 2)):
        with pytest.raises(RuntimeError, match="empty_permuted: physical_layout is no order of the dims"):
            pf.empty_permuted((2, 3), order)
    assert pf.empty_strided((2, 3), (1, 2)).stride() == (1, 2) and x.new_empty_strided((2,), (3,)).stride() == (3,)


def test_to_in_all_forms():
    x = pf.ones(2)
    assert x.to("cpu", pf.float64, False, True).dtype == pf.float64
    assert x.to(pf.float32, False, True) is not x and x.to(pf.float32, False, False) is x and x.to("cpu", non_blocking=True) is x
    assert x.to(other=pf.ones(1, dtype=pf.int64)).dtype == pf.int64 and x.to(pf.ones(1, dtype=pf.float64), copy=True).dtype == pf.float64
    with pytest.raises(TypeError, match="to: too many flags"):
        x.to("cpu", True, False, True)


def test_devices():
    assert pf.device("cpu", 0) == pf.device("cpu") == pf.device(type="cpu") and pf.device("cpu").index is None and pf.device("rocm", 1).index == 1
    with pf.device("reference"):
        assert pf.zeros(1).device.type == "reference"
    assert pf.zeros(1).device.type == "cpu"
    pf.set_default_device("reference")
    try:
        assert pf.get_default_device() == pf.device("reference")
    finally:
        pf.set_default_device(None)
    with pytest.raises(ValueError, match="device: an index beside it"):
        pf.device("rocm:1", 0)


def test_where_a_tensor_is():
    x = pf.ones(2)
    assert x.is_cpu and not x.is_cuda and not x.is_sparse and not x.is_quantized and x.get_device() == -1 and x.layout == pf.strided
    assert x.pin_memory() is x and not x.is_shared() and not x.is_pinned() and pf.is_nonzero(pf.tensor(1)) and x.names == (None,)
    assert x.untyped_storage().nbytes() == 8 and x[1:].storage().data_ptr() == x.storage().data_ptr() == x.data_ptr()
    with pf.inference_mode():
        y = pf.ones(1)
    assert y.is_inference() and not x.is_inference()


def test_in_place_methods_say_what_the_function_computes():
    assert "cumsum(): Each element plus those before it" in pf.Tensor.cumsum_.__doc__
    assert "absolute(): |x|, elementwise." in pf.Tensor.absolute_.__doc__  # not what it is an alias of
    assert "unsqueeze(): A view with a new dimension of size 1" in pf.Tensor.unsqueeze_.__doc__


def test_a_tensor_changes_its_shape_in_place():
    x = pf.arange(6.0)
    assert x.resize_(2, 2).tolist() == [[0, 1], [2, 3]] and x.resize_(3).tolist() == [0, 1, 2]
    y = (pf.ones(2, 3, requires_grad=True) * 2).t_()
    assert y.shape == (3, 2) and y.unsqueeze_(0).shape == (1, 3, 2) and y.squeeze_().transpose_(0, 1).shape == (2, 3)
    with pytest.raises(RuntimeError, match="leaf tensor that requires grad"):
        pf.ones(2, 3, requires_grad=True).t_()
    leaf = pf.ones(2, 3, requires_grad=True)
    with pf.no_grad():
        assert leaf.t_() is leaf
    (leaf * 2).sum().backward()
    assert leaf.is_leaf and leaf.grad.tolist() == [[2, 2]] * 3
    z = pf.ones(2)
    z.set_(x)
    assert z.data_ptr() == x.data_ptr()
    assert z.detach_() is z
    assert pf.zeros(3, 3).fill_diagonal_(2.0).tolist() == (2 * np.eye(3)).tolist()
    tall, want = pf.zeros(7, 3).fill_diagonal_(5.0, wrap=True), np.zeros((7, 3))
    np.fill_diagonal(want, 5.0, wrap=True)
    assert tall.tolist() == want.tolist()


def test_random_numbers_in_place():
    pf.manual_seed(0)
    x = pf.empty(20000)
    assert abs(x.exponential_(2.0).mean().item() - 0.5) < 0.02 and x.min().item() >= 0
    assert abs(x.bernoulli_(0.3).mean().item() - 0.3) < 0.02 and abs(x.geometric_(0.25).mean().item() - 4) < 0.15
    assert abs(x.log_normal_(0.0, 0.5).log().std().item() - 0.5) < 0.02 and abs((x.cauchy_() > 1).float().mean().item() - 0.25) < 0.02
    n = pf.empty(20000, dtype=pf.int64).random_(3, 7)
    assert n.min().item() == 3 and n.max().item() == 6 and pf.empty(9, dtype=pf.uint8).random_().max().item() <= 255
    for wrong in (lambda: x.exponential_(0.0), lambda: x.geometric_(1.0)):
        with pytest.raises(RuntimeError):
            wrong()


def test_in_place_methods_of_compositions():
    x = pf.tensor([1.0, 2.0])
    assert x.addcmul_(x, x, value=2).tolist() == [3, 10] and pf.exp_(pf.zeros(2)).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="cannot be cast"):
        pf.arange(3).addcmul_(pf.ones(3), pf.ones(3))
    low, high = pf.tensor([0.0, 3.0]), pf.tensor([2.0, 9.0])
    assert x.clamp_(low, high).tolist() == [2, 9] and x.clamp_(max=4).tolist() == [2, 4] and x.clamp_(min=pf.tensor(3.0)).tolist() == [3, 4]


_OTHER = pf.tensor([[0.7, 0.2], [-0.4, 0.9]], dtype=pf.float64)


@pytest.mark.parametrize("name, args", [
    ("clamp", (0.3, 0.6)), ("clamp", (_OTHER, _OTHER + 0.1)), ("clip", (0.3, 0.6)), ("clamp_min", (0.4,)), ("clamp_max", (_OTHER,)), ("absolute", ()), ("cumprod", (0,)),
    ("copysign", (_OTHER,)), ("hypot", (_OTHER,)), ("xlogy", (_OTHER.abs(),)), ("renorm", (2, 0, 0.5)), ("polygamma", (1,)), ("mvlgamma", (1,)),
    ("put", (pf.tensor([0, 3]), pf.tensor([1.0, 2.0], dtype=pf.float64))), ("float_power", (3,)), ("scatter_reduce", (0, pf.tensor([[0, 0], [1, 1]]), _OTHER, "prod")),
    ("index_reduce", (0, pf.tensor([0, 0]), _OTHER, "prod")),
])
def test_in_place_methods_keep_what_the_gradient_needs(name, args):
    def gradients(prepare, change):
        leaves = [pf.tensor([[0.5, 0.25], [0.75, 0.4]], dtype=pf.float64, requires_grad=True), *(a.detach().requires_grad_() if isinstance(a, pf.Tensor) and a.is_floating_point() else a for a in args)]
        y = change(prepare(leaves[0]), *leaves[1:])
        if y.requires_grad:
            (y * y).sum().backward()
        return [leaf.grad.tolist() for leaf in leaves if isinstance(leaf, pf.Tensor) and leaf.grad is not None]

    for prepare in (lambda x: x * 1, lambda x: (x * 1).transpose(0, 1), lambda x: x.detach().clone()):
        assert gradients(prepare, getattr(pf.Tensor, f"{name}_")) == gradients(prepare, getattr(pf.Tensor, name))



def test_closeness():
    pf.testing.assert_close(pf.ones(2), pf.ones(2) + 1e-7)
    for wrong, message in (((pf.ones(2), pf.ones(3)), "shapes differ"), ((pf.ones(2), pf.ones(2).double()), "dtypes differ"), ((pf.ones(2), pf.zeros(2)), "2 of 2 elements differ"),
                           (([1], [1, 2]), "lengths differ"), (({"a": 1}, {"b": 1}), "keys differ"), ((1.0, 2.0), "1 of 1")):
        with pytest.raises(AssertionError, match=message):
            pf.testing.assert_close(*wrong)


def test_modules_by_pytorchs_paths_need_no_import():
    script = "import pyflame as pf; assert pf.nn.modules.conv.Conv2d is pf.nn.Conv2d and pf.nn.modules.utils._pair(1) == (1, 1)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_module_by_pytorchs_paths():
    from pyflame.nn.modules.batchnorm import _BatchNorm
    from pyflame.nn.modules.utils import _pair

    assert issubclass(pf.nn.BatchNorm2d, _BatchNorm) and _pair(3) == (3, 3) and pf.nn.modules.conv.Conv2d is pf.nn.Conv2d
    assert pf.nn.Linear(1, 1).type("torch.DoubleTensor").weight.dtype == pf.float64


def test_recomputation_by_pytorchs_path():
    from pyflame.utils.checkpoint import checkpoint, checkpoint_sequential

    layers = pf.nn.Sequential(*(pf.nn.Linear(3, 3) for _ in range(5)))
    x = pf.randn(2, 3, requires_grad=True)
    (want,) = pf.autograd.grad(layers(x).sum(), x)
    for segments in (1, 2, 3):
        (got,) = pf.autograd.grad(checkpoint_sequential(layers, segments, x, use_reentrant=False).sum(), x)
        assert pf.allclose(got, want)
    assert checkpoint(lambda a, scale: a * scale, x, scale=3.0, use_reentrant=True).shape == x.shape


def test_parts_of_a_dataset_for_each_process():
    from pyflame.utils.data.distributed import DistributedSampler

    parts = [list(DistributedSampler(range(10), 3, rank, shuffle=True, seed=1)) for rank in range(3)]
    assert all(len(p) == 4 for p in parts) and set(sum(parts, [])) == set(range(10))
    assert [len(DistributedSampler(range(10), 3, r, drop_last=True)) for r in range(3)] == [3, 3, 3]
    with pytest.raises(ValueError, match="rank is out of range"):
        DistributedSampler(range(3), 2, 2)


def test_limits_and_constants():
    assert pf.inf == math.inf and pf.pi == math.pi and pf.newaxis is None and math.isnan(pf.nan)


def test_the_alias_package():
    import pyflame.torch as torch
    import pyflame.torch.nn.functional as F
    from pyflame.torch.optim.lr_scheduler import StepLR
    from pyflame.torch.utils.data import DataLoader

    assert F is pf.nn.functional and torch.nn is pf.nn and torch.Tensor is pf.Tensor and DataLoader is pf.data.DataLoader and StepLR is pf.optim.lr_scheduler.StepLR
    assert torch.__version__.startswith("2.") and torch.version.cuda is None and sys.modules["pyflame.nn"].__spec__.name == "pyflame.nn"
    with pytest.raises(AttributeError, match="^PyFlame has no torch.nosuch$"):
        torch.nosuch
    with pytest.raises(AttributeError, match=r"^PyFlame has no torch.sofmax; did you mean 'softmax'\?$"):
        torch.sofmax
    with pytest.raises(ModuleNotFoundError):
        import pyflame.torch.nosuch  # noqa: F401
    import pyflame.torch.distributed.fsdp as fsdp

    with pytest.raises(NotImplementedError, match="distributed.fsdp.FullyShardedDataParallel: not available"):
        fsdp.FullyShardedDataParallel(None)


def test_a_program_runs_as_it_is(tmp_path):
    (tmp_path / "helper.py").write_text("import torch.nn as nn\nfrom torch.backends import cudnn\nnet = nn.Linear(2, 1)\n")
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nimport torch\nimport torch.nn.functional as F\nfrom torch.utils.data import DataLoader, TensorDataset\nfrom helper import net\n"
        "def main():\n"
        "    loader = DataLoader(TensorDataset(torch.arange(4.0).view(2, 2)), num_workers=1, batch_size=2)\n"
        "    for (x,) in loader:\n        loss = F.mse_loss(net(x), torch.zeros(2, 1))\n    loss.backward()\n"
        "    print(sys.argv[1:], torch.__name__, net.weight.grad.shape, __name__)\n"
        "if __name__ == '__main__':\n    main()\n")
    done = subprocess.run([sys.executable, "-m", "pyflame.torch", str(program), "--flag"], capture_output=True, text=True, check=False)
    assert done.stdout == "['--flag'] pyflame.torch (1, 2) __main__\n", done.stderr
    assert subprocess.run([sys.executable, "-m", "pyflame.torch"], capture_output=True, check=False).returncode == 2


def test_summary_writer(tmp_path):
    from pyflame.utils.tensorboard import SummaryWriter, _pixels, _png

    try:
        import tensorboard  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="the package 'tensorboard' is not installed"):
            SummaryWriter(tmp_path)
    else:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        with SummaryWriter(tmp_path) as writer:
            writer.add_scalar("loss", pf.tensor(0.5), 3)
            writer.add_image("image", pf.rand(3, 4, 5))
            with pytest.raises(NotImplementedError, match="SummaryWriter.add_graph: not available"):
                writer.add_graph(None)
        read = EventAccumulator(str(tmp_path)).Reload()
        assert [(e.step, e.value) for e in read.Scalars("loss")] == [(3, 0.5)] and read.Images("image")[0].width == 5
    assert _pixels(pf.ones(3, 1, 2, 2), "NCHW").shape == (2, 6, 1) and _pixels(pf.ones(2, 2), "HW").max() == 255
    with pytest.raises(ValueError, match="dataformats does not fit"):
        _pixels(pf.ones(2, 2), "CHW")
    assert _png(np.zeros((2, 3, 1), np.uint8)).startswith(b"\x89PNG")


def test_arrays_of_numpy_in_files_and_memory(tmp_path):
    array = np.arange(6.0).reshape(2, 3)
    pf.save({"a": array, "t": pf.ones(1)}, tmp_path / "f")
    loaded = pf.load(tmp_path / "f")
    assert isinstance(loaded["a"], np.ndarray) and loaded["a"].tolist() == array.tolist() and isinstance(loaded["t"], pf.Tensor)
    mapped = np.memmap(tmp_path / "m", dtype=np.float32, mode="w+", shape=(3,))
    t = pf.from_numpy(mapped)
    t.fill_(2)
    assert mapped.tolist() == [2, 2, 2]


def test_second_names():
    x = pf.tensor([0.5, -0.25])
    assert pf.arcsin(x).tolist() == x.asin().tolist() == x.arcsin().tolist() and pf.greater(x, 0).tolist() == x.greater(0).tolist() == [True, False]
    assert x.clone().arctan_().tolist() == x.atan().tolist() and pf.ger(x, x).shape == (2, 2)
    assert pf.cosine_similarity(x, x, dim=0).item() == pytest.approx(1) and pf.pixel_shuffle(pf.ones(1, 4, 2, 2), 2).shape == (1, 1, 4, 4)
    assert pf.range(1, 4).tolist() == [1, 2, 3, 4] and pf.range(0, 1, 0.5).tolist() == [0, 0.5, 1] and not pf.detach(x.requires_grad_()).requires_grad
    assert pf.get_device_module("cpu") is pf.cpu and pf.get_num_interop_threads() == 1 and not pf.set_flush_denormal(True)
    with pytest.raises(RuntimeError, match="range: the step does not lead to the end"):
        pf.range(1, 0)
    mode = pf.get_deterministic_debug_mode()
    pf.set_deterministic_debug_mode("default")
    assert not pf.are_deterministic_algorithms_enabled()
    pf.set_deterministic_debug_mode(mode)
    with pytest.raises(RuntimeError, match="set_deterministic_debug_mode: no such mode"):
        pf.set_deterministic_debug_mode("nosuch")


def test_generators_continue():
    g = pf.Generator().manual_seed(1)
    pf.rand(3, generator=g)
    other = g.clone_state()
    assert g.get_offset() == other.get_offset() > 0 and pf.equal(pf.rand(2, generator=g), pf.rand(2, generator=other)) and g.device == pf.device("cpu")


GPU_PROGRAM = """
import pyflame.torch as torch
x = torch.randn(3, 4)
y = x.cuda()
assert y.is_cuda and y.device.type == "cuda" and y.device == "cuda" and y.device == torch.device("cuda:0") and y.get_device() == 0 and y.type() == "torch.cuda.FloatTensor"
assert x.to("cuda").device == torch.zeros(2, device="cuda").device == torch.ones(2).to(0).device == y.device
assert torch.allclose(torch.nn.Linear(4, 2).cuda().requires_grad_(False)(y).cpu(), torch.zeros(1)) is False
with torch.autocast("cuda", dtype=torch.float16):
    assert (y @ y.T).dtype == torch.float16
assert torch.cuda.memory_allocated() > 0 and torch.cuda.device_count() >= 1 and torch.cuda.get_device_name() and torch.cuda.current_device() == 0
assert torch.cuda.amp.GradScaler().is_enabled() and isinstance(y, torch.cuda.FloatTensor) and not isinstance(x, torch.cuda.FloatTensor)
with torch.device("cuda"):
    assert torch.zeros(1).is_cuda
assert not torch.zeros(1).is_cuda
torch.cuda.set_device(0), torch.cuda.empty_cache(), torch.cuda.synchronize()
"""


def test_cuda_names_the_gpu_there_is():
    if NO_GPU:
        pytest.skip("there is no GPU")
    subprocess.run([sys.executable, "-c", GPU_PROGRAM], check=True)


def test_paths_of_mixed_precision_and_traces(tmp_path):
    from pyflame.torch.amp.grad_scaler import GradScaler
    from pyflame.torch.cuda.amp.autocast_mode import autocast

    assert GradScaler is pf.amp.GradScaler and autocast is pf.cuda.amp.autocast
    with pf.profiler.profile(on_trace_ready=pf.profiler.tensorboard_trace_handler(str(tmp_path))):
        pf.ones(2).add(1).tolist()
    assert len(list(tmp_path.glob("*.pt.trace.json"))) == 1 and pf.profiler.ProfilerActivity.CPU in pf.profiler.supported_activities()


def test_help_of_to_leads_a_newcomer_on():
    """Tensor.to, which help(pyflame) names, has the forms of call and an example."""
    for text in ("x.to(device, dtype)", "copy=True", "DeviceError", ">>> pf.tensor([1.7, -1.7]).to(pf.int64)\n    tensor([ 1, -1], dtype=pyflame.int64)"):
        assert text in pf.Tensor.to.__doc__, text
    assert repr(pf.tensor([1.7, -1.7]).to(pf.int64)) == "tensor([ 1, -1], dtype=pyflame.int64)"
