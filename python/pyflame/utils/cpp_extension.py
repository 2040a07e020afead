"""Ops of your own in C++: built by your compiler, kept on disk, recorded like any other op. docs/extensions.md shows how."""
import concurrent.futures
import ctypes
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from .. import _C, _refused, _signatures
from .._kernels import UserOp, _python_type

__all__ = ["load", "load_inline", "include_paths", "Extension", "BuildExtension", "CUDA_HOME", "ROCM_HOME"]

_ADVICE = "it builds PyTorch's extensions, which use PyTorch's C++ library; write the op with pyflame/extension.h and build it with cpp_extension.load (docs/extensions.md)"
CUDA_HOME = os.environ.get("CUDA_HOME") or None
ROCM_HOME = os.environ.get("ROCM_PATH") or None
BuildExtension = _refused.cls("utils.cpp_extension.BuildExtension", _ADVICE)
__getattr__ = _refused.module("utils.cpp_extension", _ADVICE)

_VERSION = 1  # of plugin.h
_FLAGS = ["-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden"]
_GPU = {".hip": "rocm", ".cu": "cuda"}
_KINDS = {"d": "float64", "i": "int64", "b": "bool"}
_SIGNATURE = re.compile(r"\s*(\w+)\s*\(([^()]*)\)\s*->\s*([\w\s,]+)")
_SHOWN = 40  # lines of a compiler's messages


def include_paths():
    """The folders of pyflame/extension.h, as a list of one, for a compiler's -I."""
    return [str(pathlib.Path(os.path.abspath(__file__)).parents[1] / "include")]  # the files may be links to those of a clone, which has no such folder


