"""Type checkers and editors know the functions at the top of the package and the methods of Tensor: annotations, the stub of the compiled module, and mypy."""
import ast
import importlib.util
import inspect
import pathlib
import re
import subprocess
import sys
import types

import pytest

import pyflame as pf
from pyflame import _signatures

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools" / "site"))
import names  # noqa: E402

PACKAGE = pathlib.Path(pf.__file__).parent
STUB = PACKAGE / "_C.pyi"
# Folders and files whose functions have no annotations yet.
WITHOUT = ()


def python_function(value):
    """The function that is written in Python, of a function or a wrapper around one; None for others."""
    function = inspect.unwrap(value) if callable(value) else None
    return function if isinstance(function, types.FunctionType) else None


def part_of(function):
    """The folder of the package, or the file in it, where a function is written."""
    return pathlib.Path(function.__code__.co_filename).relative_to(PACKAGE).parts[0]


def lacking(function):
    """What has no annotation: names of parameters, and 'return'."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = [p.name for p in inspect.signature(function).parameters.values() if p.kind not in kinds]
    return [name for name in [*parameters, "return"] if name not in function.__annotations__]


# Modules whose functions have annotations, beside those at the top of the package.
DISTRIBUTED = (
    "pyflame.distributed", *(f"pyflame.distributed.{m}" for m in ("checkpoint", "checkpoint.state_dict", "device_mesh", "fsdp", "nn", "optim", "tensor", "tensor.parallel")),
)  # fmt: skip
MODULES = (*DISTRIBUTED, "pyflame.llm", "pyflame.optim")


@pytest.fixture(scope="module")
def functions():
    """{path: function} of the functions at the top of the package, and of MODULES, that are written in Python."""
    entries = names.inventory(pf)
    found = {path: python_function(e.value) for path, e in entries.items() if e.kind == "function" and (e.module in MODULES or any(p.count(".") == 1 for p in (path, *e.aliases)))}
    return {path: function for path, function in found.items() if function is not None}


def test_functions(functions):
    annotated = {path: function for path, function in functions.items() if part_of(function) not in WITHOUT}
    assert len(annotated) > 200
    wrong = {path: lacking(function) for path, function in annotated.items() if lacking(function)}
    assert not wrong, "these have no annotation: " + "; ".join(f"{path}: {', '.join(what)}" for path, what in wrong.items())


# Modules whose classes have annotations: their constructors, their public methods, and these of the others.
CLASSES = (*DISTRIBUTED, "pyflame.llm", "pyflame.optim", "pyflame.optim.lr_scheduler", "pyflame.optim.swa_utils", "pyflame.data", "pyflame.utils.data")
SPECIAL = ("__init__", "__len__", "__iter__", "__getitem__", "__getitems__", "__add__")


def test_optimizers_schedules_and_datasets():
    classes = {path: entry.value for path, entry in names.inventory(pf).items() if entry.kind == "class" and entry.module in CLASSES}
    methods = {f"{path}.{name}": python_function(v) for path, cls in classes.items() for name, v in vars(cls).items() if name[0] != "_" or name in SPECIAL}
    methods = {path: function for path, function in methods.items() if function is not None}
    assert len(classes) > 45 and len(methods) > 110
    wrong = {path: what for path, what in ((path, [name for name in lacking(function) if name not in ("self", "cls")]) for path, function in methods.items()) if what}
    assert not wrong, "these have no annotation: " + "; ".join(f"{path}: {', '.join(what)}" for path, what in wrong.items())


@pytest.fixture(scope="module")
def stub():
    """{name: its definitions in class Tensor of the installed stub}."""
    if not STUB.exists():
        pytest.skip("this build has no stub of the compiled module")
    tensor = next(node for node in ast.parse(STUB.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef) and node.name == "Tensor")
    found = {}
    for node in tensor.body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(node)
    return found


def test_methods_are_in_the_stub(stub):
    members = [name for name, value in vars(pf.Tensor).items() if python_function(value) or isinstance(value, property) and python_function(value.fget)]
    assert len(members) > 250
    missing = [name for name in members if name not in stub]
    assert not missing, f"class Tensor of _C.pyi lacks {', '.join(missing)}; hint: build again"


def test_methods_in_the_stub_have_annotations(stub):
    wrong = []
    for name, value in vars(pf.Tensor).items():
        function = python_function(value)
        if function and part_of(function) not in WITHOUT:
            for node in stub.get(name, ()):
                arguments = [*node.args.posonlyargs, *node.args.args][1:] + node.args.kwonlyargs
                wrong += [f"{name}: {a.arg}" for a in arguments if a.annotation is None] + [f"{name}: the result"] * (node.returns is None)
    assert not wrong, ", ".join(wrong)


def test_in_place_methods_have_one_signature(stub):
    """A type checker sees the parameters that inspect.signature() and help() show; further keywords stand behind them."""
    found = {name: value for name, value in vars(pf.Tensor).items() if _signatures.is_forwarding(value)}
    assert len(found) > 50
    for name, value in found.items():
        shown = list(inspect.signature(value).parameters)
        own = [[a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)] for node in stub[name]]
        assert any(each[: len(shown)] == shown for each in own), f"{name}: got {own}; expected {shown}"


@pytest.fixture(scope="module")
def entry_module():
    return ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8")).body


def test_names_are_exported(entry_module):
    """`from ._x import y as y` exports y; without the second y, type checkers take it for a private name."""
    imported = [alias for node in entry_module if isinstance(node, ast.ImportFrom) and node.module for alias in node.names]
    private = [alias.name for alias in imported if alias.name != "*" and (alias.asname or alias.name)[0] != "_" and alias.asname != alias.name]
    assert len(imported) > 40 and not private, f"write {', '.join(f'{name} as {name}' for name in private)}"


def test_names_that_type_checkers_need(entry_module):
    """A type checker takes the first import of a name: of a function that _C has, too, and of one that is imported when it is first used."""
    block = next(node for node in entry_module if isinstance(node, ast.If))
    assert block.test.id == "TYPE_CHECKING"
    listed = {alias.asname for node in block.body for alias in node.names}
    replaced = {name for name in vars(pf._C) if name[0] != "_" and python_function(getattr(pf, name, None))}
    assert {"max", "where"} <= replaced
    wanted = replaced | {name for name in (*pf._ATTRIBUTES, *pf._further_names._SAME) if name[0] != "_"}
    wanted |= {name.partition(".")[2] for name in names.module_names(pf) if name.count(".") == 1 and "._" not in name and name.partition(".")[2] not in IMPORTED}
    assert not wanted - listed, f"add to `if TYPE_CHECKING:` of pyflame/__init__.py: {', '.join(sorted(wanted - listed))}"


TENSOR, TENSORS = "pf.Tensor", "tuple[pf.Tensor, ...]"
# Calls and the types of their results.
TYPES = {
    "pf.addmm(x, x, x, beta=0.5)": TENSOR,
    "pf.cdist(x, x, p=1)": TENSOR,
    "pf.stft(x, 4, return_complex=True)": TENSOR,
    "pf.svd(x).S": TENSOR,
    "pf.svd(x)": "named.SVD",
    "pf.kthvalue(x, 2).indices": TENSOR,
    "pf.max(x)": TENSOR,
    "pf.max(x, 0)": "named.ValuesIndices",
    "pf.max(x, x)": TENSOR,
    "pf.min(x, 1, keepdim=True).values": TENSOR,
    "pf.sort(x).indices": TENSOR,
    "x.cummax(0).values": TENSOR,
    "pf.topk(x, 2)": "named.ValuesIndices",
    "pf.median(x)": TENSOR,
    "pf.median(x, 0).values": TENSOR,
    "pf.any(x, (0, 1))": TENSOR,
    "pf.var_mean(x, 0)": "tuple[pf.Tensor, pf.Tensor]",
    "pf.aminmax(x)": "named.MinMax",
    "pf.histogram(x, 3).bin_edges": TENSOR,
    "pf.where(x > 0)": TENSORS,
    "pf.where(x > 0, x, 0.0)": TENSOR,
    "pf.nonzero(x)": TENSOR,
    "pf.nonzero(x, as_tuple=True)": TENSORS,
    "pf.unique(x)": TENSOR,
    "pf.unique(x, return_counts=True)": TENSORS,
    "pf.atleast_2d(x)": TENSOR,
    "pf.atleast_2d(x, x)": TENSORS,
    "pf.tensor_split(x, 3)": TENSORS,
    "pf.meshgrid(x, x, indexing='ij')": TENSORS,
    "pf.tensordot(x, x, dims=([0], [1]))": TENSOR,
    "pf.einsum('ij,jk->ik', x, x)": TENSOR,
    "pf.segment_reduce(x, 'sum', lengths=x)": TENSOR,
    "pf.allclose(x, x)": "bool",
    "pf.numel(x)": "int",
    "pf.result_type(x, 1.5)": "pf.dtype",
    "pf.broadcast_shapes((2, 1), (3,))": "pf.Size",
    "pf.norm(x, p='fro', dim=0)": TENSOR,
    "pf.empty_strided((2, 2), (2, 1), dtype=pf.float16, device='cpu')": TENSOR,
    "pf.normal(0.0, 1.0, (2, 3), generator=pf.Generator())": TENSOR,
    "pf.manual_seed(1)": "pf.Generator",
    "pf.get_default_device()": "pf.device",
    "pf.load_gguf('a.gguf')": "tuple[dict[str, pf.Tensor], dict[str, Any]]",
    "pf.load_gguf('a.gguf', packed=True)": "tuple[dict[str, Any], dict[str, Any]]",
    "pf.compile(f)(x)": "int",
    "pf.no_grad()(f)(x)": "int",
    "pf.no_fuse(f)(x)": "int",
    "pf.arccos(x)": TENSOR,
    "x.kthvalue(2).values": TENSOR,
    "x.max()": TENSOR,
    "x.max(0).indices": TENSOR,
    "x.addmm_(x, x, alpha=2)": TENSOR,
    "x.unique(return_inverse=True)": TENSORS,
    "x.tile(2, 2)": TENSOR,
    "x.clamp_(0, 1)": TENSOR,
    "x.H": TENSOR,
    "x.is_cuda": "bool",
    "x.get_device()": "int",
    "x.storage().nbytes()": "int",
    "x.resize_(2, 6)": TENSOR,
    "x.svd().V": TENSOR,
    "x.var(0, correction=0)": TENSOR,
    "x.index_put_((x,), 1.0, accumulate=True)": TENSOR,
    "pf.optim.SGD([x], lr=x, momentum=0.9).step(lambda: x)": TENSOR,
    "pf.optim.LBFGS([x]).step(lambda: x)": TENSOR,
    "pf.optim.Adam([{'params': [x], 'lr': 0.1}]).state_dict()": "dict[str, Any]",
    "pf.optim.lr_scheduler.ChainedScheduler([]).state_dict()": "dict[str, Any]",
    "pf.optim.lr_scheduler.ReduceLROnPlateau(pf.optim.SGD([x])).is_better(1, 2)": "bool",
    "pf.optim.swa_utils.get_ema_avg_fn(0.9)(x, x, 1)": TENSOR,
    "pf.data.DataLoader([1, 2], batch_size=2)": "pf.data.DataLoader[int]",
    "pf.data.random_split([1, 2], [0.5, 0.5])": "list[pf.data.Subset[int]]",
    "pf.data.TensorDataset(x, x)[0]": TENSORS,
    "pf.distributed.all_reduce(x, group=pf.distributed.new_group([0]), async_op=True)": "pf.distributed.Work | None",
    "pf.distributed.isend(x, 1)": "pf.distributed.Work",
    "pf.distributed.fsdp.fully_shard(pf.nn.Linear(2, 2), mesh=pf.distributed.init_device_mesh('cpu', (2,)))": "pf.nn.Linear",
    "pf.distributed.init_device_mesh('cpu', (2,), mesh_dim_names=('dp',))['dp'].get_local_rank()": "int",
    "pf.distributed.tensor.distribute_tensor(x, placements=[pf.distributed.tensor.Shard(0)]).sum(0).full_tensor()": TENSOR,
    "pf.distributed.checkpoint.load_whole('folder')": "dict[str, Any]",
    "pf.distributed.recv(x, 1)": "int",
    "pf.distributed.TCPStore('h', 1, timeout=2.5).get('key')": "bytes",
    "pf.llm.load('a.gguf', dtype=pf.float16).logits([1, 2])": TENSOR,
    "pf.llm.load_tokenizer('a.gguf').encode('a')": "list[int]",
    "pf.llm.LLM('a.gguf').generate(['a', 'b'], pf.llm.SamplingParams())": "list[pf.llm.RequestOutput]",
    "list(pf.data.BatchSampler(pf.data.RandomSampler([1, 2]), 2))": "list[list[int]]",
}  # fmt: skip
# The code of the error that mypy has for each.
REFUSED = {
    "pf.addmm('a')": "call-arg",
    "pf.addmm(x, x, 'a')": "arg-type",
    "pf.cdist(x, x, p='two')": "arg-type",
    "pf.stft(x)": "call-arg",
    "pf.max(x, 'rows')": "call-overload",
    "pf.svd(x).W": "attr-defined",
    "x.kthvalue()": "call-arg",
    "x.fmax([1.0])": "arg-type",
    "pf.optim.SGD([x], lr='fast')": "arg-type",
    "pf.optim.SGD([x], rate=0.1)": "call-arg",
    "pf.optim.lr_scheduler.StepLR(0.1, 2)": "arg-type",
    "pf.distributed.broadcast(x, 'first')": "arg-type",
    "pf.distributed.get_rank('all')": "arg-type",
    "pf.distributed.fsdp.fully_shard(x)": "type-var",
    "pf.distributed.init_device_mesh('cpu', 'two')": "arg-type",
    "pf.distributed.tensor.Shard('rows')": "arg-type",
    "pf.distributed.checkpoint.save(x, checkpoint_id='folder')": "arg-type",
    "pf.llm.load(3)": "arg-type",
    "pf.llm.load('a.gguf').generate('a', max_tokens='b')": "arg-type",
    "pf.data.DataLoader(3)": "arg-type",
    "pf.data.DataLoader([1], batch_size=2.5)": "arg-type",
}  # fmt: skip


def messages_of_mypy(folder, lines):
    """[(number of a line, "error" or "note", text)] of `mypy --strict` for a program of these lines. Its exit status is 1 where there is an error."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed; hint: pip install mypy")
    program = folder / "program.py"
    program.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--show-error-codes", "--no-color-output", "--no-error-summary", "--cache-dir", str(folder / "cache"), program.name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, 1) and not done.stderr, done.stdout + done.stderr
    found = []
    for line in done.stdout.splitlines():
        file, number, kind, text = line.split(":", 3)
        assert file == program.name, f"mypy reports an error inside of the package: {line}"
        found.append((int(number), kind.strip(), text.strip()))
    assert done.returncode == any(kind == "error" for _, kind, _ in found), done.stdout
    return found


