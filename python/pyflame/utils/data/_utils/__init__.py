"""Where PyTorch keeps the parts of its loader."""
from . import collate, worker  # noqa: F401
