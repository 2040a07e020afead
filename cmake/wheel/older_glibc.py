"""Makes a wheel run with glibc 2.28 and the C++ library of GCC 8, whatever the machine that builds it has. Run when a wheel is installed
(cmake/PyFlameWheel.cmake), after all libraries are there.

usage: older_glibc.py --folder PACKAGE --compiler CXX

A program asks for a function of the C library by a name and a version: that of the release in which the function last changed, or moved from one library
to another. So a program that calls pthread_create and is linked with glibc 2.36 asks for its version 2.34, although each glibc has the function. In the
module, the program and the libraries of PACKAGE, each reference to a version that is too new becomes

- one to the newest older version of that function, which the C library of this machine has too, for older programs; or
- one without a version, where libs/libpyflame_compat.so (compat.cpp) has the function because older releases lack it.

Where neither is possible, nothing is changed, and a line says which functions are too new and which glibc the wheel needs.

glibc before 2.35 refuses a file with a segment whose address and offset differ by less than its alignment. Such a file ends the build."""
import argparse
import pathlib
import re
import struct
import subprocess
import sys

try:
    from elftools.elf.elffile import ELFFile
except ImportError:
    sys.exit("older_glibc: pyelftools is not installed; hint: pip install pyelftools")

NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 25), "CXXABI": (1, 3, 11)}  # glibc 2.28; GCC 8
COMPAT = "libpyflame_compat.so"
ANY_VERSION = 1  # VER_NDX_GLOBAL


def number(version):
    """("GLIBC", (2, 34)) of "GLIBC_2.34". None of names that are no release (CXXABI_FLOAT128, GLIBC_PRIVATE)."""
    found = re.fullmatch(r"([A-Z]+)_(\d+(?:\.\d+)*)", version)
    return found and (found[1], tuple(map(int, found[2].split("."))))


def too_new(version):
    n = number(version)
    return bool(n) and n[0] in NEWEST and n[1] > NEWEST[n[0]]


class Needs:
    """The versions that an ELF file asks for: `versions` is {index: (library, version, offset in the file)}, `symbols` a list of (name, index, offset
    in the file of the index)."""

    def __init__(self, path):
        self.path, self.versions, self.symbols = path, {}, []
        with open(path, "rb") as file:
            elf = ELFFile(file)
            table, section = elf.get_section_by_name(".gnu.version"), elf.get_section_by_name(".gnu.version_r")
            self.order = "<" if elf.little_endian else ">"
            if not section:
                return
            at = section["sh_offset"]
            for library, entries in section.iter_versions():
                entry = at + library["vn_aux"]
                for e in entries:
                    self.versions[e["vna_other"]] = (library.name, e.name, entry)
                    entry += e["vna_next"]
                at += library["vn_next"]
            names = elf.get_section_by_name(".dynsym")
            for i, symbol in enumerate(names.iter_symbols()):
                index = struct.unpack(self.order + "H", self.bytes_at(file, table["sh_offset"] + 2 * i, 2))[0] & 0x7FFF
                if index in self.versions:
                    self.symbols.append((symbol.name, index, table["sh_offset"] + 2 * i))

    @staticmethod
    def bytes_at(file, offset, size):
        file.seek(offset)
        return file.read(size)


def provided(path):
    """{function: its versions} of a shared library."""
    found = {}
    with open(path, "rb") as file:
        elf = ELFFile(file)
        table, section = elf.get_section_by_name(".gnu.version"), elf.get_section_by_name(".gnu.version_d")
        names = {d["vd_ndx"]: next(aux).name for d, aux in section.iter_versions()} if section else {}
        for i, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
            if symbol["st_shndx"] != "SHN_UNDEF":
                index = table.get_symbol(i)["ndx"] if table else None
                found.setdefault(symbol.name, []).append(names.get(index & 0x7FFF) if isinstance(index, int) else None)
    return found


def misaligned(path):
    """Whether loaders before glibc 2.35 refuse the file for its segments."""
    with open(path, "rb") as file:
        return any(s["p_type"] == "PT_LOAD" and (s["p_vaddr"] - s["p_offset"]) % max(s["p_align"], 1) for s in ELFFile(file).iter_segments())


