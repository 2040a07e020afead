"""Ops, the recorder and the compiler do not tell devices apart: they ask the backend (backends/backend.h), so that a new backend needs no
change there."""
import re

from common import Finding, lines, tracked

WHERE = tuple(f"src/pyflame/{layer}/" for layer in ("tensor", "ops", "record", "autograd", "compile"))
AT_HOME = "src/pyflame/tensor/device."

DEVICE_TYPE = re.compile(r"\bDeviceType::\w+")
COMMENT = re.compile(r"//.*$")


def check(root):
    findings = []
    for name in tracked(root, (".h", ".cpp", ".def")):
        if not name.startswith(WHERE) or name.startswith(AT_HOME):
            continue
        for number, line in enumerate(lines(root, name), 1):
            match = DEVICE_TYPE.search(COMMENT.sub("", line))
            if match:
                findings.append(Finding(name, number, f"'{match.group(0)}' named below the runtime; ask the backend (backends/backend.h)"))
    return findings
