"""Tensors of which each process has a part, and what they know about it.

A Sharding is one split: a tensor of some shape was split along one dim over the ranks of a group. The tensor that was split may itself be a part of another
one (`outer`): tensor parallel layers split a weight over one group, and fully_shard splits each part again over another group. Parts have the sizes of
torch.chunk: ceil(size / ranks) rows for each rank, fewer or none for the last ones.
"""
from .. import _C
from .._C import Tensor
from ..nn.parameter import Parameter, with_members_of
from . import _collectives


def rows_per_rank(size, n):
    """The rows of a part before the last rows run out: ceil(size / n)."""
    return -(-size // n)


def part_of(size, n, rank):
    """(begin, length) of the part of a rank along a dim of this size."""
    rows = rows_per_rank(size, n)
    begin = min(rank * rows, size)
    return begin, min(rows, size - begin)


def padded(t, dim, size):
    """t with zeros behind it along a dim, so that the dim has this size."""
    missing = size - t.shape[dim]
    if missing == 0:
        return t
    shape = list(t.shape)
    shape[dim] = missing
    return _C.cat([t, _C.zeros(tuple(shape), dtype=t.dtype, device=t.device)], dim)


class Sharding:
    """One split of a tensor of `shape` along `dim` over the ranks of `group`; `outer`: the split that this tensor is a part of, or None."""

    def __init__(self, group, dim, shape, outer=None):
        self.group, self.dim, self.shape, self.outer = group, dim, tuple(shape), outer
        self.begin, self.length = part_of(self.shape[dim], group.size(), group.rank())

    def own(self, t):
        """This rank's part of the tensor that is split, as a view."""
        return t.narrow(self.dim, self.begin, self.length)

    @property
    def local_shape(self):
        """The shape of this rank's part."""
        return self.shape[: self.dim] + (self.length,) + self.shape[self.dim + 1 :]

    @property
    def global_shape(self):
        """The shape of the whole tensor."""
        return self.outer.global_shape if self.outer else self.shape

    @property
    def offsets(self):
        """Where this rank's part begins in the whole tensor, for each dim."""
        at = list(self.outer.offsets) if self.outer else [0] * len(self.shape)
        at[self.dim] += self.begin
        return tuple(at)

    @property
    def groups(self):
        """The groups over which the tensor is split, the outermost first."""
        return (*(self.outer.groups if self.outer else ()), self.group)

    def whole(self, t):
        """The whole tensor, of the parts of all ranks. A collective."""
        n = self.group.size()
        if n > 1:
            t = padded(t.detach(), self.dim, rows_per_rank(self.shape[self.dim], n)).contiguous()
            parts = [_C.empty(tuple(t.shape), dtype=t.dtype, device=t.device) for _ in range(n)]
            _collectives.all_gather(parts, t, group=self.group)
            t = _C.cat(parts, self.dim).narrow(self.dim, 0, self.shape[self.dim])
        return self.outer.whole(t) if self.outer else t

    def own_of_whole(self, t):
        """This rank's part of the whole tensor."""
        return self.own(self.outer.own_of_whole(t) if self.outer else t)

    def says_the_same(self, other):
        """Whether another split gives the same part of the same tensor."""
        return isinstance(other, Sharding) and (self.global_shape, self.offsets, self.local_shape) == (other.global_shape, other.offsets, other.local_shape)


class _Part:
    """What a tensor that is a part of a larger one adds to a tensor. Its own shape and values are those of the part."""

    _sharding = None

    def to_local(self):
        """The part of this process, as an ordinary tensor that shares its memory."""
        return Tensor.detach(self)

    def full_tensor(self):
        """The whole tensor, on every rank of the groups over which it is split. All these ranks call it."""
        return self._sharding.whole(Tensor.detach(self))

    def detach(self):
        return ShardedTensor(Tensor.detach(self), self._sharding)

    @property
    def global_shape(self):
        """The shape of the whole tensor."""
        return self._sharding.global_shape

    @property
    def placements(self):
        """How the whole tensor lies over device_mesh, a tuple of Shard(dim) and Replicate(), where a DTensor became a parameter. AttributeError for parts of parallelize_module() and fully_shard()."""
        return _of_layout(self, "placements")

    @property
    def device_mesh(self):
        """The mesh of the processes that have the whole tensor, where a DTensor became a parameter. AttributeError for parts of parallelize_module() and fully_shard()."""
        return _of_layout(self, "device_mesh")


def _of_layout(part, name):
    found = getattr(part._sharding, name, None)
    if found is None:
        raise AttributeError(f"{type(part).__name__}.{name}: not known; got a part of parallelize_module() or fully_shard(); expected one of a DTensor")
    return found


@with_members_of(_Part)
class ShardedTensor(Tensor):
    """The part of a tensor that this process has: in state dicts, as .grad of a parameter that is sharded, and in the forward pass where fully_shard() gathered what is divided along another axis too."""

    def __init__(self, local, sharding):
        super().__init__(local)
        self._sharding = sharding

    def __deepcopy__(self, memo):
        return memo.setdefault(id(self), ShardedTensor(self.to_local().clone(), self._sharding))

    def __reduce_ex__(self, protocol):
        raise _pickled()


@with_members_of(_Part)
class ShardedParameter(Parameter):
    """A parameter that holds the part of this process. Optimizers update the part."""

    @property
    def grad(self):
        """The gradient of the part, or None."""
        g = Tensor.grad.__get__(self)
        return None if g is None else ShardedTensor(g, self._sharding)

    @grad.setter
    def grad(self, value):
        Tensor.grad.__set__(self, value)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            made = Parameter(self.to_local().clone(), self.requires_grad)
            g = Tensor.grad.__get__(self)
            if g is not None:
                made.grad = g.detach().clone()
            memo[id(self)] = _marked(made, self._sharding)
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        raise _pickled()

    def __repr__(self):
        return f"Part of a parameter of shape {self.global_shape}:\n" + Tensor.__repr__(self)


def _pickled():
    return RuntimeError("pickle: the tensor is a part of a larger one; got a part on each rank; expected a whole tensor; hint: full_tensor(), or distributed.checkpoint.save")


def _marked(p, sharding):
    p.__class__ = ShardedParameter
    p._sharding = sharding
    return p


def sharding_of(t):
    """How a tensor is sharded, or None."""
    return t._sharding if isinstance(t, (ShardedTensor, ShardedParameter)) else None


def check_not_divided(op, p, group, name):
    """ValueError where a parameter is divided over ranks of a group, which are to have it as a whole."""
    s = sharding_of(p)
    if s is not None and any(len(set(g.ranks) & set(group.ranks)) > 1 for g in s.groups):
        raise ValueError(f"{op}: a parameter is divided over these ranks already; got {name}; expected parameters that each of them has as a whole; hint: a mesh with an axis for each division")


def shard_(p, group, dim):
    """A parameter becomes this rank's part of itself. The object stays, so optimizers, and other modules that share it, go on with the part."""
    before = sharding_of(p)
    sharding = Sharding(group, dim, p.shape, before)
    local = Tensor.detach(p)
    local = sharding.own(local).clone() if sharding.local_shape != tuple(local.shape) else local
    g = Tensor.grad.__get__(p)
    p._become(local.contiguous(), p.requires_grad)
    _marked(p, sharding)
    if g is not None:
        p.grad = sharding.own(g.detach()).clone()
    return sharding


def like(t, value):
    """value as a part of what t is a part of, where it has t's shape; otherwise value itself."""
    s = sharding_of(t)
    return value if s is None or not isinstance(value, Tensor) or tuple(value.shape) != tuple(t.shape) else ShardedTensor(value.detach(), s)
