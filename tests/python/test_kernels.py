"""pf.kernel: kernels of the user's. What needs a GPU runs on one, or on the wave emulator."""
import numpy as np
import pytest

import pyflame as pf

GPU = "rocm" if pf.rocm_is_available() else "cuda" if pf.cuda_is_available() else None
needs_gpu = pytest.mark.skipif(GPU is None, reason="no GPU")

SAXPY = "if (i < out_size) pf::store(out + i, a * pf::load(x + i) + pf::load(y + i));"
SOFTMAX = """
PF_SHARED float shared[kThreads];
const pf::i64 columns = x_shape[x_rank - 1];
const x_t* row = x + pf::group().x * columns;
float most = -INFINITY;
for (pf::i64 c = pf::thread(); c < columns; c += kThreads) most = pf::maximum<float>(most, pf::load(row + c));
most = pf::over_group<pf::Largest, kThreads>(most, shared);
float sum = 0;
for (pf::i64 c = pf::thread(); c < columns; c += kThreads) sum += pf::exp<float>(pf::load(row + c) - most);
sum = pf::over_group<pf::Sum, kThreads>(sum, shared);
for (pf::i64 c = pf::thread(); c < columns; c += kThreads)
  pf::store(out + pf::group().x * columns + c, pf::exp<float>(pf::load(row + c) - most) / sum);
"""


def saxpy(**more):
    return pf.kernel(SAXPY, "saxpy", inputs=["x", "y"], scalars={"a": "float32"}, **more)


def softmax(threads=128, **more):
    return pf.kernel(SOFTMAX, "my_softmax", inputs="x", threads=threads, header=f"constexpr int kThreads = {threads};", grid=lambda x: x.numel() // x.shape[-1],
                     reference=lambda x: x.float().softmax(-1).to(x.dtype), **more)


def there(values, dtype=pf.float32):
    return pf.tensor(values, dtype=dtype, device=GPU)


@needs_gpu
@pytest.mark.parametrize("dtype", [pf.float32, pf.float64, pf.float16, pf.bfloat16])
def test_a_kernel_computes(dtype):
    k = saxpy()
    x, y = there(np.arange(1000) % 7, dtype), there(np.arange(1000) % 5, dtype)
    for a in (2.0, 3.0):  # a value, no part of the program
        assert (k(x, y, a=a).float() == a * x.float() + y.float()).all()
    assert k(x, y, a=1.0).dtype == dtype and k(x, y, a=1.0).device == x.device


@needs_gpu
@pytest.mark.parametrize("threads", [32, 64, 256])
@pytest.mark.parametrize("shape", [(5, 100), (1, 1), (2, 3, 33)])
def test_lanes_and_shared_memory(threads, shape):
    pf.manual_seed(3)
    softmax(threads).check(pf.randn(*shape, device=GPU))


@needs_gpu
def test_inputs_may_have_any_strides_and_other_ops_around_them():
    x = pf.arange(12.0, device=GPU).reshape(3, 4)
    y = saxpy()(x.t() + 1, x.t()[:, :], a=2.0) * 10
    assert (y == (2 * (x.t() + 1) + x.t()) * 10).all()


@needs_gpu
def test_several_outputs_and_a_grid_of_three_dims():
    k = pf.kernel("const pf::Index g = pf::group(); if (pf::thread() == 0) { place[g.x + 2 * (g.y + 3 * g.z)] = (int)(100 * g.z + 10 * g.y + g.x); "
                  "half[g.x + 2 * (g.y + 3 * g.z)] = (float)n / 2; }", "places", inputs="x", outputs=["place", "half"], scalars={"n": "int64"}, threads=32,
                  grid=(2, 3, 4), result=lambda x, n: [((4, 3, 2), pf.int32), (24, pf.float32)])
    place, half = k(there([0.0]), n=7)
    assert place.tolist() == [[[100 * z + 10 * y + x for x in range(2)] for y in range(3)] for z in range(4)] and half.tolist() == [3.5] * 24


