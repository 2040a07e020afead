"""Reads tensors from the files of other programs, for pyflame.load. The formats themselves are read by the C++ core (src/pyflame/io) and NumPy."""
import glob
import json
import os
import warnings

from . import _C
from ._C import ArgumentError, Tensor


def _place(map_location):
    """The function of (tensor, location) that moves a tensor of a file to where it shall be."""
    if map_location is None or isinstance(map_location, (str, _C.device)):
        device = _C.get_device() if map_location is None else map_location
        return lambda t, location: t.to(device)
    if isinstance(map_location, dict):
        return lambda t, location: t.to(map_location.get(location, _C.get_device()))
    if not callable(map_location):
        raise TypeError(f"load: map_location is of the wrong type; got {type(map_location).__name__}; expected a device, a dict or a function")

    def asked(t, location):
        place = map_location(t, location)
        return t if place is None else place if isinstance(place, Tensor) else t.to(place)

    return asked


def _placed(tensors, map_location):
    place = _place(map_location)
    return {name: place(t, "cpu") for name, t in tensors.items()}


def _first_bytes(path):
    with open(path, "rb") as f:
        return f.read(8)


def load_safetensors(path, map_location):
    """(tensors, metadata). A tensor that is tied to another one is stored once; the metadata then maps its name to the other one's."""
    plain = map_location is None or isinstance(map_location, (str, _C.device))
    try:
        tensors, metadata = _C.load_safetensors(path, map_location if plain else "cpu")
    except ValueError as e:
        if str(path).endswith(".safetensors") or "a safetensors file" not in str(e):
            raise
        hint = "pyflame.onnx.load reads models in the ONNX format" if str(path).endswith(".onnx") else "an empty or cut file has no format either"
        raise type(e)(f"load: '{path}' has no format that is known; got the first bytes {_first_bytes(path)!r}; expected a file of safetensors, torch.save, TorchScript, GGUF, npy or npz; hint: {hint}") from None
    if not plain:
        tensors = _placed(tensors, map_location)
    for name, other in metadata.items():
        if other in tensors and name not in tensors and name != "structure":
            tensors[name] = tensors[other]
    return tensors, metadata


def load(kind, path, map_location):
    if kind == "torch":
        from .nn.parameter import Parameter

        try:
            return _C.read_torch_file(path, _place(map_location), Parameter)
        except UnicodeDecodeError as e:
            raise ArgumentError(f"load: '{path}' is damaged: the location of a tensor is not UTF-8 ({e.reason}); expected a file of torch.save") from None
    if kind == "gguf":
        return _placed(_C._read_gguf(path, "cpu")[0], map_location)
    return _load_numpy(path, map_location)


_WIDER = {"uint16": "int32", "uint32": "int64", "uint64": "int64"}  # dtypes that hold the numbers of those that tensors do not have


def _tensor_of_numpy(array):
    """The tensor, and no reason; or no tensor, and why not."""
    if isinstance(array, bytes):  # a member of the archive that is no npy file
        return None, "not an array"
    if array.dtype.name in _WIDER:
        if array.dtype.name == "uint64" and array.size and array.max() >= 2**63:
            return None, "uint64 with numbers from 2**63 on"
        array = array.astype(_WIDER[array.dtype.name])
    if array.dtype.kind not in "biufc" or array.dtype.itemsize > (16 if array.dtype.kind == "c" else 8):
        return None, f"dtype {array.dtype}"
    return _C.tensor(array.astype(array.dtype.newbyteorder("="), copy=False), device="cpu"), None


def _tensors_of_npz(path, archive):
    tensors, left_out = {}, []
    for name in archive.files:
        try:
            tensor, reason = _tensor_of_numpy(archive[name])
        except ValueError as e:
            if not str(e).startswith("Object arrays"):
                raise
            tensor, reason = None, "objects of Python"
        if reason:
            left_out.append(f"{name} ({reason})")
        else:
            tensors[name] = tensor
    if left_out and not tensors:
        raise ValueError(f"no array of numbers; got {', '.join(left_out[:10])}; expected a dtype of tensors")
    if left_out:
        warnings.warn(f"load: '{path}' has arrays that cannot be tensors and are left out: {', '.join(left_out)}", stacklevel=5)
    return tensors


def _load_numpy(path, map_location):
    import numpy as np

    place = _place(map_location)
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            tensor, reason = _tensor_of_numpy(loaded)
            if reason:
                raise ValueError(f"it is no array of numbers that a tensor can have; got {reason}")
            return place(tensor, "cpu")
        with loaded:
            tensors = _tensors_of_npz(path, loaded)
    except (ValueError, KeyError, EOFError, NotImplementedError, SyntaxError, MemoryError) as e:
        raise ValueError(f"load: '{path}' cannot be read as a file of NumPy: {e}") from None
    except Exception as e:  # zipfile.BadZipFile, zlib.error, tokenize.TokenError
        if type(e).__module__ not in ("zipfile", "zlib", "tokenize"):
            raise
        raise ValueError(f"load: '{path}' cannot be read as a file of NumPy: {e}") from None
    return {name: place(t, "cpu") for name, t in tensors.items()}


def load_folder(folder, load_file):
    """The tensors of a model's folder: one file, or several with an index that says which tensor is in which."""
    for index, single in (("*.safetensors.index.json", "*.safetensors"), ("*.bin.index.json", "*.bin")):
        indices, files = _names(folder, index), _names(folder, single)
        if indices:
            return load_shards(os.path.join(folder, _only(folder, indices, ("model", "diffusion", "pytorch_model"))), load_file)
        if files:
            return load_file(os.path.join(folder, _only(folder, files, ("model.safetensors", "diffusion_pytorch_model.safetensors", "pytorch_model.bin"))))
    raise ValueError(
        f"load: '{folder}' has no weights; got {', '.join(sorted(os.listdir(folder))[:10]) or 'an empty folder'}; "
        "expected model.safetensors, pytorch_model.bin, or an index of several such files"
    )


def _names(folder, pattern):
    return sorted(os.path.basename(p) for p in glob.glob(os.path.join(glob.escape(folder), pattern)))


def _only(folder, names, preferred):
    """The one name, or the one that begins as models are usually called."""
    known = [n for p in preferred for n in names if n.startswith(p)]
    if len(names) > 1 and not known:
        raise ValueError(f"load: '{folder}' has several files with weights; got {', '.join(names[:10])}; expected one; hint: load the file itself")
    return (known or names)[0]


def load_shards(index, load_file):
    """The tensors of all files that an index names, which lie beside it."""
    try:
        with open(index, encoding="utf-8") as f:
            places = json.load(f)["weight_map"]
        files = sorted(set(places.values()))
        inside = all(isinstance(n, str) and n == os.path.basename(n) and n not in ("", ".", "..") for n in files)
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise ValueError(f"load: '{index}' is not an index of weights ({type(e).__name__}: {e})") from None
    if not inside:
        raise ValueError(f"load: '{index}' names files outside of its folder; got {files[:5]}; expected names of files beside it")
    missing = [n for n in files if not os.path.exists(os.path.join(os.path.dirname(index), n))]
    if missing:
        raise FileNotFoundError(f"load: '{index}' names files that are not there; got {', '.join(missing[:5])}; hint: the download may be incomplete")
    tensors = {}
    for name in files:
        tensors.update(load_file(os.path.join(os.path.dirname(index), name)))
    absent = [n for n in places if n not in tensors]
    if absent:
        raise ValueError(f"load: '{index}' names tensors that its files do not have; got {', '.join(absent[:5])} ({len(absent)} in all)")
    return tensors
