"""Pages of the Python reference, from the signatures and docstrings of an installed pyflame: python_reference.py FOLDER.

One page per public module (names.py says which); the package itself, which has hundreds of functions, is divided by first letters, and Tensor has
a page of its own. `uses.json` and `tried.json`, if tools/site/uses.py and tried.py wrote them into FOLDER, name for each path the page with an example that
CI runs, and shapes, dtypes and errors that were found by calling.
"""
import inspect
import json
import pathlib
import re
import sys

import names

PER_PAGE = 90  # names on a page of the package
COMMON_PAGE = "../../docs/common-arguments.md"
COMMON = "Arguments that mean the same in every entry (" + ", ".join(f"[`{n}`]({COMMON_PAGE}#{n})" for n in ("dtype", "device", "requires_grad", "out", "generator")) + f") are explained in [common arguments]({COMMON_PAGE})."
CODE = re.compile(r"(`+[^`]*`+)")


def text_of(doc):
    """A docstring as Markdown: paragraphs with everything but `code` taken literally, and indented parts as blocks."""
    found, block = [], []
    lines = doc.split("\n")
    first = len(lines[0]) > 0 and not lines[0].startswith(" ")

    def end():
        while block and not block[-1].strip():
            block.pop()
        if block:
            found.extend(["", "`````" + ("python" if is_code(block) else "text"), *[b[4:] for b in block], "`````", ""])
        block.clear()

    blank = False
    for line in lines:
        if line.startswith("    ") and (block or blank):
            block.append(line)
        elif not line.strip() and block:
            block.append("")
        else:
            end()
            found.append(literal(line.strip()))
        blank = not line.strip()
    end()
    return "\n".join(found).strip() if first or found else ""


def is_code(block):
    try:
        compile("\n".join(b[4:] for b in block), "block", "exec")
    except (SyntaxError, ValueError):
        return False
    return any(c in "".join(block) for c in "=(.")


def literal(line):
    parts = CODE.split(line)
    parts[::2] = [re.sub(r"([\\*_<>\[\]{}$|#~^&])", r"\\\1", p) for p in parts[::2]]
    line = "".join(parts)
    return re.sub(r"^(\+|\d+[.)])(\s)", r"\\\1\2", line)  # "- " at the beginning of a line is an item of a list


def plain_default(value):
    text = repr(value)
    return "..." if "<" in text or len(text) > 40 else text


def signatures(value, bound=False):
    """The calls of a function, or of a class: one, or several of a compiled one. bound: without the first parameter, as an object's method is called."""
    compiled = getattr(value, "__nb_signature__", None)
    if compiled:
        from pyflame import _signatures

        result = _signatures.results().get(value.__qualname__, "object")
        return list(dict.fromkeys(re.sub("-> object$", f"-> {result}", compiled_signature(s)) for s in compiled))
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        init = getattr(getattr(value, "__init__", None), "__nb_signature__", None)
        return [re.sub(r"^\(self(, )?", "(", compiled_signature(s)).partition(" ->")[0] for s in init] if init else [""]
    parameters = []
    for n, p in enumerate(signature.parameters.values()):
        if n == 0 and (bound or p.name == "self") and p.kind is not p.VAR_POSITIONAL:
            continue
        default = p.default if p.default is p.empty else Shown(plain_default(p.default))
        parameters.append(p.replace(annotation=p.empty, default=default))
    return [str(signature.replace(parameters=parameters, return_annotation=signature.empty))]


def member_signatures(cls, name):
    """The calls of a method of a class, whatever its first parameter is called."""
    member = vars(cls)[name]
    return signatures(getattr(member, "__func__", member), bound=not isinstance(member, staticmethod))


class Shown:
    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


def compiled_signature(entry):
    text, _, defaults = entry
    for index, default in enumerate(defaults or ()):
        text = re.sub(rf"\\{index}(?!\d)", lambda m: plain_default(default), text)
    text = re.sub(r"^(@\w+\s+)*def \w+", "", text.strip()).replace("pyflame._C.", "").replace("pyflame.", "")
    return re.sub(r"^\(self(: [\w.]+)?(, )?", "(", text)


