"""Functions that PyTorch defines in this file; they are pyflame's own."""
from importlib import import_module

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:  # the names that __getattr__ finds
    from . import (
        align_tensors as align_tensors,
        atleast_1d as atleast_1d,
        atleast_2d as atleast_2d,
        atleast_3d as atleast_3d,
        block_diag as block_diag,
        broadcast_shapes as broadcast_shapes,
        broadcast_tensors as broadcast_tensors,
        cartesian_prod as cartesian_prod,
        cdist as cdist,
        chain_matmul as chain_matmul,
        einsum as einsum,
        istft as istft,
        lu as lu,
        meshgrid as meshgrid,
        norm as norm,
        pca_lowrank as pca_lowrank,
        split as split,
        stft as stft,
        svd_lowrank as svd_lowrank,
        tensordot as tensordot,
        unique as unique,
        unique_consecutive as unique_consecutive,
        unravel_index as unravel_index,
    )
    from .nn import functional as _functional

    F = _functional
del TYPE_CHECKING

_NAMES = frozenset("""atleast_1d atleast_2d atleast_3d align_tensors block_diag broadcast_shapes broadcast_tensors cartesian_prod cdist chain_matmul einsum istft lu meshgrid
norm pca_lowrank svd_lowrank split stft tensordot unique unique_consecutive unravel_index""".split())


def __getattr__(name):
    if name == "F":
        return import_module("pyflame.nn.functional")
    if name in _NAMES:
        return getattr(import_module("pyflame"), name)
    raise AttributeError(f"module 'pyflame.functional' has no attribute '{name}'")
