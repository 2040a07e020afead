"""The entry point `pyflame` of a wheel: starts the program inside the installed package, without loading the package, whose import takes longer than most
commands. pip makes the script in bin/, whose first line holds for folders with blanks in their names."""
import importlib.util
import os
import sys


def main():
    package = importlib.util.find_spec("pyflame")
    if package is None:
        sys.exit(f"pyflame: the package is not installed in this environment; got {sys.executable}")
    folder = os.path.dirname(package.origin)
    spec = importlib.util.spec_from_file_location("_pyflame_program", os.path.join(folder, "_program.py"))
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    program.start(folder, sys.argv[1:], outside=False)
