"""PyFlame: a deep-learning framework. Names and meanings are those of PyTorch.

    import pyflame as pf
    x = pf.randn(2, 3, requires_grad=True)
    (x * x).sum().backward()
    print(x.grad)                          # 2 * x

There is more in help() of each: help(pf.Tensor), help(pf.nn.Linear).

    pf.Tensor, pf.tensor, pf.zeros         tensors; pf.Tensor.to: dtypes and devices
    pf.linalg, pf.fft, pf.special          further mathematics; pf.distributions
    pf.nn, pf.nn.functional                models: pf.nn.Module; layers and losses as functions
    pf.optim, pf.autograd, pf.amp          training: pf.optim.AdamW; gradients; 16-bit floats
    pf.data, pf.save, pf.load, pf.onnx     batches: pf.data.DataLoader; files; ONNX models
    pf.distributed, pf.memory              several processes and GPUs; what fits into memory
    pf.explain, pf.profiler, pf.settings   what ran, what was fused, what it cost; what can be set
    pf.llm                                 language models: generate, serve, convert

Modules that begin with _ are private: they may change at any time. In a terminal, `pyflame --help`
lists the commands.
"""
TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:  # names that are imported when they are first used; and functions that _C has, too: the first one that a type checker sees counts
    from typing import Any

    from ._compile import compile as compile, is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled, set_anomaly_enabled as set_anomaly_enabled
    from ._configuration import load_settings as load_settings, no_fuse as no_fuse, settings as settings
    from ._einsum import einsum as einsum
    from ._elementwise_text import elementwise as elementwise
    from ._explain import explain as explain
    from ._functions import allclose as allclose, equal as equal, is_floating_point as is_floating_point, is_tensor as is_tensor, numel as numel, outer as outer
    from ._further_names import (
        adjoint as adjoint, arccos as arccos, arccosh as arccosh, arcsin as arcsin, arcsinh as arcsinh, arctan as arctan, arctan2 as arctan2, arctanh as arctanh,
        compiled_with_cxx11_abi as compiled_with_cxx11_abi, detach as detach, eig as eig, ger as ger, get_deterministic_debug_mode as get_deterministic_debug_mode,
        get_device_module as get_device_module, get_num_interop_threads as get_num_interop_threads, greater as greater, greater_equal as greater_equal,
        hash_tensor as hash_tensor, is_deterministic_algorithms_warn_only_enabled as is_deterministic_algorithms_warn_only_enabled,
        is_warn_always_enabled as is_warn_always_enabled, less as less, less_equal as less_equal, lstsq as lstsq, matrix_rank as matrix_rank, norm_except_dim as norm_except_dim,
        not_equal as not_equal, range as range, set_deterministic_debug_mode as set_deterministic_debug_mode, set_flush_denormal as set_flush_denormal,
        set_num_interop_threads as set_num_interop_threads, set_warn_always as set_warn_always, solve as solve, sym_float as sym_float, sym_int as sym_int, sym_ite as sym_ite,
        sym_max as sym_max, sym_min as sym_min, sym_not as sym_not, sym_sum as sym_sum, symeig as symeig, unsafe_split_with_sizes as unsafe_split_with_sizes
    )
    from ._generator import Generator as Generator, default_generator as default_generator, initial_seed as initial_seed, manual_seed as manual_seed, seed as seed
    from ._grad_mode import enable_grad as enable_grad, inference_mode as inference_mode, no_grad as no_grad, set_grad_enabled as set_grad_enabled
    from ._kernels import kernel as kernel
    from ._native import (
        max_pool2d_with_indices_backward as max_pool2d_with_indices_backward, native_batch_norm as native_batch_norm, native_dropout as native_dropout,
        native_dropout_backward as native_dropout_backward, native_group_norm as native_group_norm, native_layer_norm as native_layer_norm
    )
    from ._random import bernoulli as bernoulli
    from ._reductions import all as all, any as any, max as max, min as min, std as std, var as var
    from ._segments import segment_reduce as segment_reduce
    from ._selections import where as where
    from ._statistics import norm as norm
    from ._tensor_methods import empty_permuted as empty_permuted, empty_strided as empty_strided
    from .amp import (
        GradScaler as GradScaler, autocast as autocast, autocast_decrement_nesting as autocast_decrement_nesting, autocast_increment_nesting as autocast_increment_nesting,
        clear_autocast_cache as clear_autocast_cache, get_autocast_cpu_dtype as get_autocast_cpu_dtype, get_autocast_dtype as get_autocast_dtype,
        get_autocast_gpu_dtype as get_autocast_gpu_dtype, is_autocast_cache_enabled as is_autocast_cache_enabled, is_autocast_cpu_enabled as is_autocast_cpu_enabled,
        is_autocast_enabled as is_autocast_enabled, set_autocast_cache_enabled as set_autocast_cache_enabled, set_autocast_cpu_dtype as set_autocast_cpu_dtype,
        set_autocast_cpu_enabled as set_autocast_cpu_enabled, set_autocast_dtype as set_autocast_dtype, set_autocast_enabled as set_autocast_enabled,
        set_autocast_gpu_dtype as set_autocast_gpu_dtype
    )
    from . import (
        accelerator as accelerator, amp as amp, autograd as autograd, backend as backend, backends as backends, benchmarking as benchmarking,
        compiler as compiler, cpu as cpu, cuda as cuda, data as data, distributed as distributed, distributions as distributions, export as export,
        fft as fft, finance as finance, float8 as float8, func as func, functional as functional, fx as fx, hub as hub, io as io, jit as jit, linalg as linalg, llm as llm,
        memory as memory, models as models, mps as mps, mtia as mtia, multiprocessing as multiprocessing, nn as nn, onnx as onnx, optim as optim,
        optimizing as optimizing, overrides as overrides, profiler as profiler, quantization as quantization, random as random, return_types as return_types,
        rewrites as rewrites, serialization as serialization, signal as signal, sparse as sparse, special as special, storage as storage, testing as testing,
        torch as torch, torch_version as torch_version, train as train, tuning as tuning, types as types, utils as utils, xpu as xpu
    )
    from .autograd import checkpoint as checkpoint
    from .benchmarking import bench as bench
    from .cuda import Event as Event, Stream as Stream
    from .func import vmap as vmap
    from .io import load as load, load_checkpoint as load_checkpoint, load_gguf as load_gguf, save as save, save_checkpoint as save_checkpoint
    from .jit import fork as fork, wait as wait
    from .memory._batch_size import find_batch_size as find_batch_size
    from .memory._policy import checkpoint_policy as checkpoint_policy
    from .nn.functional import (
        adaptive_avg_pool1d as adaptive_avg_pool1d, adaptive_max_pool1d as adaptive_max_pool1d, avg_pool1d as avg_pool1d, bilinear as bilinear, conv1d as conv1d,
        conv2d as conv2d, conv3d as conv3d, conv_transpose1d as conv_transpose1d, conv_transpose2d as conv_transpose2d, conv_transpose3d as conv_transpose3d,
        max_pool1d as max_pool1d, max_pool1d_with_indices as max_pool1d_with_indices, max_pool2d as max_pool2d, max_pool3d as max_pool3d
    )
    from .nn.functional_convs import convolution as convolution
    from .nn.functional_grids import (
        affine_grid_generator as affine_grid_generator, grid_sampler as grid_sampler, grid_sampler_2d as grid_sampler_2d, grid_sampler_3d as grid_sampler_3d
    )
    from .nn.functional_recurrent import gru as gru, lstm as lstm, rnn_relu as rnn_relu, rnn_tanh as rnn_tanh
    from .nn.recurrent import gru_cell as gru_cell, lstm_cell as lstm_cell, rnn_relu_cell as rnn_relu_cell, rnn_tanh_cell as rnn_tanh_cell
    from .random import fork_rng as fork_rng
    from .signal.windows import (
        bartlett_window as bartlett_window, blackman_window as blackman_window, hamming_window as hamming_window, hann_window as hann_window, kaiser_window as kaiser_window
    )
    from .utils.dlpack import to_dlpack as to_dlpack
