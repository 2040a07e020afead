"""What packages hold: the part of OpenBLAS in a wheel, the source distribution, the files of packaging/."""
import fnmatch
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r'"([0-9.]+)"', (ROOT / "src/pyflame/version.h").read_text())[1]

spec = importlib.util.spec_from_file_location("openblas_subset", ROOT / "cmake/openblas_subset.py")
openblas_subset = importlib.util.module_from_spec(spec)
spec.loader.exec_module(openblas_subset)


@pytest.mark.parametrize("name", ["ccopy_k", "zgemm_kernel_n", "icamax_k", "izamin_k", "csrot_k", "sbgemm_kernel", "dbf16tod_k"])
def test_a_kernel_of_complex_numbers_is_left_out(name):
    assert openblas_subset.COMPLEX_KERNEL.match(name)


@pytest.mark.parametrize("name", ["scopy_k", "sscal_k", "dcopy_k", "dsdot_k", "isamax_k", "idamax_k", "dgemm_kernel", "ssbmv_U", "drot_k"])
def test_a_kernel_of_real_numbers_stays(name):
    assert not openblas_subset.COMPLEX_KERNEL.match(name)


def test_functions_of_complex_numbers_are_known():
    """If the module calls one of them, the kernels for complex numbers stay."""
    called = ["zgeev_", "cgemm_", "cblas_zgemm", "dznrm2_", "scasum_", "icamax_"]
    assert [n for n in called if openblas_subset.COMPLEX_FUNCTION.match(n)] == called
    assert not [n for n in ("cblas_dgemm", "dgeev_", "scopy_", "slaswp_", "dgemm_", "isamax_", "openblas_set_num_threads") if openblas_subset.COMPLEX_FUNCTION.match(n)]


@pytest.mark.skipif(not shutil.which("cc") or not shutil.which("ar"), reason="no C compiler")
def test_a_kernel_that_more_than_the_table_names_stays(tmp_path):
    sources = {"setparam_CORE": "void scopy_k_CORE(), ccopy_k_CORE(), zcopy_k_CORE(); void (*table[])() = {scopy_k_CORE, ccopy_k_CORE, zcopy_k_CORE};",
               "scopy_k_CORE": "void scopy_k_CORE() {}", "ccopy_k_CORE": "void ccopy_k_CORE() {}", "zcopy_k_CORE": "void zcopy_k_CORE() {}",
               "driver": "void zcopy_k_CORE(); void driver() { zcopy_k_CORE(); }"}
    for name, text in sources.items():
        (tmp_path / f"{name}.c").write_text(text)
    subprocess.run(["cc", "-c", "-w", *(f"{n}.c" for n in sources)], cwd=tmp_path, check=True)
    subprocess.run(["ar", "rc", "lib.a", *(f"{n}.o" for n in sources)], cwd=tmp_path, check=True)
    assert openblas_subset.absent_kernels(tmp_path / "lib.a") == ["ccopy_k_CORE"]


def test_the_part_needs_a_user(tmp_path):
    """Nothing is replaced where neither module nor program calls OpenBLAS."""
    libs = tmp_path / "libs"
    libs.mkdir()
    subprocess.run(["cc", "-shared", "-x", "c", "-", "-o", libs / "libopenblas.so.0"], input="void cblas_dgemm() {}", text=True, check=True)
    before = (libs / "libopenblas.so.0").read_bytes()
    said = subprocess.run([sys.executable, ROOT / "cmake/openblas_subset.py", "--archive", "none.a", "--folder", tmp_path, "--compiler", "c++"], capture_output=True, text=True)
    assert said.returncode == 1 and "openblas_subset: nothing calls OpenBLAS; got" in said.stderr
    assert (libs / "libopenblas.so.0").read_bytes() == before


def test_source_distribution(tmp_path):
    """It has what a build reads, and nothing that a build made."""
    pytest.importorskip("scikit_build_core")
    code = f"from scikit_build_core.build import build_sdist; print(build_sdist({str(tmp_path)!r}))"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    assert archive.name == f"pyflame-{VERSION}.tar.gz"
    with tarfile.open(archive) as tar:
        names = {m.name.split("/", 1)[1] for m in tar.getmembers() if "/" in m.name}
    needed = subprocess.run(["git", "ls-files", "CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml", "cmake", "cli", "python", "src"], cwd=ROOT, capture_output=True, text=True)
    if needed.returncode == 0:
        assert not sorted(n for n in set(needed.stdout.split()) - names if (ROOT / n).exists())
    assert {"CMakeLists.txt", "LICENSE", "PKG-INFO", "cmake/openblas_subset.py", "python/pyflame/__init__.py", "src/pyflame/version.h"} <= names
    foreign = re.compile(r"(build|\.venv|\.bench-venv|runs|\.ci|shared)/|.*(\.so|\.o|\.pyc|\.a|\.whl)$")
    assert not sorted(n for n in names if foreign.match(n) and not n.startswith("tests/inspect/data/"))


