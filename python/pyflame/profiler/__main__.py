"""`pyflame profile`: runs a program, records its steps, and reports where the time goes."""
import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import NamedTuple

from .._command_help import Parser, program_of
from .._entry import command, print_report
from ..distributed._environment import place_of_process
from . import run

_STAMP, _MANY = "????????-??????", 20  # of the folders' names; how many are worth a word
_TRACE = "trace.json.gz"
_FILES = (_TRACE, "report.html", "report.txt", "report.json")  # what a run writes into its folder


def _say(text):
    print(f"pyflame profile: {text}", file=sys.stderr, flush=True)


def _arguments():
    p = Parser(prog="pyflame profile", add_help=False)
    p.add_argument("--out")
    p.add_argument("--keep", type=int)
    p.add_argument("--skip", type=int, default=10)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--no-stacks", action="store_true")
    p.add_argument("--module")
    p.add_argument("--json", type=os.path.abspath)  # the program may go to another folder
    p.add_argument("--pyflame", type=os.path.abspath, default=shutil.which("pyflame"))
    p.add_argument("program", nargs=argparse.REMAINDER)
    args = p.parse_args()
    args.program = program_of(args)
    return args


def _write(path, text):
    """A file beside the trace. A full disk takes the file, not the report that is printed."""
    try:
        path.write_text(text)
    except OSError as e:
        _say(f"{path} cannot be written: {e.strerror}; hint: pyflame report writes it again")


def _write_document(path, text):
    """The file of --json. Whether it was written."""
    try:
        pathlib.Path(path).write_text(text)
    except OSError as e:
        _say(f"the file of --json cannot be written; got {path!r}: {e.strerror}; expected a path in a folder that exists")
        return False
    return True


def _rank():
    """-rankN where this process is one of several, otherwise nothing. What is wrong with a launcher's variables, the program says itself."""
    try:
        place = place_of_process("pyflame profile")
    except ValueError:
        return ""
    return f"-rank{place.rank}" if place.world_size > 1 else ""


def _runs(here, rank=""):
    """The folders of runs, of this rank where there are several, the oldest first: those that have the name and the trace of one. A link to a folder is none."""
    found = [path for path in here.glob(f"profile-*{rank}-{_STAMP}") if path.name[-len(_STAMP):].replace("-", "").isdigit()]
    return sorted((path for path in found if not path.is_symlink() and (path / _TRACE).is_file()), key=lambda path: path.name[-len(_STAMP):])


def _delete_old(here, folder, keep, rank):
    """Deletes the folders of runs before this one, until there are as many as --keep says. A folder with anything that is not of a run stays."""
    new = folder.name[-len(_STAMP):]
    runs = [path for path in _runs(here, rank) if path.name[-len(_STAMP):] < new]
    deleted = 0
    for path in runs[:max(0, len(runs) - (keep - 1))]:
        try:
            files = sorted(path.iterdir())
            others = [file.name for file in files if file.name not in _FILES or file.is_symlink() or not file.is_file()]
            if others:
                _say(f"{path.name} is not deleted: it has files that are not of a profile; got {', '.join(others)}")
                continue
            for file in files:
                file.unlink()
            path.rmdir()
            deleted += 1
        except OSError as e:
            _say(f"{path.name} cannot be deleted: {e.strerror}")
    if deleted:
        _say(f"--keep {keep}: {deleted} folder{'s' * (deleted > 1)} of earlier profiles {'were' if deleted > 1 else 'was'} deleted")


def _tell_of_many(here):
    """Where the folders of earlier runs have piled up, how many these are, and what deletes them."""
    runs = _runs(here)
    if len(runs) > _MANY:
        mib = sum(file.stat().st_size for path in runs for file in path.iterdir() if file.is_file()) / 2**20
        _say(f"there are {len(runs)} folders of profiles here, of {mib:.0f} MiB; hint: --keep 5 deletes all but the newest five; --out FOLDER writes every run into one folder")


def _is_empty(document):
    """Whether a report is of a profile of PyFlame in which nothing ran."""
    return document["signals"]["own"] and not document["time"]["timeline"]


class _Ended(NamedTuple):
    stdout: str
    stderr: str
    returncode: int


