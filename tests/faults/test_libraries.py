"""The vendors' libraries: installed but failing, at each place where they can. The emulator has such ones (emulator/failing); a kernel of
PyFlame's own then computes the result, and a message says so once."""
import os
import pathlib

import pytest

HEAD = """
def whole(shape, step):  # small integers: every product is exact
    n = 1
    for d in shape:
        n *= d
    return ((pf.arange(0, n) * step) % 7 - 3).reshape(*shape).to(pf.float32)
"""
# Long sums of few outputs: the estimate prefers a library.
PRODUCT = HEAD + """
a, b = whole((16, 4096), 3), whole((4096, 16), 5)
bias = whole((16,), 2)
on_gpu = [t.to('rocm') for t in (a, b, bias)]
def products():
    for _ in range(2):
        assert pf.matmul(on_gpu[0], on_gpu[1]).tolist() == pf.matmul(a, b).tolist()
        assert (pf.matmul(on_gpu[0], on_gpu[1]) + on_gpu[2]).tolist() == (pf.matmul(a, b) + bias).tolist()
print(pf.explain(products))
print('right')
"""
CONVOLUTION = HEAD + """
x, w = whole((1, 8, 6, 6), 3), whole((8, 8, 3, 3), 5)
for _ in range(2):
    got = pf.nn.functional.conv2d(x.to('rocm'), w.to('rocm'), padding=1)
    assert got.tolist() == pf.nn.functional.conv2d(x, w, padding=1).tolist()
print('right')
"""
# Work that a library does in the epilogue of a product, with sums that are long enough for it. Each must be one step in what explain() prints.
EPILOGUES = HEAD + """
F = pf.nn.functional
def near(a, b):
    scale = max(1.0, b.to(pf.float32).abs().max().item())
    assert a.shape == b.shape and (a.to('cpu').to(pf.float32) - b.to(pf.float32)).abs().max().item() <= scale / 100, (a, b)
def check(name, make, ops):
    want = make('cpu')
    got = []
    text = pf.explain(lambda: got.append(make('rocm')))
    for a, b in zip(got[0], want, strict=True):
        near(a, b)
    steps = [line for line in text.splitlines() if 'gpu.blas' in line and line.startswith('  step')]
    assert any(f'{ops} ops fused' in line for line in steps), (name, text)
    print(name, 'is one step')
def tensors(device, dtype, *shapes):
    return [(whole(s, 3 + 2 * i) / 4).to(dtype).to(device) for i, s in enumerate(shapes)]
for dtype in DTYPES:
    def of(f, *shapes):
        return lambda device: f(*tensors(device, dtype, *shapes))
    layer = ((16, 4096), (16, 4096), (16,))
    check('bias', of(lambda x, w, b: [F.linear(x, w, b / 8)], *layer), 2)
    check('bias, silu', of(lambda x, w, b: [F.silu(F.linear(x, w, b))], *layer), 3)
    check('gelu', of(lambda x, w: [F.gelu(F.linear(x, w), approximate='tanh')], *layer[:2]), 2)
    check('residual', of(lambda x, w, r: [F.linear(x, w) + r], *layer[:2], (16, 16)), 2)
    long = ((4096, 24), (4096, 16))
    check('sum of the first', of(lambda g, x: [g.t() @ x, g.sum(0)], *long), 2)
    check('sum of the second', of(lambda g, x: [x.t() @ g, g.sum(0)], *long), 2)
    check('sum of rows', of(lambda g, x: [g @ x, g.sum(1)], (24, 4096), (4096, 16)), 2)
    check('sum and addition', of(lambda g, x, r: [g.t() @ x + r, g.sum(0)], *long, (24, 16)), 3)
    def step(device):
        x, w, b, g = tensors(device, dtype, (4096, 16), (24, 16), (24,), (4096, 24))
        for t in (w, b):
            t.requires_grad_()
        F.linear(x, w, b).backward(g)
        return [w.grad, b.grad]
    check('gradients of a layer', step, 2)
    # Nothing beside a product may be taken for a sum of its operand that is another matrix of the same shape.
    for name, make in (('other matrix', lambda g, x: [g.t() @ x, (g + 1).sum(0)]), ('other dim', lambda g, x: [g.t() @ x, g.sum(1)]),
                       ('part', lambda g, x: [g[:4096].t() @ x, g[1:].sum(0)]), ('overwritten', lambda g, x: [g.t() @ x, g.mul_(2).sum(0)])):
        make = of(make, (4097, 16) if name == 'part' else (4096, 16), (4096, 16))
        for a, b in zip(make('rocm'), make('cpu'), strict=True):
            near(a, b)
print('right')
"""
# The same for products of 8-bit floats, which take sums only.
FLOAT8 = HEAD + """
def near(a, b):
    scale = max(1.0, b.to(pf.float32).abs().max().item())
    assert a.shape == b.shape and (a.to('cpu').to(pf.float32) - b.to(pf.float32)).abs().max().item() <= scale / 50, (a, b)
wide, narrow = pf.float8.formats('rocm')
def check(name, f, ops):
    def make(device):
        a, b = (whole(shape, step).to(dtype).to(device) for shape, step, dtype in (((32, 64), 3, narrow), ((48, 64), 5, wide)))
        others = [whole(s, 2).to(pf.bfloat16).to(device) for s in ((32, 48), (48,), (4, 8, 48))]
        scales = [pf.tensor(s).to(device) for s in (0.5, 0.25)]
        product = pf._C._scaled_mm(a, b.t(), *scales, dtype=pf.bfloat16)
        return f(product, *others)
    want, got = make('cpu'), []
    text = pf.explain(lambda: got.append(make('rocm')))
    near(got[0], want)
    steps = [line for line in text.splitlines() if 'gpu.blas' in line and line.startswith('  step')]
    assert len(steps) == 1 and (f'{ops} ops fused' in steps[0] if ops > 1 else 'ops fused' not in steps[0]), (name, text)
    print(name, 'is one step')
check('product', lambda x, r, b, s: x, 1)
check('residual', lambda x, r, b, s: x + r, 2)
check('bias', lambda x, r, b, s: x + b, 2)
check('bias and residual', lambda x, r, b, s: x + b + r, 3)
check('residual of another shape', lambda x, r, b, s: s + x.reshape(4, 8, 48), 2)
check('activation', lambda x, r, b, s: (x + r).relu(), 2)
pf.manual_seed(0)
layer = pf.float8.Float8Linear(32, 48, device='rocm', dtype=pf.bfloat16)
x, g = pf.randn(64, 32), pf.randn(64, 48)
grads = []
for device in ('cpu', 'rocm'):
    layer = layer.to(device)
    layer.weight.grad = None
    y = x.to(device).to(pf.bfloat16).requires_grad_()
    out = layer(y)
    out.backward(g.to(device).to(pf.bfloat16))
    grads.append([t.to('cpu') for t in (out.detach(), y.grad, layer.weight.grad)])
for want, got in zip(*grads):
    assert (want.float() - got.float()).norm() < 0.08 * want.float().norm()  # the two devices have different formats
print('right')
"""
SAID = "a kernel of PyFlame's own computes it instead; printed once"


