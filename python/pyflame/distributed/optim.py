"""Optimizers whose state is divided over processes, by the names of torch.distributed.optim."""
from __future__ import annotations

from .. import _C, _refused
from ..optim.optimizer import Optimizer
from . import _collectives, _objects, _state
from ._sharding import check_not_divided

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..optim.optimizer import ParamsT
    from ._group import ProcessGroup


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer whose state is divided over processes that have the same parameters and the same gradients, such as those of DistributedDataParallel.

    Each parameter belongs to one rank, the one with the fewest elements so far, the largest parameters first. That rank has the state and makes the step; then it gives
    the values to the others. So steps have the bits of optimizer_class over all parameters, where that treats each parameter by itself.

    params, **defaults: as for optimizer_class. process_group: the processes; None: all. state_dict() needs consolidate_state_dict() before it.
    NotImplementedError: overlap_with_ddp. parameters_as_bucket_view changes nothing."""

    def __init__(self, params: ParamsT, optimizer_class: type[Optimizer], process_group: ProcessGroup | None = None, parameters_as_bucket_view: bool = False, overlap_with_ddp: bool = False, **defaults: Any) -> None:
        op = "ZeroRedundancyOptimizer"
        if overlap_with_ddp:
            raise NotImplementedError(f"{op}: steps do not overlap with the backward pass; got overlap_with_ddp=True; expected False")
        if not (isinstance(optimizer_class, type) and issubclass(optimizer_class, Optimizer)):
            raise TypeError(f"{op}: optimizer_class is not a class of optimizers; got {optimizer_class!r}; expected such as optim.AdamW")
        self._group = _state.resolved(op, process_group)
        self._n, self._rank = (self._group.size(), self._group.rank()) if self._group else (1, 0)
        self._loads, self._owners, self._class, self._whole = [0] * self._n, {}, optimizer_class, None
        self.optim = None
        super().__init__(params, dict(defaults))
        if 0 in [sum(owner == r for owner in self._owners.values()) for r in range(self._n)]:
            raise ValueError(f"{op}: there are more ranks than parameters; got {len(self._owners)} parameters for {self._n} ranks; expected one for each rank at least")
        own = [group for group in map(self._own, self.param_groups) if group["params"]]
        self.optim = optimizer_class(own, **defaults)
        for group in self.param_groups:  # with the options that the class adds
            for k, v in self.optim.param_groups[0].items():
                if k not in ("params", "param_names"):
                    group.setdefault(k, self.optim.defaults.get(k, v))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of parameters, a dict as of other optimizers. Each of its parameters gets a process that keeps its state and updates it."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for p in group["params"] if self._group else ():
            check_not_divided("ZeroRedundancyOptimizer", p, self._group, f"one of shape {getattr(p, 'global_shape', tuple(p.shape))}")
        for p in sorted(group["params"], key=lambda p: -p.numel()):
            owner = self._loads.index(min(self._loads))
            self._owners[id(p)] = owner
            self._loads[owner] += p.numel()
        if self.optim is not None:
            own = self._own(group)
            if own["params"]:
                self.optim.add_param_group(own)
                for k, v in self.optim.param_groups[-1].items():
                    if k != "params":
                        group.setdefault(k, v)

    def _own(self, group):
        return {**{k: v for k, v in group.items() if k != "param_names"}, "params": [p for p in group["params"] if self._owners[id(p)] == self._rank]}

    def _options(self):
        """The options that the program has changed since, such as those of a schedule, for the inner optimizer."""
        inner = iter(self.optim.param_groups)
        for group in self.param_groups:
            if any(self._owners[id(p)] == self._rank for p in group["params"]):
                next(inner).update({k: v for k, v in group.items() if k not in ("params", "param_names")})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the parameters that belong to this rank, and gets the others. A collective. Returns what closure() returned."""
        self._options()
        self._whole = None
        loss = self.optim.step() if closure is None else self.optim.step(closure)
        if self._n > 1:
            self._exchange()
        return loss

    def _exchange(self):
        """Each rank gives the others its parameters, in one message for each dtype."""
        by = {}
        for group in self.param_groups:
            for p in group["params"]:
                by.setdefault((self._owners[id(p)], str(p.dtype), str(p.device)), []).append(p.detach())
        works = []
        for key in sorted(by):
            flat = _C.cat([p.reshape(-1) for p in by[key]], 0)
            works.append((key, flat, _collectives.broadcast(flat, group=self._group, group_src=key[0], async_op=True)))
        for key, flat, work in works:
            work.wait()
            begin = 0
            for p in by[key] if key[0] != self._rank else ():
                p.copy_(flat[begin : begin + p.numel()].reshape(tuple(p.shape)))
                begin += p.numel()

    def _index(self):
        """{number in a state dict: parameter}"""
        return dict(enumerate(p for group in self.param_groups for p in group["params"]))

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Brings the whole state to a rank of the group, in host memory. A collective."""
        self._options()
        state = {i: {k: v.detach().cpu() if isinstance(v, _C.Tensor) else v for k, v in self.optim.state[p].items()} for i, p in self._index().items() if p in self.optim.state}
        everyone = [None] * self._n if self._rank == to else None
        if self._n == 1:
            everyone = [state]
        else:
            _objects.gather_object(state, everyone, group=self._group, dst=_state.get_global_rank(self._group, to))
        self._whole = None if everyone is None else {i: entry for part in everyone for i, entry in part.items()}

    def state_dict(self) -> dict[str, Any]:
        """The state of all parameters, as optimizer_class has it. RuntimeError before consolidate_state_dict(), or on another rank than its `to`."""
        if self._whole is None:
            raise RuntimeError("ZeroRedundancyOptimizer.state_dict: the state is divided over ranks; got no whole state on this rank; expected consolidate_state_dict(to=rank) before it, on all ranks")
        return {**super().state_dict(), "state": {i: dict(self._whole[i]) for i in sorted(self._whole)}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores a state dict of this class or of optimizer_class. All ranks give the whole one; each keeps its part."""
        mine = {i for i, p in self._index().items() if self._owners[id(p)] == self._rank}
        self._match(state_dict)
        super().load_state_dict({**state_dict, "state": {}})
        inner = self.optim.state_dict()
        order = {id(p): n for n, p in enumerate(p for group in self.optim.param_groups for p in group["params"])}
        index = {i: order[id(p)] for i, p in self._index().items() if i in mine}
        self.optim.load_state_dict({**inner, "state": {index[int(i)]: entry for i, entry in state_dict["state"].items() if int(i) in mine}})
        self._whole = None
        self._options()


_ADVICE = "optimizers over the parameters of distributed.fsdp.fully_shard, and ZeroRedundancyOptimizer, are"
__getattr__ = _refused.module("distributed.optim", _ADVICE)
__all__ = ["ZeroRedundancyOptimizer"]
