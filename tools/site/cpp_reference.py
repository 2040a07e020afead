"""Pages of the C++ reference, one for each public header: cpp_reference.py FOLDER.

A page has the header's first comment as text and the public declarations with their comments as they stand in the header. Private parts of classes
and bodies of functions are left out.
"""
import fnmatch
import itertools
import pathlib
import re
import sys

from python_reference import first_sentence, literal, text_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = {
    "Tensors and ops": ["tensor/tensor.h", "tensor/dtype.h", "tensor/default_dtype.h", "tensor/device.h", "tensor/dims.h", "ops/ops.h", "ops/linalg.h", "ops/recurrent.h", "ops/autocast.h"],
    "Gradients and training": ["autograd/autograd.h", "tensor/grad_node.h", "nn/module.h", "nn/layers.h", "nn/init.h", "optim/optim.h", "optim/schedule.h"],
    "Language models": ["llm/language_model.h"],
    "Data and files": ["data/text.h", "data/tokenizer.h", "io/safetensors.h", "io/checkpoint.h"],
    "Devices and processes": ["runtime/device.h", "runtime/explain.h", "runtime/profiler.h", "base/error.h", "distributed/group.h", "version.h"],
    "Extensions": ["plugin.h", "extension.h", "backends/backend.h"],
}
# The other installed headers, which have no page: (why, patterns of their paths). They are installed because public headers include some of them.
INTERNAL = [
    ("kernels and backends, which programs reach by ops and by runtime/device.h", "kernels/* backends/*/* backends/communicator.h backends/plugin_call.h"),
    ("the recorder and the compiler, which programs reach by ops", "record/* compile/*"),
    ("the runtime's parts; pages show what programs may ask for: device.h, explain.h and profiler.h", """
        runtime/added.h runtime/address_space.h runtime/allocator.h runtime/blame.h runtime/choose.h runtime/communicators.h runtime/debug_memory.h
        runtime/debugged_run.h runtime/device_times.h runtime/event.h runtime/executor.h runtime/explain_log.h runtime/guard_pages.h runtime/in_flight.h
        runtime/kept.h runtime/libraries.h runtime/markers.h runtime/memory_log.h runtime/memory_trace.h runtime/oracle.h runtime/readback.h runtime/replayer.h
        runtime/sampled_*.h runtime/samples.h runtime/searches.h runtime/segments.h runtime/state.h runtime/sums.h runtime/taint.h runtime/uninitialised.h"""),
    ("tools of the library's own code: locks, threads, numbers of 16 bits, environment, logs", """
        base/embedded.h base/env.h base/events.h base/exit.h base/fallbacks.h base/fork.h base/gpu_arch.h base/gpu_peaks.h base/half.h base/indexed.h base/location.h
        base/markers.h base/packages.h base/philox.h base/pool.h base/python.h base/ref.h base/signal_stack.h base/sqlite.h base/threads.h base/env.def"""),
    ("what a tensor is made of, and weights in the layouts of kernels", """
        tensor/alias.h tensor/float8.h tensor/gguf_blocks.h tensor/lasting.h tensor/layout.h tensor/print.h tensor/runtime_hooks.h tensor/storage.h
        tensor/float8_rows.h tensor/weight_planes.h tensor/weight_tiles.h"""),
    ("what the functions of ops.h are made of", """
        ops/attrs.h ops/complex.h ops/complex_scans.h ops/family.h ops/helpers.h ops/hides.h ops/op.h ops/ops.def ops/rows_of_blocks.h ops/sequences.h ops/user_kernel.h
        ops/view_dtype.h ops/windows.h"""),
    ("hooks for the library's own optimizers", "autograd/ready.h"),
    ("readers of one file format each, behind safetensors.h and checkpoint.h or called from Python", """
        io/atomic_file.h io/gguf_file.h io/input_file.h io/pickle.h io/safetensors_file.h io/torch_file.h io/zip_file.h"""),
    ("the process of language_model.h, and the list of the fields of its settings", "llm/process.h llm/fields.def"),
    ("the parts of a Group", "distributed/direct.h distributed/logged.h distributed/peer.h distributed/reduce.h distributed/ring.h base/collective_event.h"),
]


def installed():
    """The paths of the headers that the install rule of CMakeLists.txt copies, from the folder of that rule."""
    rule = re.search(r"install\(DIRECTORY (src/pyflame) DESTINATION[^)]*?FILES_MATCHING((?: PATTERN \"[^\"]+\")+)\)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
    folder, patterns = ROOT / rule.group(1), re.findall(r'"([^"]+)"', rule.group(2))
    return sorted({str(p.relative_to(folder)) for pattern in patterns for p in folder.rglob(pattern)})


def internal(path):
    """Why an installed header has no page, or None."""
    return next((why for why, patterns in INTERNAL if any(fnmatch.fnmatch(path, p) for p in patterns.split())), None)


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


def programs_with(path, most=3):
    """Files that include a header and that CI runs: examples and pages first, then programs, tests, and the Python module."""
    include = re.compile(rf'#include [<"]pyflame/{re.escape(path)}[>"]')
    files = [f for pattern in ("examples/*.cpp", "tests/consumer/*.cpp", "docs/**/*.md", "src/apps/**/*.*", "tests/cpp/**/*.*", "python/src/*.*") for f in sorted(ROOT.glob(pattern))]
    found = (f.relative_to(ROOT).as_posix() for f in files if include.search(f.read_text(encoding="utf-8", errors="replace")))
    return list(itertools.islice(found, most))


def page(path, text):
    intro, rest = intro_and_rest(text.split("\n"))
    body = "\n".join(line for line in rest if not re.match(r"#(pragma once|include|ifndef \w+_H\b|define \w+_H\b)", line))
    body = re.sub(r"\n{3,}", "\n\n", without_private(without_bodies(body))).strip()
    programs = ", ".join(f"[{name}](../../{name})" for name in programs_with(path))
    use = f"Code that uses it, which CI runs: {programs}.\n\n" if programs else ""
    return f"# `pyflame/{path}`\n\n{text_of(chr(10).join(intro))}\n\n```cpp\n#include \"pyflame/{path}\"\n```\n\n{use}## Declarations\n\n````cpp\n{body}\n````\n"


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
