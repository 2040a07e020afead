"""pf.checkpoint_policy: which blocks to recompute so that a training step keeps within a number of bytes."""
from __future__ import annotations

import dataclasses

from .. import _C
from ..nn import Module
from ..nn.parallel import DataParallel, DistributedDataParallel
from ..nn.recompute import blocks as blocks_of
from . import _null, _text
from ._estimate import Estimate, _optimizer, _Plan, estimate

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


@dataclasses.dataclass(frozen=True)
class Block:
    """What recomputing one block saves, in bytes, and the FLOPs that it costs in each step."""

    name: str
    saves: int
    flops: float


@dataclasses.dataclass(frozen=True)
class CheckpointPolicy:
    """Which blocks to recompute: model.enable_gradient_checkpointing(policy).

    modules: the names of these blocks, in the order of the model. bytes: the budget. plan: the Estimate with the policy; plan_without: the one with everything kept. recompute: the FLOPs that it adds, as a part of the
    step's FLOPs without it. blocks: all candidates, the one that saves most for its FLOPs first.

    It is a result, and its fields are not checked. Only a missing or unknown field is an error, a TypeError.
    """

    modules: tuple
    bytes: int
    plan: Estimate
    plan_without: Estimate
    recompute: float
    blocks: tuple

    def __iter__(self):
        return iter(self.modules)

    def __len__(self):
        return len(self.modules)

    def apply(self, model):
        """Makes model recompute exactly the blocks named in modules: all others keep their intermediates. Returns the model. Where it is a
        DistributedDataParallel or DataParallel, and the policy is that of the model without it, the names are those of the model in it. AttributeError for a
        model without one of these blocks.
        """
        model.disable_gradient_checkpointing()
        inner = model
        while isinstance(inner, (DataParallel, DistributedDataParallel)) and not all(name.startswith("module.") for name in self):
            inner = inner.module
        inner.enable_gradient_checkpointing(self)
        return model

    def __str__(self):
        head = (f"{len(self)} of {len(self.blocks)} blocks are recomputed: peak {_text.size(self.plan.peak)} in {_text.size(self.bytes)} "
                f"({_text.size(self.plan_without.peak)} if all is kept), {self.recompute:.1%} more FLOPs")  # fmt: skip
        rows = [["block", "saves", "GFLOP", ""]]
        rows += [[b.name, _text.size(b.saves), f"{b.flops / 1e9:.3f}", "recomputed" if b.name in self.modules else "kept"] for b in self.blocks]
        return head + "\n" + _text.table(rows, right=(1, 2))


def _flops(run):
    """The floating-point operations of products, convolutions and attention that a function records."""
    from ..profiler import profile

    _C.synchronize()
    with profile() as prof:
        run()
        _C.synchronize()
    return sum(e.flops for e in prof.events())


class _Measured:
    """A block whose forward pass is measured: what it keeps for the backward pass besides its output, and its FLOPs."""

    def __init__(self, name, module, found):
        self.name, self.module, self.found = name, module, found

    def __call__(self, *args, **kwargs):
        before, results = _null.live(), []
        flops = _flops(lambda: results.append(type(self.module).forward(self.module, *args, **kwargs)))
        result = results.pop()
        kept = _null.live() - before - _null.nbytes(_null.tensors_in(result))
        self.found[self.name] = Block(self.name, max(0, kept), flops)
        return result


def _measure(model, batch, loss, names):
    plan, found = _Plan(model, batch, loss), {}
    plan.model.disable_gradient_checkpointing()
    for name in names:
        module = plan.model.get_submodule(name)
        module.__dict__["forward"] = _Measured(name, module, found)
    plan.forward()
    for name in names:
        del plan.model.get_submodule(name).__dict__["forward"]
    if not found:
        raise ValueError("checkpoint_policy: the model called none of the blocks; expected modules that its forward pass calls")
    return sorted(found.values(), key=lambda b: -b.saves / max(b.flops, 1.0))


def _with(model, names):
    """A function that makes the model on the null device, with these blocks recomputed."""

    def make():
        made = _null.made(model)
        made.disable_gradient_checkpointing()
        made.enable_gradient_checkpointing(names)
        return made

    return make


def _step_flops(make, batch, loss, optimizer):
    plan = _Plan(make, batch, loss)
    update = _optimizer(optimizer, list(plan.model.parameters()))
    return _flops(lambda: plan.step(update))


def _names(model, modules):
    if modules is not None:
        return list(modules)
    made = model if isinstance(model, Module) else _null.made(model)
    found = list(blocks_of(made))
    if not found:
        raise ValueError(f"checkpoint_policy: {type(made).__name__} has no repeated blocks; expected a ModuleList or Sequential of modules with children; hint: modules=")
    return found


def checkpoint_policy(model: Any, batch: Any, *, bytes: float | str, loss: Any = None, optimizer: Any = "adamw",
                      modules: Sequence[str] | None = None) -> CheckpointPolicy:
    """The fewest blocks to recompute so that the planned peak of a training step is at most `bytes` (or '24GiB'), as a CheckpointPolicy. Blocks that save most
    for their FLOPs come first. Nothing is computed, and the model is not changed: policy.apply(model) does that.

    model, batch, loss, optimizer: as in pf.memory.estimate. modules: dotted names to choose from; None: the repeated blocks.
    ValueError if the step does not fit with all blocks recomputed, or if there are no blocks."""
    budget = _text.bytes_of(bytes)
    with _null.planning(_null.device_of(model)):
        names = _names(model, modules)
        plan = lambda chosen: estimate(_with(model, chosen), batch, loss=loss, optimizer=optimizer)  # noqa: E731
        ordered = _measure(model, batch, loss, names)
        without = plan([])
        low, high, best = 0, len(ordered), without  # with `low` blocks it fits, once they are equal
        while low < high:
            middle = (low + high) // 2
            found = without if middle == 0 else plan([b.name for b in ordered[:middle]])
            low, high = (low, middle) if found.peak <= budget else (middle + 1, high)
        chosen = {b.name for b in ordered[:low]}
        kept_order = [n for n in names if n in chosen]
        best = plan(kept_order)
        if best.peak > budget:
            raise ValueError(f"checkpoint_policy: the step does not fit with all {len(ordered)} blocks recomputed; got {_text.size(budget)}; "
                             f"expected at least {_text.size(best.peak)}; hint: a smaller batch, or mixed precision")  # fmt: skip
        before, after = (_step_flops(_with(model, n), batch, loss, optimizer) for n in ([], kept_order))
    return CheckpointPolicy(tuple(kept_order), budget, best, without, after / before - 1 if before else 0.0, tuple(ordered))
