"""Functions that PyTorch defines in this file; they are pyflame's own."""
from importlib import import_module

_NAMES = frozenset("""atleast_1d atleast_2d atleast_3d align_tensors block_diag broadcast_shapes broadcast_tensors cartesian_prod cdist chain_matmul einsum istft lu meshgrid
norm pca_lowrank svd_lowrank split stft tensordot unique unique_consecutive unravel_index""".split())


def __getattr__(name):
    if name == "F":
        return import_module("pyflame.nn.functional")
    if name in _NAMES:
        return getattr(import_module("pyflame"), name)
    raise AttributeError(f"module 'pyflame.functional' has no attribute '{name}'")
