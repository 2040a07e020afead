"""On the CPU, images stay channels-last between convolutions as long as nobody asks for their strides, and no result shows it."""
import copy
import ctypes
import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

import pyflame as pf
import pyflame.nn.functional as F


def values(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def image(device="cpu", requires_grad=False):
    """A convolution's result that is large enough to be laid out freely."""
    x = pf.tensor(values(4, 16, 20, 18), device=device, requires_grad=requires_grad)
    w = pf.tensor(values(24, 16, 3, 3, seed=1), device=device)
    return x, F.conv2d(x, w, padding=1)


def network(device):
    """Everything that keeps the layout, and some that does not, forward and backward."""
    def param(*shape, seed):
        t = pf.tensor(values(*shape, seed=seed) * 0.2, device=device)
        return t.requires_grad_()

    x = param(4, 3, 33, 30, seed=1)
    w1, w2, w3, w4 = param(16, 3, 5, 5, seed=2), param(24, 16, 3, 3, seed=3), param(24, 24, 3, 3, seed=4), param(24, 16, 1, 1, seed=5)
    gain, shift, bias, w5 = param(24, seed=6), param(24, seed=7), param(16, seed=8), param(32, 24, 3, 3, seed=9)
    y = F.max_pool2d(F.relu(F.conv2d(x, w1, bias, stride=2, padding=2)), 3, stride=2, padding=1)
    z = F.relu(F.batch_norm(F.conv2d(y, w2, padding=1), None, None, gain, shift, training=True))
    z = F.relu(F.batch_norm(F.conv2d(z, w3, padding=1), None, None, gain, None if device == "none" else shift, training=True) + F.conv2d(y, w4))
    a = F.avg_pool2d(z, 3, stride=2, padding=1)
    b = F.avg_pool2d(z, 2, stride=1, count_include_pad=False)
    loss = a.square().mean() + b.flatten(1).sum(1).abs().mean() + z.mean((2, 3)).square().sum() + z[1:, ::2].amax() + F.conv2d(z, w5, stride=2, padding=1).square().mean()
    loss.backward()
    return [y, z, a, b, loss] + [p.grad for p in (x, w1, w2, w3, w4, gain, shift, bias, w5)]


def test_a_network_of_images_is_that_of_the_reference():
    for i, (got, want) in enumerate(zip(network("cpu"), network("reference"))):
        got, want = got.detach().cpu().numpy(), want.detach().cpu().numpy()
        assert got.strides == want.strides
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5 * np.abs(want).max(), err_msg=str(i))


def bits():
    return hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in network("cpu"))).hexdigest()


