"""Which public names have an example that runs: uses.py FOLDER writes FOLDER/uses.json, {path: [[title, link], ...]}. uses.py --missing prints the
names that have none, and fails if there are any.

An example of a name is a block of code of README.md or docs that CI runs, or a program in examples/, in which the name is used. Names are followed through imports (`import pyflame.nn.functional as F`), not through types: a method of a tensor is no name.
"""
import ast
import collections
import json
import os
import pathlib
import re
import sys

import names

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))


def paths_in(code):
    """{dotted name from `pyflame` on: the line of its first use} of a piece of code."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return {}
    bound, found = {}, {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for a in node.names:
                if a.name.split(".")[0] == "pyflame":
                    bound[a.asname or "pyflame"] = plain(a.name) if a.asname else "pyflame"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pyflame":
            for a in node.names:
                bound[a.asname or a.name] = plain(f"{node.module}.{a.name}")
    for node in ast.walk(tree):
        path = dotted(node, bound)
        if path:
            found[path] = min(node.lineno, found.get(path, node.lineno))
    return found


def plain(path):
    return re.sub(r"^pyflame\.torch(?=\.|$)", "pyflame", path)


def dotted(node, bound):
    if isinstance(node, ast.Name):
        return bound.get(node.id)
    if isinstance(node, ast.Attribute):
        before = dotted(node.value, bound)
        return f"{before}.{node.attr}" if before else None
    return None


def headings_of(text):
    """[(line, heading, anchor)] of a page's sections. Anchors are those of GitHub, and of the site."""
    found, seen, fenced = [], collections.Counter(), False
    for number, line in enumerate(text.split("\n"), 1):
        fenced ^= line.lstrip().startswith("```")
        match = None if fenced else re.match(r"(#+) (.*)$", line)
        if match:
            heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", match[2])
            anchor = re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
            if len(match[1]) > 1:
                found.append((number, heading, f"#{anchor}-{seen[anchor]}" if seen[anchor] else f"#{anchor}"))
            seen[anchor] += 1
    return found


def pages():
    """README.md and the pages of docs, those that are written as examples first."""
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return sorted(every, key=lambda page: page.parent != ROOT / "docs" / "examples")


def pieces():
    """(title, link from the folder of the reference, code with the lines of its page, headings) of what CI runs."""
    from run_doc_blocks import runnable

    for page in pages():
        text = page.read_text(encoding="utf-8")
        title = re.search(r"^# (.*)$", text, re.M)
        for _, language, code, _ in runnable(text):
            if language == "python":
                yield (title.group(1) if title else page.stem), os.path.relpath(page, ROOT / "reference" / "python"), code, headings_of(text)
    for program in sorted((ROOT / "examples").glob("*.py")):
        yield program.name, os.path.relpath(program, ROOT / "reference" / "python"), program.read_text(encoding="utf-8"), []


def uses(inventory):
    """{path: [[title, link], ...]} for the names that have an example: of each page the section with the first use."""
    of_alias = {alias: entry.path for entry in inventory.values() for alias in [entry.path, *entry.aliases]}
    found = {}
    for title, link, code, headings in pieces():
        for path, line in paths_in(code).items():
            own = of_alias.get(path)
            if own and not any(there.partition("#")[0] == link for _, there in found.setdefault(own, [])):
                section = [(f"{title}: {heading}", link + anchor) for at, heading, anchor in headings if at < line]
                found[own].append(list(section[-1] if section else (title, link)))
    return found


def without(inventory):
    """The names that have no example."""
    return set(inventory) - set(uses(inventory))


if __name__ == "__main__":
    import pyflame

    if sys.argv[1] == "--missing":
        missing = sorted(without(names.inventory(pyflame)))
        print("\n".join(missing), end="\n" if missing else "")
        sys.exit(1 if missing else 0)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "uses.json").write_text(json.dumps(uses(names.inventory(pyflame))), encoding="utf-8")
