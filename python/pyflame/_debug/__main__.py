"""`pyflame debug run`: runs a program with the debug allocator."""
import argparse
import json
import os
import sys

from .._command_help import Parser, program_of
from .._entry import command
from ..profiler import run
from . import vendor

FOUND = 4  # exit code: an access was found


def _say(text):
    print(f"pyflame debug: {text}", file=sys.stderr, flush=True)


def _arguments():
    p = Parser(prog="pyflame debug run", add_help=False)
    for flag in ("--guards", "--poison", "--sync", "--no-agent"):
        p.add_argument(flag, action="store_true")
    p.add_argument("--sanitizer", choices=vendor.CHECKS)
    p.add_argument("--module")
    p.add_argument("--json", type=os.path.abspath)  # the program may go to another folder
    p.add_argument("program", nargs=argparse.REMAINDER)
    args = p.parse_args()
    args.program = program_of(args)
    return args


def _under_sanitizer(args):
    """Replaces this process by the same command below compute-sanitizer."""
    words = [a for a in sys.argv[1:] if not a.startswith("--sanitizer")]
    try:
        command = vendor.sanitizer_command(args.sanitizer, [sys.executable, "-m", "pyflame._debug", *words])
    except ValueError as e:
        _say(e)
        return 1
    sys.stderr.flush()
    os.execv(command[0], command)


def _write_document(args, guards, poison, first, code):
    """The file of --json. The exit code; 1 where the file cannot be written."""
    document = {"tool": "debug run", "program": args.module or args.program[0], "arguments": args.program[0 if args.module else 1:],
                "looked_for": [name for name, on in (("guards", guards), ("poison", poison)) if on], "first_wrong_access": first or None, "exit_code": code}  # fmt: skip
    try:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2)
            file.write("\n")
    except OSError as e:
        _say(f"the file of --json cannot be written; got {args.json!r}: {e.strerror}; expected a path in a folder that exists")
        return 1
    return code


@command()
def main():
    args = _arguments()
    try:
        file, module, arguments = run.find_program(args)
    except run.NoProgram as e:
        _say(e)
        return 1
    if args.json and not os.path.isdir(os.path.dirname(args.json)):
        _say(f"the folder of --json does not exist; got {args.json!r}; expected a path in a folder that exists")
        return 1
    if args.sanitizer:
        return _under_sanitizer(args)
    every = not (args.guards or args.poison or args.sync)
    guards, poison = every or args.guards, every or args.poison
    if not args.no_agent and (os.path.exists("/dev/kfd") or vendor.find_agent()):  # before ROCm's libraries are loaded
        _say(vendor.load_agent()[1])
    if os.path.exists("/dev/nvidiactl") and vendor.find_sanitizer():
        _say("compute-sanitizer is installed: --sanitizer memcheck runs the program under it, which finds the accesses of each kernel of an NVIDIA GPU")
    os.environ["PYFLAME_DEBUG_ALLOCATOR"] = "1" if every else "0"  # for processes that the program starts
    os.environ.setdefault("PYFLAME_WINDOW", "1")  # each op is a step of its own
    from .. import _C

    _C._set_window(int(os.environ["PYFLAME_WINDOW"]))
    _C._configure_debug_memory(guards, poison, True)

    def finish(code):
        try:
            _C.synchronize()
        except Exception as e:
            _say(f"the end of the program: {e}")
            code = code or 1
        first = _C._first_wrong_access()
        if first:
            _say("the first wrong access:\n" + first)
            code = FOUND
        else:
            looked = [text for on, text in ((guards, "no access outside of a buffer was found"), (poison, "no read of memory that nothing has written was found")) if on]
            _say("; ".join(looked or ["the program came to its end, step by step"]))
        return _write_document(args, guards, poison, first, code) if args.json else code

    return run.run_and_report(file, module, arguments, finish)


if __name__ == "__main__":
    sys.exit(main())