def load(name, sources, extra_cflags=None, extra_cuda_cflags=None, extra_ldflags=None, extra_include_paths=None, build_directory=None, verbose=False):
    """Builds a library from C++ sources and returns its ops, as functions of an Extension.

    name: of the library, an identifier. sources: paths of files: .cpp, .cc, .cxx for the C++ compiler (CXX, else c++), .hip for hipcc, .cu for nvcc. One of them
    lists the ops with PYFLAME_OPS of pyflame/extension.h.
    extra_cflags, extra_cuda_cflags, extra_ldflags: lists of arguments for the C++ compiler, for hipcc and nvcc, and for linking. extra_include_paths: folders.
    build_directory: where the library is kept; None: the folder extensions in PYFLAME_CACHE_DIR. verbose: True prints the commands.

    The library is built again only if a source, a header that it includes (system headers apart), an argument or the compiler's version is another.
    FileNotFoundError: a source does not exist. OSError: the folder cannot be written. RuntimeError: there is no compiler, or it refuses a source (with its messages), or the library lists no ops.
    ValueError: a name or a signature that makes no sense.

        >>> ext = pf.utils.cpp_extension.load("activations", ["activations.cpp"])  # doctest: +SKIP
        >>> ext.softplus(pf.randn(3), beta=2.0)  # doctest: +SKIP
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise ValueError(f"cpp_extension.load: the name is no identifier; got {name!r}; expected letters, digits and _")
    paths = [pathlib.Path(s) for s in ([sources] if isinstance(sources, (str, os.PathLike)) else sources)]
    if not paths:
        raise ValueError(f"cpp_extension.load: {name} has no sources; got an empty list; expected paths of files")
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"cpp_extension.load: there is no such source; got '{path}'; expected a file; hint: the current folder is {os.getcwd()}")
    include = [f"-I{p}" for p in [*include_paths(), *(extra_include_paths or [])]]
    flags = {False: [*_FLAGS, *include, *(extra_cflags or [])], True: ["-O2", "-std=c++20", *include, *(extra_cuda_cflags or [])]}
    build = _Build(name, paths, flags, list(extra_ldflags or []), build_directory, verbose)
    return Extension(name, build.library())


def load_inline(name, cpp_sources, extra_cflags=None, extra_ldflags=None, extra_include_paths=None, build_directory=None, verbose=False):
    """load() for C++ source text, cpp_sources: a string or a list of strings. The text lists its ops with PYFLAME_OPS. The other arguments are those of load.
    Raises ValueError for a name that is no identifier, TypeError for other sources, and RuntimeError for text that does not compile or lists no ops.

        >>> ext = pf.utils.cpp_extension.load_inline("twice", '''
        ... #include <pyflame/extension.h>
        ... using namespace pyflame::extension;
        ... void twice(Input<float> x, Output<float> out) { for (int64_t i = 0; i < x.size(); ++i) out[i] = 2 * x[i]; }
        ... PYFLAME_OPS(ops) { ops.add<twice>("twice(x) -> out"); }
        ... ''')  # doctest: +SKIP
        >>> ext.twice(pf.arange(3.0))  # doctest: +SKIP
        tensor([0., 2., 4.])
    """
    texts = [cpp_sources] if isinstance(cpp_sources, str) else list(cpp_sources)
    with tempfile.TemporaryDirectory(prefix="pyflame_extension_") as folder:
        paths = [pathlib.Path(folder) / f"{name}{'' if len(texts) == 1 else i}.cpp" for i in range(len(texts))]
        for path, text in zip(paths, texts):
            path.write_text(text, encoding="utf-8")
        return load(name, paths, extra_cflags, None, extra_ldflags, extra_include_paths, build_directory, verbose)


class _Build:
    """One library in its folder, and a file that lists the headers which it was built from."""

    def __init__(self, name, sources, flags, link_flags, build_directory, verbose):
        self.name, self.sources, self.flags, self.link_flags, self.verbose = name, sources, flags, link_flags, verbose
        self.compilers = {kind: _compiler(kind) for kind in {_GPU.get(s.suffix, "cpp") for s in sources} | {"cpp"}}
        cache = pathlib.Path(os.path.expanduser(os.environ.get("PYFLAME_CACHE_DIR") or "~/.cache/pyflame"))
        self.folder = pathlib.Path(build_directory) if build_directory else cache / "extensions"
        facts = [_VERSION, [s.name for s in sources], [_hash(s) for s in sources], flags[False], flags[True], link_flags, sorted((k, *c) for k, c in self.compilers.items())]
        self.key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
        self.listing = self.folder / f"{name}-{self.key}.json"

    def library(self):
        """The path of the library, which is built unless it is there."""
        try:
            known = json.loads(self.listing.read_text(encoding="utf-8"))
            library = self.folder / known["library"]
            if library.is_file() and all(_hash(path) == text for path, text in known["headers"].items()):
                return library
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # it is not there, or somebody changed it: the build writes it anew
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise OSError(f"cpp_extension.load: the library cannot be kept; got '{self.folder}' ({e.strerror}); expected a folder that can be written; hint: build_directory, or PYFLAME_CACHE_DIR") from e
        with tempfile.TemporaryDirectory(prefix=f"{self.name}-", dir=self.folder) as folder:
            with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
                built = list(pool.map(lambda numbered: self._object(pathlib.Path(folder), *numbered), enumerate(self.sources)))
            headers = {path: _hash(path) for _, paths in built for path in paths}
            content = hashlib.sha256(json.dumps([self.key, sorted(headers.items())]).encode()).hexdigest()[:16]
            library, new = self.folder / f"{self.name}-{content}.so", pathlib.Path(folder) / "library.so"
            linker = next((k for k in _GPU.values() if k in self.compilers), "cpp")
            self._call([*self.compilers[linker][0], "-shared", "-o", str(new), *(str(o) for o, _ in built), *self.link_flags], f"the objects of {self.name} cannot be linked")
            os.replace(new, library)  # another process may do the same
            listing = pathlib.Path(folder) / "listing.json"
            listing.write_text(json.dumps({"library": library.name, "headers": headers}), encoding="utf-8")
            os.replace(listing, self.listing)
        return library

    def _object(self, folder, number, source):
        """Compiles a source. Returns the object's path, and those of the headers."""
        kind = _GPU.get(source.suffix, "cpp")
        target, listed = folder / f"{number}.o", folder / f"{number}.d"
        position = ["-DPYFLAME_NO_OPS", "-Xcompiler", "-fPIC,-fvisibility=hidden"] if kind == "cuda" else ["-fPIC", "-fvisibility=hidden"] if kind == "rocm" else []
        self._call([*self.compilers[kind][0], *self.flags[kind != "cpp"], *position, "-MMD", "-MF", str(listed), "-c", "-o", str(target), str(source)], f"the compiler refuses {source}")
        words = shlex.split(listed.read_text(encoding="utf-8").replace("\\\n", " ").partition(":")[2])
        return target, sorted({os.path.abspath(w) for w in words} - {os.path.abspath(source)})

    def _call(self, command, what):
        if self.verbose:
            print(shlex.join(command), file=sys.stderr)
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            shown = "\n".join(lines[:_SHOWN]) + (f"\n… {len(lines) - _SHOWN} more lines" if len(lines) > _SHOWN else "")
            raise RuntimeError(f"cpp_extension.load: {what}; got status {done.returncode}; expected 0; hint: verbose=True prints the command\n{shown}")
        if self.verbose and done.stderr:
            print(done.stderr, file=sys.stderr, end="")


