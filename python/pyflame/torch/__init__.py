"""PyFlame under PyTorch's names, for programs that were written for PyTorch:

    import pyflame.torch as torch
    import pyflame.torch.nn.functional as F

`python -m pyflame.torch program.py` runs a program whose `import torch` means this package. Every submodule is the one of pyflame: torch.nn is
pyflame.nn. While it is imported, 'cuda' names the GPU there is, of any vendor, and the type of a GPU's device is 'cuda'. docs/from-pytorch.md has the rest."""
from importlib import import_module

import pyflame as _pf
from pyflame import _C
from pyflame.torch import _names as _importing
from pyflame.torch_version import TorchVersion as _TorchVersion

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:  # the names that __getattr__ finds
    from pyflame import *  # noqa: F403
del TYPE_CHECKING

__version__ = _TorchVersion(f"2.15.0+pyflame{_pf.__version__}")
_importing.install()
_C._cuda_names_any_gpu(True)
try:
    import_module("pyflame.einops")  # einops takes tensors of PyFlame from now on
except ImportError:
    pass  # the package is not installed


def __getattr__(name):
    if name == "version":
        return import_module("pyflame.torch.version")
    try:
        value = getattr(_pf, name)
    except AttributeError as error:
        hint = str(error).partition("; ")[1:]  # the name that was probably meant
        value = None if name.startswith("__") else _importing._refused_module(f"pyflame.{name}")
        if value is None:
            missing = AttributeError(f"PyFlame has no torch.{name}{''.join(hint)}")
            if any(hint):
                missing.name = None  # as in _misspelt
            raise missing from None
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(dir(_pf)) | {"version", "__version__"})