def test_op_by_op_gives_the_same_bits():
    env = dict(os.environ, PYFLAME_WINDOW="1", PYTHONPATH=os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")]))
    alone = subprocess.run([sys.executable, "-c", "import test_layout; print(test_layout.bits())"], env=env, capture_output=True, text=True, check=True)
    assert alone.stdout.strip() == bits()


def test_threads_do_not_change_a_bit():
    env = dict(os.environ, PYFLAME_NUM_THREADS="1", PYTHONPATH=os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")]))
    alone = subprocess.run([sys.executable, "-c", "import test_layout; print(test_layout.bits())"], env=env, capture_output=True, text=True, check=True)
    assert alone.stdout.strip() == bits()


# Batch, channels, height, width; outputs and kernel; stride, padding, dilation. The first reaches from one band of rows to the next, the second has
# several small images in a panel, of which the last are fewer, and the others have taps that only reach padding.
WEIGHTS = [
    ((2, 16, 30, 300), (32, 3), (1, 1), (1, 1), (1, 1)),
    ((7, 32, 7, 7), (132, 3), (1, 1), (1, 1), (1, 1)),
    ((8, 128, 7, 7), (136, 3), (1, 1), (1, 1), (1, 1)),
    ((3, 32, 33, 29), (20, 3), (2, 2), (1, 1), (1, 1)),
    ((5, 16, 17, 14), (12, 2), (2, 1), (0, 2), (1, 2)),
    ((4, 48, 20, 20), (52, 5), (1, 2), (5, 4), (2, 1)),
    ((6, 64, 12, 10), (4, 1), (1, 1), (0, 1), (1, 1)),
]


def weight_gradient(x, g, kernel, stride, padding, dilation):
    """The definition: of each tap, the product of the pixels that it reads with the gradients of the result."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    dw = np.empty((g.shape[1], x.shape[1], kernel, 3))
    for i in range(kernel):
        for j in range(3):
            top, left = i * dilation[0], j * dilation[1]
            read = x[:, :, top : top + (g.shape[2] - 1) * stride[0] + 1 : stride[0], left : left + (g.shape[3] - 1) * stride[1] + 1 : stride[1]]
            dw[:, :, i, j] = np.einsum("nohw,nihw->oi", g, read)
    return dw


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("weight_format", [pf.contiguous_format, pf.channels_last], ids=["rows", "last"])
@pytest.mark.parametrize("image_shape, outputs, stride, padding, dilation", WEIGHTS)
def test_the_gradient_of_a_weight_from_channels_last_images(image_shape, outputs, stride, padding, dilation, weight_format, dtype):
    dtype, kernel = getattr(pf, dtype), outputs[1]
    x = pf.tensor(values(*image_shape)).to(dtype).to(memory_format=pf.channels_last)
    w = pf.zeros(outputs[0], image_shape[1], kernel, 3, dtype=dtype).to(memory_format=weight_format).requires_grad_()
    y = F.conv2d(x, w, stride=stride, padding=padding, dilation=dilation)
    g = pf.tensor(values(*y.shape, seed=1)).to(dtype).to(memory_format=pf.channels_last)
    y.backward(g)
    want = weight_gradient(x.float().numpy(), g.float().numpy(), kernel, stride, padding, dilation)
    np.testing.assert_allclose(w.grad.float().numpy(), want, rtol=0, atol=np.abs(want).max() * (1e-5 if dtype == pf.float32 else 4e-3))


# Channels of the result, and the kernel; the rest as above. A chunk of weights has 64 channels of the input, six pixels are computed together.
CONVOLUTIONS = [
    ((2, 16, 9, 11), (16, 3, 3), (1, 1), (1, 1), (1, 1)),
    ((3, 72, 8, 7), (48, 3, 3), (2, 2), (1, 1), (1, 1)),
    ((2, 136, 5, 6), (32, 2, 3), (2, 1), (0, 2), (1, 2)),
    ((2, 32, 12, 11), (32, 5, 3), (1, 1), (4, 2), (2, 1)),
    ((18, 32, 7, 7), (32, 3, 3), (1, 1), (0, 2), (1, 1)),
    ((1, 32, 40, 90), (16, 3, 3), (1, 1), (1, 1), (1, 1)),
    ((2, 16, 6, 13), (32, 1, 3), (1, 2), (0, 1), (1, 1)),
    ((2, 32, 9, 9), (32, 3, 3), (1, 1), (3, 4), (1, 1)),
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("weight_format", [pf.contiguous_format, pf.channels_last], ids=["rows", "last"])
@pytest.mark.parametrize("image_shape, outputs, stride, padding, dilation", CONVOLUTIONS)
def test_convolutions_of_channels_last_images(image_shape, outputs, stride, padding, dilation, weight_format, dtype):
    def results(device, images, weights):
        x = pf.tensor(values(*image_shape), device=device).to(dtype).to(memory_format=images).requires_grad_()
        w = pf.tensor(values(outputs[0], image_shape[1], *outputs[1:], seed=1), device=device).to(dtype).to(memory_format=weights)
        bias = pf.tensor(values(outputs[0], seed=2), device=device).to(dtype)
        y = F.conv2d(x, w, None, stride, padding, dilation)
        y.backward(pf.tensor(values(*y.shape, seed=3), device=device).to(dtype).to(memory_format=images))
        with pf.no_grad():
            return [y, x.grad, F.conv2d(x, w, bias, stride, padding, dilation), F.relu(F.conv2d(x, w, bias, stride, padding, dilation))]

    dtype = getattr(pf, dtype)
    wanted = results("reference", pf.contiguous_format, pf.contiguous_format)
    for got, want in zip(results("cpu", pf.channels_last, weight_format), wanted):
        got, want = got.detach().cpu().float().numpy(), want.detach().cpu().float().numpy()
        np.testing.assert_allclose(got, want, rtol=0, atol=np.abs(want).max() * (3e-6 if dtype == pf.float32 else 8e-3))


LOOKS = {
    "stride": lambda y: y.stride(),
    "numpy": lambda y: tuple(s // 4 for s in y.numpy().strides),
    "buffer": lambda y: tuple(s // 4 for s in memoryview(y).strides),
    "dlpack": lambda y: tuple(s // 4 for s in np.from_dlpack(y).strides),
    "view": lambda y: y.view(4, 24, 360).stride() + (1,),
    "detach": lambda y: y.detach().stride(),
    "contiguous": lambda y: y.contiguous().stride(),
    "clone": lambda y: y.clone().stride(),
    "transpose": lambda y: tuple(y.transpose(2, 3).stride(i) for i in (0, 1, 3, 2)),
    "relu_": lambda y: F.relu(y).add_(1).stride(),
    "copy_": lambda y: pf.zeros(4, 24, 20, 18).copy_(y).stride(),
    "cat": lambda y: pf.cat([y, y])[:4].stride(),
    "as_strided": lambda y: y.as_strided((4, 24, 20, 18), y.stride()).stride(),
    "getitem": lambda y: y[:].stride(),
}


@pytest.mark.parametrize("look", LOOKS)
def test_whoever_looks_sees_rows(look):
    want = image("reference")[1].numpy()
    _, y = image()
    kept = y
    strides = LOOKS[look](y)
    assert strides[:3] == (24 * 360, 360, 18)[: len(strides[:3])] or look == "view" and strides == (24 * 360, 360, 1, 1)
    np.testing.assert_allclose(kept.numpy(), want, rtol=1e-4, atol=1e-4)
    assert kept.data_ptr() == y.data_ptr() == y.numpy().ctypes.data


def test_values_that_are_read_in_rows():
    want = image("reference")[1]
    _, y = image()
    np.testing.assert_allclose(np.array(y.tolist()), want.numpy(), rtol=1e-4, atol=1e-4)
    _, y = image()
    ctypes_view = (ctypes.c_float * y.numel()).from_address(y.data_ptr())
    np.testing.assert_allclose(np.frombuffer(ctypes_view, np.float32).reshape(y.shape), want.numpy(), rtol=1e-4, atol=1e-4)
    _, y = image()
    assert str(y) != "" and abs(float(y[3, 23, 19, 17]) - float(want[3, 23, 19, 17])) < 1e-4


def test_writes_are_seen_by_all():
    _, y = image()
    z = F.relu(y)
    z.view(-1).fill_(3.0)
    assert z.sum().item() == 3.0 * z.numel()
    _, y = image()
    y[0] = 0.0
    y.mul_(2.0)
    want = image("reference")[1].numpy() * 2
    want[0] = 0
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-4, atol=2e-4)


def test_a_gradient_is_the_leafs_own_and_in_rows():
    x, y = image(requires_grad=True)
    y.square().mean().backward()
    assert x.grad.stride() == x.stride()
    first = x.grad.numpy().copy()
    image_again = F.conv2d(x, pf.tensor(values(24, 16, 3, 3, seed=1)), padding=1)
    image_again.square().mean().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * first, rtol=1e-5, atol=1e-7)


def test_images_stay_channels_last_between_layers():
    """What it is for: nothing turns images between the layers of a block."""
    x, w = pf.randn(4, 16, 24, 24), pf.randn(16, 16, 3, 3)
    text = str(pf.explain(lambda: F.conv2d(F.relu(F.conv2d(x, w, padding=1) * 0.1), w, padding=1)))
    if "onednn.conv" not in text:
        pytest.skip("oneDNN has no quick kernel on this processor")
    assert sum(text.count(f": {entry}") for entry in ("onednn.conv", "cpu.conv_taps", "cpu.conv_winograd")) == 2 and "cast(" not in text and "strides (9216, 1, 384, 16)" in text, text


# A tensor, and the strides that PyTorch 2.15 gives to its clone and to zeros_like.
LYING = {
    "channels-last": (lambda: pf.ones(2, 3, 4, 5).contiguous(memory_format=pf.channels_last), (60, 1, 15, 3)),
    "permuted": (lambda: pf.ones(2, 3, 4, 5).permute(1, 3, 0, 2), (20, 1, 60, 5)),
    "transposed": (lambda: pf.ones(3, 4).t(), (1, 4)),
    "parts of a transposed one": (lambda: pf.ones(6, 4).t()[:, ::2], (1, 4)),
    "parts": (lambda: pf.ones(2, 3, 4, 5)[:, ::2], (40, 20, 5, 1)),
    "expanded": (lambda: pf.ones(3, 1).expand(3, 4), (4, 1)),
    "a size of 1": (lambda: pf.ones(6).as_strided((2, 1, 3), (1, 77, 2)), (1, 77, 2)),
    "nothing": (lambda: pf.ones(4, 0).t(), (4, 1)),
    "complex": (lambda: pf.ones(3, 4, dtype=pf.complex64).t(), (1, 4)),
    "float8": (lambda: pf.ones(3, 4).to(pf.float8_e4m3fn).t(), (1, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", LYING)
def test_copies_lie_as_their_input(name):
    make, strides = LYING[name]
    x = make()
    kind = {"complex": 2.0 + 1j}.get(name, 2.0)
    x = x if name in ("expanded", "float8", "nothing") else x * kind if x.is_contiguous() else x.mul_(kind)
    copies = [x.clone(), pf.clone(x), x.clone(memory_format=pf.preserve_format), x.to(x.dtype, copy=True), copy.deepcopy(x)]
    for y in copies:
        assert y.stride() == strides and pf.equal(y.to(pf.complex64), x.to(pf.complex64)) and y.data_ptr() != x.data_ptr() or x.numel() == 0
    assert copies[0].is_leaf and copies[0].contiguous().stride() == x.clone(memory_format=pf.contiguous_format).stride() == pf.empty(x.shape).stride()
    made = [pf.zeros_like(x), pf.ones_like(x), pf.empty_like(x), pf.full_like(x, 3), pf.zeros_like(x, memory_format=pf.preserve_format)]
    made += [] if name in ("complex", "float8") else [pf.rand_like(x), pf.randn_like(x), pf.randint_like(x, 5), pf.zeros_like(x, dtype=pf.int32)]
    assert [y.stride() for y in made] == [strides] * len(made)
    assert (made[0].to(pf.complex64) == 0).all() and (made[1].to(pf.complex64) == 1).all() and (made[3].to(pf.complex64) == 3).all()
    rows = pf.empty(x.shape).stride()
    assert pf.ones_like(x, memory_format=pf.contiguous_format).stride() == pf.empty_like(x, memory_format=pf.contiguous_format).stride() == rows
    if name not in ("complex", "float8"):
        assert pf.randint_like(x, 5, memory_format=pf.contiguous_format).stride() == rows


def test_copies_of_views_lie_in_rows():
    x = pf.ones(3, 4)
    for y in (pf.t_copy(x), pf.permute_copy(x, (1, 0)), pf.as_strided_copy(x, (4, 3), (1, 4)), pf.split_with_sizes_copy(x.t(), [4])[0], pf.unbind_copy(x.t().unsqueeze(0))[0]):
        assert y.stride() == (3, 1)


def test_copies_have_gradients_and_can_be_written():
    x = pf.tensor(values(3, 4), requires_grad=True)
    y = x.t().clone()
    assert y.stride() == (1, 4) and y.grad_fn is not None
    y.mul_(2)
    (y * pf.arange(12.0).reshape(4, 3)).sum().backward()
    assert pf.equal(x.grad, 2 * pf.arange(12.0).reshape(4, 3).t())
    state = pf.zeros_like(x.t(), requires_grad=True)
    assert state.is_leaf and state.stride() == (1, 4)
    (state * x.t()).sum().backward()
    assert pf.equal(state.grad, x.detach().t())
    made = pf.zeros_like(x.detach().t())
    made[1] = 7.0
    made[:, 2].add_(1)
    assert made.tolist() == [[0, 0, 1], [7, 7, 8], [0, 0, 1], [0, 0, 1]] and made.numpy().flags.f_contiguous
    assert pf.rand_like(x.detach().t()).std().item() > 0.1


def test_a_module_keeps_its_layout_when_it_is_copied():
    model = pf.nn.Conv2d(3, 4, 3).to(memory_format=pf.channels_last)
    assert copy.deepcopy(model).weight.is_contiguous(memory_format=pf.channels_last)
    assert model.weight.detach().clone().is_contiguous(memory_format=pf.channels_last)


def test_copies_do_not_look_at_free_layouts():
    """zeros_like of a convolution's result asks for its shape alone, and a clone of it lies in rows."""
    _, y = image()
    text = str(pf.explain(lambda: (pf.zeros_like(y), pf.rand_like(y))))
    assert "cast(" not in text, text
    _, y = image()
    assert y.clone().stride() == y.stride() == (8640, 360, 18, 1)
