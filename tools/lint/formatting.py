"""clang-format agrees with every C++ file. Versions format differently, so another major version only says that it did not check."""
import re
import shutil
import subprocess

from common import Finding, tracked

MAJOR = 14


class Skipped(Exception):
    """The check could not run here; the text says why."""


def tool():
    for name in (f"clang-format-{MAJOR}", "clang-format"):
        path = shutil.which(name)
        if not path:
            continue
        version = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
        match = re.search(r"version (\d+)", version)
        if match and int(match.group(1)) == MAJOR:
            return path
    raise Skipped(f"clang-format {MAJOR} is not installed")


def check(root):
    path = tool()
    findings = []
    names = tracked(root, (".h", ".cpp"))
    for start in range(0, len(names), 50):
        run = subprocess.run([path, "--dry-run", "-Werror", "--ferror-limit=1", *names[start:start + 50]], cwd=root, capture_output=True, text=True)
        seen = set()
        for match in re.finditer(r"^(\S+?):(\d+):\d+: error: code should be clang-formatted", run.stderr, re.MULTILINE):
            if match.group(1) not in seen:
                seen.add(match.group(1))
                findings.append(Finding(match.group(1), int(match.group(2)), "not formatted; run `make format`"))
        if run.returncode and not seen:
            findings.append(Finding(names[start], 1, "clang-format failed: " + run.stderr.strip()[-300:]))
    return findings
