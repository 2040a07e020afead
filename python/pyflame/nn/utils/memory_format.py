"""The layout of the weights of convolutions."""
from __future__ import annotations

from ..convolution import Conv2d, ConvTranspose2d

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from ..._annotations import MemoryFormat
    from .._annotations import ModuleT


def convert_conv2d_weight_memory_format(module: ModuleT, memory_format: MemoryFormat) -> ModuleT:
    """Gives the weights of all 2-D convolutions this layout. Returns the module.

    Raises TypeError for what is no memory format, NotImplementedError for channels_last_3d, and AttributeError for what is no Module.
    """
    for m in module.modules():
        if isinstance(m, (Conv2d, ConvTranspose2d)):
            m.to(memory_format=memory_format)
    return module


def convert_conv3d_weight_memory_format(module: ModuleT, memory_format: MemoryFormat) -> ModuleT:
    """Returns the module, unchanged: weights of 3-D convolutions have one layout. memory_format: is not looked at. Never raises."""
    return module