def _compiler(kind):
    """(the command, its version)."""
    variable, names = {"cpp": ("CXX", ["c++", "g++", "clang++"]), "rocm": ("HIPCC", ["hipcc", "/opt/rocm/bin/hipcc"]), "cuda": ("NVCC", ["nvcc", "/usr/local/cuda/bin/nvcc"])}[kind]
    command = shlex.split(os.environ.get(variable, "")) or next(([found] for n in names if (found := shutil.which(n))), None)
    if not command or not shutil.which(command[0]):
        raise RuntimeError(f"cpp_extension.load: there is no compiler; got {command[0] if command else 'none of ' + ', '.join(names)}; expected a program; "
                           f"hint: install one (the package g++), or name it in the environment variable {variable}")
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    return command, version.strip()


def _hash(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


class _Op(ctypes.Structure):
    _fields_ = [("signature", ctypes.c_char_p), ("kinds", ctypes.c_char_p), ("gradient", ctypes.c_char_p), ("function", ctypes.c_void_p), ("results", ctypes.c_void_p), ("context", ctypes.c_void_p)]


class _Table(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("count", ctypes.c_int32), ("ops", ctypes.POINTER(_Op)), ("error", ctypes.c_char_p)]


_NO_FUNCTION = "no function for these dtypes"  # of the header's error
_held = []  # libraries, which stay loaded because recorded work may call them


class Extension:
    """The ops of a library as functions. They take tensors and numbers in the order of the signature or by name.

    Raises OSError for a file that is no library; RuntimeError for a library without ops or for another version of the header; ValueError for a signature
    that cannot be read.
    """

    def __init__(self, name, path):
        self.__name__, self.__file__ = name, str(path)
        library = ctypes.CDLL(str(path))
        _held.append(library)
        try:
            table = library.pyflame_extension_table
        except AttributeError:
            raise RuntimeError(f"cpp_extension.load: the library lists no ops; got {name}; expected a source with PYFLAME_OPS(ops) {{ … }}") from None
        table.restype = ctypes.POINTER(_Table)
        listed = table().contents
        if listed.version != _VERSION:
            raise RuntimeError(f"cpp_extension.load: {name} was built for another version of plugin.h; got {listed.version}; expected {_VERSION}; hint: include the header of this PyFlame (cpp_extension.include_paths())")
        if listed.error:
            raise ValueError(f"cpp_extension.load: {name}: {listed.error.decode()}")
        self._ops = {}
        for entry in listed.ops[:listed.count]:
            op, gpu = _parse(name, entry), b"s" in entry.kinds
            self._ops.setdefault(op.name, op)._add(op, entry, gpu, name)
        for op in self._ops.values():
            op._find_gradient(self._ops, name)

    def __getattr__(self, op):
        ops = self.__dict__.get("_ops", {})
        if op in ops:
            return ops[op]
        raise AttributeError(f"{self.__name__}: there is no such op; got {op}; expected {', '.join(ops) or 'none: the library lists no ops'}")

    def __dir__(self):
        return sorted([*super().__dir__(), *self._ops])

    def __repr__(self):
        return f"pyflame.extension({self.__name__}: {', '.join(self._ops)})"


def _plain(scalars):
    return [int(v) if isinstance(v, bool) else v for v in scalars.values()]


def _parse(library, entry):
    text, kinds = entry.signature.decode(), entry.kinds.decode().replace("s", "")
    match = _SIGNATURE.fullmatch(text)
    if not match:
        raise ValueError(f"cpp_extension.load: {library}: a signature makes no sense; got {text!r}; expected \"name(x, number) -> out\"")
    names, outputs = [[n.strip() for n in part.split(",") if n.strip()] for part in match.group(2, 3)]
    given = [*names, *outputs]
    if "".join("o" if k == "o" else "a" for k in kinds) != "a" * len(names) + "o" * len(outputs):
        expected = f"{sum(k != 'o' for k in kinds)} arguments and then {kinds.count('o')} outputs"
        raise ValueError(f"cpp_extension.load: {library}: a signature does not fit its function; got {text!r}; expected names for {expected}")
    if len(set(given)) < len(given) or not all(n.isidentifier() for n in given):
        raise ValueError(f"cpp_extension.load: {library}: names of a signature are unusable; got {text!r}; expected different identifiers")
    if "t" not in kinds:
        raise ValueError(f"cpp_extension.load: {library}: an op has no tensor; got {text!r}; expected at least one Input")
    return ExtensionOp(match.group(1), names, kinds, outputs)


class ExtensionOp(UserOp):
    """An op of an extension."""

    _wants_backward = ".gradient(op) in PYFLAME_OPS"
    _wants_number = "an argument that is a double, int64_t or bool in C++ is a number"
    __signature__ = _signatures.OfObject(lambda op: ({}, {n: _python_type(op._scalars[n]) if n in op._scalars else "Tensor" for n in op._parameters}, {}, {}, op._result_type()))
    _reference = _backward = None

    def __init__(self, name, parameters, kinds, outputs):
        self.name, self._parameters, self._kinds, self._outputs = name, parameters, kinds, outputs
        self._inputs = [n for n, k in zip(parameters, kinds) if k == "t"]
        self._scalars = {n: _KINDS[k] for n, k in zip(parameters, kinds) if k != "t"}
        self._numbers, self._gradient = {}, ""  # _numbers: of the op's entries, for the CPU (False) and for GPUs (True)

    def _add(self, op, entry, gpu, library):
        if op._kinds != self._kinds or op._parameters != self._parameters or gpu in self._numbers:
            raise ValueError(f"cpp_extension.load: {library}: an op is listed twice; got {self.name}; expected one for the CPU and one with a Stream for GPUs, with the same arguments")
        types = [_C.float64 if kind == "float64" else _C.int64 for kind in self._scalars.values()]
        number = _C._register_extension_op(self.name, library, self._inputs, self._outputs, list(self._scalars), types, entry.function, entry.context or 0)
        self._numbers[gpu] = (number, entry.results, entry.context or 0)
        self._gradient = self._gradient or entry.gradient.decode()

    def _find_gradient(self, ops, library):
        if not self._gradient:
            return
        op = ops.get(self._gradient)
        inputs = 2 * len(self._outputs) + len(self._inputs)
        if op is None or (len(op._inputs), len(op._outputs), list(op._scalars.values())) != (inputs, len(self._inputs), list(self._scalars.values())):
            raise ValueError(f"cpp_extension.load: {library}: the gradient of {self.name} does not fit; got {op or self._gradient!r}; expected an op of {inputs} tensors (gradients of the outputs, inputs, outputs), "
                             f"the numbers ({', '.join(self._scalars.values())}), with {len(self._inputs)} outputs")

        def backward(grads, inputs, outputs, **scalars):
            results = op(*grads, *inputs, *outputs, **dict(zip(op._scalars, scalars.values())))
            results = (results,) if isinstance(results, _C.Tensor) else results
            return [r if t.dtype.is_floating_point else None for r, t in zip(results, inputs)]

        self._backward = backward

    def __call__(self, *args, **named):
        """The results for these arguments: a tensor, or a tuple if there are several outputs. Tensors that are not contiguous are copied.

        TypeError: an argument is missing, or is of another kind. ValueError: there is no function for the dtypes, or the tensors are on different devices.
        NotImplementedError: there is no function for the device. RuntimeError, when a result is read: the function threw an exception."""
        if len(args) > len(self._parameters):
            raise TypeError(f"{self.name}: too many arguments; got {len(args)}; expected {', '.join(self._parameters)}")
        given = dict(zip(self._parameters, args))
        for n, value in named.items():
            if n in given or n not in self._parameters:
                raise TypeError(f"{self.name}: an argument is given twice or unknown; got {n}; expected {', '.join(self._parameters)}")
            given[n] = value
        if missing := [n for n in self._parameters if n not in given]:
            raise TypeError(f"{self.name}: arguments are missing; got no {', '.join(missing)}; expected {', '.join(self._parameters)}")
        return super().__call__(*(given[n] for n in self._inputs), **{n: given[n] for n in self._scalars})

    def _takes(self, inputs, scalars, gpu):
        """Whether there is a function for the dtypes of these tensors, on GPUs or on the CPU."""
        inputs, scalars = self._arguments(inputs, scalars)
        try:
            self._results_of(self._numbers[gpu], inputs, scalars)
        except ValueError as e:
            if _NO_FUNCTION not in str(e):
                raise
            return False
        return True

    def _results_of(self, entry, inputs, scalars):
        """The shape and dtype of each output."""
        _, results, context = entry
        return _C._extension_results(self.name, results, context, list(inputs), _plain(scalars), len(self._outputs))

    def _run(self, inputs, scalars):
        kind = inputs[0].device.type
        entry = self._numbers.get(kind in ("rocm", "cuda")) if kind != "meta" else next(iter(self._numbers.values()))
        if entry is None:
            raise NotImplementedError(f"{self.name}: the extension has no function for this device; got {inputs[0].device}; expected {'a GPU' if True in self._numbers else 'cpu'}; "
                                      f"hint: {'move the tensors' if True in self._numbers else 'move the tensors, or add a function with a Stream'} (docs/extensions.md)")
        outs = self._results_of(entry, inputs, scalars)
        return _C._launch_kernel(entry[0], list(inputs), list(scalars.values()), [s for s, _ in outs], [d for _, d in outs], 1, 1, 1, 0, [])