def parsed(text):
    """The signature if Python can read it; otherwise without annotations, and at last without arguments."""
    for candidate in (text, re.sub(r"\s*->.*$", "", text)):
        try:
            compile(f"def f{candidate or '()'}: ...", "signature", "exec")
            return candidate
        except SyntaxError:
            continue
    return "(...)"


def directive(kind, path, value, doc, ticks, notes=(), calls=None):
    lines = ["", "`" * ticks + f"{{py:{kind}}} " + path]
    if kind in ("function", "class", "method"):
        calls = [path + parsed(s) for s in calls or signatures(value)]
        lines[1] = "`" * ticks + f"{{py:{kind}}} " + calls[0]
        extra = calls[1:]
        if extra:
            notes = [*notes, "Also called as " + ", ".join(f"`{c[path.rfind('.') + 1:]}`" for c in extra) + "."]
    lines += ["", text_of(doc) or "(no text)"]
    for note in notes:
        lines += ["", note]
    return lines, "`" * ticks


def function_of(value):
    """The path of the function that a layer's forward() calls, where it calls one of nn.functional; its text has the arguments and errors."""
    import pyflame
    from pyflame.nn import functional

    if not (inspect.isclass(value) and issubclass(value, pyflame.nn.Module)):
        return None
    own = getattr(value, "_function", None)
    if own is None and "forward" in vars(value):
        found = set(re.findall(r"\b(?:F|_C)\.(\w+)\(", inspect.getsource(value.forward)))
        return f"nn.functional.{found.pop()}" if len(found) == 1 and hasattr(functional, min(found)) else None
    name = getattr(own, "__name__", "")
    return f"nn.functional.{name}" if own is not None and getattr(functional, name, None) is own else None


def entry_text(entry, uses, tried, module=None, entry_of=None):
    """The entry; on a page that declares its `module`, by the name below that. `entry_of` has the paths of entries by all public paths."""
    path = entry.path
    shown = path.removeprefix(f"{module}.")
    notes = ["Found by calling it:\n\n" + "\n".join(f"- {line}" for line in tried[path])] if path in tried else []
    if entry.kind == "class" and (function := function_of(entry.value)):
        notes.append(f"Computed by {f'{{py:obj}}`{function} <{entry_of[full]}>`' if entry_of and (full := 'pyflame.' + function) in entry_of else f'`{function}`'}, whose entry says more of arguments and errors.")
    if path in uses:
        notes.append("Example: " + ", ".join(f"[{title}]({link})" for title, link in uses[path][:3]) + ".")
    same = [a for a in entry.aliases if a.rpartition(".")[2] != path.rpartition(".")[2] or a.count(".") > path.count(".")]
    if same:
        notes.append("Also " + ", ".join(f"`{a}`" for a in same) + ".")
    if entry.kind == "data":
        lines, close = directive("data", shown, entry.value, f"`{entry.value!r}`" if "<" not in repr(entry.value) and "`" not in repr(entry.value) else names.doc_of(type(entry.value)), 8, notes)
        return "\n".join([*lines, close])
    lines, close = directive(entry.kind, shown, entry.value, names.doc_of(entry.value), 8, notes)
    for name, member in entry.members.items():
        kind = "property" if isinstance(member, property) else "method"
        calls = None if kind == "property" else member_signatures(entry.value, name)
        part, end = directive(kind, name, member, names.member_doc(entry.value, name), 7, calls=calls)
        lines += [*part, end]
    return "\n".join([*lines, close])


def first_sentence(doc):
    """What a list says of a docstring or of a header's comment: its first sentence, or the words of it that fit."""
    first = re.split(r"(?<=[.;])\s", " ".join(doc.split("\n\n")[0].split()), maxsplit=1)[0] if doc else ""
    return re.sub("[;:]$", ".", first) if len(first) <= 120 else first[:118].rpartition(" ")[0].rstrip(",;:") + " …"


def table(entries):
    lines = ["| name | |", "|---|---|"]
    for e in entries:
        doc = names.doc_of(e.value) if e.kind != "data" else ""
        lines.append(f"| {{py:obj}}`{e.path.rpartition('.')[2]} <{e.path}>` | {literal(first_sentence(doc))} |")
    return "\n".join(lines)


