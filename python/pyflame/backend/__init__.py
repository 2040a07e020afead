"""What belongs to one kind of device. `from pyflame.backend import rocm` works on a machine without a GPU; using it there says why not."""
from . import rocm  # noqa: F401