del TYPE_CHECKING
from . import _C
from . import _configuration
from ._configuration import load_settings as load_settings, no_fuse as no_fuse, settings as settings
from ._C import *  # noqa: F401,F403
from ._C import __version__
from ._C import (
    bfloat16 as bfloat16, bool_ as bool_, complex64 as complex64, complex128 as complex128, float16 as float16, float32 as float32, float64 as float64, int8 as int8,
    int16 as int16, int32 as int32, int64 as int64, uint8 as uint8
)
from ._C import float8_e4m3fn as float8_e4m3fn, float8_e4m3fnuz as float8_e4m3fnuz, float8_e5m2 as float8_e5m2, float8_e5m2fnuz as float8_e5m2fnuz  # noqa: F401
from ._generator import Generator as Generator, default_generator as default_generator, initial_seed as initial_seed, manual_seed as manual_seed, seed as seed
from ._grad_mode import enable_grad as enable_grad, inference_mode as inference_mode, no_grad as no_grad, set_grad_enabled as set_grad_enabled
from ._explain import explain as explain
from ._functions import allclose as allclose, equal as equal, is_floating_point as is_floating_point, is_tensor as is_tensor, numel as numel, outer as outer

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
from ._tensor_methods import empty_permuted as empty_permuted, empty_strided as empty_strided
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


# Names of Python's types. `from pyflame import *` takes what is in the dict of the module, so they leave it for this one when they are complete. It has no
# __all__: help(pyflame) would then repeat Tensor and all other compiled classes.
_BESIDE_PYTHONS = {}


def __getattr__(name: str) -> "Any":
    if name in _BESIDE_PYTHONS:
        return _BESIDE_PYTHONS[name]
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
_BESIDE_PYTHONS.update({name: globals().pop(name) for name in ("bool", "complex", "float", "int")})
_further_names.complete(globals())
_tensor_methods.complete(globals())
_configuration.load_from_environment()
if _configuration.os.environ.get("PYFLAME_PLUGINS"):
    from .tuning import plugin_entries as _plugins

    _plugins.load(_configuration.os.environ["PYFLAME_PLUGINS"])
_C._markers_follow_environment()
_C._log_api_usage_once = lambda *event: None  # programs call PyTorch's; nobody counts here


def __dir__():
    return sorted(set(globals()) | _BESIDE_PYTHONS.keys() | _SUBMODULES | set(_ATTRIBUTES))
