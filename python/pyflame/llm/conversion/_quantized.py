"""Weights of folders whose quantization_config pf.llm.load reads (AWQ, GPTQ, fp8, compressed-tensors), one matrix at a time.

What the numbers are, _folder_blocks.py and _folder_scaled.py say. A matrix is decoded when the conversion is planned, so that what is wrong with it is found before
anything is written, and again when it is written."""
import numpy as np

from ... import _C, _foreign_files, tensor
from .. import _folder_blocks, _folder_scaled
from .._packed import PackedWeight
from ._weights import SAFETENSORS, Weight

_PARTS = ("qweight", "qzeros", "scales", "g_idx")  # of GPTQ and AWQ
_UNUSED = (".input_scale", ".input_zero_point", ".output_scale", ".k_scale", ".v_scale", ".q_scale")  # of activations and caches, which keep their dtype


class Coded(Weight):
    """A matrix of few bits. type: of GGUF's blocks that hold it, or F32; rows(): its numbers; raw(): the blocks, whose scales may be rounded to float16.

    make(dtype): the matrix as a tensor of this dtype, or with None as pf.llm.load keeps it; source: what the folder stores."""

    rounds = True

    def __init__(self, make, source, order=None, known=None):
        if known is None:
            kept, numbers = make(None), make(_C.float32)
            known = (kept.type if isinstance(kept, PackedWeight) else "F32"), tuple(numbers.shape)
        super().__init__(np.empty((0, 0), np.uint8), known[0], known[1], order)
        self._make, self.source, self._held = make, source, {}

    def _of(self, what, begin, end):
        """Rows of the decoded matrix, which is held until its last row was asked for."""
        if begin == end:
            return np.empty((0, 0), np.uint8)
        if what not in self._held:
            made = self._make(_C.float32 if what == "numbers" else None)
            array = made.blocks.numpy() if isinstance(made, PackedWeight) else made.numpy()
            self._held[what] = array if what == "numbers" or self.type != "F32" else array.view(np.uint8)
        array = self._held.pop(what) if end >= self.height else self._held[what]
        return array[begin:end] if self._order is None else array[self._order[begin:end]]

    def raw(self, begin, end):
        return self._of("blocks", begin, end)

    def rows(self, begin, end):
        return self._of("numbers", begin, end)

    def reordered(self, order):
        return Coded(self._make, self.source, order, (self.type, self.shape))

    def t(self):
        raise NotImplementedError("convert: the folder has quantized weights of an architecture with transposed matrices; got such a matrix; expected float weights")

    def reshaped(self, *shape):
        if shape != self.shape:
            raise NotImplementedError(f"convert: a quantized matrix has a form of its own in a GGUF file; got {self.shape} for {shape}; expected float weights")
        return self

    def __add__(self, number):
        raise NotImplementedError("convert: a quantized tensor has another offset in a GGUF file; got such a tensor; expected float weights")


def _tensor(kind, array):
    """An array of a file as a tensor. kind: its dtype in safetensors."""
    if kind == "BF16":
        return tensor(array.view(np.int16), device="cpu").view(_C.bfloat16)
    return tensor(np.array(array), device="cpu")


def _plain(kind, array):
    """A Weight, or the name of a dtype that has none."""
    if array is None or kind not in SAFETENSORS:
        return kind
    return Weight.of_bytes(np.ascontiguousarray(array).reshape(-1).view(np.uint8), SAFETENSORS[kind], array.shape or (1,))


def _groups(found, is_part):
    """(the other tensors, {module: {what: (kind, array)}})."""
    rest, modules = {}, {}
    for name, (kind, array) in found.items():
        module, _, what = name.rpartition(".")
        if is_part(what, kind):
            modules.setdefault(module, {})[what] = kind, array
        else:
            rest[name] = kind, array
    return rest, modules


def _of_blocks(parts, base, settings):
    """make() of a matrix of GPTQ or AWQ."""
    def make(dtype):
        return _folder_blocks._weight(base, {what: _tensor(*part) for what, part in parts.items()}, dtype, *settings)

    return make


def _of_scaled(parts, base, form):
    """make() of a matrix with scales."""
    wanted = "weight_packed" if form.kind == "packed" else "weight"
    if missing := [what for what, (_, array) in parts.items() if array is None]:
        raise NotImplementedError(f"convert: the weight '{base}' has a type that is not available; got {parts[missing[0]][0]} of {missing[0]}; expected one of {', '.join(_folder_scaled._KINDS)}")
    if wanted not in parts:
        raise ValueError(f"convert: the weight '{base}' is not complete; got {', '.join(sorted(parts))} without numbers of few bits; expected {wanted} too")
    # GGUF has no blocks of 8-bit floats.
    return lambda dtype: _folder_scaled._weight(base, form, parts, _C.float32 if form.kind == "fp8" else dtype)


def read(folder, config, is_file):
    """{name: Weight, or the name of a dtype} of a folder with this quantization_config. is_file(path): is told of each file, and raises for one of another kind.
    OSError, ValueError, NotImplementedError."""
    form = _folder_scaled.form_of(config, folder)
    settings = None if form else _folder_blocks.settings(config, folder)

    def load(path):
        is_file(path)
        return {name: (kind, array) for name, kind, array in _folder_scaled._arrays(path)}

    found = {name: part for name, part in _foreign_files.load_folder(folder, load).items() if not name.endswith(_UNUSED)}
    if form:
        rest, modules = _groups(found, lambda what, kind: what.startswith("weight_") or what == "weight" and (kind in _folder_scaled._FP8 or kind == "I8"))
        source = {"fp8": "fp8", "int8": "int8", "packed": f"{form.bits} bits"}[form.kind]
        coded = {f"{base}.weight": Coded(_of_scaled(parts, base, form), source) for base, parts in modules.items()}
    else:
        rest, modules = _groups(found, lambda what, kind: what in _PARTS)
        source = f"{settings[0]} {settings[1]} bits"
        coded = {f"{base}.weight": Coded(_of_blocks(parts, base, settings), source) for base, parts in modules.items()}
    return {**{name: _plain(*part) for name, part in rest.items()}, **coded}