def test_mypy(tmp_path):
    lines = ["from typing import Any", "", "import pyflame as pf", "from pyflame import _named_tuples as named", "from typing_extensions import assert_type"]  # mypy has the stubs of both
    lines += ["", "x = pf.rand(3, 4)", "", "", "def f(a: pf.Tensor) -> int:", "    return a.get_device()", "", ""]
    begin = len(lines)
    lines += [f"assert_type({call}, {kind})" for call, kind in TYPES.items()] + list(REFUSED)
    lines += [f"pf.{name}" for name, _ in names.names_of(pf)]  # each is there, and not private
    errors = {}
    for number, kind, text in messages_of_mypy(tmp_path, lines):
        if kind == "error":
            errors.setdefault(number, []).append(text)
    refused = dict(enumerate(REFUSED, begin + len(TYPES) + 1))
    wrong = [f"{lines[number - 1]}: {text}" for number, texts in errors.items() if number not in refused for text in texts]
    assert not wrong, "\n".join(wrong)
    for number, call in refused.items():
        assert any(text.endswith(f"[{REFUSED[call]}]") for text in errors.get(number, [])), f"{call}: got {errors.get(number)}; expected an error [{REFUSED[call]}]"


# Modules that a program imports before it names them: an attribute access does not.
IMPORTED = ("einops", "llm.serving", "nn.attention.flex_attention")
# Names that a module without __all__ imports for its own use. They are public elsewhere, and private there.
USED = {
    "func.Tensor", "func.enable_grad", "io.Tensor", "overrides.Tensor", "autograd.forward_ad.Tensor", "autograd.forward_ad.is_grad_enabled", "autograd.functional.Tensor",
    "nn.init.no_grad", "nn.utils.parametrizations.Module", "nn.utils.parametrize.ModuleDict", "nn.utils.parametrize.ModuleList", "nn.utils.parametrize.Parameter",
    "nn.utils.parametrize.Tensor", "nn.utils.parametrize.no_grad", "nn.utils.prune.no_grad", "nn.utils.rnn.Tensor", "nn.utils.stateless.Tensor", "utils.dlpack.Tensor", "utils.tensorboard.Tensor",
}  # fmt: skip
# Modules whose other names are all of that kind: those with formulas for many distributions.
OWN = {"distributions.kl": ("kl_divergence", "register_kl")}


