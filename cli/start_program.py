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
if arguments[:1] in (["run"], ["bench"], ["fit"], ["memory"], ["generate"], ["chat"]) and "--python" not in arguments:  # these commands need the interpreter that has the package
    arguments += ["--python", sys.executable]
os.execv(program, [program] + arguments)
