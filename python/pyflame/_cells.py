"""The cells of notebooks: `cell 3` in place of the file names that IPython and its kernel make up for them."""
import linecache
import os
import re
import sys

_PROMPT = re.compile(r"<ipython-input-(\d+)-[0-9a-f]+>")  # IPython in a terminal, and kernels before ipykernel 6
_KERNEL = re.compile(r"[/\\]ipykernel_\d+[/\\]\d+\.py")  # a file that does not exist, named by a hash of the cell's text


def shown(file):
    """`cell 3` for the file name of a cell, `cell` where its number is not known, and every other file name as it is."""
    prompt = _PROMPT.fullmatch(file)
    number = int(prompt[1]) if prompt else _number(file) if _KERNEL.search(file) else None
    if number is None:
        return "cell" if _KERNEL.search(file) else file
    return f"cell {number}"


def _number(file):
    """The number of the last cell with the text of this one. None without IPython."""
    current = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = current() if current is not None else None
    if shell is None:
        return None
    text = "".join(linecache.getlines(file)).rstrip("\n")
    cells = shell.user_ns.get("In", [])
    return max((k for k, cell in enumerate(cells) if text and cell.rstrip("\n") == text), default=None)


def in_text(value):
    """A text, or all texts in a list or dict, with the names of cells before line numbers replaced: `cell 3:2 in f`."""
    names = {os.path.basename(file): file for file in list(linecache.cache) if _KERNEL.search(file)}  # places have names of files without folders
    files = "|".join([_PROMPT.pattern, *map(re.escape, names)])
    pattern = re.compile(rf"(?<![\w./-])(?:{files})(?=:\d)")
    return _replaced(value, lambda text: pattern.sub(lambda found: shown(names.get(found[0], found[0])), text))


def _replaced(value, change):
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {k: _replaced(v, change) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_replaced(v, change) for v in value)
    return value
