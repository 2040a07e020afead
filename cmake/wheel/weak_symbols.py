"""Makes the Python module of a wheel load without the interpreter, for the wheel's program (program.cpp). Run when the module is linked.

usage: weak_symbols.py MODULE LIBRARY...

The module asks for functions and objects of the interpreter, which the program does not load, and for functions of LIBRARY..., which the program loads and
an interpreter does not. The loader refuses a module of which it does not find everything. A weak reference may stay without an address: it is null, and
only the other one's code uses it. Each such reference becomes a weak one. Where the interpreter or the libraries are loaded, nothing is different."""
import pathlib
import re
import sys

try:
    from elftools.elf.elffile import ELFFile
except ImportError:
    sys.exit("weak_symbols: pyelftools is not installed; hint: pip install pyelftools")

OF_PYTHON = re.compile(r"_?Py[A-Z_]")
INFO = {32: 12, 64: 4}  # where a symbol's st_info stands in its entry
WEAK = 2


def symbols(path):
    """[(name, whether the file defines it, st_info, offset in the file of st_info)]"""
    with open(path, "rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".dynsym")
        raw = table.data()
        found = []
        for i, symbol in enumerate(table.iter_symbols()):
            at = i * table["sh_entsize"] + INFO[elf.elfclass]
            found.append((symbol.name, symbol["st_shndx"] != "SHN_UNDEF", raw[at], table["sh_offset"] + at))
    return found


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: weak_symbols.py MODULE LIBRARY...")
    module, libraries = pathlib.Path(sys.argv[1]), sys.argv[2:]
    of_libraries = {name for library in libraries for name, defined, *_ in symbols(library) if defined}
    content, changed = bytearray(module.read_bytes()), []
    for name, defined, info, offset in symbols(module):
        if name and not defined and (OF_PYTHON.match(name) or name in of_libraries):
            content[offset] = WEAK << 4 | info & 0xF
            changed.append(name)
    if not any(map(OF_PYTHON.match, changed)):
        sys.exit(f"weak_symbols: the module asks for nothing of the interpreter; got {module}; expected a Python module")
    module.write_bytes(content)
    print(f"weak_symbols: weak references of {module.name}: {len(changed)}; of these to libraries: {sum(name in of_libraries for name in changed)}")


if __name__ == "__main__":
    main()
