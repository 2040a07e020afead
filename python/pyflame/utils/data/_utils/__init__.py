"""Where PyTorch keeps the parts of its loader."""
from . import collate as collate, worker as worker
