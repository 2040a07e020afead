"""What packages hold: the part of OpenBLAS in a wheel, the source distribution, the files of packaging/."""
import ctypes
import fnmatch
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r'"([0-9.]+)"', (ROOT / "src/pyflame/version.h").read_text())[1]

spec = importlib.util.spec_from_file_location("openblas_subset", ROOT / "cmake/wheel/openblas_subset.py")
openblas_subset = importlib.util.module_from_spec(spec)
spec.loader.exec_module(openblas_subset)


@pytest.mark.parametrize("name", ["sbgemm_kernel", "dbf16tod_k", "zgemm3m_kernel", "chemm3m_iucopyb", "zsymm_outcopy", "cimatcopy_k_cn", "zgemm_small_kernel_b0_cc"])
def test_a_kernel_that_nothing_reads_is_left_out(name):
    assert openblas_subset.ABSENT_KERNEL.match(name)


@pytest.mark.parametrize("name", ["scopy_k", "dcopy_k", "dsdot_k", "isamax_k", "dgemm_kernel", "ssbmv_U", "drot_k", "ccopy_k", "zgemm_kernel_n", "icamax_k", "csrot_k", "zhemv_L", "csymv_U", "zgemm_small_matrix_permit"])
def test_other_kernels_stay(name):
    assert not openblas_subset.ABSENT_KERNEL.match(name)


def test_functions_that_read_such_kernels_are_known():
    """If the module calls one of them, all kernels stay."""
    called = ["cgemm3m_", "cblas_zhemm", "zsymm_", "comatcopy_", "sbgemm_", "zgeadd_"]
    assert [n for n in called if openblas_subset.READERS.match(n)] == called
    assert not [n for n in ("cblas_dgemm", "zgeev_", "scopy_", "cgemm_", "zheevd_", "csytrf_", "openblas_set_num_threads") if openblas_subset.READERS.match(n)]


@pytest.mark.skipif(not shutil.which("cc") or not shutil.which("ar"), reason="no C compiler")
def test_a_kernel_that_more_than_the_table_names_stays(tmp_path):
    sources = {"setparam_CORE": "void scopy_k_CORE(), csymm_icopy_CORE(), zsymm_icopy_CORE(); void (*table[])() = {scopy_k_CORE, csymm_icopy_CORE, zsymm_icopy_CORE};",
               "scopy_k_CORE": "void scopy_k_CORE() {}", "csymm_icopy_CORE": "void csymm_icopy_CORE() {}", "zsymm_icopy_CORE": "void zsymm_icopy_CORE() {}",
               "driver": "void zsymm_icopy_CORE(); void driver() { zsymm_icopy_CORE(); }"}
    for name, text in sources.items():
        (tmp_path / f"{name}.c").write_text(text)
    subprocess.run(["cc", "-c", "-w", *(f"{n}.c" for n in sources)], cwd=tmp_path, check=True)
    subprocess.run(["ar", "rc", "lib.a", *(f"{n}.o" for n in sources)], cwd=tmp_path, check=True)
    assert openblas_subset.absent_kernels(tmp_path / "lib.a") == ["csymm_icopy_CORE"]


