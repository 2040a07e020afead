"""Is an installed PyFlame whole? `PYTHON tools/check_wheel.py`, with the interpreter that PyFlame was installed for: its module and its program
compute with libraries that the wheel brought, and otherwise only with those that every Debian and Ubuntu has. Exit code 1 when not."""
import importlib
import pathlib
import pkgutil
import re
import subprocess
import sys
import sysconfig

EVERYWHERE = re.compile(r"(ld-(linux|[0-9]).*|lib(c|m|dl|pthread|rt|util|gcc_s|stdc\+\+))[.-].*")

# What the program writes for man and for shells, in share/ of the environment.
PAGES = {"man/man1/pyflame.1": ["man"], "bash-completion/completions/pyflame": ["completion", "bash"], "zsh/site-functions/_pyflame": ["completion", "zsh"],
         "fish/vendor_completions.d/pyflame.fish": ["completion", "fish"]}


def foreign(paths, own):
    """Of shared objects those that are neither in one of the folders nor on every machine."""
    return sorted(p for p in map(str, paths) if not any(p.startswith(f"{o}/") for o in own) and not EVERYWHERE.match(pathlib.Path(p).name))


def needed(file):
    """The paths of the libraries that a program or module loads when it starts."""
    said = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=True).stdout
    missing = re.findall(r"(\S+) => not found", said)
    if missing:
        sys.exit(f"check_wheel: {file} lacks {', '.join(missing)}")
    return {str(pathlib.Path(p).resolve()) for p in re.findall(r"(/\S+) \(0x", said)}


def mapped():
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return {line.split(None, 5)[5] for line in lines if re.search(r"/\S+\.so(\.|$)", line)}


def check_linalg(pf):
    """OpenBLAS is there in part (cmake/wheel/openblas_subset.py): each routine of it is called once, for all dtypes, with matrices that its block algorithms divide."""
    n = 150
    for dtype, tolerance in ((pf.float64, 1e-9), (pf.float32, 1e-2), (pf.complex128, 1e-9), (pf.complex64, 1e-2)):
        pf.manual_seed(0)
        a, b = pf.randn(n, n, dtype=dtype) + 10 * pf.eye(n, dtype=dtype), pf.randn(n, 3, dtype=dtype)
        spd, la = a @ a.mH / n + pf.eye(n, dtype=dtype), pf.linalg
        c, (q, r), (u, s, v), (w, e) = la.cholesky(spd), la.qr(a), la.svd(a), la.eigh(spd)
        wide = {"lstsq " + d: (a @ la.lstsq(a, b, driver=d).solution, b) for d in ("gels", "gelsd", "gelss", "gelsy")}
        pairs = {"solve": (a @ la.solve(a, b), b), "cholesky": (c @ c.mH, spd), "qr": (q @ r, a), "svd": (u * s @ v, a), "eigh": (e * w @ e.mH, spd),
                 "ldl": (spd @ la.ldl_solve(*la.ldl_factor(spd, hermitian=True), b, hermitian=True), b), "symmetric ldl": ((a + a.mT) @ la.ldl_solve(*la.ldl_factor(a + a.mT), b), b),
                 "triangular": (spd.tril() @ la.solve_triangular(spd.tril(), b, upper=False), b), "eigvals": (la.eigvals(a).sum().real, a.trace().real), **wide}
        for name, (got, expected) in pairs.items():
            error = (got - expected).abs().max().item() / max(expected.abs().max().item(), 1)
            if not error < tolerance:
                sys.exit(f"check_wheel: linalg.{name} of {dtype} is wrong; got an error of {error}; expected at most {tolerance}")


def check_modules(pf):
    """Every module can be imported by this version of Python. Those of optional packages say which package they need."""
    for info in pkgutil.walk_packages(pf.__path__, "pyflame."):
        if info.name.split(".")[-1] in ("__main__", "_C"):
            continue
        try:
            importlib.import_module(info.name)
        except ImportError as e:
            if "pip install" not in str(e) and (e.name or "pyflame").split(".")[0] == "pyflame":
                sys.exit(f"check_wheel: {info.name} cannot be imported; got {e!r}")


def main():
    import numpy as np

    before = mapped()
    import pyflame as pf

    package = pathlib.Path(pf.__file__).resolve().parent
    x, w = pf.ones(1, 4, 8, 8, requires_grad=True), pf.ones(4, 4, 3, 3)
    loss = (pf.nn.functional.conv2d(x, w).reshape(36, 4) @ pf.ones(4, 4)).sum()
    loss.backward()
    np.testing.assert_allclose(x.grad.numpy()[0, 0, 4, 4], 9 * 4 * 4)

    check_linalg(pf)

    loaded = {str(pathlib.Path(p).resolve()) for p in mapped() - before}
    standard = pathlib.Path(sysconfig.get_path("stdlib")).resolve()
    program = package / "bin" / "pyflame"
    # The interpreter's own extension modules (bz2, lzma) may use libraries of the machine.
    interpreters = {lib for p in loaded if p.startswith(f"{standard}/") for lib in needed(p)}
    bad = foreign(loaded - interpreters, [package, standard]) + foreign(needed(program), [package])
    # The module, which holds the program's functions, refers to these libraries by weak names, and the program loads them.
    lacking = {"libsqlite3", "libz", "libzstd", "libbz2"} - {pathlib.Path(p).name.split(".")[0] for p in needed(program)}
    if lacking:
        sys.exit(f"check_wheel: the program does not load what it reads files with; got no {', '.join(sorted(lacking))}")
    if bad:
        sys.exit(f"check_wheel: libraries of the machine are used; got {', '.join(bad)}; expected those of {package}")
    brought = [p for p in loaded if p.startswith(f"{package}/libs/")]
    if not any("dnnl" in p for p in brought) or not any("openblas" in p for p in brought):
        sys.exit(f"check_wheel: neither oneDNN nor OpenBLAS was loaded from {package}/libs; got {brought}")
    said = subprocess.run([pathlib.Path(sys.executable).parent / "pyflame", "--version"], capture_output=True, text=True, check=True).stdout
    if said.split() != ["pyflame", pf.__version__]:
        sys.exit(f"check_wheel: the program is another one; got {said.strip()}; expected pyflame {pf.__version__}")
    check_modules(pf)
    for file, words in PAGES.items():
        page = pathlib.Path(sysconfig.get_path("data")) / "share" / file
        if not page.is_file() or page.read_bytes() != subprocess.run([program, *words], stdout=subprocess.PIPE, check=True).stdout:
            sys.exit(f"check_wheel: {page} is not what `pyflame {' '.join(words)}` writes")
    print(f"check_wheel: pyflame {pf.__version__} for Python {sysconfig.get_python_version()} brings {', '.join(sorted(pathlib.Path(p).name for p in brought))}")


if __name__ == "__main__":
    main()
