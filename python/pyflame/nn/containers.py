"""Modules that hold modules."""
from __future__ import annotations

import operator

from .._C import Tensor
from .module import Module
from .parameter import Buffer, Parameter

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
    from typing import Any, TypeVar, Union, overload

    from ._annotations import ModuleT

    OrderedT = TypeVar("OrderedT", bound="_Ordered")
    # What the containers with names take: a dict, or pairs.
    Items = Union[Mapping[str, Any], Iterable[tuple[str, Any]], "_Dict"]


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

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __contains__(self, module: object) -> bool:
        return any(m is module for m in self)

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._name_at(index), module)

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._modules)[index] if isinstance(index, slice) else [self._name_at(index)]
        self._replace([m for name, m in self._modules.items() if name not in names])

    def append(self: OrderedT, module: Module) -> OrderedT:
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self: OrderedT, modules: Iterable[Module]) -> OrderedT:
        """Adds modules at the end."""
        if not hasattr(modules, "__iter__"):
            raise TypeError(f"{type(self).__name__}.extend: cannot be iterated; got {type(modules).__name__}; expected modules")
        for m in list(modules):
            self.append(m)
        return self

    def insert(self: OrderedT, index: int, module: Module) -> OrderedT:
        """Adds a module before number `index`; the later ones get the next number."""
        n = len(self)
        if not -n <= index <= n:
            raise IndexError(f"{type(self).__name__}: index out of range; got {index}; expected within {n} modules")
        children = list(self)
        children.insert(index, module)
        return self._replace(children)

    def pop(self, index: int = -1) -> Module:
        """Removes a module and returns it."""
        module = self._modules[self._name_at(index)]
        del self[index]
        return module

    def __iadd__(self: OrderedT, modules: Iterable[Module]) -> OrderedT:
        return self.extend(modules)

    def __add__(self, modules):
        return type(self)._of([*self, *modules])


class Sequential(_Ordered):
    """Runs modules one after the other. Takes modules, or one dict from names to modules. Deleting and inserting numbers the names anew.

    Raises TypeError for what is no Module, KeyError for a name that is empty or has a dot, and IndexError for a place that is not there.
    """

    def __init__(self, *args: Module | dict[str, ModuleT]) -> None:
        super().__init__()
        if args and isinstance(args[0], (list, tuple)):
            raise TypeError(f"Sequential: not a Module; got {type(args[0]).__name__}; expected modules, one after the other, or a dict of them; hint: Sequential(*layers)")
        items = args[0].items() if len(args) == 1 and isinstance(args[0], dict) else ((str(i), m) for i, m in enumerate(args))
        for name, m in items:
            self.add_module(name, m)

    @staticmethod
    def _of(modules):
        return Sequential(*modules)

    def forward(self, input: Any) -> Any:
        for m in self._modules.values():
            input = m(input)
        return input

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, index: int) -> Module: ...

        @overload
        def __getitem__(self, index: slice) -> Sequential: ...

    def __getitem__(self, index: int | slice) -> Module:
        if isinstance(index, slice):
            return type(self)(dict(list(self._modules.items())[index]))
        return self._modules[self._name_at(index)]

    def __mul__(self, times: int) -> Sequential:
        if not isinstance(times, int) or isinstance(times, bool):
            raise TypeError(f"Sequential: cannot be multiplied with {type(times).__name__}; expected an integer")
        if times <= 0:
            raise ValueError(f"Sequential: the factor must be positive; got {times}")
        return Sequential(*(list(self) * times))

    __rmul__ = __mul__


class ModuleList(_Ordered):
    """A list of modules, whose parameters are those of the module that has it. Has the interface of a list: indices, slices, append, extend, insert, pop.

    modules: an iterable of Modules, a TypeError otherwise. IndexError for an index out of range. It has no forward: calling it is a NotImplementedError.
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    @staticmethod
    def _of(modules):
        return ModuleList(modules)

    def __repr__(self):
        """Neighbours that print alike are one line with their count."""
        groups = []
        for name, text in ((name, repr(m)) for name, m in self._modules.items()):
            if groups and groups[-1][2] == text:
                groups[-1][1] = name
            else:
                groups.append([name, name, text])
        counted = ((a, b, text if a == b else f"{int(b) - int(a) + 1} x {text}") for a, b, text in groups)
        lines = [f"({a if a == b else f'{a}-{b}'}): " + text.replace("\n", "\n  ") for a, b, text in counted]
        return f"{self._get_name()}(" + "".join(f"\n  {line}" for line in lines) + ("\n)" if lines else ")")

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, index: int) -> Module: ...

        @overload
        def __getitem__(self, index: slice) -> ModuleList: ...

    def __getitem__(self, index: int | slice) -> Module:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return self._modules[self._name_at(index)]


class _Dict(Module):
    """What ModuleDict and ParameterDict share: the interface of a dict."""

    def update(self, items: Items) -> None:
        """Takes over all items of a dict, or of an iterable of pairs."""
        if not hasattr(items, "__iter__"):
            raise TypeError(f"{type(self).__name__}.update: cannot be iterated; got {type(items).__name__}; expected a dict or pairs")
        for pair in items.items() if hasattr(items, "items") else items:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise TypeError(f"{type(self).__name__}.update: an item is no pair; got {type(pair).__name__}; expected a name and a value; hint: without names, use a {type(self).__name__.replace('Dict', 'List')}")
            self[pair[0]] = pair[1]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(list(self.keys()))

    def __contains__(self, key: object) -> bool:
        return key in self.keys()

    def values(self) -> Iterable[Any]:
        return [self[k] for k in self.keys()]

    def items(self) -> Iterable[tuple[str, Any]]:
        return [(k, self[k]) for k in self.keys()]

    def clear(self) -> None:
        """Removes all items."""
        for k in list(self.keys()):
            del self[k]

    def pop(self, key: str) -> Any:
        """Removes an item and returns it. KeyError if there is none."""
        value = self[key]
        del self[key]
        return value


class ModuleDict(_Dict):
    """A dict of modules, whose parameters are those of the module that has it. Has the interface of a dict: keys, values, items, update, pop, clear.

    modules: a dict, or pairs, of names and Modules; TypeError for others, KeyError for a name that is empty or has a dot and for one that is missing. It
    has no forward: calling it is a NotImplementedError.
    """

    def __init__(self, modules: Mapping[str, ModuleT] | Iterable[tuple[str, ModuleT]] | ModuleDict | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def keys(self) -> KeysView[str]:
        """A view of the names of the modules, in the order of insertion, as dict.keys() of Python gives it."""
        return self._modules.keys()

    def values(self) -> ValuesView[Module]:
        """A view of the modules, in the order of insertion, as dict.values() of Python gives it."""
        return self._modules.values()

    def items(self) -> ItemsView[str, Module]:
        """A view of the pairs (name, module) in the order of insertion, as dict.items() of Python gives it."""
        return self._modules.items()


def _as_parameter(value):
    """Tensors become parameters; what is none stays what it is."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, (Parameter, Buffer)) else value