def own(path):
    """Whether a module of the package has a name for programs, and not for its own use."""
    module, _, name = path.rpartition(".")
    return path not in USED and name in OWN.get(module, (name,))


def test_mypy_knows_every_public_name(tmp_path):
    """By each of its paths, and with its type. The name of a class that is not available, which raises when an object is made, has none."""
    known, typed = [], []
    for path, entry in names.inventory(pf).items():
        for p in (path, *entry.aliases):
            p = p.partition(".")[2]
            if entry.kind != "data" and p[0] != "_" and own(p):
                (known if names.doc_of(entry.value).startswith("Not available in PyFlame") else typed).append(p)
    typed += [m for m in (name.partition(".")[2] for name in names.module_names(pf)) if m and m[0] != "_"]
    assert len(typed) > 1500
    lines = ["import pyflame as pf", *(f"import pyflame.{m}" for m in IMPORTED)]
    begin = len(lines)
    lines += [f"reveal_type(pf.{p})" for p in typed + known]
    found = messages_of_mypy(tmp_path, lines)
    wrong = [f"{lines[number - 1]}: {text}" for number, kind, text in found if kind == "error"]
    assert not wrong, "write `X as X` in the import of each, or add it to USED: " + "; ".join(wrong)
    revealed = {number: text for number, _, text in found if text.startswith("Revealed type is ")}
    assert len(revealed) == len(lines) - begin
    unknown = [p for number, p in enumerate(typed, begin + 1) if revealed[number] == 'Revealed type is "Any"']
    assert not unknown, f"add to `if TYPE_CHECKING:` of the module, or annotate the decorator: {', '.join(unknown)}"


