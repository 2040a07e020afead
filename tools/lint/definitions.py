"""A function or variable is defined in the layer that declares it. Includes do not show a call upward: a low header may declare what a high
layer defines. The places where that is meant are named here."""
import re
from typing import Dict, List, NamedTuple, Tuple

from common import Finding, tracked
from includes import LAYERS

# What a low layer declares and a high layer defines on purpose.
UPWARD = {
    "pyflame::runtime_hooks": "the one table of what the engine's lower layers ask of the runtime",
}

# Longest first: a folder within a folder is a layer of its own.
FOLDERS = sorted((prefix for prefix, _ in LAYERS if prefix.startswith("src/") and prefix.endswith("/")), key=len, reverse=True)

COMMENT_OR_LITERAL = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![\w])\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
ACCESS = re.compile(r"\b(?:public|protected|private)\s*:(?!:)")
TOKEN = re.compile(r"\w+|::|[^\s\w]")
OPERATOR = re.compile(r"\boperator\s*(?:\(\)|\[\]|[^\s\w(]+|\w[\w:]*\s*[*&]*)")
NO_DECLARATION = re.compile(r"^(?:using|typedef|friend|static_assert|return|extern template|namespace|enum|case|goto)\b")


class Entity(NamedTuple):
    """A function's or variable's qualified name, and the tokens of each parameter (None: a variable)."""
    name: str
    parameters: Tuple[Tuple[str, ...], ...]
    file: str
    line: int


def layer_of(name: str) -> str:
    return next((f for f in FOLDERS if name.startswith(f)), name.rsplit("/", 1)[0] + "/")


def blank(match) -> str:
    return re.sub(r"[^\n]", " ", match.group(0)) if match.group(0)[0] in "/#" else '""' + "\n" * match.group(0).count("\n")


def without_templates(text: str) -> str:
    """Without what stands in angle brackets; an operator's own name becomes a word."""
    text = OPERATOR.sub(lambda m: "operator_" + "_".join(f"{ord(c):x}" for c in m.group(0)[8:] if not c.isspace()), text)
    out, depth = [], 0
    for i, c in enumerate(text):
        if c == "<" and i and (text[i - 1].isalnum() or text[i - 1] in "_ "):
            depth += 1
        elif c == ">" and depth and text[i - 1] != "-":
            depth -= 1
        elif depth == 0:
            out.append(c)
    return "".join(out)


def function_of(head: str):
    """(name as written, parameters) of the head of a function's declaration or definition; None when it is something else."""
    flat = without_templates(head).replace("[[nodiscard]]", "").replace("[[noreturn]]", "").strip()
    flat = re.sub(r"^template\s*", "", flat)
    open_at = flat.find("(")
    if open_at < 0 or NO_DECLARATION.match(flat) or "=" in flat[:open_at]:
        return None
    name = re.search(r"((?:::)?~?\w+(?:\s*::\s*~?\w+)*)\s*$", flat[:open_at])
    if not name or flat[open_at + 1:].lstrip().startswith("*"):
        return None
    parts, depth, at = [[]], 0, open_at
    for at in range(open_at, len(flat)):
        c = flat[at]
        depth += (c in "([{") - (c in ")]}")
        if depth == 0:
            break
        if c == "," and depth == 1:
            parts.append([])
        elif at > open_at:
            parts[-1].append(c)
    parameters = tuple(tuple(TOKEN.findall("".join(p).split("=")[0])) for p in parts)
    if parameters == ((),):
        parameters = ()
    return name.group(1).replace(" ", ""), flat[:name.start()].strip(), parameters, flat[at + 1:]