class ParameterList(Module):
    """A list of parameters; tensors become parameters, other values stay what they are.

    Raises TypeError for what is no sequence, ValueError for a tensor of integers or bools, and IndexError for a place that is not there.
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _name_at(self, index):
        i = operator.index(index)
        if not -self._size <= i < self._size:
            raise IndexError(f"ParameterList: index out of range; got {index}; expected within {self._size} values")
        return str(i % self._size)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)([self[i] for i in range(*index.indices(self._size))])
        return getattr(self, self._name_at(index))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._name_at(index), _as_parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(self._size))

    def append(self, value: Any) -> ParameterList:
        """Adds a value at the end and returns the list itself. A tensor becomes a Parameter; other values stay what they are."""
        at, self._size = self._size, self._size + 1
        self[at] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Adds the values of an iterable at the end, in their order, and returns the list itself. Tensors become parameters. TypeError for one tensor, or for
        what is no iterable.
        """
        if not hasattr(values, "__iter__") or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend: not a sequence; got {type(values).__name__}; expected values")
        for v in list(values):
            self.append(v)
        return self

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def pop(self, index: int = -1) -> Any:
        """Removes the value at index, by default the last one, and returns it. Those behind it move up by one. IndexError for an index outside of the list.
        """
        values, i = list(self), int(self._name_at(index))
        value = values.pop(i)
        for k in range(i, self._size):
            delattr(self, str(k))
        self._size = i
        self.extend(values[i:])
        return value

    def extra_repr(self) -> str:
        """One line for each value, with its index and what it is, for print(module)."""
        return "\n".join(f"  ({i}): {_described(v)}" for i, v in enumerate(self))

    def __call__(self, *args, **kwargs):
        raise RuntimeError("ParameterList: it cannot be called")


class ParameterDict(_Dict):
    """A dict of parameters; tensors become parameters, other values stay what they are.

    Raises TypeError for a key that is no str and for what is neither a dict nor pairs; KeyError for a name that is not there.
    """

    def __init__(self, parameters: Items | None = None) -> None:
        super().__init__()
        self._keys = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise TypeError(f"ParameterDict: the key is not a string; got {type(key).__name__}")
        self._keys[key] = None
        setattr(self, key, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def keys(self) -> KeysView[str]:
        """A view of the names of the parameters, in the order of insertion, as dict.keys() of Python gives it."""
        return self._keys.keys()

    def __reversed__(self):
        return reversed(list(self._keys))

    def copy(self) -> ParameterDict:
        """A new ParameterDict with the same keys and the same parameters, which are not copied."""
        return ParameterDict(dict(self.items()))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of a key, which becomes the default if there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def popitem(self) -> tuple[str, Any]:
        """Removes the item that was added last and returns it, as a pair (key, value). IndexError for an empty dict."""
        key = list(self._keys)[-1]
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or default where there is no such key. The dict is not changed."""
        return self[key] if key in self else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new ParameterDict with these keys, each with the value default. Nothing of this dict is in it."""
        return ParameterDict((k, default) for k in keys)

    def __or__(self, other: Items) -> ParameterDict:
        copy = self.copy()
        copy.update(other)
        return copy

    def __ror__(self, other: Items) -> ParameterDict:
        copy = ParameterDict(other)
        copy.update(self)
        return copy

    def __ior__(self, other: Items) -> ParameterDict:
        self.update(other)
        return self

    def extra_repr(self) -> str:
        """One line for each entry, with its key and what it is, for print(module)."""
        return "\n".join(f"  ({k}): {_described(v)}" for k, v in self.items())

    def __call__(self, *args, **kwargs):
        raise RuntimeError("ParameterDict: it cannot be called")


def _described(value):
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    return f"{kind} containing: [{value.dtype} of size {'x'.join(map(str, value.shape))}]"
