"""The tables of options and examples of docs/cli.md, from `pyflame COMMAND --help`. With --check: fails when the page is not what would be written.

The tables stand between `<!-- options: COMMAND -->` and `<!-- end -->`; the rest of the page is written by hand. tests/python/test_cli_help.py checks that
the examples name commands and options that exist.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "cli.md"
PLACE = re.compile(r"(<!-- options: ([a-z -]+) -->\n).*?(<!-- end -->)", re.S)
OPTION = re.compile(r"^  ([-\w]\S*)(?: (\S.*?))?(?:\s{2,}(\S.*))?$")


def options(text):
    """(names, type, description) of each line under "Options:" and "Positionals:"; descriptions go on in lines that are indented further."""
    found, inside = [], False
    for line in text.split("\n"):
        line = re.sub(r"(U?INT):INT in \[.*?\]", r"\1 ", line)  # ranges: the program says them when they are not kept
        if line and not line.startswith(" "):
            inside = line in ("Options:", "Positionals:")
        elif inside and (match := OPTION.match(line)):
            found.append([match.group(1).split(","), match.group(2) or "", match.group(3) or ""])
        elif inside and line.strip():
            found[-1][2] = f"{found[-1][2]} {line.strip()}".strip()
    return found


def examples(text):
    """(command, what it does) of each example at the end of a help."""
    lines = text.partition("\nExamples:\n")[2].rstrip("\n").split("\n")
    return [(command.strip(), says.strip()) for command, says in zip(lines[::2], lines[1::2], strict=True)] if lines != [""] else []


def row(names, kind, description):
    names = [n for n in names if n.startswith("--")] or names  # a positional has one name, without dashes
    kind = re.sub(r"\s*\b(?:Excludes|Needs): \S+", "", kind)
    kind, _, default = kind.partition("=")
    if not description:  # one space before it, where the column is full
        default, _, description = default.partition(" ")
        if not description and (full := re.fullmatch(r"([A-Z]+) (?!REQUIRED)([A-Z].+)", kind)):
            kind, description = full.groups()
    required = kind.endswith("REQUIRED")
    kind = kind.replace("REQUIRED", "").strip()
    kind = re.sub(r"^(U?INT|FLOAT):.*", r"\1", kind)
    choices = re.match(r"\w+:\{(.*)\}$", kind)
    value = " or ".join(choices.group(1).split(",")) if choices else {"INT": "whole number", "UINT": "whole number", "FLOAT": "number", "TEXT": "text", "TEXT ...": "one or more", "TEXT:FILE": "file", "": "(none)"}.get(kind, kind)
    return f"| `{names[0]}` | {value} | {'required' if required else f'`{default}`' if default else ''} | {description} |"


def table(program, command):
    run = subprocess.run([program, *command.split(), "--help"], capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "10000"})
    rows = [row(*o) for o in options(run.stdout) if "--help" not in o[0]]
    if not rows:
        raise SystemExit(f"gen_cli_docs: `pyflame {command} --help` has no options that are understood:\n{run.stdout}")
    shown = ["| `{}` | {} |".format(*(cell.replace("|", "\\|") for cell in e)) for e in examples(run.stdout)]
    shown = ["", "| example | what it does |", "|---|---|", *shown] if shown else []
    return "\n".join(["| option | value | default | meaning |", "|---|---|---|---|", *rows, *shown]) + "\n"


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--program", default=str(ROOT / "build" / "release" / "bin" / "pyflame"))
    arguments = parser.parse_args(argv)
    page = PAGE.read_text(encoding="utf-8")
    wanted = PLACE.sub(lambda m: m.group(1) + table(arguments.program, m.group(2)) + m.group(3), page)
    if not arguments.check:
        PAGE.write_text(wanted, encoding="utf-8")
    elif page != wanted:
        print(f"{PAGE.relative_to(ROOT)} is not up to date; run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
