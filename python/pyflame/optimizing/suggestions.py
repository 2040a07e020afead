"""Changes of the program's text that settings cannot make, as a diff to look at. Nothing is applied."""
import ast
import difflib
import os
import re

from .candidates import most_merged

_ITEM = re.compile(r"^(\s*[\w.\[\]'\"]+\s*\+=\s*)([\w.]+)\.item\(\)(\s*(?:#.*)?)$")
_FLOAT = re.compile(r"\b(pf|torch|pyflame)\.(tensor|from_numpy|as_tensor)\((\w+)\)(\.to\([^()]*\))?\.float\(\)")


def _sum(line):
    """total += loss.item()  ->  total += loss.detach(): the sum stays on the device until it is printed."""
    found = _ITEM.match(line.rstrip("\n"))
    return f"{found[1]}{found[2]}.detach(){found[3]}\n" if found else line


def _double(line):
    """pf.tensor(x).float()  ->  pf.tensor(x.astype('float32')): half of the bytes are copied."""
    return _FLOAT.sub(lambda m: f"{m[1]}.{m[2]}({m[3]}.astype('float32')){m[4] or ''}", line)


def _literals(tree, word, value):
    """Places of a number that is the value of a name, a keyword, or the default of an option, with this word in its name. value: of the number, or None."""
    found = {}

    def take(name, node):
        if word in name.lower() and isinstance(node, ast.Constant) and type(node.value) is int and node.value > 0 and value in (None, node.value):
            found[node.lineno, node.col_offset, node.end_col_offset] = node.value

    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            take(node.targets[0].id, node.value)
        elif isinstance(node, ast.Call):
            first = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
            for keyword in node.keywords:
                if keyword.arg == "default" and isinstance(first, str):
                    take(first, keyword.value)
                elif keyword.arg:
                    take(keyword.arg, keyword.value)
    return found


def _batches(text, batches, merged):
    """The text with batches that are `merged` times as large, and as many times fewer of them in an optimizer step. As it is, if it has not exactly one number
    for each."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text
    size, steps = _literals(tree, "batch_size", None), _literals(tree, "accum", batches)
    if len(size) != 1 or len(steps) != 1:
        return text
    lines = text.encode().splitlines(keepends=True)  # ast counts bytes
    for (line, begin, end), value in sorted([(place, b * merged) for place, b in size.items()] + [(place, batches // merged) for place in steps], reverse=True):
        lines[line - 1] = lines[line - 1][:begin] + str(value).encode() + lines[line - 1][end:]
    return b"".join(lines).decode()


def _below(path, within):
    return os.path.isfile(path) and os.path.commonpath([os.path.abspath(within), path]) == os.path.abspath(within)


def diff(head, within):
    """A unified diff of the program's files below the folder `within`. head: of the program's record. Empty if there is nothing to suggest."""
    changes, accumulation, memory = {}, head.get("accumulation", {}), head.get("memory", {})
    for rule, found in ((_sum, head["reads"]), (_double, head["doubles"])):
        for path, line, times in found:
            if times >= 2 and _below(path, within):
                changes.setdefault(path, []).append((line, rule))
    merged = 1
    if accumulation and not accumulation["trainer"] and _below(accumulation["file"], within):
        merged = most_merged(accumulation["batches"], memory["peak"], memory["capacity"])
        if merged > 1:
            changes.setdefault(accumulation["file"], [])
    text = []
    for path, rules in sorted(changes.items()):
        with open(path, encoding="utf-8") as file:
            before = file.read()
        after = _batches(before, accumulation["batches"], merged) if merged > 1 and path == accumulation["file"] else before
        before, after = before.splitlines(keepends=True), after.splitlines(keepends=True)
        for line, rule in rules:
            if 0 < line <= len(after):
                after[line - 1] = rule(after[line - 1])
        name = os.path.relpath(path, within)
        text += difflib.unified_diff(before, after, f"a/{name}", f"b/{name}")
    return "".join(text)
