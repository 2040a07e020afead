"""Modules for the files in which PyTorch defines its names. Those that are defined elsewhere here are found by `from package.file import name`, too."""
import sys
from types import ModuleType


def add(package, files, find):
    """Makes package.file for each file; its names are what find(name) returns. Gives the modules, by file."""
    made = {}
    for file in files:
        name = f"{package}.{file}"
        module = made[file] = ModuleType(name, f"Names of {package} that PyTorch defines in {file}.py.")
        module.__getattr__ = find
        sys.modules[name] = module
    return made


def names_of(package):
    """A find() for the public names of a package."""

    def find(name):
        if name.startswith("_"):
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return getattr(sys.modules[package], name)

    return find