@needs_gpu
def test_outputs_that_are_filled_take_atomic_additions():
    k = pf.kernel("if (i < x_size) pf::atomic_add(count + x[i], 1);", "count", inputs="x", outputs="count", result=(4, pf.int32), fill=0, grid=lambda x: -(-x.numel() // 256))
    x = pf.arange(1000, device=GPU) % 3
    for _ in range(3):
        assert k(x).tolist() == [334, 333, 333, 0]


@needs_gpu
def test_scalars_of_all_types():
    k = pf.kernel("if (i == 0) { out[0] = d; out[1] = f; out[2] = (double)l; out[3] = n; out[4] = yes ? 1 : 0; }", "kinds", inputs="x", result=(5, pf.float64), grid=1,
                  scalars={"d": "float64", "f": "float32", "l": "int64", "n": "int32", "yes": "bool"})
    assert k(there([0.0]), d=0.1, f=0.1, l=1 << 40, n=-3, yes=True).tolist() == [0.1, float(np.float32(0.1)), float(1 << 40), -3.0, 1.0]


@needs_gpu
def test_dynamic_shared_memory():
    k = pf.kernel("float* s = pf::dynamic_shared<float>(); s[pf::thread()] = x[pf::thread()]; pf::barrier(); out[pf::thread()] = s[pf::threads() - 1 - pf::thread()];",
                  "reversed", inputs="x", threads=64, grid=1, shared_bytes=256)
    assert k(pf.arange(64.0, device=GPU)).tolist() == list(range(63, -1, -1))


@needs_gpu
def test_a_backward_of_ones_own():
    k = saxpy(backward=lambda grads, inputs, outputs, a: (a * grads[0], grads[0]))
    x, y = (there([1.0, 2.0]).requires_grad_() for _ in range(2))
    (k(x, y, a=3.0) * there([1.0, 10.0])).sum().backward()
    assert x.grad.tolist() == [3.0, 30.0] and y.grad.tolist() == [1.0, 10.0]


@needs_gpu
def test_it_is_replayed():
    k = softmax()
    x = pf.randn(8, 64, device=GPU)
    for _ in range(12):
        x = k(x) * 4
    assert (x.sum(-1) - 4).abs().max().item() < 1e-5


@needs_gpu
def test_explain_and_profiles_show_its_name():
    k, x = saxpy(), there([1.0])
    assert "saxpy(float32(1,), float32(1,)" in str(pf.explain(lambda: k(x, x, a=1.0)))
    with pf.profiler.profile() as p:
        k(x, x, a=2.0).tolist()
    assert "gpu.user_kernel saxpy" in p.key_averages().table()


@needs_gpu
def test_a_text_that_does_not_compile_is_named_with_its_line():
    k = pf.kernel("const float two = 2;\nout[i] = two * what;", "wrong", inputs="x")
    y = k(there([1.0]))
    with pytest.raises(RuntimeError, match=r"(?s)wrong.*2.*what"):
        y.tolist()
    assert (there([1.0]) + 1).tolist() == [2.0]


@needs_gpu
def test_check_finds_a_wrong_kernel():
    k = pf.kernel("if (i < out_size) out[i] = x[i] + (i == 3);", "off", inputs="x", reference=lambda x: x.clone())
    with pytest.raises(AssertionError, match="off.check: out: 1 of 5 elements differ"):
        k.check(pf.zeros(5, device=GPU))


@needs_gpu
def test_vectors_constants_and_shared_memory_are_no_accesses_outside():
    k = pf.kernel("PF_SHARED float s[64]; const int table[] = {3, 1, 2, 0}; float own[8]; for (int j = 0; j < 8; ++j) own[j] = x[j * x_shape[0] / 8];"
                  "s[pf::thread()] = own[table[i % 4]]; const float other = pf::from_lane(own[1], 0); pf::barrier();"
                  "if (i < 16) pf::store_vec(out + 4 * i, pf::load_vec<4>(x + 4 * i)); if (i == 0) out[0] = s[63 - i] + 0 * other;", "inside", inputs="x", threads=64, grid=1)
    x = pf.arange(64.0, device=GPU)
    assert k(x).tolist() == [0.0, *range(1, 64)]


@needs_gpu
def test_empty_tensors_launch_nothing():
    assert saxpy()(there([]), there([]), a=1.0).shape == (0,)


def test_the_reference_computes_on_the_cpu():
    k = saxpy(reference=lambda x, y, a: a * x + y)
    x = pf.tensor([1.0, 2.0], requires_grad=True)
    k(x, pf.ones(2), a=3.0).sum().backward()
    assert k(x, pf.ones(2), a=3.0).tolist() == [4.0, 7.0] and x.grad.tolist() == [3.0, 3.0]
    assert repr(k) == "pyflame.kernel(saxpy(x, y, a) -> out)"


def test_a_backward_is_used_on_the_cpu_too():
    k = pf.kernel("out[i] = x[i];", "same", inputs="x", reference=lambda x: x.clone(), backward=lambda grads, inputs, outputs: 5 * grads[0])
    x = pf.ones(2, requires_grad=True)
    k(x).sum().backward()
    assert x.grad.tolist() == [5.0, 5.0]


X = pf.ones(2)
GRAD = pf.ones(2, requires_grad=True)


@pytest.mark.parametrize("error, text, call", [
    (ValueError, "kernel: the name is no identifier; got 'a b'", lambda: pf.kernel("x", "a b", inputs="x")),
    (ValueError, "k: there are no inputs", lambda: pf.kernel("x", "k", inputs=[])),
    (ValueError, "k: one of the inputs has an unusable name; got 'i'", lambda: pf.kernel("x", "k", inputs="i")),
    (ValueError, "k: one of the scalars has an unusable name; got 'float'", lambda: pf.kernel("x", "k", inputs="x", scalars={"float": "int32"})),
    (ValueError, "k: a name is one that the text has for a tensor; got x_size", lambda: pf.kernel("x", "k", inputs="x", scalars={"x_size": "int64"})),
    (ValueError, "k: a name stands for two things; got x", lambda: pf.kernel("x", "k", inputs="x", outputs="x")),
    (ValueError, "k: a scalar has an unknown type; got n: 'half'", lambda: pf.kernel("x", "k", inputs="x", scalars={"n": "half"})),
    (ValueError, "k: the number of threads of a workgroup is wrong; got 100", lambda: pf.kernel("x", "k", inputs="x", threads=100)),
    (ValueError, "k: there is no source", lambda: pf.kernel(" ", "k", inputs="x")),
    (TypeError, "saxpy: the number of tensors is wrong; got 1; expected 2: x, y", lambda: saxpy()(X, a=1.0)),
    (TypeError, "saxpy: y is no tensor; got int", lambda: saxpy()(X, 3, a=1.0)),
    (TypeError, "saxpy: the scalars are others; got none; expected a, by keyword", lambda: saxpy()(X, X)),
    (TypeError, "saxpy: a is no number of its type; got 'two'", lambda: saxpy()(X, X, a="two")),
    (TypeError, "k: n is no integer; got 1.5", lambda: pf.kernel("x", "k", inputs="x", scalars={"n": "int32"})(X, n=1.5)),
    (ValueError, "k: n is too large; got 4294967296; expected int32", lambda: pf.kernel("x", "k", inputs="x", scalars={"n": "int32"})(X, n=1 << 32)),
    (NotImplementedError, "saxpy: the kernel has no implementation for this device; got cpu; expected a GPU; hint: give reference=", lambda: saxpy()(X, X, a=1.0)),
    (NotImplementedError, "saxpy: the kernel has no gradient; got an input that requires one", lambda: saxpy()(GRAD, X, a=1.0)),
    (TypeError, "k: the grid is no number of workgroups; got (1.5,)", lambda: pf.kernel("x", "k", inputs="x", grid=lambda x: (1.5,))(X.to("meta"))),
    (ValueError, "k: the grid is too large; got 65536 workgroups in dim 1", lambda: pf.kernel("x", "k", inputs="x", grid=(1, 65536))(X.to("meta"))),
    (TypeError, "k: result does not describe the outputs; got 3", lambda: pf.kernel("x", "k", inputs="x", result=lambda x: 3)(X.to("meta"))),
    (TypeError, "k: complex numbers are not available; got complex64", lambda: pf.kernel("x", "k", inputs="x")(X.to("meta").to(pf.complex64))),
    (ValueError, "k.check: there is nothing to compare with; got no reference", lambda: pf.kernel("x", "k", inputs="x").check(X)),
    (ValueError, "k.check: the reference would be compared with itself", lambda: pf.kernel("x", "k", inputs="x", reference=lambda x: x).check(X)),
    (TypeError, "k: backward gave a wrong number of gradients; got 2; expected one or None for each of x",
     lambda: pf.kernel("x", "k", inputs="x", reference=lambda x: x.clone(), backward=lambda *a: (None, None))(GRAD).sum().backward()),
])
def test_errors(error, text, call):
    with pytest.raises(error) as e:
        call()
    assert text in str(e.value)


def test_it_is_planned_without_a_device():
    assert saxpy()(X.to("meta"), X.to("meta"), a=1.0).shape == (2,)
