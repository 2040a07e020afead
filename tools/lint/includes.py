"""Direction of includes. The table is the rule: what a layer may include. A file belongs to the first layer whose prefix it has;
a layer may always include itself."""
import re

from common import Finding, lines, tracked

SUFFIXES = (".h", ".cpp", ".def")

# layer -> what it may include: prefixes of paths below src/pyflame, and of paths that begin with tools/ or apps/ below src. First match wins, so special files stand before their folders.
BASE = ["base/", "version.h"]
TENSOR = BASE + ["tensor/"]
# The names of ops, their attributes and the form of a recorded graph: read by everything from the recorder up.
TABLE = ["ops/op.h", "ops/attrs.h", "ops/ops.def"]
CONTRACT = TABLE + ["record/ir.h", "backends/backend.h", "backends/communicator.h"]
RECORD = TENSOR + CONTRACT + ["record/"]
OPS = RECORD + ["ops/", "plugin.h"]
ENGINE = OPS + ["backends/plugin_call.h", "autograd/", "compile/", "runtime/"]
BACKEND = TENSOR + CONTRACT + ["ops/", "kernels/", "plugin.h", "backends/plugin_call.h"]
ABOVE = ENGINE + ["distributed/", "io/", "data/", "nn/", "optim/", "llm/"]
TOP = [""]

# layer of backends/gpu -> the layers that it may include.
GPU_LAYERS = {
    "shapes": ["shapes"],
    "driver": ["driver"],
    "jit": ["driver", "jit"],
    "loops": ["shapes", "driver", "jit", "loops"],
    "libs": ["shapes", "driver", "jit", "libs"],
    "ops": ["shapes", "driver", "jit", "loops", "libs", "ops"],
}

VENDOR = BACKEND + ["backends/gpu/gpu_backend.h", *(f"backends/gpu/{name}/" for name in GPU_LAYERS["libs"])]

LAYERS = [
    # The form of a recorded graph needs no more than tensors and the op table.
    ("src/pyflame/ops/op.", TENSOR + TABLE),
    ("src/pyflame/record/ir.h", TENSOR + TABLE),
    ("src/pyflame/backends/backend.", TENSOR + CONTRACT),
    ("src/pyflame/backends/communicator.", TENSOR),
    ("src/pyflame/backends/plugin_call.", OPS + ["backends/plugin_call.h"]),
    # The one file that names the concrete backends.
    ("src/pyflame/runtime/register_backends.cpp",
     ENGINE + ["backends/", "tools/system/absence.h"]),
    ("src/pyflame/base/", BASE),
    ("src/pyflame/version.h", []),
    # What programs of users include.
    ("src/pyflame/plugin.h", []),
    ("src/pyflame/extension.h", ["base/half.h", "plugin.h"]),
    ("src/pyflame/tensor/", TENSOR),
    ("src/pyflame/ops/", OPS),
    ("src/pyflame/record/", RECORD),
    ("src/pyflame/autograd/", OPS + ["autograd/"]),
    ("src/pyflame/compile/", OPS + ["backends/plugin_call.h", "compile/"]),
    ("src/pyflame/runtime/", ENGINE),
    # LAPACK on the host, for every backend, with the CPU's matrix product and loops.
    ("src/pyflame/backends/lapack/", BACKEND + ["backends/lapack/", "backends/cpu/gemm.h", "backends/cpu/vec_linalg.h"]),
    ("src/pyflame/backends/reference/", BACKEND + ["backends/reference/", "backends/lapack/lapack.h"]),
    ("src/pyflame/backends/null/", BACKEND + ["backends/null/"]),
    # The CPU backend's slow paths are the reference's loops.
    ("src/pyflame/backends/cpu/", BACKEND + ["backends/cpu/", "backends/reference/reference.h", "backends/lapack/lapack.h"]),
    # The GPU backends' own layers: shapes, driver <- jit <- loops, libs <- ops <- gpu_backend.
    ("src/pyflame/backends/gpu/ops/linalg.cpp", BACKEND + ["backends/gpu/", "backends/lapack/lapack.h"]),
    *((f"src/pyflame/backends/gpu/{name}/", BACKEND + [f"backends/gpu/{below}/" for below in layers])
      for name, layers in GPU_LAYERS.items()),
    ("src/pyflame/backends/gpu/gpu_backend.", BACKEND + ["backends/gpu/"]),
    # A vendor's backend: its own libraries behind the interfaces that gpu/libs declares.
    ("src/pyflame/backends/rocm/", VENDOR + ["backends/rocm/"]),
    ("src/pyflame/backends/cuda/", VENDOR + ["backends/cuda/"]),
    ("src/pyflame/kernels/device/", ["kernels/device/"]),
    ("src/pyflame/kernels/", TENSOR + CONTRACT + ["ops/", "kernels/"]),
    # Moves bytes and reduces them: it knows dtypes, and no tensor.
    ("src/pyflame/distributed/", BASE + ["tensor/dtype.h", "distributed/"]),
    ("src/pyflame/io/", ENGINE + ["io/"]),
    ("src/pyflame/data/", ENGINE + ["io/", "data/"]),
    ("src/pyflame/nn/", ENGINE + ["io/", "nn/"]),
    ("src/pyflame/optim/", ENGINE + ["io/", "nn/", "optim/"]),
    # Python computes in another process: this is the way to it.
    ("src/pyflame/llm/", BASE + ["data/tokenizer.h", "llm/"]),
    # The tools read files and machines, not tensors: of the engine they use what knows no tensor.
    ("src/tools/base/", BASE + ["tools/base/"]),
    ("src/tools/system/", BASE + ["tools/base/", "tools/system/"]),
    ("src/tools/view/", BASE + ["tools/base/", "tools/view/"]),
    ("src/tools/profile/", BASE + ["tools/base/", "tools/view/", "tools/profile/"]),
    ("src/tools/inspect/", BASE + ["tools/base/", "tools/view/", "tools/inspect/"]),
    ("src/tools/memory/", BASE + ["tools/base/", "tools/view/", "tools/memory/"]),
    ("src/tools/model_files/", TENSOR + ["io/", "tools/base/", "tools/view/", "tools/model_files/"]),
    ("src/tools/doctor/", BASE + ["tools/base/", "tools/system/", "tools/view/", "tools/doctor/"]),
    # Applications use the library as any program would. A run's report is a page, so the GPT program also uses the pages' kit.
    ("src/apps/", ABOVE + ["tools/base/", "tools/view/", "apps/"]),
    ("cli/", ABOVE + ["tools/", "apps/"]),
    ("python/src/", ABOVE),
    ("tests/", TOP),
    ("benchmarks/", TOP),
    ("examples/", TOP),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*["<](?:pyflame/|(?=(?:tools|apps)/))([^">]+)[">]')


def check(root):
    findings = []
    for name in tracked(root, SUFFIXES):
        layer = next((l for l in LAYERS if name.startswith(l[0])), None)
        if layer is None:
            if name.startswith("src/"):
                findings.append(Finding(name, 1, "no layer of tools/lint/includes.py covers this file; add its folder to the table"))
            continue
        for number, line in enumerate(lines(root, name), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = match.group(1)
            if any(target.startswith(allowed) for allowed in layer[1]):
                continue
            findings.append(Finding(name, number, f'{layer[0]} may not include "{target}"; it may include {", ".join(layer[1]) or "nothing"}'))
    return findings
