"""The vendors' libraries: installed but failing, at each place where they can. The emulator has such ones (emulator/failing); what they
should have computed is then a kernel of our own's, and that is said once."""
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
SAID = "a kernel of PyFlame's own computes it instead; printed once"


def run(program, tmp_path, names, text, **variables):
    """What it prints to both, with these failing libraries beside the emulated run time."""
    emulator = pathlib.Path(program.libraries)
    folder = tmp_path / "libraries"
    folder.mkdir()
    for name in names:
        for file in (emulator / "failing").glob(f"lib{name}.so*"):
            (folder / file.name).symlink_to(file.resolve())
    assert len(list(folder.iterdir())) >= len(names), "the emulator's failing libraries were not built"
    program.libraries = f"{emulator}:{folder}"
    (tmp_path / "TensileLibrary_gfx942.dat").touch()
    process = program.start(text, ROCBLAS_TENSILE_LIBPATH=str(tmp_path), ROCM_PATH=str(tmp_path), **variables)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    assert "right" in out
    return out, err


def test_no_library_at_all(program, tmp_path):
    out, err = run(program, tmp_path, [], PRODUCT)
    assert "gpu.matmul" in out and "hipBLASLt (libhipblaslt.so) was not found" in out
    assert SAID not in err


def test_a_product_that_fails(program, tmp_path):
    out, err = run(program, tmp_path, ["hipblaslt"], PRODUCT)
    assert "gpu.blas" in out
    assert err.count("hipblaslt refused the product; got status 3") == err.count(SAID) == 1, err


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

    run(program, tmp_path, ["hipblaslt", "rocblas", "MIOpen"], PRODUCT, PYFLAME_TUNE_BUDGET_MS="1000")
    with sqlite3.connect(program.cache / "choices.sqlite") as db:
        ((libraries, driver),) = db.execute("SELECT libraries, driver FROM environments").fetchall()
        entries = {e: sound for e, sound in db.execute("SELECT entry, sound FROM measurements")}
    for part in ("hiprtc ", "hipblaslt 100200", "rocblas 5.2.0", "miopen 3.5.1"):
        assert part in libraries, libraries
    assert driver and "gpu.matmul" in entries
