"""What `pyflame fit` plans: a transformer of known sizes, weights alone, or the function of a program."""
import dataclasses
import functools
import inspect
import os

from .. import _C, amp, nn
from .._tree import map as tree_map
from ..profiler.run import as_program, import_program
from . import _architecture, _decoder, _null
from ._estimate import estimate

PARTS = ("weights", "gradients", "optimizer", "KV cache", "activations")
_HALF = ("bfloat16", "float16")


@dataclasses.dataclass(frozen=True)
class Settings:
    """dtype: of the weights in inference, or 'stored'. precision: of training, 'float32', 'mixed' or 'bfloat16'. device: 'gpu' or 'cpu', on which weights in blocks take other bytes."""

    batch: int = 1
    context: int = None
    dtype: str = "stored"
    precision: str = "mixed"
    optimizer: str = "adamw"
    checkpointing: bool = False
    device: str = "gpu"


def _mixed(on):
    return amp.autocast(_C.get_device(), dtype=_C.bfloat16, enabled=on)


def _dtype(kind, settings):
    """The dtype of a planned model's weights."""
    if kind == "training":
        return "bfloat16" if settings.precision == "bfloat16" else "float32"
    return "bfloat16" if settings.dtype == "stored" else settings.dtype


@functools.lru_cache(maxsize=None)
def _bytes_a_parameter(kind, dtype, optimizer):
    """(weight, gradient, optimizer's state), from a plan of a layer."""
    layer = lambda: nn.Linear(1024, 1024, bias=False).to(_decoder.DTYPES[dtype])  # noqa: E731
    plan = estimate(layer, lambda: _C.zeros(1, 1024, dtype=_decoder.DTYPES[dtype], device="null"), optimizer=optimizer if kind == "training" else None)
    return tuple(round(b / plan.parameters, 2) for b in (plan.weights, plan.gradients, plan.optimizer))


def _of_parameters(kind, settings, parameters, stored_bytes):
    weight, gradient, state = (int(b * parameters) for b in _bytes_a_parameter(kind, _dtype(kind, settings), settings.optimizer))
    if kind == "inference" and settings.dtype == "stored" and stored_bytes is not None:
        weight = stored_bytes
    return {"weights": weight, "gradients": gradient, "optimizer": state}


def _in_blocks(tensor):
    return not hasattr(_C, tensor["dtype"])  # the name of a type, such as Q4_K or F8_E4M3, is no dtype's


def _loaded_bytes(tensors, device):
    """The bytes of the weights of a GGUF file, or of a folder with 8-bit floats, as pf.llm.load keeps them without a dtype. Products read most types of blocks as they are; the
    others are decoded. The rows of a GGUF file's embedding stay as stored, and a head that shares its weights has them in the order of products, too."""
    from ..llm._packed import nbytes_when_loaded

    on_gpu, all_bytes = device == "gpu", 0
    packed = [nbytes_when_loaded(t["dtype"], t["shape"], t["bytes"], on_gpu) if _in_blocks(t) else 0 for t in tensors]
    decoded = 2 if on_gpu and any(packed) else 4
    tied = all(t["name"] != "output.weight" for t in tensors)
    for t, made in zip(tensors, packed, strict=True):
        if made and t["name"] == "token_embd.weight":
            all_bytes += t["bytes"] + (made if tied else 0)
        elif _in_blocks(t):
            all_bytes += made or decoded * int(t["elements"])
        elif t["dtype"] in ("float16", "bfloat16"):
            all_bytes += decoded * int(t["elements"])
        else:
            all_bytes += t["bytes"]
    return all_bytes


class OfWeights:
    """Weights without sizes of layers: nothing is known of activations."""

    has_batch = has_context = False
    note = "Activations and the KV cache are not included: the files do not have the sizes of the layers. A folder with config.json does."

    def __init__(self, weights):
        self.name, self.parameters, self.stored_bytes = weights.name, weights.parameters, weights.stored_bytes
        self.context = None

    def plan(self, kind, settings):
        return {**_of_parameters(kind, settings, self.parameters, self.stored_bytes), "KV cache": None, "activations": None}


