"""Parameters that docstrings do not name: arguments.py [N] prints the public functions and classes with N or more parameters (5) that lack some.

A parameter is named where its name stands in the docstring as a word, for a class in that of the class or of its __init__. "The arguments are those of X"
counts for the parameters that X has and names, X being a path below the package, or below one of the modules of PLACES. COMMON has the
parameters that mean the same everywhere; docs/common-arguments.md explains them, and they are not looked for.
"""
import enum
import inspect
import re
import sys

import names

COMMON = {"dtype", "device", "requires_grad", "generator", "out", "name"}
PLACES = ("nn.functional.", "", "nn.", "optim.", "distributed.", "llm.", "autograd.", "autograd.functional.", "fft.", "signal.windows.", "nn.utils.")
OTHERS = re.compile(r"\b[Aa]rguments are\s+those\s+of\s+((?:`?[\w.]+`?(?:\(\))?(?:,\s+|\s+and\s+)?)+)")


def parts_of(text):
    """The text divided at its commas outside of brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "[(") - (c in "])")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def compiled_parameters(signatures):
    found = {}
    for text, *_ in signatures:
        inner = re.search(r"def \w+\((.*)\)", text, re.S).group(1)
        found.update(dict.fromkeys(re.split("[:=]", part)[0].strip().lstrip("*") for part in parts_of(inner)))
    return [p for p in found if p.isidentifier() and p != "self"]


def parameters(value):
    """The names of the parameters, of all signatures together. The call of an enum is Python's."""
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        return []
    compiled = getattr(value, "__nb_signature__", None)
    try:
        plain = [] if compiled else list(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        plain, compiled = [], getattr(getattr(value, "__init__", None), "__nb_signature__", None)
    return compiled_parameters(compiled) if compiled else [p for p in plain if p != "self"]


def text_of(value):
    text = names.doc_of(value)
    own = vars(value).get("__init__") if inspect.isclass(value) else None
    return text + "\n" + own.__doc__ if isinstance(getattr(own, "__doc__", None), str) else text


def sources(text, module, entry_of):
    """The entries whose arguments the text says to be those of its own."""
    for listed in OTHERS.findall(text):
        for name in re.findall(r"[\w.]+\w", listed):
            for place in (module + ".", *("pyflame." + p for p in PLACES)):
                if place + name in entry_of:
                    yield entry_of[place + name]
                    break


def named(entry, entry_of, above=()):
    """The parameters of the entry that its docstring names, or that of an entry to which it points."""
    text, own = text_of(entry.value), parameters(entry.value)
    found = {p for p in own if p in COMMON or p.startswith("_") or re.search(rf"(?<!\w){re.escape(p)}(?!\w)", text)}
    for other in sources(text, entry.module, entry_of):
        if other.path != entry.path and other.path not in above:
            found |= named(other, entry_of, (*above, entry.path))
    return found & set(own)


def unnamed(entries, fewest):
    """{path: parameters without a name} of functions and classes with so many parameters."""
    entry_of = {path: e for e in entries.values() for path in (e.path, *e.aliases)}
    found = {}
    for path, entry in entries.items():
        own = parameters(entry.value) if entry.kind != "data" else []
        if len(own) >= fewest:
            has = named(entry, entry_of)
            lacks = [p for p in own if p not in has]
            if lacks:
                found[path] = lacks
    return found


if __name__ == "__main__":
    import pyflame

    for path, lacks in sorted(unnamed(names.inventory(pyflame), int(sys.argv[1]) if len(sys.argv) > 1 else 5).items()):
        print(f"{path}: {' '.join(lacks)}")
