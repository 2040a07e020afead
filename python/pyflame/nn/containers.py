"""Modules that hold modules."""
from .module import Module


class Sequential(Module):
    """Runs modules one after the other. Takes modules, or one dict from names to modules."""

    def __init__(self, *args):
        super().__init__()
        items = args[0].items() if len(args) == 1 and isinstance(args[0], dict) else ((str(i), m) for i, m in enumerate(args))
        for name, m in items:
            self.add_module(name, m)

    def forward(self, input):
        for m in self._modules.values():
            input = m(input)
        return input

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(dict(list(self._modules.items())[index]))
        return _at(self, index)

    def append(self, module):
        self.add_module(str(len(self)), module)
        return self


def _at(owner, index):
    values = list(owner._modules.values())
    if not -len(values) <= index < len(values):
        raise IndexError(f"{type(owner).__name__}: index out of range; got {index}; expected within {len(values)} modules")
    return values[index]


class ModuleList(Module):
    """A list of modules."""

    def __init__(self, modules=()):
        super().__init__()
        self.extend(modules)

    def append(self, module):
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules):
        for m in modules:
            self.append(m)
        return self

    def insert(self, index, module):
        values = list(self._modules.values())
        values.insert(index, module)
        self._modules.clear()
        return self.extend(values)

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __contains__(self, module):
        return any(m is module for m in self)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return _at(self, index)

    def __setitem__(self, index, module):
        n = len(self)
        if not -n <= index < n:
            raise IndexError(f"ModuleList: index out of range; got {index}; expected within {n} modules")
        self._modules[str(index % n)] = module


class ModuleDict(Module):
    """A dict of modules."""

    def __init__(self, modules=None):
        super().__init__()
        self.update(modules or {})

    def update(self, modules):
        for name, m in dict(modules).items():
            self[name] = m

    def __getitem__(self, key):
        return self._modules[key]

    def __setitem__(self, key, module):
        self.add_module(key, module)

    def __delitem__(self, key):
        del self._modules[key]

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, key):
        return key in self._modules

    def keys(self):
        return self._modules.keys()

    def values(self):
        return self._modules.values()

    def items(self):
        return self._modules.items()