class Reader:
    """Walks over the scopes of one file, and notes what it declares and what it defines."""

    def __init__(self, name: str, text: str):
        self.file = name
        self.text = DIRECTIVE.sub(blank, COMMENT_OR_LITERAL.sub(blank, text))
        self.declared: List[Entity] = []
        self.defined: List[Entity] = []
        self.scopes: List[Tuple[str, str]] = []  # (kind, name)
        self.head_at = 0

    def read(self):
        at, size, text = 0, len(self.text), self.text
        parens = 0
        while at < size:
            c = text[at]
            if c in "()":
                parens += 1 if c == "(" else -1
            elif c == "{" and parens == 0:
                at = self.open(at)
                continue
            elif c == "{":
                at = self.close_of(at)
                continue
            elif c == "}":
                if self.scopes:
                    self.scopes.pop()
                self.head_at = at + 1
            elif c == ";" and parens == 0:
                self.statement(at)
                self.head_at = at + 1
            at += 1
        return self

    def head(self, end: int) -> str:
        return ACCESS.sub(" ", self.text[self.head_at:end]).strip()

    def close_of(self, at: int) -> int:
        depth = 0
        for i in range(at, len(self.text)):
            depth += (self.text[i] == "{") - (self.text[i] == "}")
            if depth == 0:
                return i + 1
        return len(self.text)

    def open(self, at: int) -> int:
        head = self.head(at)
        flat = re.sub(r"^template\s*", "", without_templates(head)).strip()
        if re.match(r"(?:inline\s+)?namespace\b", flat):
            self.scopes.append(("namespace", flat.split("namespace", 1)[1].strip()))
        elif flat.startswith("extern \"\"") and flat == 'extern ""':
            self.scopes.append(("extern", ""))
        elif re.match(r"(?:typedef\s+)?(?:class|struct|union)\b", flat) and "=" not in flat:
            words = re.sub(r"alignas\s*\([^)]*\)|\bfinal\b", " ", flat.split(":", 1)[0] if "::" not in flat else flat.split(" : ", 1)[0])
            found = re.findall(r"[\w:]+", words)
            self.scopes.append(("class", found[1] if len(found) > 1 else ""))
        else:
            function = function_of(head)
            if function and not re.match(r"enum\b", flat):
                self.note(self.defined, function[0], function[2])
                after = self.close_of(at)
                self.head_at = after
                return after
            return self.close_of(at)  # an initialiser or an enum: the statement goes on
        self.head_at = at + 1
        return at + 1

    def statement(self, end: int):
        head = self.head(end)
        if not head:
            return
        function = function_of(head)
        if function:
            name, before, parameters, after = function
            kind = self.scopes[-1][0] if self.scopes else "namespace"
            if kind != "class" and "::" in name and re.search(r"=\s*default\s*$", after):
                self.note(self.defined, name, parameters)
                return
            if re.search(r"=\s*(?:0|default|delete)\s*$", after) or (not before and kind != "class"):
                return
            self.note(self.declared, name, parameters)
            return
        flat = without_templates(head)
        if NO_DECLARATION.match(flat) or (self.scopes and self.scopes[-1][0] == "class"):
            return
        before = re.split(r"[={\[]", flat, maxsplit=1)[0]
        words = re.findall(r"[\w:]+", before)
        if len(words) < 2 or "(" in before:
            return
        self.note(self.declared if words[0] == "extern" else self.defined, words[-1], None)

    def note(self, to: List[Entity], name: str, parameters):
        names = [n for kind, n in self.scopes if kind != "extern"]
        if any(kind == "namespace" and not n for kind, n in self.scopes):
            return  # of this file alone
        line = self.text.count("\n", 0, self.head_at + len(self.text[self.head_at:]) - len(self.text[self.head_at:].lstrip())) + 1
        to.append(Entity("::".join([*names, name.lstrip(":")]), parameters, self.file, line))


def same_type(a: Tuple[str, ...], b: Tuple[str, ...]) -> bool:
    """Whether two parameters have one type; either may have a name."""
    def forms(p):
        return {p, p[:-1]} if len(p) > 1 and re.match(r"\w", p[-1]) else {p}
    return bool(forms(a) & forms(b))


def same_count(a: Entity, b: Entity) -> bool:
    if a.parameters is None or b.parameters is None:
        return a.parameters is b.parameters
    return len(a.parameters) == len(b.parameters)


def same(a: Entity, b: Entity) -> bool:
    return same_count(a, b) and (a.parameters is None or all(map(same_type, a.parameters, b.parameters)))


def check(root):
    defined: Dict[str, List[Entity]] = {}
    declared: List[Entity] = []
    for name in tracked(root, (".h", ".cpp")):
        if not name.startswith("src/") or name.startswith("src/pyflame/kernels/"):
            continue
        reader = Reader(name, (root / name).read_text(encoding="utf-8", errors="replace")).read()
        declared += reader.declared
        for entity in reader.defined:
            defined.setdefault(entity.name, []).append(entity)
    findings = []
    for entity in declared:
        named = defined.get(entity.name, [])
        # A type may have two names; then the number of parameters decides.
        bodies = [d for d in named if same(entity, d)] or [d for d in named if same_count(entity, d)]
        if entity.name in UPWARD or not bodies or any(layer_of(d.file) == layer_of(entity.file) for d in bodies):
            continue
        findings.append(Finding(entity.file, entity.line, f"{entity.name} is declared in {layer_of(entity.file)} and defined in {bodies[0].file}; "
                                                          "expected one layer for both"))
    return sorted(findings)
