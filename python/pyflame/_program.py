"""Starts the program `pyflame` with this interpreter, for the script that a wheel puts into bin/ and for `python -m pyflame`. The script loads this file
without the package, whose import takes longer than most commands."""
import os
import shutil
import sys

# These commands need the interpreter that has the package.
_OF_PYTHON = ("run", "bench", "fit", "memory", "generate", "chat", "serve")


def with_interpreter(arguments):
    """The arguments with `--python` where a command needs it. What follows a script belongs to the script."""
    arguments = list(arguments)
    script = next((at for at, word in enumerate(arguments) if word.endswith(".py")), len(arguments)) if arguments[:1] == ["run"] else len(arguments)
    if arguments[:1] == ["train"] and arguments[1:2] not in ([], ["gpt"]) and not arguments[1].startswith("-"):
        arguments[1:1] = ["--python", sys.executable]
    if arguments[:1] and arguments[0] in _OF_PYTHON and "--python" not in arguments[:script]:
        at = 1 if arguments[0] == "run" else len(arguments)
        arguments[at:at] = ["--python", sys.executable]
    return arguments


def find(package, outside):
    """The program inside the package (a wheel) or, with `outside`, beside this interpreter or on the path (other installations); None if there is none."""
    places = [os.path.join(package, "bin", "pyflame")] + [os.path.join(os.path.dirname(sys.executable), "pyflame")] * outside
    found = next((path for path in places if os.access(path, os.X_OK)), None)
    return found or (shutil.which("pyflame") if outside else None)


def start(package, arguments, outside=True):
    """Becomes the program; `package` is the folder of the package. The script of a wheel stands outside itself, so it does not look there."""
    program = find(package, outside)
    if program is None:
        sys.exit(f"pyflame: the program is not installed; got no program for {package}; expected {package}/bin/pyflame; hint: docs/install.md has the ways to install it")
    os.execv(program, [program, *with_interpreter(arguments)])
