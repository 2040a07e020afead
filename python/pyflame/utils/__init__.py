"""Where PyTorch keeps its data tools: pyflame.utils.data is pyflame.data."""
from . import data  # noqa: F401
