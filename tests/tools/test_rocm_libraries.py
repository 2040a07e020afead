"""packaging/containers/rocm_libraries.py: which files of a system with ROCm get into an image, with small libraries that have the names of the real ones."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "packaging/containers/rocm_libraries.py"
ALWAYS = ("libamdhip64.so.7", "libhiprtc.so.7", "libhiprtc-builtins.so.7", "libamd_comgr.so.3", "libhsa-runtime64.so.1")

pytestmark = pytest.mark.skipif(not shutil.which("cc") or not shutil.which("ldd"), reason="no C compiler, or no ldd")


def library(folder, soname, text="int f(void) { return 1; }", *needs):
    """A shared object as packages have it: libx.so.7.2, and the links libx.so.7 and libx.so to it."""
    folder.mkdir(parents=True, exist_ok=True)
    real = folder / f"{soname}.2"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-Wl,--no-as-needed", *needs, "-o", real, f"-Wl,-soname,{soname}"], input=text, text=True, check=True)
    (folder / soname).symlink_to(real.name)
    (folder / f"{soname.split('.so')[0]}.so").symlink_to(soname)
    return real


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """A file system as AMD's images have it."""
    root = tmp_path_factory.mktemp("image")
    lib = root / "opt/rocm-7.2.4/lib"
    (root / "opt/rocm").parent.mkdir(parents=True)
    (root / "opt/rocm").symlink_to("/opt/rocm-7.2.4")  # absolute, as alternatives are
    needed = library(root / "opt/rocm-7.2.4/lib/rocm_sysdeps/lib", "librocm_sysdeps_elf.so.1")
    for soname in ALWAYS:
        library(lib, soname, "int f(void) { return 1; }", *([needed] if soname.startswith("libhsa") else []))
    library(lib, "librocblas.so.5")
    library(lib, "libMIOpen.so.1")
    for name in ("rocblas/library/Kernels_gfx942.co", "rocblas/library/Kernels_gfx90a.co", "rocblas/library/TensileLibrary.dat", "../share/miopen/db/gfx94230.db", "../share/miopen/db/gfx1030_36.db", "libhuge.a"):
        (lib / name).parent.mkdir(parents=True, exist_ok=True)
        (lib / name).write_text("data")
    (root / "opt/rocm-7.2.4/.info").mkdir()
    (root / "opt/rocm-7.2.4/.info/version").write_text("7.2.4")
    return root


def run(*arguments):
    return subprocess.run([sys.executable, TOOL, *map(str, arguments)], capture_output=True, text=True)


def names(into):
    return {str(p.relative_to(into)) for p in into.rglob("*") if not p.is_dir()}


def test_hip_and_what_it_opens(image, tmp_path):
    """Nothing else is copied; a library that HIP needs and this system lacks is."""
    said = run(image, "--into", tmp_path)
    assert said.returncode == 0, said.stderr
    found = names(tmp_path)
    assert {f"opt/rocm-7.2.4/lib/{s}" for s in ALWAYS} | {f"opt/rocm-7.2.4/lib/{s}.2" for s in ALWAYS} <= found
    assert "opt/rocm-7.2.4/lib/rocm_sysdeps/lib/librocm_sysdeps_elf.so.1" in found and "opt/rocm-7.2.4/.info/version" in found
    assert not [n for n in found if "rocblas" in n or "miopen" in n.lower() or n.endswith(".a")]
    assert os.readlink(tmp_path / "opt/rocm") == "rocm-7.2.4" and os.readlink(tmp_path / "opt/rocm-7.2.4/lib/libamdhip64.so.7") == "libamdhip64.so.7.2"
    assert (tmp_path / "etc/ld.so.conf.d/rocm.conf").read_text().split() == ["/opt/rocm-7.2.4/lib", "/opt/rocm-7.2.4/lib/rocm_sysdeps/lib"]
    assert "MB in 7 files" in said.stdout


def test_libraries_with_the_data_of_some_gpus(image, tmp_path):
    """Files for other GPUs stay behind; MIOpen's names end in the number of compute units."""
    said = run(image, "--into", tmp_path, "--libraries", "rocblas miopen", "--gpus", "gfx942")
    assert said.returncode == 0, said.stderr
    found = {n for n in names(tmp_path) if "." in n and ("rocblas/" in n or "miopen/" in n)}
    assert found == {f"opt/rocm-7.2.4/{n}" for n in ("lib/rocblas/library/Kernels_gfx942.co", "lib/rocblas/library/TensileLibrary.dat", "share/miopen/db/gfx94230.db")}


@pytest.mark.parametrize("folder, target", [("usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"), ("lib", "opt/rocm/lib")])
def test_other_layouts(tmp_path, folder, target):
    """The packages of a distribution keep their paths; ROCm's own folder becomes /opt/rocm."""
    for soname in ALWAYS:
        library(tmp_path / "from" / folder, soname)
    said = run(tmp_path / "from", "--into", tmp_path / "to")
    assert said.returncode == 0, said.stderr
    assert f"{target}/libhiprtc.so.7" in names(tmp_path / "to")


def test_errors(image, tmp_path):
    """Each says what is missing, and the image is not made."""
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "holds no HIP runtime; got an empty folder; expected libamdhip64.so in" in run(empty, "--into", tmp_path).stderr
    assert "there is no such folder; got" in run(tmp_path / "none", "--into", tmp_path).stderr
    assert "a library of no known name; got cublas; expected rocblas," in run(image, "--into", tmp_path, "--libraries", "cublas").stderr
    assert "librccl.so is not in" in run(image, "--into", tmp_path, "--libraries", "rccl").stderr


def test_a_library_that_does_not_fit_is_an_error(tmp_path):
    """One that needs a library that is nowhere, and one whose symbol no library has: a base that is too old looks like that."""
    lib = tmp_path / "from/lib"
    for soname in ALWAYS[:-1]:
        library(lib, soname)
    gone = library(tmp_path / "gone", "libgone.so.1")
    library(lib, ALWAYS[-1], "int f(void) { return 1; }", gone)
    said = run(tmp_path / "from", "--into", tmp_path / "to")
    assert said.returncode == 1 and "needs what is nowhere; got libgone.so.1; expected" in said.stderr
    for path in lib.glob("libhsa*"):
        path.unlink()
    library(lib, ALWAYS[-1], "int strange(void); int f(void) { return strange(); }")
    said = run(tmp_path / "from", "--into", tmp_path / "to2")
    assert said.returncode == 1 and "does not fit to this system; got 1 symbols or versions that are missing, strange first" in said.stderr
