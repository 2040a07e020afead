"""Changes of the program's text that settings cannot make, as a diff to look at. Nothing is applied."""
import difflib
import os
import re

_ITEM = re.compile(r"^(\s*[\w.\[\]'\"]+\s*\+=\s*)([\w.]+)\.item\(\)(\s*(?:#.*)?)$")
_FLOAT = re.compile(r"\b(pf|torch|pyflame)\.(tensor|from_numpy|as_tensor)\((\w+)\)(\.to\([^()]*\))?\.float\(\)")


def _sum(line):
    """total += loss.item()  ->  total += loss.detach(): the sum stays on the device until it is printed."""
    found = _ITEM.match(line.rstrip("\n"))
    return f"{found[1]}{found[2]}.detach(){found[3]}\n" if found else line


def _double(line):
    """pf.tensor(x).float()  ->  pf.tensor(x.astype('float32')): half of the bytes are copied."""
    return _FLOAT.sub(lambda m: f"{m[1]}.{m[2]}({m[3]}.astype('float32')){m[4] or ''}", line)


def diff(head, within):
    """A unified diff of the program's files below the folder `within`. head: of the program's record. Empty if there is nothing to suggest."""
    changes = {}
    for rule, found in ((_sum, head["reads"]), (_double, head["doubles"])):
        for path, line, times in found:
            if times >= 2 and os.path.isfile(path) and os.path.commonpath([os.path.abspath(within), path]) == os.path.abspath(within):
                changes.setdefault(path, []).append((line, rule))
    text = []
    for path, rules in sorted(changes.items()):
        with open(path, encoding="utf-8") as file:
            before = file.readlines()
        after = list(before)
        for line, rule in rules:
            if 0 < line <= len(after):
                after[line - 1] = rule(after[line - 1])
        name = os.path.relpath(path, within)
        text += difflib.unified_diff(before, after, f"a/{name}", f"b/{name}")
    return "".join(text)
