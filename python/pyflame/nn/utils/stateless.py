"""A module called with other parameters than its own."""
from __future__ import annotations

from ..._C import Tensor

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ..module import Module


def functional_call(module: Module, parameters_and_buffers: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]], args: Any = None,
                    kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = False) -> Any:
    """module(*args, **kwargs) with the tensors of parameters_and_buffers, a dict or a tuple of several, in place of its parameters and buffers of those dotted names; afterwards the module
    is as before. tie_weights: a tensor stands for all names of its parameter. strict: RuntimeError where names are missing or unknown."""
    given = {}
    for part in parameters_and_buffers if isinstance(parameters_and_buffers, (tuple, list)) else (parameters_and_buffers,):
        given.update(part)
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    places = {}
    for path, m in module.named_modules(remove_duplicate=False):
        for group in (m._parameters, m._buffers):
            for name, t in group.items():
                places[f"{path}.{name}" if path else name] = (group, name, t)
    unknown = [k for k in given if k not in places]
    if strict and (unknown or len(given) < len(places)):
        raise RuntimeError(f"functional_call: the names do not fit; unknown: {unknown}; missing: {[k for k in places if k not in given]}")
    if tie_weights:
        by_tensor = {id(places[k][2]): v for k, v in given.items() if k in places and isinstance(places[k][2], Tensor)}
        given = {k: given.get(k, by_tensor.get(id(t))) for k, (_, _, t) in places.items() if k in given or id(t) in by_tensor}
    changed = [(*places[k], v) for k, v in given.items() if k in places]
    for group, name, _, v in changed:
        group[name] = v
    try:
        return module(*args, **(kwargs or {}))
    finally:
        for group, name, before, _ in changed:
            group[name] = before
