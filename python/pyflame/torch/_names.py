"""How `import torch.nn.functional` finds pyflame.nn.functional: a finder that answers for every module below the alias, and, when a program is run as
PyTorch's, below 'torch' itself. It returns PyFlame's own module, so that classes are the same whatever name they were imported by."""
import importlib
import importlib.util
import sys
import types
import typing

from pyflame import _refused

_ALIAS = "pyflame.torch"
_OWN = frozenset({"_names", "version", "__main__", "as_torch"})


# Files of PyTorch whose names are defined in another module here; "" is pyflame itself.
_MOVED = {f"{amp}.{file}": amp for amp in ("amp", "cuda.amp") for file in ("grad_scaler", "autocast_mode")}
_MOVED.update({f"nn.parallel.{file}": "nn.parallel" for file in ("_functions", "data_parallel", "distributed", "parallel_apply", "replicate", "scatter_gather")})
_MOVED.update({"_tensor": "", "cuda.graphs": "cuda", "profiler.profiler": "profiler", "utils.tensorboard.writer": "utils.tensorboard"})

# Parts of PyTorch that are not here: their modules import, and what they hold says what to do instead.
_PROCESSES = "process groups, their collectives, DistributedDataParallel and fully_shard are; a program that needs more runs in PyTorch"
_INNER = "it is a part of PyTorch's own machinery, which is not here"
_REFUSED = {"distributed": _PROCESSES, "futures": _PROCESSES, "ops": _INNER, "cuda.nccl": _PROCESSES, "classes": _INNER, "library": _INNER, "_inductor": _INNER, "_dynamo": _INNER, "_functorch": _INNER, "_subclasses": _INNER, "_export": _INNER,
            "_higher_order_ops": _INNER, "package": "save the state_dict() with torch.save", "monitor": _INNER, "fx": "there is no graph of Python code", "jit": "every window of ops is compiled by itself",
            "export": "export the model with torch.onnx.export", "ao": "quantized tensors are not available", "quantization": "quantized tensors are not available", "nested": "nested tensors are not available; pad the sequences",
            "masked": "masked tensors are not available; masked_fill and where do their work", "sparse": "sparse tensors are not available", "_VF": _INNER, "_prims_common": _INNER, "testing._internal": _INNER, "utils._foreach_utils": _INNER, "utils._python_dispatch": _INNER, "utils.weak": _INNER,
            "jit.annotations": "every window of ops is compiled by itself", "onnx.symbolic_helper": "pyflame.onnx.export has its own rules", "cuda.comm": "use torch.distributed with one process for each GPU",
            "nn.intrinsic": "quantized tensors are not available", "nn.qat": "quantized tensors are not available", "nn.quantizable": "quantized tensors are not available", "nn.quantized": "quantized tensors are not available",
            "utils.data.datapipes": "use datasets and samplers", "utils.flop_counter": "torch.profiler.profile counts FLOPs: key_averages()",
            "utils.benchmark": "time with time.perf_counter() and torch.accelerator.synchronize()"}

# Names of such a module that are Python's own.
_PYTHONS = {"jit.annotations": {name: getattr(typing, name) for name in ("Any", "Dict", "List", "Optional", "Tuple", "Union")}}


def _refused_module(inner):
    """A module of names that raise, or None if this part of PyTorch is not one of those."""
    tail = inner[len("pyflame.") :]
    parts = tail.split(".")
    advice = next((_REFUSED[path] for n in range(len(parts), 0, -1) if (path := ".".join(parts[:n])) in _REFUSED), None)
    if advice is None:
        return None
    made = types.ModuleType(inner, f"Not available: {advice}.")
    made.__getattr__, made.__path__ = _refused.module(tail, advice), []
    vars(made).update(_PYTHONS.get(tail, {}))
    return sys.modules.setdefault(inner, made)


class _Existing:
    """A loader of a module that is there already."""

    def __init__(self, module):
        self._module, self._spec, self._loader = module, module.__spec__, getattr(module, "__loader__", None)

    def create_module(self, spec):
        return self._module

    def exec_module(self, module):
        module.__spec__, module.__loader__ = self._spec, self._loader


class _Finder:
    """Finds <alias>.x.y as pyflame.x.y."""

    def __init__(self):
        self.roots = [_ALIAS + "."]

    def find_spec(self, name, path=None, target=None):
        root = next((r for r in self.roots if name.startswith(r)), None)
        if root is None or name[len(root) :].partition(".")[0] in _OWN:
            return None
        tail = name[len(root) :]
        inner = f"pyflame.{_MOVED.get(tail, tail)}".rstrip(".")
        try:
            module = importlib.import_module(inner)
        except ModuleNotFoundError as error:
            if error.name != inner and not inner.startswith(f"{error.name}."):
                raise
            module = _refused_module(inner)
            if module is None:
                return None
        spec = importlib.util.spec_from_loader(name, _Existing(module), is_package=hasattr(module, "__path__"))
        return spec


_finder = _Finder()


def install():
    """Submodules of the alias are found from now on."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def be_torch():
    """`import torch` means the alias from now on."""
    sys.modules["torch"] = sys.modules[_ALIAS]
    sys.modules["torch.version"] = importlib.import_module(_ALIAS + ".version")
    if "torch." not in _finder.roots:
        _finder.roots.append("torch.")
