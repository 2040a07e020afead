"""python -m pyflame.torch program.py arguments: runs a program of PyTorch's without a change; -m module runs a module."""
import os
import runpy
import sys


def main():
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help") or (arguments[0] == "-m" and len(arguments) < 2):
        print("usage: python -m pyflame.torch PROGRAM.py [ARGUMENT...]\n       python -m pyflame.torch -m MODULE [ARGUMENT...]\n\n"
              "Runs a program in which `import torch` means PyFlame. docs/from-pytorch.md says what differs.")
        return 0 if arguments and arguments[0] != "-m" else 2
    if arguments[0] != "-m" and not os.path.exists(arguments[0]):
        print(f"python -m pyflame.torch: can't open file '{arguments[0]}': no such file", file=sys.stderr)
        return 2
    import pyflame.torch.as_torch  # noqa: F401

    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return 0
    sys.argv = arguments
    if os.path.isdir(arguments[0]):
        sys.path[0] = arguments[0]
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
    runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
