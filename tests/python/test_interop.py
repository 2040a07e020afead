"""NumPy, the buffer protocol, DLPack: memory is shared, and no reader sees a stale or a future value."""
import array
import gc
import weakref

import numpy as np
import pytest

import pyflame as pf


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.int32, np.int16, np.int8, np.uint8, np.bool_])
def test_from_numpy_shares(dtype):
    a = np.zeros((2, 3), dtype)
    x = pf.from_numpy(a)
    assert x.dtype == np.dtype(dtype)
    a[0, 1] = 1
    assert bool(x[0, 1]) is True
    x[1, 2] = 1
    assert a[1, 2] == 1


def test_results_do_not_follow_later_writes():
    buf = np.arange(4, dtype=np.float32)
    y = pf.from_numpy(buf) * 2
    buf[:] = 0
    assert y.tolist() == [0, 2, 4, 6]


def test_in_place_ops_are_seen_at_once():
    buf = np.ones(3, np.float32)
    x = pf.from_numpy(buf)
    x.mul_(3)
    assert buf.tolist() == [3, 3, 3]
    y = pf.ones(3)
    a = y.numpy()
    y += 1
    assert a.tolist() == [2, 2, 2]
    y[0] = 7
    assert a[0] == 7


def test_export_before_and_after_a_write():
    x = pf.zeros(3)
    x += 1
    a = x.numpy()
    assert a.tolist() == [1, 1, 1]
    y = x * 2
    a[:] = 5
    assert y.tolist() == [2, 2, 2] and x.tolist() == [5, 5, 5]


def test_views_of_an_exported_tensor():
    x = pf.zeros(2, 3)
    a = x.numpy()
    x[1].fill_(4)
    assert a[1].tolist() == [4, 4, 4]
    v = x.T
    b = v.numpy()
    assert b.shape == (3, 2) and np.shares_memory(a, b)


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[D]", "O", "U3", "f4,i4"])
def test_arrays_of_dtypes_that_tensors_do_not_have(dtype):
    for function in (pf.from_numpy, pf.as_tensor, pf.tensor):
        with pytest.raises(TypeError, match=f"^{function.__name__}: .*; got "):
            function(np.zeros(3, dtype))
    with pytest.raises(TypeError, match=r"^from_numpy: cannot make a tensor of this; got .*datetime64\[s\]; expected .*; hint: convert with .astype\(\)$"):
        pf.from_numpy(np.zeros(3, "M8[s]"))


def test_strided_and_offset_arrays():
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    part = base[1:, ::2]
    x = pf.from_numpy(part)
    assert x.tolist() == part.tolist() and not x.is_contiguous()
    x += 100
    assert base[1, 0] == 106 and base[1, 1] == 7


def test_owner_outlives_its_name():
    a = np.ones(3, np.float32)
    ref = weakref.ref(a)
    x = pf.from_numpy(a)
    del a
    gc.collect()
    assert ref() is not None and x.tolist() == [1, 1, 1]
    del x
    gc.collect()
    assert ref() is None


def test_array_outlives_the_tensor():
    x = pf.ones(1000)
    a = x.numpy()
    del x
    gc.collect()
    for _ in range(10):
        pf.zeros(1000).sum().item()
    assert a.sum() == 1000


def test_numpy_protocols():
    x = pf.tensor([1.0, 2.0])
    assert np.asarray(x).dtype == np.float32 and np.array(x).tolist() == [1, 2]
    assert np.asarray(x, dtype=np.float64).dtype == np.float64 and np.sum(np.asarray(x)) == 3
    assert np.exp(x).tolist() == np.exp(np.array([1, 2], np.float32)).tolist()
    copy = np.array(x, copy=True)
    copy[0] = 9
    assert x.tolist() == [1, 2]
    for result, wanted in ((np.ones(2) + x, [2, 3]), (np.ones(2) - x, [0, -1]), (np.full(2, 3.0) ** x, [3, 9]), (np.full(2, 3.0) / x, [3, 1.5])):
        assert isinstance(result, pf.Tensor) and result.dtype == pf.float64 and result.tolist() == wanted


