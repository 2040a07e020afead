#!/usr/bin/env python3
"""Copies the libraries of ROCm that PyFlame loads out of a file system that holds ROCm, into the system that this runs in.

    python3 rocm_libraries.py ROOT [--libraries "rocblas hipblaslt"] [--gpus "gfx942 gfx1100"] [--into /]

ROOT is the file system of AMD's image, one with the packages of Debian, or ROCm's own folder (with lib/libamdhip64.so). Copied are HIP, hipRTC and what
they open; the libraries that are named; what these need and this system lacks; and the data of the named libraries, of which files for GPUs other than those of
--gpus stay behind. Files keep their paths, since libraries look for their data there. The dynamic loader then resolves every symbol of every file: one that is missing
is an error, so an image that is built is whole. Needs glibc's ldd and ldconfig. Containerfile.rocm calls it.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

# What PyFlame opens in any case: the HIP runtime and the run-time compiler, with the files that these open by name (docs/decisions/0009).
ALWAYS = ("libamdhip64", "libhiprtc", "libhiprtc-builtins", "libamd_comgr", "libhsa-runtime64")
# What it uses where it is there: the libraries, and their folders of data, relative to the folder of the libraries.
OPTIONAL = {
    "rocblas": (("librocblas",), ("rocblas",)),
    "hipblaslt": (("libhipblaslt",), ("hipblaslt",)),
    "miopen": (("libMIOpen",), ("../share/miopen", "../../share/miopen")),
    "hipfft": (("libhipfft", "librocfft"), ("rocfft",)),
    "rccl": (("librccl",), ()),
    "roctx": (("librocprofiler-sdk-roctx", "libroctx64"), ()),
}
DISTRIBUTION = "usr/lib/x86_64-linux-gnu"
# Where else ROOT may have what a library needs.
MORE_FOLDERS = ("opt/rocm*/lib/rocm_sysdeps/lib", "opt/rocm*/lib/llvm/lib", "opt/rocm*/llvm/lib", "opt/amdgpu/lib/x86_64-linux-gnu", DISTRIBUTION, "lib/x86_64-linux-gnu",
                "lib/rocm_sysdeps/lib", "lib/llvm/lib", "llvm/lib")
GPU = re.compile(r"gfx[0-9a-f]+")


def fail(what, got, expected, hint):
    sys.exit(f"rocm_libraries: {what}; got {got}; expected {expected}; hint: {hint}")


class Source:
    """The file system that holds ROCm: where its libraries lie, and which path each of its files gets."""

    def __init__(self, root):
        self.root = root
        real = {p.resolve() for p in root.glob("opt/rocm*/lib") if p.resolve().is_relative_to(root)}
        self.folders = [f for f in [*sorted(real), root / DISTRIBUTION, root / "lib"] if any(f.glob("libamdhip64.so*"))][:1]
        if not self.folders:
            fail(f"{root} holds no HIP runtime", ", ".join(sorted(p.name for p in root.iterdir())[:8]) or "an empty folder", f"libamdhip64.so in opt/rocm*/lib, {DISTRIBUTION} or lib",
                 "name a file system with ROCm, or ROCm's folder")
        self.main = self.folders[0]
        self.bare = self.main == root / "lib"  # ROCm's own folder: it becomes /opt/rocm
        for pattern in MORE_FOLDERS:
            self.folders += [f for f in sorted(root.glob(pattern)) if f.is_dir() and f not in self.folders]

    def target(self, path):
        relative = pathlib.Path(os.path.normpath(path)).relative_to(self.root)
        return pathlib.PurePosixPath("opt/rocm") / relative if self.bare else relative

    def named(self, name):
        """The folder that has a library of this name, and its files there: `libx.so.7` and the links to it."""
        for folder in self.folders:
            found = sorted(folder.glob(f"{name}.so*"))
            if found:
                return found
        return []

    def file(self, soname):
        return next((f / soname for f in self.folders if (f / soname).exists()), None)


class Copy:
    def __init__(self, source, into):
        self.source, self.into = source, into
        self.files, self.folders = {}, []

    def path(self, path):
        """One file: a link of the same folder stays a link, and the file behind it is copied too."""
        target = self.into / self.source.target(path)
        if target in self.files or target.is_symlink() and os.path.exists(target):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        inner = os.readlink(path) if path.is_symlink() else ""
        if inner.startswith("/"):  # meant within the other system
            path = self.source.root / inner[1:]
        if inner and "/" not in inner:
            os.symlink(inner, target)
            self.path(path.parent / inner)
        else:
            shutil.copy2(path, target)
            self.files[target] = target.stat().st_size
        if target.parent not in self.folders and ".so" in target.name:
            self.folders.append(target.parent)

    def data(self, folder, gpus):
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            named = GPU.findall(str(path.relative_to(folder)))
            if not gpus or not named or any(n.startswith(g) for n in named for g in gpus):
                self.path(path)

    def lacking(self):
        """Runs the dynamic loader on every library: the names that it does not find, and the symbols that it does not find."""
        names, symbols = {}, {}
        search = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, self.folders))}
        for file in [f for f in self.files if ".so" in f.name]:
            run = subprocess.run(["ldd", "-r", str(file)], capture_output=True, text=True, env=search)
            said = run.stdout + run.stderr
            names.update((n, file) for n in re.findall(r"(\S+) => not found", said))
            symbols.update((s, file) for s in re.findall(r"version `(\S+)' not found", said) + re.findall(r"(?:undefined symbol|symbol lookup error)[^\n]*?: (\S+)", said))
        return names, symbols


def collect(root, into, libraries, gpus):
    source = Source(root)
    copy = Copy(source, into)
    wanted = list(ALWAYS)
    for name in libraries:
        if name not in OPTIONAL:
            fail("a library of no known name", name, ", ".join(OPTIONAL), "names are separated by spaces")
        wanted += OPTIONAL[name][0]
    for name in wanted:
        found = source.named(name)
        if not found and name not in ("libroctx64", "librocprofiler-sdk-roctx"):
            fail(f"{name}.so is not in {root}", "none", f"it in {source.main}", "take an image or packages that have it, or leave the library out")
        for path in found:
            copy.path(path)
    for name in libraries:
        for folder in OPTIONAL[name][1]:
            copy.data(source.main / folder, gpus)
    while True:
        names, symbols = copy.lacking()
        new = {n: source.file(n) for n in names}
        absent = sorted(n for n, path in new.items() if path is None)
        if absent:
            fail(f"{names[absent[0]].name} needs what is nowhere", ", ".join(absent), f"it in this system or in {root}", "install the package that has it")
        if not new:
            break
        for path in new.values():
            copy.path(path)
    if symbols:
        name, file = sorted(symbols.items())[0]
        fail(f"{file.name} does not fit to this system", f"{len(symbols)} symbols or versions that are missing, {name} first", "all of them", "take a base of the release that ROCm's packages were made for, or a later one")
    for version in source.main.parent.glob(".info/version*"):
        copy.path(version)
    return source, copy


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--libraries", default="", help=f"names of {', '.join(OPTIONAL)}, separated by spaces; default: none of them")
    parser.add_argument("--gpus", default="", help="architectures whose data is copied, such as 'gfx942 gfx1100'; default: all")
    parser.add_argument("--into", type=pathlib.Path, default=pathlib.Path("/"))
    a = parser.parse_args()
    if not a.root.is_dir():
        fail("there is no such folder", a.root, "a file system with ROCm, or ROCm's folder", "mount it")
    root, into = a.root.resolve(), a.into.resolve()
    source, copy = collect(root, into, a.libraries.split(), a.gpus.split())
    home = source.main.parent if not source.bare else root
    target = into / source.target(home)
    if target.name.startswith("rocm-"):  # what ROCM_PATH and PyFlame look for
        (into / "opt/rocm").unlink(missing_ok=True)
        (into / "opt/rocm").symlink_to(target.name)
    conf = into / "etc/ld.so.conf.d/rocm.conf"
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text("".join(f"/{f.relative_to(into)}\n" for f in copy.folders))
    if into == pathlib.Path("/"):
        subprocess.run(["ldconfig"], check=True)
    for file, size in sorted(copy.files.items(), key=lambda item: -item[1])[:25]:
        print(f"{size / 1e6:8.1f} MB  /{file.relative_to(into)}")
    print(f"{sum(copy.files.values()) / 1e6:8.1f} MB in {len(copy.files)} files")


if __name__ == "__main__":
    main()
