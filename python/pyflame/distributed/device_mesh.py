"""Processes in a grid with named axes, by the names of torch.distributed.device_mesh."""
from __future__ import annotations

import itertools
import math

from .. import _C
from . import _state
from ._group import ProcessGroup

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .._C import Tensor


def _blocks(shape):
    """The places of a grid, the last axis first to change."""
    return list(itertools.product(*(range(n) for n in shape)))


class DeviceMesh:
    """Ranks of the job in a grid, with a process group for each line along each axis.

    device_type: the type of device that the processes compute on. mesh: the ranks as a nested list or an integer tensor. mesh_dim_names: a name for each
    axis. Every process of the job makes the mesh, in the same order among other groups. mesh['dp'] is this process's line along one axis; mesh['dp', 'tp'] its
    plane. ValueError: a rank that is not there or occurs twice, names that do not fit."""

    def __init__(self, device_type: str, mesh: Tensor | Sequence[Any], *, mesh_dim_names: str | Sequence[str] | None = None, _parts: list[ProcessGroup | None] | None = None) -> None:
        op = "DeviceMesh"
        if not isinstance(device_type, str):
            raise TypeError(f"{op}: device_type is not a name; got {type(device_type).__name__}; expected such as 'cpu' or 'cuda'")
        self.device_type = device_type.partition(":")[0]
        self.mesh = (mesh.detach().cpu() if isinstance(mesh, _C.Tensor) else _C.tensor(list(mesh) if isinstance(mesh, range) else mesh, device="cpu")).to(dtype=_C.int64)
        if self.mesh.ndim == 0:
            self.mesh = self.mesh.reshape(1)
        self.mesh_dim_names = _checked_names(op, mesh_dim_names, self.mesh.ndim)
        ranks = self.mesh.reshape(-1).tolist()
        size = _state.get_world_size()
        if len(set(ranks)) != len(ranks) or any(not 0 <= r < size for r in ranks) or not ranks:
            raise ValueError(f"{op}: the mesh does not consist of ranks of this job; got {ranks}; expected different numbers from 0 to {size - 1}")
        places = dict(zip(ranks, _blocks(self.mesh.shape)))
        self._place = places.get(_state.get_rank())
        self._planes = {}
        self._groups = self._lines(ranks) if _parts is None else _parts

    def _lines(self, ranks):
        """The group of this process's line along each axis. All processes make all groups."""
        shape = tuple(self.mesh.shape)
        grid = dict(zip(_blocks(shape), ranks))
        found = []
        for axis, n in enumerate(shape):
            mine = None
            for others in _blocks(shape[:axis] + shape[axis + 1 :]):
                places = [others[:axis] + (i,) + others[axis:] for i in range(n)]
                group = _group_of([grid[at] for at in places])
                if self._place in places:
                    mine = group
            found.append(mine)
        return found

    @property
    def ndim(self) -> int:
        """The number of axes of the mesh, an int from 1. A process has a place along each."""
        return self.mesh.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """A tuple with the number of processes along each axis. Their product is the number of processes of the mesh."""
        return tuple(self.mesh.shape)

    def size(self, mesh_dim: int | str | None = None) -> int:
        """The number of processes of the mesh, an int; with mesh_dim, the number or name of an axis, that along the axis. IndexError for an axis that is not there."""
        return math.prod(self.shape) if mesh_dim is None else self.shape[self._axis("size", mesh_dim)]

    def _axis(self, op, mesh_dim):
        if isinstance(mesh_dim, str):
            if mesh_dim not in (self.mesh_dim_names or ()):
                raise KeyError(f"DeviceMesh.{op}: there is no axis of this name; got {mesh_dim!r}; expected one of {list(self.mesh_dim_names or ())}")
            return self.mesh_dim_names.index(mesh_dim)
        if mesh_dim is None:
            if self.ndim != 1:
                raise RuntimeError(f"DeviceMesh.{op}: the mesh has several axes; got no mesh_dim; expected one of {list(self.mesh_dim_names or range(self.ndim))}")
            return 0
        if isinstance(mesh_dim, bool) or not isinstance(mesh_dim, int) or not -self.ndim <= mesh_dim < self.ndim:
            raise IndexError(f"DeviceMesh.{op}: there is no such axis; got {mesh_dim!r}; expected 0 to {self.ndim - 1}")
        return mesh_dim % self.ndim

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The process group of this process's line along an axis, given by number or name; not needed where there is one axis."""
        return self._groups[self._axis("get_group", mesh_dim)] or _state.GroupMember.NON_GROUP_MEMBER

    def get_all_groups(self) -> list[ProcessGroup]:
        """A list with the process group of this process along each axis of the mesh, in the order of the axes."""
        return [self.get_group(i) for i in range(self.ndim)]

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """The place of this process along an axis, an int from 0. mesh_dim: the number or name of the axis; None for a mesh with one. RuntimeError where the mesh has several, or this process is not in it."""
        axis = self._axis("get_local_rank", mesh_dim)
        if self._place is None:
            raise RuntimeError(f"DeviceMesh.get_local_rank: this process is not in the mesh; got rank {_state.get_rank()}; expected one of {self.mesh.reshape(-1).tolist()}")
        return self._place[axis]

    def get_coordinate(self) -> list[int] | None:
        """This process's place along each axis; None if it is not in the mesh."""
        return None if self._place is None else list(self._place)

    def get_rank(self) -> int:
        """The rank of this process among all of the job, an int from 0, which is not its place in the mesh."""
        return _state.get_rank()

    def __getitem__(self, names: str | Sequence[str]) -> DeviceMesh:
        names = (names,) if isinstance(names, str) else tuple(names)
        axes = [self._axis("[]", name) for name in names]
        if sorted(axes) != axes or len(set(axes)) != len(axes):
            raise KeyError(f"DeviceMesh.[]: the axes are not in the order of the mesh; got {list(names)}; expected the order of {list(self.mesh_dim_names)}")
        if names not in self._planes:
            if len(axes) == self.ndim:
                return self
            place = self._place or (0,) * self.ndim
            ranks = self.mesh
            for axis in reversed(range(self.ndim)):
                if axis not in axes:
                    ranks = ranks.select(axis, place[axis])
            self._planes[names] = DeviceMesh(self.device_type, ranks, mesh_dim_names=names, _parts=[self._groups[a] for a in axes])
        return self._planes[names]

    def __eq__(self, other):
        return isinstance(other, DeviceMesh) and (self.device_type, self.shape, self.mesh_dim_names, self.mesh.tolist()) == (other.device_type, other.shape, other.mesh_dim_names, other.mesh.tolist())

    def __hash__(self):
        return hash((self.device_type, self.shape, self.mesh_dim_names, *self.mesh.reshape(-1).tolist()))

    def __deepcopy__(self, memo):
        return self  # the processes are what they are

    def __reduce_ex__(self, protocol):
        raise RuntimeError(f"pickle: a mesh has connections of this process; got {self}; expected a value; hint: init_device_mesh() where it is needed")

    def __repr__(self):
        names = ", ".join(f"{name}={n}" for name, n in zip(self.mesh_dim_names or map(str, range(self.ndim)), self.shape))
        return f"DeviceMesh({names}; ranks {self.mesh.tolist()})"


