"""State dicts of modules: collecting, loading, and the hooks around both."""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from .._C import Tensor
from .._grad_mode import no_grad
from . import hooks
from .parameter import Parameter, is_lazy

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .hooks import RemovableHandle


class IncompatibleKeys(tuple):
    """(missing_keys, unexpected_keys)"""

    def __new__(cls, missing, unexpected):
        return super().__new__(cls, (missing, unexpected))

    missing_keys = property(lambda self: self[0])
    unexpected_keys = property(lambda self: self[1])

    def __repr__(self):
        if not self[0] and not self[1]:
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self[0]}, unexpected_keys={self[1]})"


class StateDict:
    """What a Module is to its state dict."""

    # ---- hooks

    def _state_hook(self, kind, hook):
        return hooks.add(f"hook {kind.replace('_', ' ')}", self._state_hooks.setdefault(kind, {}), hook)

    def _call_state_hooks(self, kind, *args):
        for hook in tuple(self._state_hooks.get(kind, {}).values()):
            hook(self, *args)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """hook(module, prefix, keep_vars) before the module's entries of a state dict are collected."""
        return self._state_hook("before_saving", hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """hook(module, state_dict, prefix, local_metadata) after the module's entries were collected; it may change the dict."""
        return self._state_hook("after_saving", hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) before a state dict is loaded; it may
        change the dict, which is a copy."""
        return self._state_hook("before_loading", hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """hook(module, incompatible_keys) after a state dict was loaded; it may take keys out of the two lists."""
        return self._state_hook("after_loading", hook)

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        return self.register_load_state_dict_pre_hook(hook if with_module else lambda module, *args: hook(*args))

    def _register_state_dict_hook(self, hook):
        return self.register_state_dict_post_hook(hook)

    # ---- what is not a tensor

    def get_extra_state(self) -> Any:
        """What belongs into the state dict besides parameters and buffers. A class that has such a state overrides this and set_extra_state."""
        raise RuntimeError(f"{type(self).__name__}: get_extra_state is not implemented; expected a method that returns the state")

    def set_extra_state(self, state: Any) -> None:
        """Called by load_state_dict with what get_extra_state returned."""
        raise RuntimeError(f"{type(self).__name__}: set_extra_state is not implemented, but the state dict has one; expected a method that takes the state")

    # ---- saving

    def _own_state(self):
        for kind in (self._parameters, self._buffers):
            for name, t in kind.items():
                if t is not None and name not in self._non_persistent:
                    yield name, t

    def _state(self):
        """(name, tensor, module) of all that a state dict is loaded into; modules that load themselves are left out."""
        for path, m in self.named_modules(remove_duplicate=False):
            for name, t in () if _loads_itself(m) else m._own_state():
                yield f"{path}.{name}" if path else name, t, m

    def _extra(self):
        for path, m in self.named_modules(remove_duplicate=False):
            if type(m).get_extra_state is not StateDict.get_extra_state and not _loads_itself(m):
                yield (path + "." if path else "") + EXTRA, m

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        """Puts this module's own parameters, persistent buffers and extra state into a dict."""
        for name, t in self._own_state():
            destination[prefix + name] = t if keep_vars or is_lazy(t) else t.detach()
        if type(self).get_extra_state is not StateDict.get_extra_state:
            destination[prefix + EXTRA] = self.get_extra_state()

    def state_dict(self, *args: Any, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False) -> dict[str, Any]:
        """An OrderedDict from dotted names to the tensors of all parameters and persistent buffers. They share memory with the module. destination: a dict
        that gets them; prefix: what their names begin with; keep_vars: the parameters themselves instead of detached tensors. The attribute _metadata has the
        version of each module."""
        if args:
            options = dict(zip(("destination", "prefix", "keep_vars"), args))
            return self.state_dict(**{"destination": destination, "prefix": prefix, "keep_vars": keep_vars, **options})
        out = destination
        if out is None:
            out = OrderedDict()
            out._metadata = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(out, "_metadata"):
            out._metadata[prefix[:-1]] = metadata
        self._call_state_hooks("before_saving", prefix, keep_vars)
        self._save_to_state_dict(out, prefix, keep_vars)
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=out, prefix=prefix + name + ".", keep_vars=keep_vars)
        self._call_state_hooks("after_saving", out, prefix, metadata)
        return out

    # ---- loading

    def _complete_state(self, state_dict, prefix, local_metadata):
        """Adds to a state dict, which is a copy, what older versions of the module did not save."""

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        """Loads this module's own parameters and buffers, without its children; a class may override it. What is wrong goes into the lists."""
        mine = {prefix + name: t for name, t in self._own_state()}
        missing_keys += [k for k in mine if k not in state_dict]
        fits = {}
        for k, t in mine.items():
            if k in state_dict:
                wrong = _misfit(k, state_dict[k], t)
                error_msgs += [wrong] if wrong else []
                if not wrong:
                    fits[k] = (t, self)
        _copy(fits, state_dict, local_metadata.get("assign_to_params_buffers", False))
        inside = {k[len(prefix) :].split(".")[0] for k in state_dict if k.startswith(prefix)}
        known = {*self._modules, *(k[len(prefix) :] for k in mine), EXTRA}
        unexpected_keys += [k for k in state_dict if strict and k.startswith(prefix) and k[len(prefix) :].split(".")[0] in inside - known]

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> IncompatibleKeys:
        """Copies the tensors of a state dict into the module. All wrong keys (missing, unexpected, of another shape) are listed in one
        RuntimeError, in PyTorch's words; then nothing is changed. strict=False ignores missing and unexpected ones. assign: the module gets the tensors themselves, not their values."""
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"load_state_dict: not a dict; got {type(state_dict).__name__}")
        state, missing, unexpected, errors = dict(state_dict), [], [], []
        versions, own_ways = getattr(state_dict, "_metadata", None) or {}, []
        for path, m in self.named_modules(remove_duplicate=False):
            prefix = path + "." if path else ""
            metadata = {**versions.get(path, {}), "assign_to_params_buffers": assign}
            m._complete_state(state, prefix, metadata)
            m._call_state_hooks("before_loading", state, prefix, metadata, strict, missing, unexpected, errors)
            if _loads_itself(m):
                m._load_from_state_dict(state, prefix, metadata, strict, missing, unexpected, errors)
                own_ways += [prefix + name for name in (*m._parameters, *m._buffers, EXTRA)]
        mine = {name: (t, m) for name, t, m in self._state()}
        extra = dict(self._extra())
        missing += [k for k in (*mine, *extra) if k not in state]
        unexpected += [k for k in state if k not in mine and k not in extra and k not in own_ways and k not in unexpected]
        errors += [text for k, (t, _) in mine.items() if k in state and (text := _misfit(k, state[k], t))]
        keys = IncompatibleKeys(missing, unexpected)
        hooked = not errors and any(m._state_hooks.get("after_loading") for m in self.modules())
        if hooked:  # they see the loaded tensors, and may allow keys
            _load(mine, extra, state, assign)
            for m in self.modules():
                m._call_state_hooks("after_loading", keys)
        if strict and unexpected:
            errors.insert(0, f"Unexpected key(s) in state_dict: {_quoted(unexpected)}.")
        if strict and missing:
            errors.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}.")
        if errors:
            if strict and (missing or unexpected):
                errors.append("hint: strict=False ignores missing and unexpected keys")
            raise RuntimeError(f"load_state_dict: Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors))
        if not hooked:
            _load(mine, extra, state, assign)
        return keys


EXTRA = "_extra_state"


def _loads_itself(module):
    """Whether the module's class overrides _load_from_state_dict."""
    return type(module)._load_from_state_dict is not StateDict._load_from_state_dict


def _quoted(keys):
    return ", ".join(f'"{key}"' for key in keys)


def _misfit(name, given, wanted):
    if not isinstance(given, Tensor):
        return f'While copying the parameter named "{name}", expected a tensor from checkpoint but received {type(given).__name__}.'
    if is_lazy(wanted):
        return ""
    if is_lazy(given):
        return f"{name}: got a tensor without a shape; expected {wanted.shape}"
    if given.shape == wanted.shape:
        return ""
    return f"size mismatch for {name}: copying a param with shape {given.shape} from checkpoint, the shape in current model is {wanted.shape}."


def _load(mine, extra, state, assign):
    _copy(mine, state, assign)
    for k, m in extra.items():
        if k in state:
            m.set_extra_state(state[k])


def _assigned(t, given):
    if not isinstance(t, Parameter):
        return given.detach()
    return given if isinstance(given, Parameter) else Parameter(given, t.requires_grad)


def _copy(mine, state, assign):
    with no_grad():
        for k, (t, module) in mine.items():
            if k not in state or is_lazy(state[k]):
                continue
            given = state[k]
            if assign:
                group = module._parameters if isinstance(t, Parameter) else module._buffers
                group[k.rpartition(".")[2]] = _assigned(t, given)
                continue
            if is_lazy(t):
                t.materialize(given.shape)
            t.detach().copy_(given.detach().to(device=t.device))