class Machine:
    """The libraries of this machine, as the compiler finds them."""

    def __init__(self, compiler):
        self.compiler, self.known = compiler, {}

    def older(self, library, name):
        """The versions of a function that are old enough, oldest first."""
        return sorted((v for v in self.functions(library).get(name, ()) if v and number(v) and not too_new(v)), key=number)

    def releases(self, library):
        """The versions of all functions of a library, oldest first."""
        return sorted({v for versions in self.functions(library).values() for v in versions if v and number(v)}, key=number)

    def functions(self, library):
        if library not in self.known:
            path = subprocess.run([self.compiler, f"-print-file-name={library}"], capture_output=True, text=True, check=True).stdout.strip()
            self.known[library] = provided(path) if pathlib.Path(path).is_absolute() else {}
        return self.known[library]


def changes_of(needs, machine, compat):
    """([(offset, bytes)], [what cannot be changed]) of a file."""
    changes, impossible = [], []
    index_of = {(library, version): index for index, (library, version, _) in needs.versions.items()}
    for name, index, offset in needs.symbols:
        library, version, _ = needs.versions[index]
        if not too_new(version):
            continue
        older = machine.older(library, name)
        if name in compat:
            new = ANY_VERSION
        elif older and (library, older[-1]) in index_of:
            new = index_of[library, older[-1]]
        elif len(older) == 1 or (older and older[0] != machine.releases(library)[0]):
            new = ANY_VERSION  # the loader takes the version of the library's first release, or else the current one
        else:
            impossible.append(f"{name} ({version})")
            continue
        changes.append((offset, struct.pack(needs.order + "H", new)))
    for library, version, offset in needs.versions.values():
        if too_new(version):  # no function has it, so it becomes an older version of this library, whose name is in the file
            kept = [o for _, v, o in needs.versions.values() if not too_new(v) and v in machine.releases(library)]
            if not kept:
                impossible.append(f"{library} ({version})")
                continue
            content = needs.path.read_bytes()
            changes += [(offset + at, content[kept[0] + at : kept[0] + at + 4]) for at in (0, 8)]  # vna_hash, vna_name
    return changes, impossible


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--compiler", required=True)
    args = parser.parse_args()

    files = sorted(f for f in [*args.folder.glob("*.so"), *args.folder.glob("bin/*"), *args.folder.glob("libs/*.so*")] if f.read_bytes()[:4] == b"\x7fELF")
    compat = args.folder / "libs" / COMPAT
    if compat not in files:
        sys.exit(f"older_glibc: the library of functions that older releases lack is not there; got {', '.join(f.name for f in files)}; expected {compat}")
    refused = [f.name for f in files if misaligned(f)]
    if refused:
        sys.exit(f"older_glibc: loaders before glibc 2.35 refuse segments; got {', '.join(refused)}; expected addresses and offsets that are equal modulo the alignment; hint: link with -Wl,-z,max-page-size=ALIGNMENT")
    machine, functions = Machine(args.compiler), set(provided(compat))
    found = {f: changes_of(Needs(f), machine, functions) for f in files}
    impossible = {f.name: names for f, (_, names) in found.items() if names}
    if impossible:
        newest = max(number(v) for f in files for _, v, _ in Needs(f).versions.values() if v.startswith("GLIBC_") and number(v))[1]
        print(f"older_glibc: the wheel needs glibc {'.'.join(map(str, newest))}, because no older version is known of functions that it calls; got "
              + "; ".join(f"{f}: {', '.join(names)}" for f, names in impossible.items()) + "; hint: add them to cmake/wheel/compat.cpp")
        return
    for f, (changes, _) in found.items():
        content = bytearray(f.read_bytes())
        for offset, new in changes:
            content[offset : offset + len(new)] = new
        f.write_bytes(content)
    left = [f"{f.name}: {v}" for f in files for _, v, _ in Needs(f).versions.values() if too_new(v)]
    if left:
        sys.exit(f"older_glibc: versions are left that are too new; got {', '.join(left)}")
    print(f"older_glibc: {sum(len(c) for c, _ in found.values())} references of {len(files)} files changed; the wheel needs glibc 2.28 and GLIBCXX_3.4.25")


if __name__ == "__main__":
    main()
