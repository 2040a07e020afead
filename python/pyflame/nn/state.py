"""State dicts of modules: collecting, loading, and the hooks around both."""
from collections.abc import Mapping

from .._C import Tensor
from .._grad_mode import no_grad


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
        return self._add_hook(f"hook {kind.replace('_', ' ')}", self._state_hooks.setdefault(kind, {}), hook)

    def _call_state_hooks(self, kind, *args):
        for hook in tuple(self._state_hooks.get(kind, {}).values()):
            hook(self, *args)

    def register_state_dict_pre_hook(self, hook):
        """hook(module, prefix, keep_vars) before the module's entries of a state dict are collected."""
        return self._state_hook("before_saving", hook)

    def register_state_dict_post_hook(self, hook):
        """hook(module, state_dict, prefix, local_metadata) after the module's entries were collected; it may change the dict."""
        return self._state_hook("after_saving", hook)

    def register_load_state_dict_pre_hook(self, hook):
        """hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) before a state dict is loaded; it may
        change the dict, which is a copy."""
        return self._state_hook("before_loading", hook)

    def register_load_state_dict_post_hook(self, hook):
        """hook(module, incompatible_keys) after a state dict was loaded; it may take keys out of the two lists."""
        return self._state_hook("after_loading", hook)

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        return self.register_load_state_dict_pre_hook(hook if with_module else lambda module, *args: hook(*args))

    def _register_state_dict_hook(self, hook):
        return self.register_state_dict_post_hook(hook)

    # ---- saving

    def _own_state(self):
        for kind in (self._parameters, self._buffers):
            for name, t in kind.items():
                if t is not None and name not in self._non_persistent:
                    yield name, t

    def _state(self):
        for path, m in self.named_modules(remove_duplicate=False):
            for name, t in m._own_state():
                yield f"{path}.{name}" if path else name, t

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        """A dict from dotted names to the tensors of all parameters and persistent buffers. They share memory with the module. destination: a dict
        that gets them; prefix: what their names begin with; keep_vars: the parameters themselves instead of detached tensors."""
        if args:
            options = dict(zip(("destination", "prefix", "keep_vars"), args))
            return self.state_dict(**{"destination": destination, "prefix": prefix, "keep_vars": keep_vars, **options})
        out = {} if destination is None else destination
        self._call_state_hooks("before_saving", prefix, keep_vars)
        for name, t in self._own_state():
            out[prefix + name] = t if keep_vars else t.detach()
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=out, prefix=prefix + name + ".", keep_vars=keep_vars)
        self._call_state_hooks("after_saving", out, prefix, {})
        return out

    # ---- loading

    def load_state_dict(self, state_dict, strict=True):
        """Copies the tensors of a state dict into the module. All wrong keys (missing, unexpected, misshapen) are listed in one
        RuntimeError; then nothing is changed. strict=False ignores missing and unexpected ones."""
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"load_state_dict: not a dict; got {type(state_dict).__name__}")
        state, missing, unexpected, errors = dict(state_dict), [], [], []
        for path, m in self.named_modules(remove_duplicate=False):
            m._call_state_hooks("before_loading", state, path + "." if path else "", {}, strict, missing, unexpected, errors)
        mine = dict(self._state())
        missing += [k for k in mine if k not in state]
        unexpected += [k for k in state if k not in mine]
        wrong = [text for k, t in mine.items() if k in state and (text := _misfit(k, state[k], t))]
        if wrong:
            errors.append("misshapen: " + "; ".join(wrong))
        keys = IncompatibleKeys(missing, unexpected)
        hooked = not errors and any(m._state_hooks.get("after_loading") for m in self.modules())
        if hooked:  # they see the loaded tensors, and may allow keys
            _copy(mine, state)
            for m in self.modules():
                m._call_state_hooks("after_loading", keys)
        if strict and unexpected:
            errors.insert(0, "unexpected keys: " + ", ".join(map(str, unexpected)))
        if strict and missing:
            errors.insert(0, "missing keys: " + ", ".join(missing))
        if errors:
            raise RuntimeError(f"load_state_dict: the state does not fit {type(self).__name__}:\n  " + "\n  ".join(errors))
        if not hooked:
            _copy(mine, state)
        return keys


def _misfit(name, given, wanted):
    if not isinstance(given, Tensor):
        return f"{name}: got {type(given).__name__}; expected a tensor"
    return f"{name}: got shape {given.shape}; expected {wanted.shape}" if given.shape != wanted.shape else ""


def _copy(mine, state):
    with no_grad():
        for k, t in mine.items():
            if k in state:
                t.detach().copy_(state[k].detach().to(device=t.device))