def run(program, tmp_path, names, text, kind="failing", **variables):
    """What the program prints to standard output and error, with these failing (or working) libraries beside the emulated run time."""
    emulator = pathlib.Path(program.libraries)
    folder = tmp_path / "libraries"
    folder.mkdir()
    for name in names:
        for file in (emulator / kind).glob(f"lib{name}.so*"):
            (folder / file.name).symlink_to(file.resolve())
    assert len(list(folder.iterdir())) >= len(names), "the emulator's libraries were not built"
    program.libraries = f"{emulator}:{folder}"
    (tmp_path / "TensileLibrary_gfx942.dat").touch()
    process = program.start(text, ROCBLAS_TENSILE_LIBPATH=str(tmp_path), ROCM_PATH=str(tmp_path), **variables)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    assert "right" in out
    return out, err


def test_libraries_that_are_not_wanted(program, tmp_path):
    out, err = run(program, tmp_path, ["hipblaslt", "rocblas"], PRODUCT, PYFLAME_GPU_LIBRARIES="0")
    assert "gpu.matmul" in out and "PYFLAME_GPU_LIBRARIES is 0" in out
    assert SAID not in err


def test_no_library_at_all(program, tmp_path):
    out, err = run(program, tmp_path, [], PRODUCT)
    assert "gpu.matmul" in out and "hipBLASLt (libhipblaslt.so) was not found" in out
    assert SAID not in err


def test_a_product_that_fails(program, tmp_path):
    out, err = run(program, tmp_path, ["hipblaslt"], PRODUCT)
    assert "gpu.blas" in out
    assert err.count("hipblaslt refused the product; got status 3") == err.count(SAID) == 1, err


# On devices where the kernels of a replay cannot overlap, a library reads a large matrix of 16-bit floats for one vector, too.
ONE_VECTOR = HEAD + """
def chosen(columns):
    x, w = pf.rand(1, 8192).to(pf.bfloat16).to('rocm'), pf.rand(columns, 8192).to(pf.bfloat16).to('rocm')
    text = pf.explain(lambda: (x @ w.t()).tolist())
    return [name for name in ('gpu.gemv', 'gpu.blas') if f': {name}' in text] or text
for columns in (16, 4200):
    print(columns, chosen(columns))
print('right')
"""