class OfArchitecture:
    """A transformer. Its activations are planned with a decoder of the same sizes."""

    has_batch = has_context = True

    def __init__(self, sizes):
        self.sizes, self.name, self.context, self.stored_bytes = sizes, sizes.name, sizes.context, sizes.stored_bytes
        self.parameters = sizes.parameters
        if self.parameters is None:
            with _null.planning():
                self.parameters = sum(p.numel() for p in _decoder.Decoder(sizes).parameters())
        self.blocks = any(_in_blocks(t) for t in sizes.tensors or ())
        self.note = ""
        if self.blocks:
            self.note = "Weights in blocks of few bits and of 8-bit floats count as pf.llm.load keeps them without a dtype: packed, or decoded where products do not take their type."
        elif self.stored_bytes is not None and self.stored_bytes < 1.5 * self.parameters:
            self.note = "Weights of few bits count as stored."

    def _stored(self, settings):
        return _loaded_bytes(self.sizes.tensors, settings.device) if self.blocks else self.stored_bytes

    def layer_bytes(self, weights):
        """The bytes of a layer, where all weights have so many: what is not the embedding's or the head's, divided by the layers."""
        s = self.sizes
        around = s.vocab * s.hidden * (1 if s.tied else 2)
        return weights * max(0, self.parameters - around) // self.parameters // s.layers

    def plan(self, kind, settings):
        dtype, training = _dtype(kind, settings), kind == "training"
        if self.blocks and not training and settings.dtype == "stored" and settings.device == "cpu":
            dtype = "float32"  # in which pf.llm.load computes there

        def make():
            model = _decoder.Decoder(self.sizes).to(_decoder.DTYPES[dtype]).train(training)
            if settings.checkpointing and training:
                model.enable_gradient_checkpointing()
            return model

        with _mixed(training and settings.precision == "mixed"):
            ids = lambda: _C.zeros(settings.batch, settings.context, dtype=_C.int64, device="null")  # noqa: E731
            p = estimate(make, ids, optimizer=settings.optimizer if training else None)
        cache = 2 * self.sizes.layers * self.sizes.kv_heads * self.sizes.head_dim * settings.batch * settings.context * (2 if dtype in _HALF else 4)
        rest = max(0, p.peak - p.weights - p.gradients - p.optimizer)
        return {**_of_parameters(kind, settings, self.parameters, self._stored(settings)), "KV cache": 0 if training else cache, "activations": rest}


class OfProgram:
    """FILE.py:function, which returns a Module, or (Module, inputs), or (Module, inputs, loss). It is called on the null device, with batch= and context=
    if it takes them."""

    stored_bytes = None

    def __init__(self, word):
        path, _, name = word.rpartition(":")
        self.name, self.function = word, _function_of(path, name, word)
        signature = inspect.signature(self.function)
        self.has_batch, self.has_context = "batch" in signature.parameters, "context" in signature.parameters
        try:
            signature.bind(**{key: 1 for key in ("batch", "context") if key in signature.parameters})
        except TypeError as e:
            raise ValueError(f"fit: the function needs arguments; got {name}{signature} of {path}: {e}; expected one that takes batch, context or nothing; "
                             "hint: give the others defaults, as in def model(width=64)") from None
        self.context = None
        with _null.planning():
            made = self._made(Settings(batch=1, context=128))
            self.parts = len(made)
            self.parameters = sum(p.numel() for p in made[0].parameters())
        self.note = "" if self.parts > 1 else "Activations are not included: the function returns a model without inputs; expected (model, inputs)."

    def _made(self, settings):
        given = {"batch": settings.batch} if self.has_batch else {}
        if self.has_context:
            given["context"] = settings.context
        made = self.function(**given)
        made = made if isinstance(made, (tuple, list)) else (made,)
        if not made or not isinstance(made[0], nn.Module) or len(made) > 3:
            raise ValueError(f"fit: {self.name} returned {type(made[0]).__name__ if made else 'nothing'}; expected a Module, (Module, inputs) or (Module, inputs, loss)")
        return tuple(made)

    def plan(self, kind, settings):
        dtype, training = _dtype(kind, settings), kind == "training"
        if self.parts == 1:
            return {**_of_parameters(kind, settings, self.parameters, None), "KV cache": None, "activations": None}

        def make():
            model = self._made(settings)[0].to(_decoder.DTYPES[dtype]).train(training)
            if settings.checkpointing and training:
                model.enable_gradient_checkpointing()
            return model

        def inputs():
            given = self._made(settings)[1]
            given = given if training or self.parts < 3 or not isinstance(given, (tuple, list)) else tuple(given)[:-1]
            return tree_map(lambda t: t.to(_decoder.DTYPES[dtype]) if getattr(t, "dtype", None) == _C.float32 else t, given)

        with _mixed(training and settings.precision == "mixed"):
            loss = None
            if training and self.parts == 3:
                with _null.planning():
                    loss = self._made(settings)[2]
            p = estimate(make, inputs, loss=loss, optimizer=settings.optimizer if training else None)
        rest = max(0, p.peak - p.weights - p.gradients - p.optimizer)
        return {"weights": p.weights, "gradients": p.gradients, "optimizer": p.optimizer, "KV cache": 0 if training else None, "activations": rest}


def _function_of(path, name, word):
    if not os.path.exists(path):
        raise FileNotFoundError(f"fit: there is no such file; got {path!r} of {word!r}; expected FILE.py:function")
    module = import_program(path)
    function = getattr(module, name, None)
    if not callable(function):
        names = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", None) == module.__name__]
        raise ValueError(f"fit: {path} has no function {name!r}; it has {', '.join(names) or 'none'}")

    @functools.wraps(function)
    def call(*args, **kwargs):
        with as_program(path):
            return function(*args, **kwargs)

    return call


def source_of(model):
    """What a word of the command line means, or a Module or a function that returns what FILE.py:function does."""
    if isinstance(model, (str, os.PathLike)):
        word = os.fspath(model)
        path, _, name = word.rpartition(":")
        if path.endswith(".py") and name.isidentifier():
            return OfProgram(word)
        found = _architecture.read(word)
        return OfArchitecture(found) if isinstance(found, _architecture.Architecture) else OfWeights(found)
    raise TypeError(f"fit: not a model; got {type(model).__name__}; expected a path, or 'FILE.py:function'; hint: pf.memory.estimate plans a Module")
