"""Finds paths of one machine: the tree must work wherever it is cloned."""
import re

from common import Finding, lines, tracked

# Spelled in pieces, so that this file does not find itself.
MACHINE = re.compile(r"(?<![\w.~/-])/(?:" + "|".join(["work", "root", "tmp/" + "pf", r"home/(?!user\b|somebody\b|you\b|me\b)\w+"]) + r")(?:/|\b)")
SKIP_SUFFIXES = (".png", ".jpg", ".gz", ".zst", ".safetensors", ".npy", ".npz", ".pdf", ".ico")


def check(root):
    findings = []
    for name in tracked(root):
        if name.endswith(SKIP_SUFFIXES) or name == "LICENSE" or name.startswith("tests/tools/"):
            continue
        for number, line in enumerate(lines(root, name), 1):
            match = MACHINE.search(line)
            if match:
                findings.append(Finding(name, number, f"path of a machine: '{match.group(0)}'"))
    return findings
