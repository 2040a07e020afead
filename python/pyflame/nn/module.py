"""Module: the base of all layers. Attributes that are parameters, buffers or modules are registered automatically; names, the layout of a
state dict and the hooks are PyTorch's."""
from __future__ import annotations

from .. import _C
from .._C import Tensor
from . import hooks
from .hooks import Hooked, RemovableHandle  # noqa: F401
from .parameter import Buffer, Parameter, is_lazy
from .state import StateDict

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, NoReturn

    from .._annotations import DType, Device
    from ._annotations import ModuleT


def _dtype_or_none(value):
    """The dtype that a value names, such as float16, 'float16', float or NumPy's; None for what names none, such as a device."""
    try:
        return _C.empty(0, dtype=value, device="cpu").dtype
    except TypeError:
        return None


class Module(_C._ModuleBase, StateDict, Hooked):
    """Base class of layers and models: define __init__ (calling super().__init__() first) and forward. Calling the module calls forward.

    A Parameter or a Module that is assigned to an attribute becomes a parameter or a child of the module: parameters(), state_dict(), to() and train() reach
    it. register_buffer() makes a tensor part of the module that is not trained.

        class Net(pf.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = pf.nn.Linear(3, 2)

            def forward(self, x):
                return pf.relu(self.fc(x))

        Net()(pf.ones(4, 3)).shape  # (4, 2)

    A call of a module without forward raises NotImplementedError, and an attribute that is neither parameter, buffer, child nor plain attribute
    AttributeError.
    """

    _version, call_super_init, dump_patches, T_destination = 1, False, False, dict
    _keep_dtype = ()  # names of buffers that to(), half() and the like move without a change of their dtype

    # Calls (with hooks) and the look-up of parameters, buffers and children as attributes: python/src/module_base.cpp.

    def __init__(self) -> None:
        d = self.__dict__
        d["training"] = True
        d["_parameters"] = {}
        d["_buffers"] = {}
        d["_modules"] = {}
        d["_non_persistent"] = set()
        d["_forward_hooks"] = {}
        d["_forward_pre_hooks"] = {}
        d["_hooks_with_kwargs"] = set()
        d["_state_hooks"] = {}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the module; a call of the module runs its hooks and this. A subclass defines it."""
        raise NotImplementedError(f"{type(self).__name__}: forward is not implemented")

    # ---- attributes

    def __setattr__(self, name, value):
        d = self.__dict__
        params = d.get("_parameters")
        if isinstance(value, (Parameter, Module, Buffer)):
            if params is None:
                raise AttributeError(f"{type(self).__name__}: cannot assign '{name}' before super().__init__() is called")
            kind = "module" if isinstance(value, Module) else "parameter" if isinstance(value, Parameter) else "buffer"
            value = hooks.registered(kind, self, name, value)
            mine = params if kind == "parameter" else d["_" + kind + "s"]
            for other in (d, params, d["_buffers"], d["_modules"]):
                if other is not mine:  # a name that is assigned again keeps its place in the order
                    other.pop(name, None)
            d["_non_persistent"].discard(name)
            if kind == "buffer" and not value.persistent:
                d["_non_persistent"].add(name)
            mine[name] = value
            return
        if params is not None:
            if name in params:
                if value is not None:
                    raise TypeError(f"{type(self).__name__}: cannot assign {type(value).__name__} to parameter '{name}'; expected Parameter or None")
                params[name] = None
                return
            if name in d["_modules"]:
                if value is not None:
                    raise TypeError(f"{type(self).__name__}: cannot assign {type(value).__name__} to child '{name}'; expected Module or None")
                d["_modules"][name] = None
                return
            if name in d["_buffers"]:
                if value is not None and not isinstance(value, Tensor):
                    raise TypeError(f"{type(self).__name__}: cannot assign {type(value).__name__} to buffer '{name}'; expected Tensor or None")
                d["_buffers"][name] = hooks.registered("buffer", self, name, value)
                return
        object.__setattr__(self, name, value)

    def __delattr__(self, name):
        for kind in ("_parameters", "_modules", "_buffers"):
            if name in self.__dict__[kind]:
                del self.__dict__[kind][name]
                self._non_persistent.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self):
        return sorted(set(super().__dir__()) | set(self._parameters) | set(self._buffers) | set(self._modules))

    def _check_name(self, what, name):
        if not isinstance(name, str):
            raise TypeError(f"{what}: the name is not a string; got {type(name).__name__}")
        if "." in name or name == "":
            raise KeyError(f"{what}: a name must not be empty or contain a dot; got '{name}'")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Adds param as the parameter `name`, which is also an attribute, or replaces the parameter. None reserves the name. TypeError for what is no
        Parameter; KeyError for an empty name, one with a dot, and that of another attribute.
        """
        self._check_name("register_parameter", name)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"register_parameter: not a Parameter; got {type(param).__name__} for '{name}'")
        if hasattr(self, name) and name not in self._parameters:
            raise KeyError(f"register_parameter: attribute '{name}' already exists")
        self._parameters[name] = hooks.registered("parameter", self, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a tensor that is not a parameter. If persistent, it is part of the state dict."""
        self._check_name("register_buffer", name)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"register_buffer: not a tensor; got {type(tensor).__name__} for '{name}'")
        if hasattr(self, name) and name not in self._buffers:
            raise KeyError(f"register_buffer: attribute '{name}' already exists")
        self._buffers[name] = hooks.registered("buffer", self, name, tensor)
        if tensor is not None and not is_lazy(tensor):
            tensor._lasts()
        if persistent:
            self._non_persistent.discard(name)
        else:
            self._non_persistent.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds module as the child `name`, which is also an attribute, or replaces the child. None reserves the name. TypeError for what is no Module;
        KeyError for an empty name, one with a dot, and that of another attribute.
        """
        self._check_name("add_module", name)
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"add_module: not a Module; got {type(module).__name__} for '{name}'")
        if hasattr(self, name) and name not in self._modules:
            raise KeyError(f"add_module: attribute '{name}' already exists")
        self._modules[name] = hooks.registered("module", self, name, module)

    register_module = add_module

    # ---- walks

    def named_modules(self, memo: set[int] | None = None, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """(path, module) of the module and all modules in it, each once."""
        memo = set() if memo is None else memo
        if id(self) in memo:
            return
        if remove_duplicate:
            memo.add(id(self))
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                yield from child.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """An iterator over this module and all modules in it, at any depth, each once: parents before their children."""
        for _, m in self.named_modules():
            yield m

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """An iterator over pairs (name, module) of the modules that are attributes of this one, each module once."""
        seen = set()
        for name, m in self._modules.items():
            if m is not None and id(m) not in seen:
                seen.add(id(m))
                yield name, m

    def children(self) -> Iterator[Module]:
        """An iterator over the modules that are attributes of this one, each once, in the order in which they were added."""
        for _, m in self.named_children():
            yield m

    def _named(self, kind, prefix, recurse, remove_duplicate):
        seen = set()
        pairs = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in pairs:
            for name, value in getattr(module, kind).items():
                if value is None or (remove_duplicate and id(value) in seen):
                    continue
                seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """(name, parameter) of this module and, with recurse, of all below it; shared ones are yielded once."""
        yield from self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters of the module and, with recurse, of those in it."""
        for _, p in self.named_parameters(recurse=recurse):
            yield p

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """(path, buffer) of the module and, with recurse, of those in it."""
        yield from self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of the module and, with recurse, of those in it."""
        for _, b in self.named_buffers(recurse=recurse):
            yield b

    def get_submodule(self, target: str) -> Module:
        """The module with a dotted name, such as 'encoder.layers.0'; '' is this module. AttributeError if there is none."""
        module = self
        for part in target.split(".") if target else ():
            child = module._modules.get(part)
            if child is None:
                raise AttributeError(f"{type(module).__name__} has no child '{part}' (looking for '{target}')")
            module = child
        return module

    def get_parameter(self, target: str) -> Parameter:
        """The parameter of a path such as 'encoder.0.weight'. AttributeError where there is none."""
        path, _, name = target.rpartition(".")
        p = self.get_submodule(path)._parameters.get(name)
        if p is None:
            raise AttributeError(f"there is no parameter '{target}'")
        return p

    def get_buffer(self, target: str) -> Tensor:
        """The buffer with a dotted name, such as 'encoder.norm.running_mean'. AttributeError if there is none of this name."""
        path, _, name = target.rpartition(".")
        b = self.get_submodule(path)._buffers.get(name)
        if b is None:
            raise AttributeError(f"there is no buffer '{target}'")
        return b

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Puts a module where the dotted name says; its parent must be there, and with strict a child of that name too."""
        if not target:
            raise ValueError("set_submodule: the name is empty; expected the dotted name of a child")
        if not isinstance(module, Module):
            raise ValueError(f"set_submodule: not a Module; got {type(module).__name__}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and name not in parent._modules:
            raise AttributeError(f"{type(parent).__name__} has no child '{name}' (looking for '{target}')")
        if hasattr(parent, name) and name not in parent._modules:
            raise AttributeError(f"set_submodule: '{target}' is not a module")
        setattr(parent, name, module)

    def apply(self: ModuleT, fn: Callable[[Module], object]) -> ModuleT:
        """Calls fn(m) for every module m in this one, children before their parents and this one last. Returns this module."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    # ---- modes and moves

    def train(self: ModuleT, mode: bool = True) -> ModuleT:
        """Sets training mode, or with False evaluation mode, in the module and all modules in it. Returns the module."""
        if not isinstance(mode, bool):
            raise ValueError(f"train: the mode is not a bool; got {type(mode).__name__}")
        for m in self.modules():
            m.training = mode
        return self

    def eval(self: ModuleT) -> ModuleT:
        """train(False): dropout does nothing and batch norms use their running statistics. Returns the module."""
        return self.train(False)

    def enable_gradient_checkpointing(self, modules: Iterable[str] | None = None) -> list[str]:
        """From now on, in training, the intermediates of these modules are not kept, and the backward pass computes them again. Returns their names.

        modules: dotted names, such as those of a pf.checkpoint_policy; None: the repeated blocks, which are the children of the model's outermost
        ModuleLists and Sequentials. ValueError if it has none, or where the model's own code has replaced forward on an object."""
        from . import recompute

        return recompute.enable(self, modules)

    def disable_gradient_checkpointing(self) -> None:
        """Undoes enable_gradient_checkpointing for this module and all modules in it: backward passes use the intermediates of the forward pass."""
        from . import recompute

        for m in self.modules():
            recompute.keep(m)

    def requires_grad_(self: ModuleT, requires_grad: bool = True) -> ModuleT:
        """Whether gradients of the parameters are computed, set for all of them. Returns the module."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Removes the gradients of all parameters, or sets them to zero with set_to_none=False."""
        _C._drop_gradients(list(self.parameters()), set_to_none)

    def _apply(self, fn, recurse=True):
        # Parameters keep their identity: optimizers hold on to them.
        for p in self.parameters(recurse):
            if is_lazy(p):
                like = fn(p._without_elements())
                p._keep(like.device, like.dtype)
                continue
            grad = p.grad
            p._become(fn(p.detach()), p.requires_grad)
            if grad is not None:
                p.grad = fn(grad.detach())
        for m in self.modules() if recurse else (self,):
            for name, b in m._buffers.items():
                if is_lazy(b):
                    like = fn(b._without_elements())
                    b._keep(like.device, like.dtype)
                elif b is not None:
                    made = fn(b)
                    if name in m._keep_dtype and made.dtype != b.dtype:
                        made = b.to(made.device)
                    m._buffers[name] = made
                    made._lasts()
        return self

    def to(self: ModuleT, *args: Any, **kwargs: Any) -> ModuleT:
        """Moves parameters and buffers to a device and/or a floating dtype (integers keep theirs); memory_format=channels_last changes the
        layout of those with four dims."""
        device, dtype, memory_format = None, kwargs.pop("dtype", None), kwargs.pop("memory_format", None)
        args = args + tuple(v for k, v in kwargs.items() if k in ("device", "other"))
        for a in args:
            if isinstance(a, Tensor):
                device, dtype = a.device, a.dtype
            elif isinstance(a, _C.device):
                device = a
            elif a is not None and not isinstance(a, bool):
                found = _dtype_or_none(a)
                device, dtype = (a, dtype) if found is None else (device, found)
        if dtype is not None:
            dtype = _C.empty(0, dtype=dtype).dtype
            if not dtype.is_floating_point:
                raise TypeError(f"to: a module takes only floating dtypes; got {dtype}")

        def move(t):
            if device is not None:
                t = t.to(device=device)
            if dtype is not None and t.is_floating_point():
                t = t.to(dtype=dtype)
            return t if memory_format is None or t.dim() != 4 else t.contiguous(memory_format=memory_format)

        return self._apply(move)

    def _cast(self, dtype):
        return self._apply(lambda t: t.to(dtype=dtype) if t.is_floating_point() else t)

    def float(self: ModuleT) -> ModuleT:
        """Converts floating-point parameters and buffers to float32, in place. Returns the module."""
        return self._cast(_C.float32)

    def double(self: ModuleT) -> ModuleT:
        """Converts floating-point parameters and buffers to float64, in place. Returns the module."""
        return self._cast(_C.float64)

    def half(self: ModuleT) -> ModuleT:
        """Converts floating-point parameters and buffers to float16, in place. Returns the module."""
        return self._cast(_C.float16)

    def bfloat16(self: ModuleT) -> ModuleT:
        """Converts floating-point parameters and buffers to bfloat16, in place. Returns the module."""
        return self._cast(_C.bfloat16)

    def cpu(self: ModuleT) -> ModuleT:
        """Moves parameters and buffers to the CPU, in place. Returns the module."""
        return self.to("cpu")

    def cuda(self: ModuleT, device: Device | None = None) -> ModuleT:
        """Moves parameters and buffers to the GPU there is, of any vendor. DeviceError with the reason if there is none."""
        from .. import _gpu

        return self.to(_gpu.name_of(device))

    def type(self: ModuleT, dst_type: DType) -> ModuleT:
        """Parameters and buffers, also those of integers, as another dtype, or as a type such as 'torch.DoubleTensor'."""
        if isinstance(dst_type, str) or hasattr(dst_type, "_type_name"):
            from .. import _old_types

            dst_type = _old_types.dtype_of(getattr(dst_type, "_type_name", dst_type))
        return self._apply(lambda t: t.to(dtype=dst_type))

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing and says so once: PyFlame compiles all ops without being asked. The arguments are PyTorch's and change nothing."""
        from .._compile import compile

        compile(self, *args, **kwargs)

    def share_memory(self) -> NoReturn:
        """Always NotImplementedError, as processes do not share tensors. The message says how to send a state_dict() instead."""
        raise NotImplementedError("share_memory: processes do not share tensors; send the state_dict() through a queue or a file")

    def to_empty(self: ModuleT, *, device: Device | None, recurse: bool = True) -> ModuleT:
        """Replaces parameters and buffers by tensors of the same shapes and dtypes on device, whose values are not set. recurse: also those of the modules in
        this one. Returns this module.
        """
        return self._apply(lambda t: _C.empty(t.shape, dtype=t.dtype, device=device), recurse)

    # ---- printing

    def extra_repr(self) -> str:
        """The text that print(module) shows in the parentheses, such as the arguments of the constructor. '' unless a subclass defines it."""
        return ""

    def _get_name(self):
        return type(self).__name__

    def __repr__(self):
        extra = self.extra_repr()
        lines = []
        for name, child in self._modules.items():
            lines.append(f"({name}): " + repr(child).replace("\n", "\n  "))
        if not lines:
            return f"{self._get_name()}({extra})"
        body = ([extra] if extra else []) + lines
        return f"{self._get_name()}(\n  " + "\n  ".join(body) + "\n)"
