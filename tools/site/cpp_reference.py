"""Pages of the C++ reference, one for each public header: cpp_reference.py FOLDER.

A page has the header's first comment as text and the public declarations with their comments as they stand in the header. Private parts of classes
and bodies of functions are left out.
"""
import pathlib
import re
import sys

from python_reference import first_sentence, literal, text_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = {
    "Tensors and ops": ["tensor/tensor.h", "tensor/dtype.h", "tensor/device.h", "tensor/dims.h", "ops/ops.h", "ops/linalg.h", "ops/recurrent.h", "ops/autocast.h"],
    "Gradients and training": ["autograd/autograd.h", "nn/module.h", "nn/layers.h", "nn/init.h", "optim/optim.h", "optim/schedule.h"],
    "Data and files": ["data/text.h", "data/tokenizer.h", "io/safetensors.h", "io/checkpoint.h"],
    "Devices and processes": ["runtime/device.h", "runtime/explain.h", "runtime/profiler.h", "base/error.h", "distributed/group.h"],
    "Extensions": ["plugin.h", "extension.h", "backends/backend.h"],
}


def intro_and_rest(lines):
    """The comment at the top, without its slashes, and the lines after `#pragma once` or the include guard."""
    count = next((i for i, line in enumerate(lines) if not line.startswith("//")), len(lines))
    return [re.sub(r"^// ?", "", line) for line in lines[:count]], lines[count:]


def without_bodies(text):
    """Bodies of functions that are longer than a line become `{ … }`."""
    out, lines, i = [], text.split("\n"), 0
    while i < len(lines):
        line = lines[i]
        out.append(line)
        opens = re.match(r"^(\s*).*\)(?: const| noexcept| override)*(?: : .*)? \{$", line)
        if opens and not re.match(r"^\s*(namespace|struct|class|enum|union)\b", line):
            end = next((j for j in range(i + 1, len(lines)) if lines[j].startswith(opens.group(1) + "}") and not lines[j].startswith(opens.group(1) + " ")), None)
            if end is not None:
                out[-1] = line[:-1] + "{ … }"
                i = end
        i += 1
    return "\n".join(out)


def without_private(text):
    out, hidden = [], None
    for line in text.split("\n"):
        label = re.match(r"^(\s*)(private|protected|public):", line)
        if label and label.group(2) != "public":
            hidden = label.group(1)
            continue
        if hidden is not None and (label or re.match(rf"^.{{0,{max(len(hidden) - 1, 0)}}}\}}", line)):
            hidden = None
        if hidden is None:
            out.append(line)
    return "\n".join(out)


def page(path, text):
    intro, rest = intro_and_rest(text.split("\n"))
    body = "\n".join(line for line in rest if not re.match(r"#(pragma once|include|ifndef \w+_H\b|define \w+_H\b)", line))
    body = re.sub(r"\n{3,}", "\n\n", without_private(without_bodies(body))).strip()
    return f"# `pyflame/{path}`\n\n{text_of(chr(10).join(intro))}\n\n```cpp\n#include \"pyflame/{path}\"\n```\n\n## Declarations\n\n````cpp\n{body}\n````\n"


def write(folder):
    folder.mkdir(parents=True, exist_ok=True)
    index = ["# C++", "", "The headers that programs include. CMake finds the library with `find_package(pyflame)` ([mnist_cnn.cpp](../../examples/mnist_cnn.cpp) is a program);",
             "other headers in the installed folder are internal and may change.", ""]
    for title, paths in HEADERS.items():
        index += [f"## {title}", "", "```{toctree}", ":hidden:", "", *[p.replace("/", "-")[:-2] for p in paths], "```", "", "| header | |", "|---|---|"]
        for path in paths:
            text = (ROOT / "src" / "pyflame" / path).read_text(encoding="utf-8")
            name = path.replace("/", "-")[:-2]
            (folder / f"{name}.md").write_text(page(path, text), encoding="utf-8")
            first = literal(first_sentence("\n".join(intro_and_rest(text.split("\n"))[0])))
            index.append(f"| [`pyflame/{path}`]({name}.md) | {first} |")
        index.append("")
    (folder / "index.md").write_text("\n".join(index), encoding="utf-8")


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))
