"""How values lie over the processes of a mesh, by the names of torch.distributed.tensor: placements, and DTensor, a tensor that knows its own."""
from importlib import import_module

from ... import _refused
from ..device_mesh import DeviceMesh, init_device_mesh
from ._dtensor import DTensor, distribute_tensor
from ._module import distribute_module
from ._placements import Partial, Placement, Replicate, Shard

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:  # names that are imported when they are first used
    from . import parallel as parallel
del TYPE_CHECKING

_everything_else = _refused.module("distributed.tensor", "DTensor, distribute_tensor, distribute_module, Shard, Replicate, Partial, meshes and distributed.tensor.parallel are; fully_shard divides the parameters of modules")


def __getattr__(name):
    if name == "parallel":
        return import_module(".parallel", __name__)
    return _everything_else(name)


__all__ = ["DTensor", "DeviceMesh", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor", "init_device_mesh"]