def test_buffer_protocol():
    x = pf.tensor([[1, 2], [3, 4]], dtype=pf.int32)
    m = memoryview(x)
    assert m.shape == (2, 2) and m.format == "i" and m.tolist() == [[1, 2], [3, 4]] and bytes(m) == x.numpy().tobytes()
    m[0, 0] = 9
    assert x[0, 0].item() == 9
    assert memoryview(x.T).strides == (4, 8)
    m.release()


def test_tensor_from_buffers():
    assert pf.tensor(array.array("d", [1, 2])).dtype == pf.float64
    b = bytearray(np.arange(4, dtype=np.float32).tobytes())
    x = pf.frombuffer(b, dtype=pf.float32)
    x[0] = 5
    assert np.frombuffer(b, np.float32)[0] == 5
    y = pf.frombuffer(bytes(b), dtype=pf.float32, count=2, offset=4)
    assert y.tolist() == [1, 2]


@pytest.mark.parametrize("dtype", [pf.float64, pf.float32, pf.float16, pf.int64, pf.uint8, pf.bool])
def test_dlpack_round_trip(dtype):
    x = pf.ones(2, 3).to(dtype)
    y = pf.from_dlpack(x)
    assert y.dtype == dtype and y.shape == (2, 3)
    y[0, 0] = 0
    assert not x[0, 0]
    assert x.__dlpack_device__() == (1, 0)


def test_a_tensor_with_a_gradient_names_the_reader():
    x = pf.ones(3, requires_grad=True)
    for use in (x.__dlpack__, lambda: pf.utils.dlpack.to_dlpack(x), lambda: pf.from_dlpack(x)):
        with pytest.raises(RuntimeError, match=r"^__dlpack__: the tensor requires a gradient, which DLPack cannot track; .*; hint: use tensor.detach\(\)$"):
            use()
    with pytest.raises(RuntimeError, match=r"^numpy: the tensor requires a gradient, which NumPy cannot track; .*; hint: use tensor.detach\(\).numpy\(\)$"):
        x.numpy()
    with pytest.raises(BufferError, match="^buffer: the tensor requires a gradient, which the buffer protocol cannot track"):
        memoryview(x)
    assert pf.from_dlpack(x.detach()).tolist() == [1, 1, 1]


def test_dlpack_with_numpy():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = pf.from_dlpack(a)
    a[0, 0] = 42
    assert x[0, 0].item() == 42 and x.tolist() == a.tolist()
    b = np.from_dlpack(pf.tensor([1.0, 2.0]))
    assert b.tolist() == [1, 2]
    z = pf.from_dlpack(a) * 2
    a[:] = 0
    assert z.tolist()[0][0] == 84


def test_dlpack_bfloat16_and_views():
    x = pf.ones(4).bfloat16()
    assert pf.from_dlpack(x).dtype == pf.bfloat16
    v = pf.arange(6).view(2, 3).T
    assert pf.from_dlpack(v).tolist() == v.tolist()


def test_unused_capsule_is_freed():
    x = pf.ones(3)
    for _ in range(3):
        x.__dlpack__()
    gc.collect()
    y = x * 2  # not escaped any more: nothing left to complete early, and the value is right
    assert y.tolist() == [2, 2, 2]


def test_as_tensor():
    x = pf.ones(2)
    assert pf.as_tensor(x) is x and pf.asarray(x) is x and pf.as_tensor(x, dtype=pf.float64).dtype == pf.float64
    a = np.zeros(2, np.float32)
    y = pf.as_tensor(a)
    a[0] = 1
    assert y.tolist() == [1, 0]
    readonly = np.zeros(2)
    readonly.flags.writeable = False
    assert pf.as_tensor(readonly).tolist() == [0, 0] and pf.as_tensor([1, 2]).tolist() == [1, 2]


def test_force():
    x = pf.ones(2, requires_grad=True)
    assert x.numpy(force=True).tolist() == [1, 1] and x.detach().numpy().tolist() == [1, 1]
