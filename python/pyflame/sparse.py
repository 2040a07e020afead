"""Names of torch.sparse. Sparse tensors are not available."""
from . import _refused

__getattr__ = _refused.module("sparse", "sparse tensors are not available; dense ones and index ops (index_add, scatter_add) do their work")
