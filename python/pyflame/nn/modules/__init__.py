"""Where PyTorch defines its layers: pyflame.nn.modules.conv.Conv2d is pyflame.nn.Conv2d. A few private names that programs import are here, too."""
import sys
from types import ModuleType

from .. import module as module
from . import utils as utils

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:  # the names that __getattr__ finds
    from .. import *  # noqa: F403
del TYPE_CHECKING

_FILES = ("activation", "adaptive", "batchnorm", "channelshuffle", "container", "conv", "distance", "dropout", "flatten", "fold", "instancenorm", "lazy", "linear", "loss", "module", "normalization",
          "padding", "pixelshuffle", "pooling", "rnn", "sparse", "transformer", "upsampling")
_PRIVATE = {"_BatchNorm": ("normalization", "_BatchNorm"), "_NormBase": ("normalization", "_BatchNorm"), "_Loss": ("losses", "_Loss"), "_WeightedLoss": ("losses", "_Loss"),
            "_ConvNd": ("convolution", "_Conv"), "_InstanceNorm": ("normalization", "_InstanceNorm"), "_DropoutNd": ("dropout", "_DropoutNd"), "_get_clones": ("transformer", "_copies"),
            "NonDynamicallyQuantizableLinear": ("linear", "Linear"), "_ConvTransposeNd": ("convolution", "_ConvTranspose"), "_MaxPoolNd": ("pooling", "_MaxPool"),
            "_AvgPoolNd": ("pooling", "_AvgPool"), "_AdaptiveAvgPoolNd": ("pooling", "_AdaptiveAvgPool"), "_AdaptiveMaxPoolNd": ("pooling", "_AdaptiveMaxPool"),
            "_LPPoolNd": ("pooling", "_LPPool"), "_MaxUnpoolNd": ("pooling", "_MaxUnpool"), "_get_activation_fn": ("transformer", "activation_of"),
            "_IncompatibleKeys": ("state", "IncompatibleKeys"), "RemovableHandle": ("hooks", "RemovableHandle")}


def _addindent(text, spaces):
    """The text with its lines after the first one moved to the right, for __repr__ of a module."""
    return text.replace("\n", "\n" + " " * spaces)


def _find(name):
    from importlib import import_module

    nn = import_module("pyflame.nn")
    if name in _PRIVATE:
        file, own = _PRIVATE[name]
        return getattr(import_module(f"pyflame.nn.{file}"), own)
    if name in ("Tensor", "F"):
        return import_module("pyflame").Tensor if name == "Tensor" else nn.functional
    if name.startswith("register_module_"):
        return getattr(import_module("pyflame.nn.hooks"), name)
    if name in ("Parameter", "UninitializedParameter", "UninitializedBuffer") or not name.startswith("_"):
        return getattr(nn, name)
    if name == "_addindent":
        return _addindent
    raise AttributeError(f"module 'pyflame.nn.modules' has no attribute '{name}'")


def __getattr__(name):
    if name in sys.modules.get(__name__).__dict__:
        return sys.modules[__name__].__dict__[name]
    return _find(name)


def _make(file):
    made = ModuleType(f"{__name__}.{file}", f"Names of pyflame.nn that PyTorch defines in nn/modules/{file}.py.")
    made.__getattr__ = _find
    sys.modules[made.__name__] = made
    return made


for _file in _FILES:
    globals()[_file] = _make(_file)
