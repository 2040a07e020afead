"""Starts the program `pyflame` with this interpreter, for the script that a wheel puts into bin/ and for `python -m pyflame`. The script loads this file
without the package, whose import takes longer than most commands."""
import os
import shutil
import sys

# Commands that need the interpreter which has the package, and the place of `--python` among their words. A program and its words stand at the end of some of
# them; there it stands in front. Words of `bench llm` go to Python as they are.
_OF_PYTHON = {"run": 1, "profile": 1, "explain": 1, "tune": 1, "optimize": 1, "bench": 1, "debug": 2,
              **dict.fromkeys(("fit", "memory", "generate", "chat", "embed", "serve", "convert", "diagnose", "inspect-model"), -1)}
_SUBCOMMANDS = {"debug": "run", "memory": "monitor"}  # those of these commands that need it


def with_interpreter(arguments):
    """The arguments with `--python` where a command needs it. What follows a script belongs to the script."""
    arguments = list(arguments)
    command = arguments[0] if arguments else None
    at = _OF_PYTHON.get(command)
    if command == "train" and (arguments[1:2] not in ([], ["gpt"]) or "--distributed" in arguments) and not arguments[1].startswith("-"):
        at = 1
    elif command == "doctor" and "--comm" in arguments:
        at = -1
    elif command in _SUBCOMMANDS and arguments[1:2] != [_SUBCOMMANDS[command]]:
        at = None
    script = next((i for i, word in enumerate(arguments) if word.endswith(".py")), len(arguments)) if at != -1 else len(arguments)
    if at is None or "--python" in arguments[:script]:
        return arguments
    at = len(arguments) if at == -1 else at
    return [*arguments[:at], "--python", sys.executable, *arguments[at:]]


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
