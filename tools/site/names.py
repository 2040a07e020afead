"""The public Python names of the package: what the reference documents and what tests/tools/test_docstrings.py looks at.

Public modules are `pyflame`, its submodules that a program reaches as attributes, those that are imported with it and those that are imported
when they are first used, and the modules of SUBMODULES. A name of such a module is public
when it begins with a letter and is in `__all__`, or, where there is no `__all__`, is a function, a class or an object of a class that the package
defines. One object has one entry, under the first of its public paths; the others are its aliases.
"""
import importlib
import inspect
import types

LEFT_OUT = {"_dynamo", "torch"}  # private; an alias of the whole package
SUBMODULES = """
autograd.forward_ad autograd.functional autograd.graph backend.rocm cuda.amp cuda.nvtx cuda.profiler
distributed.checkpoint distributed.checkpoint.state_dict distributed.device_mesh distributed.fsdp distributed.nn distributed.optim
distributed.tensor distributed.tensor.parallel distributions.constraints distributions.kl llm.serving
nn.attention nn.attention.bias nn.attention.flex_attention nn.attention.varlen nn.functional nn.init nn.parallel nn.utils nn.utils.parametrizations nn.utils.parametrize nn.utils.prune nn.utils.rnn
nn.utils.stateless optim.lr_scheduler optim.swa_utils signal.windows utils.checkpoint utils.cpp_extension utils.data utils.dlpack
utils.tensorboard
""".split()
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)


class Entry:
    """One public object: its path, its aliases, what it is, and the members of a class."""

    def __init__(self, path, value):
        self.path, self.value, self.aliases = path, value, []
        self.kind = "class" if inspect.isclass(value) else "function" if is_function(value) else "data"
        self.members = dict(members_of(value)) if self.kind == "class" else {}

    @property
    def module(self):
        return self.path.rpartition(".")[0]


def is_function(value):
    return isinstance(value, FUNCTIONS) or type(value).__name__ in ("nb_func", "nb_method") or (callable(value) and hasattr(value, "__wrapped__"))


def doc_of(value):
    """The docstring, without the signatures that compiled functions repeat in it. That of a base class is not that of the class."""
    compiled = getattr(value, "__nb_signature__", None) if is_function(value) else None
    if compiled:
        return "\n\n".join(dict.fromkeys(clean(s[1]) for s in compiled if s[1]))
    text = value.__dict__.get("__doc__") if inspect.isclass(value) else getattr(value, "__doc__", None)
    return clean(text) if isinstance(text, str) else ""


def clean(text):
    """The text with the indentation of its first continued line removed from all of them."""
    return inspect.cleandoc(text).strip()


def member_doc(cls, name):
    """The docstring of a member, or of the same member of the first base class that has one."""
    for base in cls.__mro__:
        value = vars(base).get(name)
        value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        if value is not None and base is not object and doc_of(value):
            return doc_of(value)
    return ""


def module_names(root):
    names = [root.__name__]
    imported = {name for name, value in vars(root).items() if isinstance(value, types.ModuleType) and value.__name__ == f"{root.__name__}.{name}" and name[0] != "_"}
    names += [f"{root.__name__}.{m}" for m in sorted((root._SUBMODULES | imported) - LEFT_OUT)]
    names += [f"{root.__name__}.{m}" for m in SUBMODULES]
    return names


def modules(root):
    """{name: module} of the public modules. Each of them can be imported without further packages."""
    return {name: importlib.import_module(name) for name in module_names(root)}


def names_of(module):
    """(name, value) of each public name."""
    listed = getattr(module, "__all__", None)
    for name in sorted(set(listed if listed is not None else dir(module))):
        if name.startswith("_"):
            continue
        value = getattr(module, name, None)
        if isinstance(value, types.ModuleType) or value is None:
            continue
        if listed is None and (inspect.isclass(value) or is_function(value)):
            if not str(getattr(value, "__module__", "") or "").startswith("pyflame"):
                continue
        elif listed is None and not type(value).__module__.startswith("pyflame"):
            continue
        yield name, value


def inventory(root):
    """{path: Entry}, each object once."""
    entries, seen = {}, {}
    for module_name, module in modules(root).items():
        for name, value in names_of(module):
            path = f"{module_name}.{name}"
            if id(value) in seen:
                entry = seen[id(value)]
                if str(value) == path:  # a dtype is called as it prints
                    del entries[entry.path]
                    entry.path, path = path, entry.path
                    entries[entry.path] = entry
                entry.aliases.append(path)
            else:
                entries[path] = seen[id(value)] = Entry(path, value)
    return entries


def members_of(cls):
    """(name, value) of the public methods and properties that the class itself defines."""
    for name, value in sorted(vars(cls).items()):
        if name.startswith("_"):
            continue
        plain = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        if isinstance(plain, property) or is_function(plain):
            yield name, plain


def without_docstring(entries):
    """The paths of functions, classes and their members that have none."""
    for path, entry in entries.items():
        if entry.kind != "data" and not doc_of(entry.value):
            yield path
        for name in entry.members:
            if not member_doc(entry.value, name):
                yield f"{path}.{name}"
