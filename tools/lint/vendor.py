"""No vendor's words and no fixed wave width outside the closed folders: one kernel source serves wave32 and wave64, HIP and CUDA."""
import re

from common import Finding, lines, tracked

SUFFIXES = (".h", ".cpp", ".def", ".hip", ".cu")

WHERE = ("src/", "cli/", "python/src/")
# Where the vendors' own names are at home.
VENDOR_OK = ("src/pyflame/kernels/device/", "src/pyflame/backends/gpu/driver/rt.h", "src/pyflame/backends/rocm/", "src/pyflame/backends/cuda/")
# The tools speak of the vendors' libraries and of both wave sizes all day; what they may not do is compile for one vendor.
TOOLS = ("src/tools/", "src/pyflame/base/gpu_arch.", "cli/")
# Lanes of a CPU's vectors, or of a fixed summation order, are not a wave.
WAVE_OK = ("src/pyflame/kernels/device/", "src/pyflame/backends/cpu/", "src/pyflame/backends/reference/")

VENDOR = re.compile(
    r"\b__HIP\w*|\b__CUDA\w*|\b__NVCC__|\b__AMDGCN\w*|\bhip[A-Z]\w*|\bcuda[A-Z]\w*|\bwarp(?:Size|s)?\b|\bthreadIdx\b|"
    r"\bblockIdx\b|<hip/|<cuda|\bhip_runtime|\b__shfl\w*|\b__ballot\w*")
# A bare 32 (or 31, and 0xffffffff) on a line that speaks of lanes or waves.
WAVE_WORD = re.compile(r"lane|wave", re.IGNORECASE)
WAVE_WIDTH = re.compile(r"(?<![\w.])(?:32|31|0x1f|0xffffffff)u?(?![\w.])", re.IGNORECASE)
COMMENT = re.compile(r"//.*$")


def check(root):
    findings = []
    for name in tracked(root, SUFFIXES):
        if not name.startswith(WHERE):
            continue
        for number, line in enumerate(lines(root, name), 1):
            code = COMMENT.sub("", line)
            tool = name.startswith(TOOLS) and not code.lstrip().startswith("#")
            if not name.startswith(VENDOR_OK) and not tool:
                match = VENDOR.search(code)
                if match:
                    findings.append(Finding(name, number, f"vendor word '{match.group(0)}' outside {', '.join(VENDOR_OK)}"))
            if not name.startswith(WAVE_OK) and not tool and WAVE_WORD.search(code) and WAVE_WIDTH.search(code):
                findings.append(Finding(name, number, "a wave's width written as a number; use Wave::kWidth"))
    return findings
