"""No private words in names: where the field has a term, the code uses it (docs/glossary.md, "Names in the code")."""
import re

from common import Finding, lines, tracked

WHERE = ("src/pyflame/", "python/src/")

# A part of a name -> the term. Names are split at underscores and capitals, so 'turn' does not match 'return'.
TERMS = {
    "turn": "transpose or permute",
    "turned": "transposed",
    "beside": "epilogue, bias_gradient",
    "face": "pass: forward, grad_input, grad_weight",
    "settle": "flush",
    "quick": "fast",
    "quickest": "fastest",
    "lies": "same_layout",
}

CODE = re.compile(r'//.*$|"(?:[^"\\]|\\.)*"')
NAME = re.compile(r"\b[A-Za-z_]\w*")
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def term(name):
    """The term to use instead of a part of this name, or None."""
    return next((TERMS[p.lower()] for p in PART.findall(name) if p.lower() in TERMS), None)


def check(root):
    findings = []
    for file in tracked(root, (".h", ".cpp", ".def")):
        if not file.startswith(WHERE):
            continue
        for number, line in enumerate(lines(root, file), 1):
            for name in dict.fromkeys(NAME.findall(CODE.sub(" ", line))):
                instead = term(name)
                if instead:
                    findings.append(Finding(file, number, f"'{name}' has a private word; the field's: {instead}"))
    return findings
