"""Soft limits on length: 600 lines a file, 60 a function. A report, not a failure."""
import re

from common import Finding, lines, tracked

MAX_FILE = 600
MAX_FUNCTION = 60
# A definition that begins at the margin or inside a class, and whose body ends at the same indentation.
HEAD = re.compile(r"^( {0,2})(?!namespace|class|struct|enum|union|extern|#|//|\}|constexpr \w+ \w+\[)\S.*\{\s*(?://.*)?$")


def check(root):
    findings = []
    for name in tracked(root, (".h", ".cpp", ".py")):
        text = lines(root, name)
        if len(text) > MAX_FILE:
            findings.append(Finding(name, 1, f"{len(text)} lines; the soft limit is {MAX_FILE}"))
        if name.endswith(".py"):
            continue
        number = 0
        while number < len(text):
            head = HEAD.match(text[number])
            end = next((k for k in range(number + 1, len(text)) if text[k].startswith(head.group(1) + "}")), None) if head else None
            if head and end is not None:
                if end - number + 1 > MAX_FUNCTION and "(" in text[number]:
                    findings.append(Finding(name, number + 1, f"{end - number + 1} lines in a function; the soft limit is {MAX_FUNCTION}"))
                number = end
            number += 1
    return findings
