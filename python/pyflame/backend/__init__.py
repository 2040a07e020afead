"""Functions for one kind of device. `from pyflame.backend import rocm` works without a GPU; its functions then say why there is none."""
from . import rocm as rocm
