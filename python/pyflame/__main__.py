"""`python -m pyflame WORD...` is the program `pyflame` with this interpreter, where bin/ of the environment is not on the path."""
import os
import sys

from pyflame import _program

if __name__ == "__main__":
    _program.start(os.path.dirname(os.path.abspath(__file__)), sys.argv[1:])
