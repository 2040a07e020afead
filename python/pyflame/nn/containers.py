"""Modules that hold modules."""
import operator

from .module import Module


class _Ordered(Module):
    """What Sequential and ModuleList share: children in an order, by number."""

    def _name_at(self, index):
        n, i = len(self._modules), operator.index(index)
        if not -n <= i < n:
            raise IndexError(f"{type(self).__name__}: index out of range; got {index}; expected within {n} modules")
        return list(self._modules)[i]

    def _replace(self, children):
        """Exactly these children, numbered from 0."""
        for m in children:
            if not isinstance(m, Module):
                raise TypeError(f"{type(self).__name__}: not a Module; got {type(m).__name__}")
        self._modules.clear()
        self._modules.update((str(i), m) for i, m in enumerate(children))
        return self

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __contains__(self, module):
        return any(m is module for m in self)

    def __setitem__(self, index, module):
        setattr(self, self._name_at(index), module)

    def __delitem__(self, index):
        names = list(self._modules)[index] if isinstance(index, slice) else [self._name_at(index)]
        self._replace([m for name, m in self._modules.items() if name not in names])

    def append(self, module):
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules):
        """Adds modules at the end."""
        if not hasattr(modules, "__iter__"):
            raise TypeError(f"{type(self).__name__}.extend: cannot be iterated; got {type(modules).__name__}; expected modules")
        for m in list(modules):
            self.append(m)
        return self

    def insert(self, index, module):
        """Adds a module before number `index`; the later ones get the next number."""
        n = len(self)
        if not -n <= index <= n:
            raise IndexError(f"{type(self).__name__}: index out of range; got {index}; expected within {n} modules")
        children = list(self)
        children.insert(index, module)
        return self._replace(children)

    def pop(self, index=-1):
        """Removes a module and returns it."""
        module = self._modules[self._name_at(index)]
        del self[index]
        return module

    def __iadd__(self, modules):
        return self.extend(modules)

    def __add__(self, modules):
        return type(self)._of([*self, *modules])


class Sequential(_Ordered):
    """Runs modules one after the other. Takes modules, or one dict from names to modules. Deleting and inserting numbers the names anew."""

    def __init__(self, *args):
        super().__init__()
        items = args[0].items() if len(args) == 1 and isinstance(args[0], dict) else ((str(i), m) for i, m in enumerate(args))
        for name, m in items:
            self.add_module(name, m)

    @staticmethod
    def _of(modules):
        return Sequential(*modules)

    def forward(self, input):
        for m in self._modules.values():
            input = m(input)
        return input

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(dict(list(self._modules.items())[index]))
        return self._modules[self._name_at(index)]

    def __mul__(self, times):
        if not isinstance(times, int) or isinstance(times, bool):
            raise TypeError(f"Sequential: cannot be multiplied with {type(times).__name__}; expected an integer")
        if times <= 0:
            raise ValueError(f"Sequential: the factor must be positive; got {times}")
        return Sequential(*(list(self) * times))

    __rmul__ = __mul__


class ModuleList(_Ordered):
    """A list of modules."""

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    @staticmethod
    def _of(modules):
        return ModuleList(modules)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self._modules[self._name_at(index)]


class ModuleDict(Module):
    """A dict of modules."""

    def __init__(self, modules=None):
        super().__init__()
        self.update(modules or {})

    def update(self, modules):
        for name, m in dict(modules.items() if isinstance(modules, ModuleDict) else modules).items():
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

    def clear(self):
        """Removes all children."""
        self._modules.clear()

    def pop(self, key):
        """Removes a child and returns it. KeyError if there is none."""
        module = self[key]
        del self[key]
        return module
