"""The part of OpenBLAS that a wheel needs, linked anew from the static library. Run when a wheel is installed (cmake/PyFlameWheel.cmake).

usage: openblas_subset.py --archive libopenblas.a --folder PACKAGE --compiler CXX [--linker mold]

PACKAGE has the module and the program, and libs/libopenblas.so.0, which this replaces. Debian's library has 36 MB. What PyFlame calls of it, with the
kernels of all processors, has 14 MB (3.2 MB instead of 10.7 MB compressed):

- Only the functions that the module and the program call are exported, and only what these reach is linked.
- The tables of kernels (setparam_*.o, one for each processor) name also kernels that no function that is linked reads, such as those for bfloat16
  (ABSENT_KERNEL). These entries name one function that ends the process. If PyFlame calls a function that reads them, all kernels stay.
- mold and lld fold kernels whose code is the same for several processors (--icf): 13.6 MB instead of 24.5 MB. Other linkers do not.
- The GNU Fortran library that LAPACK needs is linked statically where gfortran is installed, and libgfortran and libquadmath are removed. Elsewhere they stay,
  and the wheel has 1.2 MB more.
- Some kernels are aligned to 32 KiB. Older loaders refuse a segment whose address and offset differ by less than its alignment, which mold 1.10 makes if pages are smaller.
- OpenBLAS starts no threads when it is loaded. PyFlame's own threads call it, and each call runs on one thread.

No processor loses a kernel. decisions/0001-dependencies.md has what was measured."""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

# Kernels of bfloat16 (sbgemm_kernel, dbf16tod_k), and those of complex numbers for products by three real ones (zgemm3m_kernel), of symmetric matrices
# (zhemm_outcopy), and for copies (zomatcopy_k_cn). Only the functions of the same names read them, and LAPACK calls none of these. Complex products of
# small matrices have kernels that [cz]gemm_small_matrix_permit, which stays, allows for no processor.
ABSENT_KERNEL = re.compile(r"sb|dbf16|[cz](gemm|hemm|symm)3m_|[cz](hemm|symm)_[io]|[cz][io]matcopy_|[cz]gemm_small_kernel_|[cz]geadd_|[cz]axpby_")
READERS = re.compile(r"(cblas_)?(sb.*|[cz](gemm3m|hemm|symm|[io]matcopy|geadd|axpby))_?$")
ALWAYS = ("openblas_get_config",)  # looked up by name (runtime/libraries.cpp)

SOURCE = """// Written by cmake/wheel/openblas_subset.py.
#include <cstdio>
#include <cstdlib>

extern "C" {
extern int blas_cpu_number, blas_num_threads;
int __real_blas_thread_init();
// PyFlame's threads call the library; it needs none of its own.
int __wrap_blas_thread_init() {
  blas_cpu_number = blas_num_threads = 1;
  return __real_blas_thread_init();
}
// Every kernel that was left out.
__attribute__((visibility("hidden"))) void pyflame_absent_kernel() {
  std::fputs("pyflame: OpenBLAS was asked for a kernel that this wheel leaves out\\n", stderr);
  std::abort();
}
"""


def fail(text):
    sys.exit(f"openblas_subset: {text}")


