"""Products of bfloat16 matrices on a CPU: oneDNN's kernels where the processor has instructions for them, float32 elsewhere."""
import numpy as np
import pytest

import pyflame as pf


def processor_has_instructions():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            words = set(file.read().split())
    except OSError:
        return False
    return bool(words & {"avx512_bf16", "amx_bf16"})


def values(*shape):
    return pf.randn(*shape).bfloat16()


def check(result, a, b, bias=None):
    """Against the product in float64, within the rounding of the product and of the result to bfloat16, and what sums in float32 may lose."""
    a, b = a.double().numpy(), b.double().numpy()
    product, size = a @ b, np.abs(a) @ np.abs(b)
    want = product if bias is None else product + bias.double().numpy()
    assert result.dtype == pf.bfloat16 and result.shape == want.shape
    assert (np.abs(result.double().numpy() - want) <= 2.0**-8 * (np.abs(want) + np.abs(product)) + 1e-6 * size + 1e-30).all()


SHAPES = [(128, 128, 128), (1, 1024, 1536), (3, 1000, 600), (4, 512, 640), (5, 600, 1000), (13, 777, 333), (257, 129, 131), (1000, 33, 50), (64, 4096, 17)]  # fmt: skip


@pytest.mark.parametrize("m, k, n", SHAPES)
def test_layouts(m, k, n):
    pf.manual_seed(m)
    a, at, b, bt = values(m, k), values(k, m).T, values(k, n), values(n, k).T
    for x in (a, at, values(m, k + 5)[:, 2 : k + 2]):
        for y in (b, bt, values(k + 1, n + 3)[1:, :n]):
            check(x @ y, x, y)


def test_epilogue_batches_and_gradients():
    pf.manual_seed(0)
    x, w, bias = values(4, 50, 256), values(512, 256), values(512)
    check(pf.nn.functional.linear(x, w, bias), x, w.T, bias)
    a, b = values(6, 70, 130), values(6, 130, 90)
    check(a @ b, a, b)
    check(a @ b[0], a, b[0])
    wide, narrow = w.float().requires_grad_(), w.clone().requires_grad_()
    pf.nn.functional.linear(x.float(), wide).square().sum().backward()
    pf.nn.functional.linear(x, narrow).float().square().sum().backward()
    limit = 0.02 * wide.grad.abs().max().item()
    assert (wide.grad - narrow.grad.float()).abs().max().item() < limit


@pytest.mark.parametrize("sizes", [(1, 3, 0, 17, 300), (256, 256, 1), (0, 0, 5), (2,) * 40])
def test_groups(sizes):
    pf.manual_seed(len(sizes))
    x, w = values(sum(sizes), 512), values(len(sizes), 400, 512)
    y = pf.grouped_mm(x, w.transpose(1, 2), offs=pf.tensor(np.cumsum(sizes), dtype=pf.int32))
    begin = 0
    for group, size in enumerate(sizes):
        rows = slice(begin, begin + size)
        check(y[rows], x[rows], w[group].T)
        begin += size


def test_what_is_not_finite_stays_in_its_row():
    x, w = values(13, 512), values(512, 512)
    x[4, 7] = float("nan")
    x[12] = float("inf")
    y = (x @ w).float().numpy()
    assert np.isnan(y[4]).all() and not np.isfinite(y[12]).any()
    assert np.isfinite(np.delete(y, (4, 12), axis=0)).all()


def test_bits_do_not_depend_on_the_threads():
    x, w, before = values(200, 768), values(768, 768), pf.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            pf.set_num_threads(threads)
            results.append((x @ w).float().numpy())
    finally:
        pf.set_num_threads(before)
    assert all((r == results[0]).all() for r in results)


def test_which_kernel_runs():
    x, w, ends = values(64, 512), values(512, 512), pf.tensor([30, 64], dtype=pf.int32)
    product = str(pf.explain(lambda: x @ w))
    grouped = str(pf.explain(lambda: pf.grouped_mm(x, w.reshape(2, 512, 256), offs=ends)))
    small = str(pf.explain(lambda: x[:4, :8] @ w[:8, :8]))
    assert "onednn.sgemm" in small
    if processor_has_instructions():
        assert "onednn.bf16" in product and "onednn.grouped_bf16" in grouped
    else:
        assert "onednn.sgemm" in product and "cpu.grouped_mm" in grouped
