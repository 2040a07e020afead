"""The GPU's libraries as pip installs them: in Python packages, where the dynamic loader does not search. LD_LIBRARY_PATH is not set."""
import pathlib
import shutil

import pytest

PRODUCT = """
a, b = ((pf.arange(0, 16 * 4096) * step % 7 - 3).reshape(*shape).to(pf.float32) for step, shape in ((3, (16, 4096)), (5, (4096, 16))))
on_gpu = [t.to('rocm') for t in (a, b)]
print(pf.explain(lambda: pf.matmul(*on_gpu).tolist()))
assert pf.matmul(*on_gpu).tolist() == pf.matmul(a, b).tolist()
print('right')
"""


@pytest.fixture
def emulator(program):
    """The emulator's folder, which the program does not search."""
    folder, program.libraries = pathlib.Path(program.libraries), ""
    return folder


def put(files, folder):
    folder.mkdir(parents=True)
    for file in files:
        shutil.copy(file, folder / file.name)
    assert list(folder.iterdir()), "the emulator's libraries were not built"


def run(program, site, **variables):
    process = program.start(PRODUCT, PYTHONPATH=str(site), ROCM_PATH=str(site / "none"), PYFLAME_DEBUG="1", **variables)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and "right" in out, out + err
    return out, err


def test_amd_wheels(program, emulator, tmp_path):
    site = tmp_path / "site-packages"
    core, libraries = site / "_rocm_sdk_core/lib", site / "_rocm_sdk_libraries_gfx94X_dcgpu/lib"
    put(emulator.glob("lib*.so*"), core)
    put((emulator / "working").glob("lib*.so*"), libraries)
    out, err = run(program, site)
    assert "gpu.blas" in out
    assert f"pyflame: the HIP runtime: {core}/libamdhip64.so.7" in err
    assert f"pyflame: hipBLASLt: {libraries}/libhipblaslt.so.1" in err


def test_libraries_of_a_torch_wheel(program, emulator, tmp_path):
    """They have no version in their names."""
    site = tmp_path / "site-packages"
    libraries = site / "torch/lib"
    libraries.mkdir(parents=True)
    for folder, name in ((emulator, "amdhip64"), (emulator, "hiprtc"), (emulator / "working", "hipblaslt")):
        shutil.copy(folder / f"lib{name}.so", libraries)
    out, err = run(program, site)
    assert "gpu.blas" in out
    assert f"pyflame: hipBLASLt: {libraries}/libhipblaslt.so" in err


def test_installations_are_not_mixed(program, emulator, tmp_path):
    """The HIP runtime is the system's. The libraries of a package may belong to another release."""
    program.libraries = emulator
    site = tmp_path / "site-packages"
    put((emulator / "working").glob("lib*.so*"), site / "_rocm_sdk_libraries_gfx94X_dcgpu/lib")
    out, err = run(program, site)
    assert "hipBLASLt (libhipblaslt.so) was not found" in out
    assert "hipBLASLt:" not in err


def test_a_package_without_a_library_takes_none_of_the_system(program, emulator, tmp_path):
    """The HIP runtime comes from a package; the system has a hipBLASLt, which may be of another release."""
    program.libraries = emulator / "working"
    site = tmp_path / "site-packages"
    put(emulator.glob("lib*.so*"), site / "_rocm_sdk_core/lib")
    out, err = run(program, site)
    assert "hipBLASLt (libhipblaslt.so) was not found" in out
    assert "hipBLASLt:" not in err


def test_packages_of_two_releases_are_not_mixed(program, emulator, tmp_path):
    site = tmp_path / "site-packages"
    put(emulator.glob("lib*.so*"), site / "_rocm_sdk_core/lib")
    put((emulator / "working").glob("lib*.so*"), site / "torch/lib")
    out, err = run(program, site)
    assert "hipBLASLt (libhipblaslt.so) was not found" in out
    assert "hipBLASLt:" not in err


def test_a_library_that_cannot_be_loaded(program, emulator, tmp_path):
    site = tmp_path / "site-packages"
    put(emulator.glob("lib*.so*"), site / "_rocm_sdk_core/lib")
    (site / "_rocm_sdk_core/lib/libhipblaslt.so.1").write_text("not a library" * 1000)
    out, _ = run(program, site)
    assert "hipBLASLt cannot be loaded: " in out and "invalid ELF header" in out