class _Report:
    """Of a recording, which may end long before the program does: its files are written then, and it is printed when the program has ended."""

    def __init__(self, pyflame, trace, folder, json_file):
        self._pyflame, self._trace, self._folder, self._json_file = pyflame, trace, folder, json_file
        self._start = pathlib.Path.cwd()  # paths are relative to it, and the program may go to another folder
        self._text, self._lines, self.written, self.complete = None, [], False, True  # complete: the file of --json was written, if one was asked for

    def _words(self, *options):
        return [self._pyflame, "report", str(self._trace), *options]

    def _run_both(self, *options):
        """Both at once, because each reads the whole trace."""
        started = [subprocess.Popen(self._words(*words), cwd=self._start, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for words in options]
        return [_Ended(*p.communicate(), p.returncode) for p in started]

    def write(self, lines, goes_on):
        """lines: what is worth saying of the machine. goes_on: whether the program still runs."""
        self._lines, self.written = lines, True
        if self._pyflame is None:
            self.complete = self._json_file is None
            return
        self._text, document = self._run_both(["--html", str(self._folder / "report.html")], ["--json"])
        _write(self._start / self._folder / "report.txt", self._text.stdout)
        _write(self._start / self._folder / "report.json", document.stdout)
        if document.returncode == 0 and _is_empty(json.loads(document.stdout)):
            self._lines = [*lines, "the program recorded no ops of PyFlame; those of the processes that it starts are not recorded"]
        if self._json_file is not None and document.returncode != 0:
            _say(f"there is no document for --json: {document.stderr.strip()}")
            self.complete = False
        elif self._json_file is not None:
            self.complete = _write_document(self._json_file, document.stdout)
        if goes_on:
            _say(f"the recording has ended, and the program goes on; its report is in {self._folder / 'report.txt'} and follows here at the end")

    def show(self, title):
        if self._pyflame is None:
            _say(f"the trace is {self._trace}; the program `pyflame` was not found; hint: pyflame report {self._trace}")
            return
        heading, terminal = f"\n== pyflame profile: {title} ==\n", os.isatty(1)
        if self._text.stdout:
            print_report(heading if terminal else heading + self._text.stdout, _say, f"it is in {self._folder / 'report.txt'}")
        if self._text.stdout and terminal:  # as wide as the terminal, and in its colours
            subprocess.run(self._words(), cwd=self._start, stdout=1, stderr=subprocess.DEVNULL)
        for line in self._lines:
            _say(line)
        if self._text.stderr:
            print(self._text.stderr, end="", file=sys.stderr)
        _say(f"{self._trace} opens in ui.perfetto.dev")


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
    framework = run.framework_of(file or importlib.util.find_spec(module).origin or "")
    try:
        recorder = (run.TorchRecorder if framework == "torch" else run.PyFlameRecorder)(stacks=not args.no_stacks)
    except ImportError as e:
        hint = f"; hint: pyflame profile -m pyflame.torch {file} runs it with PyFlame" if framework == "torch" and file else ""
        _say(f"the program needs {framework}, which cannot be imported: {e}{hint}")
        return 1
    wrong = run.misplaced(args, file, arguments)
    if wrong:
        _say(wrong)
    rank = _rank()
    if args.out:
        folder = pathlib.Path(args.out, rank[1:])
    else:
        folder = pathlib.Path(f"profile-{pathlib.Path(module or file).stem}{rank}-{run.stamp()}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        _say(f"the folder of the report cannot be made: {e.strerror}; got {str(folder)!r}; hint: --out FOLDER")
        return 1
    trace, start = folder / _TRACE, pathlib.Path.cwd()
    report, runs = _Report(args.pyflame, trace, folder, args.json), True
    session = run.Session(recorder, os.path.abspath(trace), args.skip, args.steps, args.seconds, lambda lines: report.write(lines, runs))

    def finish(code):
        nonlocal runs
        runs = False
        if code == 130:
            _say("interrupted; the report follows when what was recorded is computed, written and read")
        session.finish()
        if session.failure is not None:
            _say(f"there is no report: {session.failure}")
            return code or 1
        if report.written:
            report.show(module or os.path.basename(file))
            if args.keep is not None:
                _delete_old(start, folder, args.keep, rank)
            if not args.out:
                _tell_of_many(start)
        return code if report.complete else code or 1

    session.start()
    return run.run_and_report(file, module, arguments, finish)


if __name__ == "__main__":
    sys.exit(main())
