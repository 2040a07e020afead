"""PyFlame: a deep-learning framework. Ops are recorded, fused, and computed when their values are needed.

    import pyflame as pf
    x = pf.randn(2, 3, requires_grad=True)
    (x * x).sum().backward()
    print(x.grad)                       # 2 * x

Names and meanings are those of PyTorch. Read first:

    help(pf.Tensor)                     methods of tensors; help(pf.Tensor.to): dtypes and devices
    help(pf.tensor), help(pf.zeros)     tensors from numbers, and of a shape
    help(pf.nn.Module)                  models; help(pf.nn.Linear): one of the layers in pf.nn
    help(pf.nn.functional)              layers and losses as functions
    help(pf.optim.AdamW)                one of the optimizers in pf.optim
    help(pf.data.DataLoader)            batches of a dataset
    help(pf.save), help(pf.load)        files
    help(pf.explain)                    what ran, what was fused, and what it cost
    help(pf.llm)                        language models: generate, serve, convert

pf.linalg, pf.fft, pf.special and pf.distributions are further mathematics. Modules whose names begin with _ are not for programs: they may change at any time.
`pyflame --help`, in a terminal, lists the commands.

Submodules that are written in Python are imported when they are first used, so that `import pyflame` is fast.
"""
from . import _C
from . import _configuration
from ._configuration import load_settings, no_fuse, settings
from ._C import *  # noqa: F401,F403
from ._C import __version__
from ._C import bfloat16, bool_, complex64, complex128, float16, float32, float64, int8, int16, int32, int64, uint8  # noqa: F401
from ._C import float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz  # noqa: F401
from ._generator import Generator, default_generator, initial_seed, manual_seed, seed
from ._grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from ._explain import explain
from ._functions import allclose, equal, is_floating_point, is_tensor, numel, outer

from ._elementwise import *  # noqa: F401,F403
from ._random import *  # noqa: F401,F403
from ._shapes import *  # noqa: F401,F403
from ._products import *  # noqa: F401,F403
from ._reductions import *  # noqa: F401,F403
from ._statistics import *  # noqa: F401,F403
from ._selections import *  # noqa: F401,F403
from ._scatters import *  # noqa: F401,F403
from ._order_statistics import *  # noqa: F401,F403
from ._strided import *  # noqa: F401,F403
from ._aliases import *  # noqa: F401,F403
from ._matrices import *  # noqa: F401,F403
from ._dtypes import *  # noqa: F401,F403
from ._dtypes import ABSENT as _ABSENT
from . import _compile, _further_names, _gpu, _keywords, _tensor_methods  # noqa: F401
from ._tensor_methods import empty_permuted, empty_strided
from ._spectra import *  # noqa: F401,F403

bool, half, float, double = bool_, float16, float32, float64
short, int, long = int16, int32, int64

_C._read_rewrites()  # PYFLAME_REWRITES

_SUBMODULES = frozenset({"_dynamo", "_jit_internal", "_utils", "accelerator", "amp", "autograd", "backend", "backends", "benchmarking", "compiler", "cpu", "cuda", "data", "distributed", "distributions", "export", "fft", "finance", "float8", "func", "functional", "fx", "hub", "io", "jit", "llm", "memory", "models", "mps",
                         "mtia", "multiprocessing", "nn", "onnx", "optim", "optimizing", "overrides", "profiler", "quantization", "random", "return_types", "rewrites", "serialization", "signal", "sparse", "special", "storage", "testing", "torch", "torch_version", "train", "tuning", "types", "utils", "xpu"})
_FURTHER = frozenset({"SymBool", "SymFloat", "SymInt", "_assert", "adjoint", "compiled_with_cxx11_abi", "detach", "eig", "lstsq", "matrix_rank", "norm_except_dim", "solve", "sym_ite", "sym_sum", "symeig", "get_deterministic_debug_mode", "get_device_module", "get_num_interop_threads", "hash_tensor",
                      "is_deterministic_algorithms_warn_only_enabled", "is_warn_always_enabled", "range", "set_deterministic_debug_mode", "set_flush_denormal", "set_num_interop_threads",
                      "set_warn_always", "sym_float", "sym_int", "sym_max", "sym_min", "sym_not"})