def lowered(tmp_path, text, *flags):
    """A shared object of this C text beside an (almost) empty library of compatible functions, after older_glibc.py; and what it said."""
    pytest.importorskip("elftools")
    libs = tmp_path / "libs"
    libs.mkdir()
    for output, source, options in [(libs / "libpyflame_compat.so", "int arc4random(void) { return 4; }", []), (tmp_path / "_C.so", text, flags)]:
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", "-x", "c", "-", "-o", output, *options], input=source, text=True, check=True)
    before = (tmp_path / "_C.so").read_bytes()
    said = subprocess.run([sys.executable, ROOT / "cmake/wheel/older_glibc.py", "--folder", tmp_path, "--compiler", "cc"], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return tmp_path / "_C.so", before, said.stdout


def versions(file):
    return set(re.findall(r"GLIBC_([0-9.]+)", subprocess.run(["objdump", "-T", file], capture_output=True, text=True, check=True).stdout))


needs_new_glibc = pytest.mark.skipif(tuple(map(int, (os.confstr("CS_GNU_LIBC_VERSION") or "glibc 0.0").split()[1].split("."))) < (2, 36), reason="the C library is older than 2.36")


@needs_new_glibc
def test_a_wheel_asks_for_older_functions(tmp_path):
    """pthread_create moved in glibc 2.34, pow changed in 2.29, arc4random is new in 2.36: all are found afterwards, and compute the same."""
    text = """
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
unsigned arc4random(void);
static void *run(void *x) { return x; }
double compute(double x) {
  pthread_t thread;
  void *same = 0;
  pthread_create(&thread, 0, run, &same);
  pthread_join(thread, &same);
  return pow(x, 3) + (same != 0) + 0 * arc4random();
}
"""
    file, before, said = lowered(tmp_path, text, "-Wl,--no-as-needed", "-lm")
    assert "the wheel needs glibc 2.28" in said
    assert max(tuple(map(int, v.split("."))) for v in versions(file)) <= (2, 28) and file.read_bytes() != before
    assert "GLIBC_2.3" not in re.sub(r"GLIBC_2\.3(\.\d+)?\b", "", subprocess.run(["readelf", "-V", file], capture_output=True, text=True, check=True).stdout)
    compute = ctypes.CDLL(str(file)).compute
    compute.restype, compute.argtypes = ctypes.c_double, [ctypes.c_double]
    assert compute(2.0) == 9.0


PROBE = """
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <condition_variable>
#include <chrono>
#include <random>
#include <vector>
#include <sys/stat.h>
#include <cmath>
extern "C" int probe(int n) {
  std::exception_ptr p;
  try { std::vector<int> v; v.at(4); } catch (...) { p = std::current_exception(); }
  std::vector<std::exception_ptr> many(100, p);
  std::exception_ptr q = many[7];
  many.clear(); p = nullptr;
  int ok = 0;
  try { std::rethrow_exception(q); } catch (const std::out_of_range& e) { ok = 1; }
  q = nullptr;
  std::stringstream s; s << n << ' ' << 2.5; int k = 0; double d = 0; s >> k >> d;
  std::ostringstream o; o << k;
  ok += o.str() == std::to_string(n) && d == 2.5;
  std::mutex m; std::condition_variable c; std::unique_lock<std::mutex> l(m);
  auto t = std::chrono::steady_clock::now();
  c.wait_for(l, std::chrono::milliseconds(30));
  auto took = std::chrono::steady_clock::now() - t;
  ok += took >= std::chrono::milliseconds(29) && took < std::chrono::seconds(5);
  struct stat st; ok += stat("/", &st) == 0 && S_ISDIR(st.st_mode) && stat("/none", &st) == -1 && lstat("/", &st) == 0;
  try { volatile long z = -1; int* x = new int[z]; delete[] x; } catch (const std::bad_alloc&) { ok += 1; }
  ok += std::pow(double(n), 2.0) == double(n) * n;
  return ok;
}
"""


def test_functions_that_older_releases_lack(tmp_path):
    """They work where the C++ library has functions of the same names, which call each other through these: with exceptions that are kept and copied, streams, waits."""
    compat, module = tmp_path / "libpyflame_compat.so", tmp_path / "module.so"
    subprocess.run(["c++", "-O1", "-fPIC", "-shared", "-std=c++20", "-o", compat, ROOT / "cmake/wheel/compat.cpp"], check=True)
    subprocess.run(["c++", "-O1", "-fPIC", "-shared", "-std=c++17", "-w", "-x", "c++", "-", "-o", module, "-Wl,--no-as-needed", f"-L{tmp_path}", "-lpyflame_compat", f"-Wl,-rpath,{tmp_path}"],
                   input=PROBE, text=True, check=True)
    said = subprocess.run([sys.executable, "-c", f"import ctypes; print(ctypes.CDLL({str(module)!r}).probe(7))"], capture_output=True, text=True)
    assert said.returncode == 0 and said.stdout.split() == ["6"], said


@needs_new_glibc
def test_a_function_without_an_older_version_is_named(tmp_path):
    """Nothing is changed then, and the line says what is missing."""
    file, before, said = lowered(tmp_path, "void arc4random_buf(void *, unsigned long); void fill(void *x) { arc4random_buf(x, 8); }")
    assert "the wheel needs glibc 2.36" in said and "_C.so: arc4random_buf (GLIBC_2.36)" in said and "hint: add them to cmake/wheel/compat.cpp" in said
    assert file.read_bytes() == before


def test_a_wheel_without_the_library_of_compatible_functions_is_refused(tmp_path):
    pytest.importorskip("elftools")
    said = subprocess.run([sys.executable, ROOT / "cmake/wheel/older_glibc.py", "--folder", tmp_path, "--compiler", "cc"], capture_output=True, text=True)
    assert said.returncode == 1 and "older_glibc: the library of functions that older releases lack is not there; got " in said.stderr


def test_the_part_needs_a_user(tmp_path):
    """Nothing is replaced where neither module nor program calls OpenBLAS."""
    libs = tmp_path / "libs"
    libs.mkdir()
    subprocess.run(["cc", "-shared", "-x", "c", "-", "-o", libs / "libopenblas.so.0"], input="void cblas_dgemm() {}", text=True, check=True)
    before = (libs / "libopenblas.so.0").read_bytes()
    said = subprocess.run([sys.executable, ROOT / "cmake/wheel/openblas_subset.py", "--archive", "none.a", "--folder", tmp_path, "--compiler", "c++"], capture_output=True, text=True)
    assert said.returncode == 1 and "openblas_subset: nothing calls OpenBLAS; got" in said.stderr
    assert (libs / "libopenblas.so.0").read_bytes() == before


def test_segments_that_older_loaders_refuse_are_named(tmp_path):
    """glibc before 2.35 compares a segment's address and offset modulo its alignment. Here a segment's alignment becomes larger than what they have in common."""
    elffile = pytest.importorskip("elftools.elf.elffile")
    (tmp_path / "libs").mkdir()
    for output in (tmp_path / "libs/libpyflame_compat.so", tmp_path / "_C.so"):
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", output], input="int data = 1; int f(void) { return data; }", text=True, check=True)

    def said():
        return subprocess.run([sys.executable, ROOT / "cmake/wheel/older_glibc.py", "--folder", tmp_path, "--compiler", "cc"], capture_output=True, text=True)

    assert said().returncode == 0
    with open(tmp_path / "_C.so", "r+b") as file:
        elf = elffile.ELFFile(file)
        i, differ = next((i, s["p_vaddr"] - s["p_offset"]) for i, s in enumerate(elf.iter_segments()) if s["p_type"] == "PT_LOAD" and s["p_vaddr"] != s["p_offset"])
        file.seek(elf["e_phoff"] + i * elf["e_phentsize"] + 48)  # p_align of a 64-bit file
        file.write((2 * (differ & -differ)).to_bytes(8, "little"))
    after = said()
    assert after.returncode == 1 and "older_glibc: loaders before glibc 2.35 refuse segments; got _C.so; expected" in after.stderr


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs a C compiler on Linux")
def test_the_module_of_a_wheel_loads_without_the_interpreter(tmp_path):
    """What the program does not load becomes weak. A module with another missing function is refused as before."""
    pytest.importorskip("elftools")

    def compiled(name, text, *flags):
        subprocess.run(["cc", "-x", "c", "-", "-o", tmp_path / name, "-w", *flags], input=text, text=True, check=True)
        return tmp_path / name

    program = compiled("program", """
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char** argv) {
  void* module = dlopen(argv[1], RTLD_NOW);
  if (!module) { puts(dlerror()); return 1; }
  return ((int (*)(void))dlsym(module, "answer"))();
}""", "-ldl")
    library = compiled("libformat.so", "int format_read(void) { return 1; }", "-shared", "-fPIC")
    text = "extern char PyExc_TypeError; int Py_Initialize(void), format_read(void); void* data = &PyExc_TypeError; int answer(void) { return data ? 1 : 42; } int other(void) { return Py_Initialize() + format_read(); }"

    def started(name, text):
        module = compiled(name, text, "-shared", "-fPIC")
        before = subprocess.run([program, module]).returncode
        said = subprocess.run([sys.executable, ROOT / "cmake/wheel/weak_symbols.py", module, library], capture_output=True, text=True)
        return before, said, subprocess.run([program, module], capture_output=True, text=True)

    before, said, after = started("_C.so", text)
    assert before == 1 and "weak references of _C.so: 3; of these to libraries: 1" in said.stdout and after.returncode == 42, (said, after)
    _, _, after = started("_D.so", text + "int unknown(void); int further(void) { return unknown(); }")
    assert after.returncode == 1 and "undefined symbol: unknown" in after.stdout
    _, said, _ = started("_E.so", "int answer(void) { return 42; }")
    assert said.returncode == 1 and "weak_symbols: the module asks for nothing of the interpreter; got" in said.stderr


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
    assert {"CMakeLists.txt", "LICENSE", "PKG-INFO", "cmake/wheel/openblas_subset.py", "python/pyflame/__init__.py", "src/pyflame/version.h"} <= names
    foreign = re.compile(r"(build|\.venv|\.bench-venv|runs|\.ci|shared)/|.*(\.so|\.o|\.pyc|\.a|\.whl)$")
    assert not sorted(n for n in names if foreign.match(n) and not n.startswith("tests/inspect/data/"))


def packages_of_bootstrap():
    """The packages with headers and libraries that tools/bootstrap.sh installs for a build without tests."""
    text = (ROOT / "tools/bootstrap.sh").read_text()
    return {p for p in re.findall(r"^need_file (\S+)", text, re.M) if p not in ("libgtest-dev", "libbenchmark-dev")}


@pytest.mark.parametrize("name", ["cpu", "rocm"])
def test_container_files_install_what_a_build_needs(name):
    text = (ROOT / f"packaging/containers/Containerfile.{name}").read_text()
    stages = re.split(r"^FROM .*$", text, flags=re.M)[1:]
    first, last = stages[0], stages[-1]
    assert packages_of_bootstrap() <= set(re.findall(r"[\w-]+", first))
    assert not re.search(r"-dev\b", last), "the last stage has what only a build needs"
    defaults = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.M))
    for image in re.findall(r"^FROM (\S+)", text, re.M):  # images by their names: the registry is the user's choice
        image = defaults[image[2:-1]] if image.startswith("${") else image
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