def packages_of_bootstrap():
    """The packages with headers and libraries that tools/bootstrap.sh installs for a build without tests."""
    text = (ROOT / "tools/bootstrap.sh").read_text()
    return {p for p in re.findall(r"^need_file (\S+)", text, re.M) if p not in ("libgtest-dev", "libbenchmark-dev")}


@pytest.mark.parametrize("name", ["cpu", "rocm"])
def test_container_files_install_what_a_build_needs(name):
    text = (ROOT / f"packaging/containers/Containerfile.{name}").read_text()
    first, last = re.split(r"^FROM .*$", text, flags=re.M)[1:]
    assert packages_of_bootstrap() <= set(re.findall(r"[\w-]+", first))
    assert not re.search(r"-dev\b", last), "the second stage has what only a build needs"
    for image in re.findall(r"^FROM (\S+)", text, re.M):  # images by their names: the registry is the user's choice
        assert re.fullmatch(r"[a-z-]+(/[a-z0-9.-]+)?:\S+", image) and not image.endswith(":latest") and "." not in image.partition("/")[0].partition(":")[0]
    assert re.search(r"^USER 10001$", last, re.M), "the image runs as root"
    assert "apt-get clean" in last, "apt's caches take 94 MB where the base image does not remove them"


def test_debian_folder_follows_the_tree():
    folder = ROOT / "packaging/debian"
    control, changelog = (folder / "control").read_text(), (folder / "changelog").read_text()
    assert re.match(r"pyflame \(([^)]+)\)", changelog)[1] == VERSION
    needed = re.search(r"^Build-Depends:(.*?)\n\n", control, re.M | re.S)[1]
    assert packages_of_bootstrap() <= set(re.findall(r"[\w-]+", needed))
    assert re.findall(r"^Package: (\S+)", control, re.M) == ["pyflame", "python3-pyflame", "libpyflame-dev"]
    rules, cmake = (folder / "rules").read_text(), "".join((ROOT / f).read_text() for f in ("CMakeLists.txt", "cli/CMakeLists.txt", "python/CMakeLists.txt"))
    components = set(re.findall(r"--component (\w+)", rules))
    assert components == {"cpp", "cli", "python"} and components <= set(re.findall(r"COMPONENT (\w+)", cmake))
    assert {o for o in re.findall(r"-D(PYFLAME_\w+)=", rules)} <= set(re.findall(r"\b(?:option|set)\((PYFLAME_\w+)", cmake + (ROOT / "cmake/PyFlameUnity.cmake").read_text()))
    assert (folder / "rules").stat().st_mode & 0o111
    assert "-DCMAKE_BUILD_TYPE=Release" in rules, "debhelper's own build type leaves out -O3 of the kernels"
    requires = re.search(r"^requires = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.M)[1]
    assert set(re.findall(r"'([\w-]+>=[\d.]+)'", rules)) == set(re.findall(r'"([^"]+)"', requires))


def test_a_source_package_holds_no_results_of_builds():
    options = (ROOT / "packaging/debian/source/options").read_text()
    ignored = set(re.findall(r"^tar-ignore = (\S+)$", options, re.M))
    folders = {line.strip("/") for line in (ROOT / ".gitignore").read_text().split() if line.endswith("/")}
    assert ".git" in ignored and folders - {"*.egg-info"} <= ignored
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode == 0:
        assert not [f for f in tracked.stdout.split() if any(fnmatch.fnmatch(part, pattern) for part in f.split("/") for pattern in ignored)]


def test_the_page_for_man_and_the_scripts_for_shells_have_one_place():
    """CMake installs them, with the program, for Debian's package and for the wheel; check_wheel.py looks for those of the wheel."""
    cmake, wheel = (ROOT / "cli/CMakeLists.txt").read_text(), (ROOT / "tools/check_wheel.py").read_text()
    pages = {f"{'zsh/site-functions' if folder.startswith('$') or folder.startswith(chr(34)) else folder}/{file}" for file, folder in re.findall(r"^  pyflame_page\((\S+) (\S+) ", cmake, re.M)}
    assert pages == set(re.findall(r'"([\w/-]+/man1/pyflame\.1|[\w-]+/[\w.-]+/_?pyflame(?:\.fish)?)": \[', wheel)) and len(pages) == 4
    assert not re.search(r"man1|completions\.d|bash-completion", (ROOT / "packaging/debian/rules").read_text())


def test_pages_for_reports_ask_for_a_recording():
    forms = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
    assert {f.name for f in forms} >= {"bug.yml", "finding.yml", "speed.yml"}
    for form in forms:
        if form.name != "config.yml":
            assert "pyflame doctor --record FOLDER" in form.read_text(), form.name
