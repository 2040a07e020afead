"""`pyflame explain`: runs a program, and says how it was computed."""
import argparse
import json
import os
import pathlib
import sys

from .._command_help import Parser, program_of
from .._entry import command, print_report
from ..profiler import run


def _say(text):
    print(f"pyflame explain: {text}", file=sys.stderr, flush=True)


class _Refused(Exception):
    """What the command does not do, as a sentence."""


def _arguments():
    p = Parser(prog="pyflame explain", add_help=False)
    for name in ("--out", "--html", "--json", "--kernels", "--module"):
        p.add_argument(name)
    p.add_argument("--no-times", action="store_true")
    p.add_argument("--measure", action="store_true")
    p.add_argument("program", nargs=argparse.REMAINDER)
    args = p.parse_args()
    args.program = program_of(args)
    return args


class _Explanation:
    """Of everything that this process computes, in all threads, with the times of the steps."""

    def __init__(self, times):
        from .. import _C, profiler

        self._C, self._profiler, self._profile = _C, profiler, profiler.profile() if times else None
        _C._explain_begin(True)
        if self._profile:
            self._profile.start()
            profiler.in_background(self._profile.stop)

    def end(self, measure_again):
        """The document."""
        from ..profiler.ceilings import ceilings
        from . import document

        try:
            self._C.synchronize()
        except Exception as e:
            _say(f"the end of the program: {e}")
        self._profiler.in_background(None)
        found = self._C._explain_end(True)
        if measure_again:
            for device in {p["device"] for p in found["programs"]}:
                ceilings(device, renew=True)
        return document.make(found, averages=self._profile and self._profile.key_averages(group_by_input_shape=True), whole=True)


class _File:
    """A file that is written at the end. Its folder is checked now, because the program may run for long and may go to another folder."""

    def __init__(self, name):
        self.name, self.path = name, os.path.abspath(name)
        folder = os.path.dirname(self.path)
        if os.path.isdir(self.path) or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
            raise _Refused(f"'{name}' cannot be written; expected a file in a folder that exists and can be written")

    def write(self, text):
        try:
            pathlib.Path(self.path).write_text(text, encoding="utf-8")
        except OSError as e:
            _say(f"'{self.name}' cannot be written: {e.strerror}")
            return 1
        _say(f"written: {self.name}")
        return 0


def _report(document, args, title):
    from . import page, text

    failed = 0
    whole = text.render(document, programs_only=True)
    if args.out:
        failed |= args.out.write(whole)
    long = text.is_long(document)
    if not args.out or long:
        print_report(f"\n== pyflame explain: {title} ==\n" + (text.short(document) if long else whole), _say, "--out FILE")
    if long and not (args.out or args.html):
        _say("the steps of all programs are many; hint: --out FILE or --html FILE writes them")
    if args.html:
        failed |= args.html.write(page.render(document, title))
    if args.json:
        failed |= args.json.write(json.dumps(document, indent=1) + "\n")
    if not document["windows"]:
        _say("the program recorded no ops of PyFlame")
    return failed


class _Kernels:
    """A folder for the kernels of this process."""

    def __init__(self, name):
        self.name = name
        try:
            os.makedirs(name, exist_ok=True)
            self.before = set(os.listdir(name))
        except OSError as e:
            raise _Refused(f"the kernels cannot be written to '{name}': {e.strerror}") from None
        self.path = os.environ["PYFLAME_KERNELS_DIR"] = os.path.abspath(name)

    def tell(self):
        new = set(os.listdir(self.path)) - self.before
        sources = sum(name.endswith(".cpp") for name in new)
        if sources:
            _say(f"{sources} kernels in {self.name}, each with its source (.cpp) and its code object; `pyflame inspect FILE` reads these")
        else:
            _say(f"no kernels in {self.name}: none were generated; only programs on a GPU have them, the CPU's kernels are part of PyFlame")


def _check_program(args):
    """The file, and its arguments."""
    try:
        file, _, arguments = run.find_program(args)
    except run.NoProgram as e:
        raise _Refused(str(e)) from None
    if file and run.framework_of(file) == "torch":
        raise _Refused(f"the program uses PyTorch; got {file}; expected a program of PyFlame; hint: pyflame profile {file} profiles it with PyTorch, and pyflame explain -m pyflame.torch {file} runs it with PyFlame")
    return file, arguments


@command()
def main():
    args = _arguments()
    try:
        file, arguments = _check_program(args)
        for name in ("out", "html", "json"):
            if getattr(args, name):
                setattr(args, name, _File(getattr(args, name)))
        kernels = _Kernels(args.kernels) if args.kernels else None
    except _Refused as e:
        _say(e)
        return 1
    wrong = run.misplaced(args, file, arguments)
    if wrong:
        _say(wrong)
    explanation = _Explanation(not args.no_times)

    def finish(code):
        failed = _report(explanation.end(args.measure), args, args.module or os.path.basename(file))
        if kernels:
            kernels.tell()
        return code or failed

    return run.run_and_report(file, args.module, arguments, finish)


if __name__ == "__main__":
    sys.exit(main())