def test_an_editable_installation_has_links(tmp_path):
    """`pip install -e python`: what pip installs is the name of a folder, where the Python files are links to those of the clone."""
    pytest.importorskip("scikit_build_core")
    code = """
import pathlib, sys, zipfile
sys.path.insert(0, sys.argv[1])
import editable
editable.ROOT, out = pathlib.Path(sys.argv[2]), sys.argv[2]
(editable.ROOT / "python/pyflame/nn").mkdir(parents=True)
for name in ("__init__.py", "nn/__init__.py"):
    (editable.ROOT / "python/pyflame" / name).write_text("value = 1")
def build_wheel(folder, settings):
    name = "pyflame-1-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w") as wheel:
        for file, text in {"pyflame/__init__.py": "a copy", "pyflame/bin/pyflame": "a program", "_pyflame_start.py": "starts it", "pyflame-1.dist-info/METADATA": "Name: pyflame",
                           "pyflame-1.dist-info/RECORD": ""}.items():
            info = zipfile.ZipInfo(file)
            info.external_attr = 0o755 << 16
            wheel.writestr(info, text)
    return name
editable.backend.build_wheel = build_wheel
print(editable.build_editable(out))
"""
    said = subprocess.run([sys.executable, "-c", code, ROOT / "python", tmp_path], cwd=ROOT, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    with zipfile.ZipFile(tmp_path / said.stdout.strip()) as wheel:
        names = wheel.namelist()
        assert sorted(names) == ["_pyflame_start.py", "pyflame-1.dist-info/METADATA", "pyflame-1.dist-info/RECORD", "pyflame.pth"]
        folder = pathlib.Path(wheel.read("pyflame.pth").decode().strip())
        record = [line.split(",")[0] for line in wheel.read("pyflame-1.dist-info/RECORD").decode().splitlines()]
    assert sorted(record) == sorted(names) and folder == tmp_path / "build/editable-cp311-cp311-linux_x86_64"
    assert (folder / "pyflame/bin/pyflame").stat().st_mode & 0o111
    for name in ("__init__.py", "nn/__init__.py"):
        assert (folder / "pyflame" / name).resolve() == tmp_path / "python/pyflame" / name and (folder / "pyflame" / name).is_symlink()


def test_both_build_files_require_the_same():
    of = {f: re.search(r"^requires = \[(.*)\]$", (ROOT / f).read_text(), re.M)[1] for f in ("pyproject.toml", "python/pyproject.toml")}
    assert of["pyproject.toml"] == of["python/pyproject.toml"]


def test_errors_name_the_packages_of_the_extras():
    """Not pyflame[llm]: the name pyflame belongs to another project in the Python package index."""
    tomllib = pytest.importorskip("tomllib", reason="Python before 3.11 has no reader of TOML")
    from pyflame.llm._errors import EXTRAS

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for extra, packages in EXTRAS.items():
        assert packages.split() == [re.split("[<>=]", p)[0] for p in extras[extra]]
