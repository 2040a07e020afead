"""A file says first which decision it embodies: C++ in a comment, Python in a docstring or comment. Headers are guarded by
#pragma once."""
from common import Finding, lines, tracked


def check(root):
    findings = []
    for name in tracked(root, (".h", ".cpp", ".def")):
        text = lines(root, name)
        first = text[0] if text else ""
        # One line may be enough, but it must say something.
        if not first.startswith(("//", "/*")) or len(first.strip("/* ").split()) < 2:
            # A .cpp beside a header of the same name is covered by the header's comment.
            header = root / (name[: -len(".cpp")] + ".h") if name.endswith(".cpp") else None
            if not (header and header.is_file()):
                findings.append(Finding(name, 1, "no comment at the top of the file"))
        # Highway compiles some headers once for each instruction set: they have guards of their own, or must have none.
        again = name.endswith("-inl.h") or any("HWY_" in line for line in text)
        if name.endswith(".h") and "#pragma once" not in text and not again:
            findings.append(Finding(name, 1, "no #pragma once"))
    for name in tracked(root, (".py",)):
        text = "\n".join(lines(root, name)).lstrip()
        if text and not text.startswith(("#", '"""', 'r"""', "'''")):
            findings.append(Finding(name, 1, "no docstring or comment at the top of the file"))
    return findings