def _checked_names(op, names, ndim):
    if names is None:
        return None
    names = (names,) if isinstance(names, str) else tuple(names)
    if len(names) != ndim or len(set(names)) != ndim or not all(isinstance(n, str) for n in names):
        raise ValueError(f"{op}: mesh_dim_names do not fit; got {list(names)}; expected {ndim} different names")
    return names


def _group_of(ranks):
    """A group of these ranks. The group of all is the default one."""
    whole = _state.group.WORLD
    if whole is not None and list(whole.ranks) == sorted(ranks):
        return whole
    made = _state.new_group(ranks)
    return made if isinstance(made, ProcessGroup) else None


def init_device_mesh(device_type: str, mesh_shape: int | Sequence[int], *, mesh_dim_names: str | Sequence[str] | None = None) -> DeviceMesh:
    """A mesh of this shape of all processes, by rank: the last axis has neighbours. Connects the processes first if init_process_group() was not called.

    mesh_shape: the number of processes along each axis; their product is the number of processes. ValueError otherwise."""
    op = "init_device_mesh"
    shape = (mesh_shape,) if isinstance(mesh_shape, int) else tuple(mesh_shape)
    if not shape or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in shape):
        raise ValueError(f"{op}: mesh_shape is not a shape; got {mesh_shape!r}; expected the number of processes along each axis")
    _checked_names(op, mesh_dim_names, len(shape))
    if not _state.is_initialized():
        _state.init_process_group()
    n = _state.get_world_size()
    if math.prod(shape) != n:
        raise ValueError(f"{op}: mesh_shape does not fit; got {shape}, which is {math.prod(shape)} processes; expected {n} processes")
    return DeviceMesh(device_type, _C.arange(n, device="cpu").reshape(shape), mesh_dim_names=mesh_dim_names)


__all__ = ["DeviceMesh", "init_device_mesh"]