def said(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        fail(f"{command[0]} failed; got {done.stderr.strip()[-2000:]}")
    return done.stdout


def dynamic(file, kind):
    """The names that a shared object or program defines or needs."""
    return {line.split()[-1].split("@")[0] for line in said("nm", "-D", f"--{kind}-only", str(file)).splitlines() if line.strip()}


def members(archive):
    """{member: (defined names, needed names)} of a static library."""
    found, name = {}, None
    for line in said("nm", "-g", str(archive)).splitlines():
        if line.endswith(":"):
            name = line[:-1]
            found.setdefault(name, (set(), set()))
        elif line.strip():
            *_, letter, symbol = line.split()
            found[name][letter in "Uw"].add(symbol)
    return found


def absent_kernels(archive):
    """Kernels that no function reads, and that nothing but the tables and other such kernels names."""
    content = members(archive)
    tables = {m for m in content if m.startswith("setparam")}
    if not tables:
        return []
    kernels = {s for m in tables for s in content[m][1] if re.search(r"_[A-Z0-9_]+$", s) and ABSENT_KERNEL.match(s)}
    # A member that is named for one kernel may call another one; what else names a kernel needs it.
    named = {s for m, (defined, needed) in content.items() if m not in tables and not defined & kernels for s in needed}
    return sorted(kernels - named)


def fortran(compiler, libs):
    """The linker's flags for the GNU Fortran library."""
    if pathlib.Path(said(compiler, "-print-file-name=libgfortran.a").strip()).is_absolute():
        return ["-Wl,-Bstatic", "-lgfortran", "-lquadmath", "-Wl,-Bdynamic"]
    return [str(f) for f in sorted(libs.glob("libgfortran.so.*"))]


def link(archive, exported, absent, compiler, linker, flags_of_fortran, folder, output):
    source, script, flags = folder / "absent.cpp", folder / "exports.map", folder / "flags"
    aliases = "".join(f'void {name}() __attribute__((alias("pyflame_absent_kernel"), visibility("hidden")));\n' for name in absent)
    source.write_text(SOURCE + aliases + "}\n")
    script.write_text("{ global: " + " ".join(f"{name};" for name in exported) + " local: *; };\n")
    flags.write_text("\n".join(f"-Wl,-u,{name}" for name in exported) + "\n")
    said(compiler, "-O1", "-fPIC", "-c", str(source), "-o", str(folder / "absent.o"))
    said(compiler, *([f"-fuse-ld={linker}", "-Wl,--icf=all"] if linker else []), "-shared", "-o", str(output), "-Wl,-soname," + output.name, "-Wl,--gc-sections", "-Wl,-s", "-Wl,-z,defs", "-Wl,-z,max-page-size=0x8000", "-Wl,--wrap=blas_thread_init",
         f"-Wl,--version-script={script}", f"@{flags}", str(folder / "absent.o"), str(archive), *flags_of_fortran, "-lm", "-lpthread")


def libraries_of(file):
    """The names of the libraries that a program or a library asks for."""
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", said("readelf", "-d", str(file))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--archive", type=pathlib.Path, required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--linker")
    args = parser.parse_args()

    libs = args.folder / "libs"
    (library,) = libs.glob("libopenblas.so.*") or (None,)
    before, has = library.stat().st_size, dynamic(library, "defined")
    users = [*args.folder.glob("*.so"), *args.folder.glob("bin/*"), *(f for f in libs.glob("*.so*") if f != library)]
    exported = sorted((set().union(*(dynamic(u, "undefined") for u in users)) | set(ALWAYS)) & has)
    if len(exported) <= len(ALWAYS):
        fail(f"nothing calls OpenBLAS; got {', '.join(map(str, users))}; expected the module and the program")
    readers = [name for name in exported if READERS.match(name)]
    absent = [] if readers else absent_kernels(args.archive)
    with tempfile.TemporaryDirectory() as folder:
        new = pathlib.Path(folder) / library.name
        link(args.archive, exported, absent, args.compiler, args.linker, fortran(args.compiler, libs), pathlib.Path(folder), new)
        lost = set(exported) - dynamic(new, "defined")
        if lost:
            fail(f"the new library lacks functions; got no {', '.join(sorted(lost))}; hint: {args.archive} is of another version than {library.name}")
        library.write_bytes(new.read_bytes())
    # What only the old one asked for. The licences of what is now inside stay.
    for pattern in ("libgfortran.so.*", "libquadmath.so.*"):  # the first asks for the second
        for file in libs.glob(pattern):
            if not any(file.name in libraries_of(f) for f in [*libs.glob("*.so*"), *users] if f.exists()):
                file.unlink()
    print(f"openblas_subset: {len(exported)} functions, {len(absent)} kernels left out; {before / 1e6:.1f} MB became {library.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
