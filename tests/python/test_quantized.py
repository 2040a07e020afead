"""quantized_linear, decode_blocks and weight_tiles beyond the case table: errors, numbers that are not finite, many rows, extreme blocks."""
import os

import numpy as np
import pytest

import pyflame as pf
from pyflame.testing.cases.quantized import BLOCKS, FLOATS, decoded, random_blocks, random_floats, rows_of_floats, values_of_codes

RANDOM = np.random.default_rng(0)
DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")


def blocks(name, rows, count):
    return random_blocks(name, RANDOM, (rows, count * BLOCKS[name][1]))


def numbers(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def product(x, w, name, tiled=False):
    t = pf.tensor(w)
    return pf.quantized_linear(pf.tensor(x), pf.weight_tiles(t, name) if tiled else t, name, tiled_rows=len(w) if tiled else 0).numpy()


@pytest.mark.parametrize("name", BLOCKS)
def test_error_of_rounding_the_input(name):
    """The documented bound, and the result of the rounded input up to float32 rounding."""
    w, x = blocks(name, 21, 3), numbers(37, 3 * BLOCKS[name][0])
    x[3] *= 1e4
    x[5, :32] = 0
    most = 127 * 128  # of the CPU; more than 32 rows are not rounded on a GPU
    exact, weights = decoded(name, w), x.reshape(37, -1, 32).astype(np.float64)
    largest = np.abs(weights).max(-1, keepdims=True)
    bound = (largest[..., 0] / 2 / most) @ np.abs(exact).reshape(21, -1, 32).sum(-1).T
    size = np.abs(x).astype(np.float64) @ np.abs(exact).T
    rounded = (np.round(weights / np.where(largest == 0, 1, largest) * most) * largest / most).reshape(37, -1)
    for tiled in (False, True):
        y = product(x, w, name, tiled)
        assert (np.abs(y - x @ exact.T) <= bound + 1e-5 * size).all()
        close = np.abs(y - rounded @ exact.T) <= 1e-5 * size
        assert close.mean() > 0.99  # a number in the middle between two integers may go either way


@pytest.mark.parametrize("name", BLOCKS)
def test_rows_do_not_depend_on_their_number(name):
    w, x = blocks(name, 40, 2), numbers(19, 2 * BLOCKS[name][0])
    all_rows = product(x, w, name)
    for n in (1, 2, 3, 5):
        np.testing.assert_array_equal(product(x[:n], w, name), all_rows[:n])
    np.testing.assert_array_equal(product(x, w, name, tiled=True), all_rows)


def test_many_rows_and_threads():
    w, x = blocks("Q4_1", 600, 18), numbers(300, 576)
    before = pf.get_num_threads()
    results = []
    for threads in (1, 2, 3):
        pf.set_num_threads(threads)
        results.append(product(x, w, "Q4_1", tiled=True))
    pf.set_num_threads(before)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    want = x.astype(np.float64) @ decoded("Q4_1", w).T
    assert np.abs(results[0] - want).std() < 0.02 * want.std()


@pytest.mark.parametrize("name", BLOCKS)
def test_largest_integers_do_not_overflow(name):
    """All bits set, and all bits of Q8_0 at -128: the largest sums of integers."""
    elements, size, scales = BLOCKS[name]
    for value in (0xFF, 0x80, 0x7F, 0x00):
        w = np.full((9, size), value, np.uint8)
        for at in scales:
            w[:, at:at + 2] = np.array([0.5], np.float16).view(np.uint8)
        for x in (np.ones((5, elements), np.float32), -np.ones((5, elements), np.float32), np.where(np.arange(elements) % 2, 1, -1)[None].astype(np.float32)):
            want = x @ decoded(name, w).T
            np.testing.assert_allclose(product(x, w, name), want, rtol=1e-5, atol=1e-4 * np.abs(decoded(name, w)).sum(1).max())


def test_numbers_that_are_not_finite():
    w, x = blocks("Q8_0", 8, 2), np.ones((5, 64), np.float32)
    x[1, 7], x[2, 40], x[3, 0] = np.nan, np.inf, -np.inf
    y = product(x, w, "Q8_0")
    assert np.isnan(y[1:4]).all() and np.isfinite(y[[0, 4]]).all()
    x[:] = 1e-38
    assert (product(x, w, "Q8_0") == 0).all()
    w[0, :2] = np.array([np.nan], np.float16).view(np.uint8)
    assert np.isnan(product(np.ones((1, 64), np.float32), w, "Q8_0")[0, 0])


def test_sizes_of_zero():
    w = pf.tensor(blocks("Q4_0", 8, 2))
    assert pf.quantized_linear(pf.zeros(0, 64), w, "Q4_0").shape == (0, 8)
    assert pf.quantized_linear(pf.zeros(2, 64), w[:0], "Q4_0").shape == (2, 0)
    assert (pf.quantized_linear(pf.zeros(2, 0), pf.zeros(8, 0, dtype=pf.uint8), "Q4_0", pf.ones(8)).numpy() == 1).all()
    assert pf.decode_blocks(w[:0], "Q4_0").shape == (0, 64)
    assert pf.weight_tiles(w[:0], "Q4_0").shape[0] == 0


@pytest.mark.skipif(DEVICE != "cpu", reason="the sizes are those of the CPU's tiles")
def test_bits_of_a_weight():
    """docs/language-models.md has them."""
    tiles = {"Q4_0": 4.5, "Q4_1": 5, "Q5_0": 8.5, "Q5_1": 9, "Q8_0": 8.5, "Q2_K": 2.625, "Q3_K": 4.5625, "Q4_K": 4.625, "Q5_K": 8.625, "Q6_K": 8.5625, "IQ4_NL": 4.5, "IQ4_XS": 4.5625}
    assert {name: 8 * pf.weight_tiles(pf.tensor(blocks(name, 16, 2)), name).numel() / (16 * 2 * BLOCKS[name][0]) for name in BLOCKS} == tiles


@pytest.mark.parametrize("name", BLOCKS)
def test_bytes_of_products(name):
    rows, columns = 11, 3 * BLOCKS[name][0]
    w = pf.tensor(blocks(name, rows, 3))
    in_planes = DEVICE not in ("cpu", "reference")
    assert pf._C._bytes_of_products(name, rows, columns, in_planes) == pf.weight_tiles(w.to(DEVICE), name).numel()
    assert pf._C._bytes_of_products(name, rows, columns, True) == rows * -(-w.shape[1] // 16) * 16
    assert pf._C._bytes_of_products(name, rows, columns - 1, in_planes) == 0


def test_types_without_products_have_no_bytes_of_them():
    assert [pf._C._bytes_of_products(name, 8, 256, False) for name in ("MXFP4", "F32", "IQ2_XXS", "Q9")] == [0] * 4


@pytest.mark.skipif(DEVICE != "cpu", reason="GPUs have other bounds")
@pytest.mark.parametrize("name", BLOCKS)
def test_inputs_up_to_8e34_have_finite_products(name):
    w = blocks(name, 8, 2)
    x = np.full((1, 2 * BLOCKS[name][0]), 8e34, np.float32)
    y = pf.quantized_linear(pf.tensor(x), pf.tensor(w), name).numpy()
    want = x.astype(np.float64) @ decoded(name, w).astype(np.float64).T
    assert np.abs(want).max() < 3e38
    np.testing.assert_allclose(y, want, rtol=0, atol=1e-4 * 8e34 * np.abs(decoded(name, w)).sum(1).max())


X, W = pf.ones(2, 64), pf.tensor(blocks("Q4_0", 8, 2))


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, "quantized_linear: no blocks of this type can be decoded; got 'Q9'; expected one of Q4_0, .*IQ4_XS, F8_E4M3, F8_E5M2$", lambda: pf.quantized_linear(X, W, "Q9")),
        (ValueError, "decode_blocks: no blocks of this type can be decoded; got 'IQ2_XXS'; expected one of Q4_0, .*IQ4_XS, F8_E4M3, F8_E5M2$", lambda: pf.decode_blocks(W, "IQ2_XXS")),
        (ValueError, "_block_elements: no type has this name; got 'Q9'; expected a name of GGUF", lambda: pf._C._block_elements("Q9")),
        (NotImplementedError, "quantized_linear: this type is not available; got 'MXFP4'; expected one of Q4_0, Q4_1, .*, Q2_K, .*IQ4_XS, F8_E4M3, F8_E5M2; hint: decode the weights on the CPU$", lambda: pf.quantized_linear(X, W, "MXFP4")),
        (TypeError, "quantized_linear: the weights are no bytes; got float32; expected uint8", lambda: pf.quantized_linear(X, X, "Q4_0")),
        (TypeError, "quantized_linear: needs a floating dtype; got int64", lambda: pf.quantized_linear(X.long(), W, "Q4_0")),
        (ValueError, r"quantized_linear: the weights are no rows of blocks; got shape \(36,\)", lambda: pf.quantized_linear(X, W[0], "Q4_0")),
        (ValueError, "quantized_linear: the rows of the input are no whole blocks; got 63 elements; expected a multiple of Q4_0's 32", lambda: pf.quantized_linear(X[:, :63], W, "Q4_0")),
        (ValueError, r"quantized_linear: input and weight do not fit; got weight \(8, 36\) for rows of 32 elements; expected \(8, 18\)", lambda: pf.quantized_linear(X[:, :32], W, "Q4_0")),
        (ValueError, r"got weight \(8, 36\) for tiles of 8 rows of 64 elements; expected \(1, 288\)", lambda: pf.quantized_linear(X, W, "Q4_0", tiled_rows=8)),
        (ValueError, "quantized_linear: input and weight do not fit", lambda: pf.quantized_linear(X, W, "Q4_0", tiled_rows=-8)),
        (ValueError, r"quantized_linear: the bias does not fit; got \(7,\); expected \[8\]", lambda: pf.quantized_linear(X, W, "Q4_0", pf.ones(7))),
        (TypeError, "quantized_linear: dtypes differ; got float32 and float64", lambda: pf.quantized_linear(X, W, "Q4_0", pf.ones(8, dtype=pf.float64))),
        (ValueError, "quantized_linear: the input has no dims", lambda: pf.quantized_linear(pf.tensor(1.0), W, "Q4_0")),
        (NotImplementedError, "quantized_linear: there are no gradients; got an input that requires one", lambda: pf.quantized_linear(pf.ones(2, 64, requires_grad=True), W, "Q4_0")),
        (ValueError, r"quantized_linear: no blocks of this type can be decoded; got 'F8_E4M3:24'", lambda: pf.quantized_linear(X, W, "F8_E4M3:24")),
        (ValueError, r"quantized_linear: no blocks of this type can be decoded; got 'F8_E4M3:0x10'", lambda: pf.quantized_linear(X, W, "F8_E4M3:0x10")),
        (ValueError, r"quantized_linear: no blocks of this type can be decoded; got 'F8_E4M3:2147483648'", lambda: pf.quantized_linear(X, W, "F8_E4M3:2147483648")),
        (ValueError, r"decode_blocks: no blocks of this type can be decoded; got 'F8_E4M3:4294967296'", lambda: pf.decode_blocks(W, "F8_E4M3:4294967296")),
        (ValueError, "quantized_linear: the rows of the input are no whole blocks; got 63 elements; expected a multiple of F8_E4M3's 16", lambda: pf.quantized_linear(X[:, :63], W, "F8_E4M3")),
        (ValueError, r"quantized_linear: input and weight do not fit; got weight \(8, 36\) for rows of 64 elements; expected \(8, 80\)", lambda: pf.quantized_linear(X, W, "F8_E4M3")),
        (ValueError, r"quantized_linear: input and weight do not fit; got weight \(8, 36\) for rows of 64 elements; expected \(8, 80\)", lambda: pf.quantized_linear(X, W, "F8_E5M2:32")),
        (ValueError, "decode_blocks: a row has no codes and scales of this type; got 36 bytes of F8_E4M3; expected a multiple of 16 codes, their scales of 4 bytes, and zeros", lambda: pf.decode_blocks(W, "F8_E4M3")),
        (ValueError, "weight_tiles: a row has no codes and scales of this type; got 36 bytes of F8_E5M2:16", lambda: pf.weight_tiles(W, "F8_E5M2:16")),
        (ValueError, "decode_blocks: a row is no whole number of blocks; got 35 bytes; expected a multiple of Q4_0's 18", lambda: pf.decode_blocks(W[:, :35], "Q4_0")),
        (TypeError, "decode_blocks: the weights are no bytes", lambda: pf.decode_blocks(X, "Q4_0")),
        (ValueError, "weight_tiles: a row is no whole number of blocks", lambda: pf.weight_tiles(W[:, :35], "Q4_0")),
        (NotImplementedError, "weight_tiles: this type is not available; got 'MXFP4'", lambda: pf.weight_tiles(W, "MXFP4")),
    ],
)
def test_errors(error, message, call):
    with pytest.raises(error, match=message):
        call()
    assert np.isfinite(pf.quantized_linear(X, W, "Q4_0").numpy()).all()