_ATTRIBUTES = {
    "autocast": "amp",
    **dict.fromkeys(("autocast_decrement_nesting", "autocast_increment_nesting", "clear_autocast_cache", "get_autocast_cpu_dtype", "get_autocast_gpu_dtype", "is_autocast_cache_enabled", "is_autocast_cpu_enabled", "is_autocast_enabled", "set_autocast_cache_enabled",
                     "set_autocast_cpu_dtype", "set_autocast_cpu_enabled", "set_autocast_dtype", "set_autocast_enabled", "set_autocast_gpu_dtype"), "amp"),
    **dict.fromkeys(("gru_cell", "lstm_cell", "rnn_relu_cell", "rnn_tanh_cell"), "nn.recurrent"),
    **dict.fromkeys(("gru", "lstm", "rnn_relu", "rnn_tanh"), "nn.functional_recurrent"),
    "checkpoint": "autograd",
    "compile": "_compile",
    "einsum": "_einsum",
    "_scaled_mm": "nn.functional_scaled",
    "kernel": "_kernels",
    "elementwise": "_elementwise_text",
    "is_anomaly_check_nan_enabled": "_compile",
    "GradScaler": "amp",
    "get_autocast_dtype": "amp",
    "set_anomaly_enabled": "_compile",
    "vmap": "func",
    "convolution": "nn.functional_convs",
    "segment_reduce": "_segments",
    "bench": "benchmarking",
    "find_batch_size": "memory",
    "checkpoint_policy": "memory",
    "Event": "cuda",
    "fork": "jit",
    "wait": "jit",
    "Stream": "cuda",
    "fork_rng": "random",
    "to_dlpack": "utils.dlpack",
    **{f"{name}_window": "signal.windows" for name in ("bartlett", "blackman", "hamming", "hann", "kaiser")},
    "save": "io",
    "load": "io",
    "save_checkpoint": "io",
    "load_checkpoint": "io",
    "load_gguf": "io",
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_max_pool1d", "avg_pool1d", "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
                     "conv_transpose3d", "max_pool1d", "max_pool1d_with_indices", "max_pool2d", "max_pool3d"), "nn.functional"),
    **dict.fromkeys(("affine_grid_generator", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d"), "nn.functional_grids"),
    **dict.fromkeys(("max_pool2d_with_indices_backward", "native_batch_norm", "native_dropout", "native_dropout_backward", "native_group_norm", "native_layer_norm"), "_native"),
}
del conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d, max_pool2d  # noqa: F821 - nn.functional has these with more arguments


def __getattr__(name):
    from importlib import import_module

    if name in _SUBMODULES:
        return import_module("." + name, __name__)
    if name in _ATTRIBUTES:
        value = getattr(import_module("." + _ATTRIBUTES[name], __name__), name)
        globals()[name] = value
        return value
    return _old_name(name)


def _old_name(name):
    """A type such as FloatTensor, the name of a dtype that is absent, or an in-place method as a function."""
    if name in _ABSENT:
        return _ABSENT[name]
    if name.endswith("Tensor") and name != "Tensor":
        from . import _old_types

        return _old_types.of_name(name)
    if name.endswith("Storage") and not name.startswith("_"):
        return _tensor_methods.Storage
    if name.endswith("_") and not name.startswith("_") and hasattr(Tensor, name):
        return getattr(Tensor, name)
    if name.startswith("_foreach_"):
        from . import _foreach

        if name in _foreach.FUNCTIONS:
            return _foreach.FUNCTIONS[name]
    if name in _further_names.FUNCTIONAL:
        from .nn import functional

        if hasattr(functional, name):
            return getattr(functional, name)
    if name in _FURTHER:
        return getattr(_further_names, name)
    if name in _compile.CONSTANTS:
        return _compile.CONSTANTS[name]
    if name in _compile.REFUSED:
        from . import _refused

        return _refused.function(name, _compile.REFUSED[name])
    from ._misspelt import missing

    raise missing(__name__, name)


def _accept_other_keywords():
    """Functions that are written in Python take PyTorch's further keywords, too."""
    from types import FunctionType

    wrappers = {}  # by function: one with two names has one wrapper
    for name, function in list(globals().items()):
        if isinstance(function, FunctionType) and not hasattr(function, "names_errors") and not name.startswith("_") and function.__module__.startswith("pyflame._"):
            wrapped = globals()[name] = wrappers.setdefault(function, None) or _keywords.accepting(function)
            wrappers[function] = wrapped
            wrapped.__module__ = __name__  # a function is pickled by its place
            if Tensor.__dict__.get(name) is function:
                setattr(Tensor, name, wrapped)


_accept_other_keywords()
_further_names.complete(globals())
_tensor_methods.complete(globals())
_configuration.load_from_environment()
if _configuration.os.environ.get("PYFLAME_PLUGINS"):
    from .tuning import plugin_entries as _plugins

    _plugins.load(_configuration.os.environ["PYFLAME_PLUGINS"])
_C._markers_follow_environment()
_C._log_api_usage_once = lambda *event: None  # programs call PyTorch's; nobody counts here


def __dir__():
    return sorted(set(globals()) | _SUBMODULES | set(_ATTRIBUTES))
