#!python
"""Starts the program inside the installed package, without loading the package itself."""
import importlib.util
import os
import sys

package = importlib.util.find_spec("pyflame")
if package is None:
    sys.exit("pyflame: the package is not installed in this environment; got {}".format(sys.executable))
folder = os.path.dirname(package.origin)
spec = importlib.util.spec_from_file_location("_pyflame_program", os.path.join(folder, "_program.py"))
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)
program.start(folder, sys.argv[1:], outside=False)