def float_product(x, w, name, device=DEVICE, **more):
    return pf.quantized_linear(pf.tensor(x).to(device), pf.tensor(w).to(device), name, **more).cpu().numpy()


@pytest.mark.parametrize("rows", (1, 2, 3, 8, 9, 33))
@pytest.mark.parametrize("name", FLOATS)
def test_products_with_8_bit_floats_are_exact_up_to_float32(name, rows):
    """The input is not rounded, whatever the number of rows."""
    w, x = random_floats(name, RANDOM, 37, 336), numbers(rows, 336)
    x[0] *= 1e4
    exact = decoded(name, w)
    size = np.abs(x).astype(np.float64) @ np.abs(exact).T
    assert (np.abs(float_product(x, w, name) - x @ exact.T) <= 1e-5 * size).all()
    np.testing.assert_allclose(pf.decode_blocks(pf.tensor(w).to(DEVICE), name).cpu().numpy(), exact, rtol=1e-6)


@pytest.mark.parametrize("rows", (3, 8, 9, 17, 32))
@pytest.mark.parametrize("bits", (4, 5))
@pytest.mark.parametrize("group", (None, 64, 32))
@pytest.mark.parametrize("dtype, rounding", [(pf.bfloat16, 2**-8), (pf.float16, 2**-11)])
def test_products_of_16_bits_with_8_bit_floats(dtype, rounding, group, bits, rows):
    """On GPUs they run on matrix cores, except with a scale of 32 columns. Only the result is rounded. NaN stays in the results of its own row of weights."""
    outputs, columns, values = 37, 336, values_of_codes(bits)
    codes = RANDOM.choice(np.flatnonzero(np.isfinite(values)), (outputs, columns)).astype(np.uint8)
    codes[5, 7] = 0x7F
    scales = RANDOM.uniform(-0.02, 0.02, (outputs, -(-columns // (group or columns))))
    w = rows_of_floats(codes, scales)
    exact = values[codes] * np.repeat(np.float32(scales).astype(np.float64), group or columns, 1)[:, :columns]
    x = pf.tensor(numbers(rows, columns)).to(dtype)
    y = pf.quantized_linear(x.to(DEVICE), pf.tensor(w).to(DEVICE), f"F8_E{bits}M{7 - bits}" + (f":{group}" if group else "")).cpu().float().numpy()
    x = x.float().numpy().astype(np.float64)
    assert np.isnan(y[:, 5]).all()
    whole = np.arange(outputs) != 5
    want, size = x @ exact[whole].T, np.abs(x) @ np.abs(exact[whole]).T
    assert (np.abs(y[:, whole] - want) <= rounding * np.abs(want) + 1e-5 * size).all()


@pytest.mark.parametrize("name", FLOATS)
def test_rows_of_8_bit_floats_do_not_depend_on_their_number(name):
    w, x = random_floats(name, RANDOM, 40, 160), numbers(19, 160)
    all_rows = float_product(x, w, name)
    for n in (1, 2, 3, 5):
        np.testing.assert_array_equal(float_product(x[:n], w, name), all_rows[:n])
    np.testing.assert_array_equal(pf.weight_tiles(pf.tensor(w).to(DEVICE), name).cpu().numpy(), w)
    np.testing.assert_array_equal(float_product(x, w, name, tiled_rows=40), all_rows)


@pytest.mark.parametrize("kind, exponent_bits", [("F8_E4M3", 4), ("F8_E5M2", 5)])
def test_every_code_of_8_bit_floats(kind, exponent_bits):
    """In products as in decoding. NaN and infinity reach the results of their rows, and no others."""
    codes, values = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 16, 1), values_of_codes(exponent_bits)
    codes[:, 1:] = 0
    w = rows_of_floats(codes, np.full((256, 1), 2.0))
    x = np.zeros((2, 16), np.float32)
    x[:, 0] = 1, -0.25
    want = 2 * np.array([[1], [-0.25]]) * values
    np.testing.assert_array_equal(float_product(x, w, kind), want)
    x[0, 0] = 0  # 0 times NaN or infinity
    np.testing.assert_array_equal(np.isfinite(float_product(x, w, kind)[0]), np.isfinite(values))
    np.testing.assert_array_equal(pf.decode_blocks(pf.tensor(w).to(DEVICE), kind).cpu().numpy()[:, 0], 2 * values)
    large = rows_of_floats(np.full((1, 16), 0x7E if kind == "F8_E4M3" else 0x7B, np.uint8), np.full((1, 1), 1e30))
    want = values.max(where=np.isfinite(values), initial=0) * 16e30
    np.testing.assert_allclose(float_product(np.ones((1, 16), np.float32), large, kind), [[want]], rtol=1e-6)


@pytest.mark.parametrize("name", FLOATS)
def test_8_bit_floats_of_views(name):
    """Rows of x that are apart or not aligned, columns that are apart, and weights that begin in the middle of others."""
    w, x = random_floats(name, RANDOM, 9, 96), numbers(4, 200)
    exact = decoded(name, w)
    rows, t = pf.tensor(w).to(DEVICE), pf.tensor(x).to(DEVICE)
    shifted = pf.cat([pf.zeros(3, dtype=pf.uint8, device=DEVICE), rows.reshape(-1)])[3:].reshape(w.shape)
    for dtype in (pf.float32, pf.float16):
        for part in (slice(0, 96), slice(5, 101), slice(0, 192, 2)):
            got = pf.quantized_linear(t.to(dtype)[:, part], shifted, name).float().cpu().numpy()
            want = x[:, part] @ exact.T
            np.testing.assert_allclose(got, want, rtol=0, atol=(1e-5 if dtype == pf.float32 else 2e-3) * (np.abs(x[:, part]) @ np.abs(exact).T).max())
    np.testing.assert_allclose(pf.quantized_linear(t[:, :96], rows[2:], name).cpu().numpy(), x[:, :96] @ exact[2:].T, rtol=0, atol=1e-5 * (np.abs(x[:, :96]) @ np.abs(exact).T).max())


@pytest.mark.parametrize("dtype", [pf.float32, pf.float16])
@pytest.mark.parametrize("name", ["F8_E4M3", "F8_E5M2:16", "Q8_0"])
def test_elementwise_ops_on_a_product_change_no_bits(name, dtype):
    """A GPU's product with 8-bit floats computes them in its own kernel."""
    w = pf.tensor(random_floats(name, RANDOM, 40, 96) if name in FLOATS else blocks(name, 40, 3)).to(DEVICE)
    for rows in (1, 3, 9):
        x, bias, more = (pf.tensor(numbers(*shape)).to(DEVICE).to(dtype) for shape in ((rows, 96), (40,), (rows, 40)))
        together = pf.nn.functional.relu(pf.quantized_linear(x, w, name, bias) + more).float()
        product = pf.quantized_linear(x, w, name)
        pf.synchronize()
        np.testing.assert_array_equal(together.cpu().numpy(), pf.nn.functional.relu(product + bias + more).float().cpu().numpy())


@pytest.mark.parametrize("name", FLOATS)
def test_bytes_of_8_bit_floats(name):
    group = FLOATS[name][1] or 336
    size = 336 + -(-4 * -(-336 // group) // 16) * 16
    assert pf._C._bytes_of_products(name, 11, 336, False) == pf._C._bytes_of_products(name, 11, 336, True) == 11 * size
    assert random_floats(name, RANDOM, 11, 336).shape == (11, size)
    assert pf._C._bytes_of_products(name, 11, 335, False) == 0
    assert pf._C._block_elements(name) == (FLOATS[name][1] or 16)
    w = pf.zeros(0, size, dtype=pf.uint8)
    assert pf.quantized_linear(pf.zeros(2, 336), w, name).shape == (2, 0) and pf.decode_blocks(w, name).shape == (0, 336)


needs_gpu = pytest.mark.skipif(DEVICE in ("cpu", "reference"), reason="PYFLAME_TEST_DEVICE names no GPU")


@needs_gpu
@pytest.mark.parametrize("name", BLOCKS)
def test_planes_on_a_gpu_give_the_same_bits_as_rows(name):
    w = pf.tensor(blocks(name, 11, 3)).to(DEVICE)
    planes, exact = pf.weight_tiles(w, name), decoded(name, w.cpu().numpy())
    assert planes.shape[0] == 11 and planes.shape[1] % 16 == 0
    np.testing.assert_array_equal(pf.decode_blocks(w, name).cpu().numpy(), pf.decode_blocks(w.cpu(), name).numpy())
    for rows in (1, 3, 9, 33):  # 33: the weights are decoded, and the input is not rounded
        x = pf.tensor(numbers(rows, 3 * BLOCKS[name][0])).to(DEVICE)
        y = pf.quantized_linear(x, planes, name, tiled_rows=11).cpu().numpy()
        np.testing.assert_array_equal(y, pf.quantized_linear(x, w, name).cpu().numpy())
        if rows == 33:
            np.testing.assert_allclose(y, x.cpu().numpy() @ exact.T, rtol=1e-2, atol=1e-2 * np.abs(exact).sum(1).max())
        elif rows > 1:
            np.testing.assert_array_equal(y[:1], pf.quantized_linear(x[:1], planes, name, tiled_rows=11).cpu().numpy())


@needs_gpu
def test_errors_on_a_gpu():
    w = W.to(DEVICE)
    with pytest.raises(NotImplementedError, match="decode_blocks: this type is not available; got 'MXFP4'; expected one of Q4_0, .*; hint: decode the weights on the CPU$"):
        pf.decode_blocks(w, "MXFP4")
    with pytest.raises(ValueError, match=r"got weight \(8, 36\) for planes of 8 rows of 64 elements; expected \(8, 48\)"):
        pf.quantized_linear(X.to(DEVICE), w, "Q4_0", tiled_rows=8)