def test_names_for_own_use_are_exceptions():
    """Each exception is a name that is there: the lists do not outlive what they list."""
    paths = {p.partition(".")[2] for path, entry in names.inventory(pf).items() for p in (path, *entry.aliases)}
    gone = sorted(USED - paths) + [f"{module}.{name}" for module, listed in OWN.items() for name in listed if f"{module}.{name}" not in paths]
    assert not gone, ", ".join(gone)
    program = "import operator, sys, pyflame\nfor m in sys.argv[1:]:\n    try:\n        print(operator.attrgetter(m)(pyflame))\n    except AttributeError:\n        pass"
    done = subprocess.run([sys.executable, "-c", program, *IMPORTED], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and not done.stdout, f"these are attributes now: {done.stdout}{done.stderr}"


# ---- the keywords beside an op's own (pyflame/_keywords.py)

VALUES_INDICES = "named.ValuesIndices"
# Calls with them, and the types of their results. Each is also made.
KEYWORDS = {
    "pf.sum(x, axis=0, keepdims=True)": TENSOR,
    "x.sum(axis=(0, 1))": TENSOR,
    "x.mean(axis=0)": TENSOR,
    "pf.softmax(x, axis=1)": TENSOR,
    "pf.cat([x, x], axis=0)": TENSOR,
    "pf.add(x, x, out=z)": TENSOR,
    "pf.matmul(x, x.T, out=z)": TENSOR,
    "pf.addmm(x, x, x.T @ x, out=z)": TENSOR,
    "pf.linalg.norm(x, axis=0)": TENSOR,
    "pf.std(x, axis=0)": TENSOR,
    "pf.median(x, axis=0)": VALUES_INDICES,
    "pf.median(x, axis=0, keepdims=True).values": TENSOR,
    "x.max(axis=1)": VALUES_INDICES,
    "pf.sort(x, axis=0, out=(z, i))": VALUES_INDICES,
    "pf.inverse(x.T @ x + pf.eye(4), out=z)": TENSOR,
    "pf.special.ndtr(x, out=z)": TENSOR,
    "x.transpose(axis0=0, axis1=1)": TENSOR,
    "x.cumsum_(axis=0)": TENSOR,
    "x.pow(exponent=2j)": TENSOR,
    "pf.randn(3, generator=pf.Generator())": TENSOR,
    "pf.zeros(2, pin_memory=False)": TENSOR,
    "pf.zeros(size=(2, 3), layout=pf.strided)": TENSOR,
    "pf.empty(2, memory_format=pf.contiguous_format)": TENSOR,
    "x.view(size=(4, 3))": TENSOR,
    "x.permute(dims=(1, 0))": TENSOR,
    "pf.nn.functional.normalize(x, axis=0)": TENSOR,
    "x * 1j": TENSOR,
    "1j - x": TENSOR,
    "x / (1 + 1j)": TENSOR,
    "pf.full((2,), 1j)": TENSOR,
}  # fmt: skip
# Calls that are errors, for type checkers and when they are made.
REFUSED_KEYWORDS = (
    "pf.addmm('a')", "pf.sum()", "pf.softmax(x)", "pf.softmax(x, axes=1)", "pf.softmax(x, axis='rows')", "pf.add(x, x, axis=0)", "pf.add(x, x, out='z')", "x.reshape(size=(4, 3))",
    "pf.all(x, axes=0)", "x < 1j", "pf.where(x > 0, out=z)", "pf.transpose(x, axis0=0)",
)  # fmt: skip


def test_mypy_knows_further_keywords(tmp_path):
    lines = ["import pyflame as pf", "from pyflame import _named_tuples as named", "from typing_extensions import assert_type", "x, z, i = pf.rand(3, 4), pf.empty(0), pf.empty(0, dtype=pf.int64)"]
    begin = len(lines) + len(KEYWORDS)
    lines += [f"assert_type({call}, {kind})" for call, kind in KEYWORDS.items()] + list(REFUSED_KEYWORDS)
    errors = {number: text for number, kind, text in messages_of_mypy(tmp_path, lines) if kind == "error"}
    wrong = [f"{lines[number - 1]}: {text}" for number, text in errors.items() if number <= begin]
    assert not wrong, "\n".join(wrong)
    taken = [call for number, call in enumerate(REFUSED_KEYWORDS, begin + 1) if number not in errors]
    assert not taken, f"mypy has no error for {', '.join(taken)}"


@pytest.mark.parametrize("call", [*KEYWORDS, *REFUSED_KEYWORDS])
def test_further_keywords_are_taken(call):
    names = {"pf": pf, "x": pf.rand(3, 4), "z": pf.empty(0), "i": pf.empty(0, dtype=pf.int64)}
    if call in KEYWORDS:
        eval(call, names)
    else:
        with pytest.raises((TypeError, IndexError)):
            eval(call, names)


def value_for(annotation, name):
    """An argument of this type; KeyError if there is none."""
    x = pf.eye(3) * 2
    tensors = {"mask": x > 0, "condition": x > 0, "index": pf.zeros(3, dtype=pf.int64), "indices": pf.zeros(3, 3, dtype=pf.int64)}
    kinds = [kind.rpartition(".")[2] for kind in annotation.split(" | ")]
    if kinds[0] == "Tensor" and name in tensors:
        return tensors[name]
    values = {"Tensor": x, "Operand": x, "int": 1, "float": 1.0, "bool": True, "Dim": 1, "Sequence[Tensor]": [x, x], "Number": 1, "Shape": (3, 3)}
    return values["int" if "int" in kinds else kinds[0]]


WORDS = {"axis": 1, "axis0": 0, "axis1": 1, "keepdims": True, "layout": pf.strided, "pin_memory": False, "memory_format": pf.contiguous_format, "generator": pf.Generator(), "exponent": 2}


def calls_of(path, function, node):
    """[(text, call)] of a definition: with its required arguments alone, and with each keyword of _keywords.py."""
    given = node.args
    required = given.args[: len(given.args) - len(given.defaults)]
    keywords = list(zip(given.kwonlyargs, given.kw_defaults))
    try:
        args = [value_for(ast.unparse(a.annotation) if a.annotation else "Tensor", a.arg) for a in required]
        named = {a.arg: WORDS[a.arg] if a.arg in WORDS else value_for(ast.unparse(a.annotation), a.arg) for a, default in keywords if default is None}
    except KeyError:
        return
    if given.vararg and not given.args[1:]:
        args = [*args, 3, 3]
    yield f"{path}{tuple(named)}", lambda: function(*args, **named)
    for a, default in keywords:
        if default is not None and a.arg in (*WORDS, "out"):
            value = WORDS.get(a.arg)
            if a.arg == "out":
                result = function(*args, **named)
                value = tuple(map(pf.zeros_like, result)) if isinstance(result, tuple) else pf.zeros_like(result)
            yield f"{path}{(*named, a.arg)}", lambda word=a.arg, value=value: function(*args, **named, **{word: value})


def test_keywords_of_the_stubs_are_taken():
    """Functions and methods that can be called with simple arguments take each keyword that their stub has."""
    if not STUB.exists():
        pytest.skip("this build has no stub of the compiled module")
    found = []
    for file in sorted(PACKAGE.rglob("*.pyi")):
        module = importlib.import_module(".".join(["pyflame", *file.relative_to(PACKAGE).with_suffix("").parts]))
        body = ast.parse(file.read_text(encoding="utf-8")).body
        for node in body:
            if isinstance(node, ast.FunctionDef):
                # Modules of the package have some functions without their wrapper: programs call those of the package.
                function = getattr(pf, node.name, None) if module.__name__.startswith("pyflame._") and module is not pf._C else None
                found.append((f"{module.__name__}.{node.name}", function or getattr(module, node.name), node))
            elif isinstance(node, ast.ClassDef) and node.name == "Tensor":
                found += [(f"Tensor.{n.name}", getattr(pf.Tensor, n.name), n) for n in node.body if isinstance(n, ast.FunctionDef)]
    called, wrong = 0, []
    for path, function, node in found:
        if path.rpartition(".")[2][0] == "_" or not any(a.arg in (*WORDS, "out") for a in node.args.kwonlyargs):
            continue
        for n, (text, call) in enumerate(calls_of(path, function, node)):
            try:
                call()
            except Exception as error:
                if text.endswith("'out')") or isinstance(error, TypeError) and re.search("wrong arguments|unexpected keyword|missing", str(error)):
                    wrong.append(f"{text}: {type(error).__name__}: {error}")
                if n == 0:
                    break  # not with these arguments
            called += n > 0
    assert not wrong, "\n".join(wrong)
    assert called > 600