def test_one_vector_and_a_large_matrix(program, tmp_path):
    out, _ = run(program, tmp_path, ["hipblaslt"], ONE_VECTOR, "working", PYFLAME_EMULATOR_MEMORY="1G")
    assert "16 ['gpu.gemv']" in out and "4200 ['gpu.blas']" in out, out


# Measuring takes most of the time, so each of the programs that measure has one dtype.
@pytest.mark.parametrize("arch, dtype", [("gfx942", "bfloat16"), ("gfx1100", "float16")])
def test_epilogues(program, tmp_path, arch, dtype):
    """The library also computes a sum in the epilogue of a product, where it was measured to be faster. It must equal the sum of a loop."""
    import sqlite3

    out, err = run(program, tmp_path, ["hipblaslt"], f"DTYPES = [pf.{dtype}]\n{EPILOGUES}", "working", PYFLAME_EMULATOR_ARCH=arch, PYFLAME_TUNE_BUDGET_MS="600000", PYFLAME_TUNE_ENTRIES="gpu.blas")
    assert SAID not in err
    with sqlite3.connect(program.cache / "choices.sqlite") as db:
        rows = db.execute("SELECT problem, error, sound FROM measurements WHERE entry = 'gpu.blas' AND problem LIKE '%| sum(%'").fetchall()
    assert len(rows) == 4 and all(sound and error <= 1 for _, error, sound in rows), rows


def test_epilogues_of_float8(program, tmp_path):
    out, err = run(program, tmp_path, ["hipblaslt"], FLOAT8, "working", PYFLAME_EMULATOR_ARCH="gfx942", PYFLAME_TUNE_BUDGET_MS="0")
    assert "right" in out, err


@pytest.mark.parametrize("budget, dtypes", [("0", "pf.bfloat16, pf.float16"), ("600000", "pf.bfloat16")])
def test_epilogues_that_fail(program, tmp_path, budget, dtypes):
    """The steps are the same, and what they compute is right."""
    out, err = run(program, tmp_path, ["hipblaslt"], f"DTYPES = [{dtypes}]\n{EPILOGUES}", PYFLAME_TUNE_BUDGET_MS=budget, PYFLAME_TUNE_ENTRIES="gpu.blas")
    assert SAID in err


@pytest.mark.parametrize("function", ["hipblasLtCreate", "hipblasLtMatmulDescCreate", "hipblasLtMatrixLayoutCreate", "hipblasLtMatmulAlgoGetHeuristic"])
def test_a_library_that_fails_before_its_product(program, tmp_path, function):
    out, err = run(program, tmp_path, ["hipblaslt"], PRODUCT, PYFLAME_EMULATOR_LIBRARY_FAILS=function)
    assert "gpu.matmul" in out and "gpu.blas" in out, "the plan names what refused, and what computes instead"
    assert SAID not in err


def test_rocblas_fails(program, tmp_path):
    out, err = run(program, tmp_path, ["rocblas"], PRODUCT)
    assert "rocm.rocblas" in out
    assert err.count("rocblas refused the product; got status 3") == err.count(SAID) == 1, err


def test_a_convolution_that_fails(program, tmp_path):
    out, err = run(program, tmp_path, ["MIOpen"], CONVOLUTION)
    assert err.count("MIOpen failed with error 3") == err.count(SAID) == 1, err


@pytest.mark.parametrize("function", ["miopenCreateWithStream", "miopenSetTensorDescriptor", "miopenConvolutionForwardGetSolution"])
def test_a_convolution_library_that_fails_before(program, tmp_path, function):
    run(program, tmp_path, ["MIOpen"], CONVOLUTION, PYFLAME_EMULATOR_LIBRARY_FAILS=function)


def test_measurements_are_of_these_libraries(program, tmp_path):
    """The record of choices tells libraries apart by their versions."""
    import sqlite3

    run(program, tmp_path, ["hipblaslt", "rocblas", "MIOpen"], PRODUCT, PYFLAME_TUNE_BUDGET_MS="600000", PYFLAME_TUNE_ENTRIES="gpu.matmul")
    with sqlite3.connect(program.cache / "choices.sqlite") as db:
        ((libraries, driver),) = db.execute("SELECT libraries, driver FROM environments WHERE libraries NOT LIKE '% threads;%'").fetchall()  # the CPU has one, too
        entries = {e: sound for e, sound in db.execute("SELECT entry, sound FROM measurements")}
    for part in ("hiprtc ", "hipblaslt 100200", "rocblas 5.2.0", "miopen 3.5.1"):
        assert part in libraries, libraries
    assert driver and "gpu.matmul" in entries
