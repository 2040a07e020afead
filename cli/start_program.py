#!python
"""Starts the program inside the installed package, without loading the package itself."""
import importlib.util
import os
import sys

package = importlib.util.find_spec("pyflame")
if package is None:
    sys.exit("pyflame: the package is not installed in this environment; got {}".format(sys.executable))
program = os.path.join(os.path.dirname(package.origin), "bin", "pyflame")
arguments = sys.argv[1:]
# These commands need the interpreter that has the package. What follows a script belongs to the script.
script = next((at for at, word in enumerate(arguments) if word.endswith(".py")), len(arguments)) if arguments[:1] == ["run"] else len(arguments)
trains = arguments[:1] == ["train"] and arguments[1:2] not in ([], ["gpt"]) and not arguments[1].startswith("-")
if trains:
    arguments[1:1] = ["--python", sys.executable]
if arguments[:1] in (["run"], ["bench"], ["fit"], ["memory"], ["generate"], ["chat"], ["serve"]) and "--python" not in arguments[:script]:
    at = 1 if arguments[0] == "run" else len(arguments)
    arguments[at:at] = ["--python", sys.executable]
os.execv(program, [program] + arguments)