def page(title, intro, entries, *of_entries):
    return "\n".join([f"# {title}", "", intro, "", COMMON, *[entry_text(e, *of_entries) for e in entries], ""])


def divided(entries):
    """Parts of at most PER_PAGE names, cut between first letters where that is possible."""
    parts = [[]]
    for e in entries:
        letter = e.path.rpartition(".")[2][0].lower()
        if len(parts[-1]) >= PER_PAGE * 2 // 3 and parts[-1][-1].path.rpartition(".")[2][0].lower() != letter or len(parts[-1]) >= PER_PAGE * 2:
            parts.append([])
        parts[-1].append(e)
    return parts


def write(folder):
    import pyflame

    uses, tried = (json.loads((folder / name).read_text()) if (folder / name).is_file() else {} for name in ("uses.json", "tried.json"))
    inventory, modules = names.inventory(pyflame), names.modules(pyflame)
    entry_of = {path: e.path for e in inventory.values() for path in (e.path, *e.aliases)}
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for module_name, module in modules.items():
        entries = sorted((e for e in inventory.values() if e.module == module_name), key=lambda e: e.path.rpartition(".")[2].lower())
        intro = text_of(names.doc_of(module))
        if module_name == "pyflame":
            continue
        same = sorted((a.rpartition(".")[2], e.path) for e in inventory.values() for a in e.aliases if a.rpartition(".")[0] == module_name)
        if not entries and not same:
            continue
        if same:
            intro += "\n\nNames of this module that are documented elsewhere: " + ", ".join(f"{{py:obj}}`{name} <{path}>`" for name, path in same) + "."
        (folder / f"{module_name}.md").write_text(page(f"`{module_name}`", f"```{{py:module}} {module_name}\n```\n\n" + intro, entries, uses, tried, module_name, entry_of), encoding="utf-8")
        listed.append((module_name, first_sentence(names.doc_of(module)), len(entries)))
    own = sorted((e for e in inventory.values() if e.module == "pyflame"), key=lambda e: (e.path.rpartition(".")[2].lower(), e.path))
    tensor = [e for e in own if e.path == "pyflame.Tensor"]
    (folder / "pyflame.Tensor.md").write_text(page("`pyflame.Tensor`", "", tensor, uses, tried, None, entry_of), encoding="utf-8")
    parts = divided([e for e in own if e.path != "pyflame.Tensor"])
    children = ["pyflame.Tensor"]
    for number, part in enumerate(parts, 1):
        name = f"pyflame-{number}"
        letters = [part[i].path.rpartition(".")[2] for i in (0, -1)]
        children.append(f"`pyflame`: {letters[0]} to {letters[1]} <{name}>")
        (folder / f"{name}.md").write_text(page(f"`pyflame`: {letters[0]} to {letters[1]}", "Functions and classes of the package itself.", part, uses, tried, None, entry_of), encoding="utf-8")
    package = ["# `pyflame`", "", "```{py:module} pyflame\n```", "", text_of(names.doc_of(pyflame)), "", COMMON, "", "```{toctree}", ":hidden:", "", *children, "```", "", table(own), ""]
    (folder / "pyflame.md").write_text("\n".join(package), encoding="utf-8")
    examples = sum(1 for p in inventory if p in uses)
    index = ["# Python", "", f"{len(inventory)} public names of {len(listed) + 1} modules, from their signatures and docstrings; {examples} of them are used in an example that CI runs.", "", COMMON, "",
             "```{toctree}", ":hidden:", "", "pyflame", *[m for m, _, _ in listed], "```", "", "| module | names | |", "|---|---|---|", f"| [`pyflame`](pyflame.md) | {len(own)} | tensors, ops, settings |",
             *[f"| [`{m}`]({m}.md) | {n} | {literal(d)} |" for m, d, n in listed], ""]
    (folder / "index.md").write_text("\n".join(index), encoding="utf-8")
    return len(inventory), examples


if __name__ == "__main__":
    print("python reference: %d names, %d with an example that runs" % write(pathlib.Path(sys.argv[1])))
