"""Declarations of the public C++ headers that have no comment: cpp_comments.py prints them.

Looked at are macros, classes and functions of a namespace, which begin in the first column. A class or a macro has a comment above it or on its first
line. A function has one there too, or is one of several without an empty line or the end of a body between them, below a comment that speaks of all of them.
Members have none of their own where the class says enough; they are not looked at.
"""
import re

import cpp_reference

TYPE = re.compile(r"^(?:struct|class|union|enum(?: class)?)\s+(?:\[\[\w+\]\]\s+)?(\w+)[^;]*\{|^typedef (?:struct|int) (?:\w+ )?(?:\{|\(\*(\w+)\))")
FUNCTION = re.compile(r"^(?!namespace|using|typedef|struct|class|union|enum|extern|static_assert|return|template|friend|#|//|[}\s])(?:\[\[\w+\]\]\s+)?[\w:<>,&*\s]+?[\s&*](operator\S+|\w+)\(")
MACRO = re.compile(r"^#define (\w+)")
BEFORE = ("template", "[[")


def code_of(text):
    """The lines of a header as its page shows them, without the header's comment, include guards and `namespace detail`."""
    below = "\n".join(cpp_reference.intro_and_rest(text.split("\n"))[1])
    body = cpp_reference.without_private(cpp_reference.without_bodies(below))
    body = re.sub(r"^namespace detail \{\n.*?^\}(  // [^\n]*)?\n", "", body, flags=re.M | re.S)
    return [line for line in body.split("\n") if not re.match(r"#(pragma once|ifndef \w+_H\b|define \w+_H\b)", line)]


def first_part(lines, i):
    """The declaration's lines up to its `;` or `{`, or the whole macro."""
    end = i
    while end + 1 < len(lines) and (lines[end].endswith("\\") or not lines[i].startswith("#") and not re.search(r"[;{}]", lines[end].partition("//")[0])):
        end += 1
    return lines[i:end + 1]


def has_comment(lines, i, of_several):
    if any("//" in line for line in first_part(lines, i)):
        return True
    j = i - 1
    while j >= 0 and lines[j].startswith(BEFORE):
        j -= 1
    if j >= 0 and lines[j].startswith("//"):
        return True
    while of_several and j >= 0 and lines[j].strip() and not lines[j].startswith(("}", "#include", "namespace")):
        if lines[j].startswith("//"):
            return True
        j -= 1
    return False


def lacking(text):
    """The names of declarations without a comment, in the order of the text."""
    lines, removed = code_of(text), set(re.findall(r"#undef (\w+)", text))
    included = removed | set(re.findall(r"#define (\w+)\([^\n]*\n(?:#define[^\n]*\n)*#include", text))
    found = []
    for i, line in enumerate(lines):
        for pattern, of_several in ((MACRO, True), (TYPE, False), (FUNCTION, True)):
            match = pattern.match(line)
            if match and not (pattern is MACRO and match.group(1) in included) and not has_comment(lines, i, of_several):
                found.append(next((g for g in match.groups() if g), line))
            if match:
                break
    return found


def all_lacking():
    """{header: names} of the public headers."""
    paths = [p for listed in cpp_reference.HEADERS.values() for p in listed]
    found = {p: lacking((cpp_reference.ROOT / "src" / "pyflame" / p).read_text(encoding="utf-8")) for p in paths}
    return {p: names for p, names in found.items() if names}


if __name__ == "__main__":
    for path, names in all_lacking().items():
        print(f"{path}: {' '.join(names)}")
