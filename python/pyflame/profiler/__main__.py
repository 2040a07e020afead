"""`pyflame profile`: runs a program, records its steps, and reports where the time goes."""
import argparse
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

from .._entry import command
from . import run


def _say(text):
    print(f"pyflame profile: {text}", file=sys.stderr, flush=True)


def _arguments():
    p = argparse.ArgumentParser(prog="pyflame profile", add_help=False)
    p.add_argument("--out")
    p.add_argument("--skip", type=int, default=10)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--no-stacks", action="store_true")
    p.add_argument("--module")
    p.add_argument("--json", type=os.path.abspath)  # the program may go to another folder
    p.add_argument("--pyflame", default=shutil.which("pyflame"))
    p.add_argument("program", nargs=argparse.REMAINDER)
    args = p.parse_args()
    if args.program[:1] == ["--"]:
        del args.program[0]
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


def _report(pyflame, trace, folder, lines, json_file=None):
    """Prints the report of the trace and writes it as text, JSON and a page. Whether json_file has its document, where one is asked for."""
    if pyflame is None:
        _say(f"the trace is {trace}; the program `pyflame` was not found; hint: pyflame report {trace}")
        return json_file is None
    text = subprocess.run([pyflame, "report", str(trace), "--html", str(folder / "report.html")], capture_output=True, text=True)
    document = subprocess.run([pyflame, "report", str(trace), "--json"], capture_output=True, text=True)
    if os.isatty(2):  # as wide as the terminal, and in its colours
        sys.stderr.flush()
        subprocess.run([pyflame, "report", str(trace)], stdout=2, stderr=subprocess.DEVNULL)
    else:
        print(text.stdout, end="", file=sys.stderr)
    _write(folder / "report.txt", text.stdout)
    _write(folder / "report.json", document.stdout)
    for line in lines:
        _say(line)
    if text.stderr:
        print(text.stderr, end="", file=sys.stderr)
    _say(f"{trace} opens in ui.perfetto.dev")
    if json_file is None:
        return True
    if document.returncode != 0:
        _say(f"there is no document for --json: {document.stderr.strip()}")
        return False
    return _write_document(json_file, document.stdout)


@command()
def main():
    args = _arguments()
    file, arguments = (None, args.program) if args.module else (args.program[0], args.program[1:])
    if file is not None and not os.path.isfile(file):
        _say(f"there is no such file; got {file!r}; expected a Python program")
        return 1
    if args.json and not os.path.isdir(os.path.dirname(args.json)):
        _say(f"the folder of --json does not exist; got {args.json!r}; expected a path in a folder that exists")
        return 1
    path = file
    if args.module:
        sys.path.insert(0, os.getcwd())
        spec = importlib.util.find_spec(args.module)
        path = spec.origin if spec is not None else ""
    framework = run.framework_of(path)
    try:
        recorder = (run.TorchRecorder if framework == "torch" else run.PyFlameRecorder)(stacks=not args.no_stacks)
    except ImportError as e:
        hint = f"; hint: pyflame profile -m pyflame.torch {file} runs it with PyFlame" if framework == "torch" and file else ""
        _say(f"the program needs {framework}, which cannot be imported: {e}{hint}")
        return 1
    folder = pathlib.Path(args.out or f"profile-{pathlib.Path(args.module or file).stem}-{run.stamp()}")
    folder.mkdir(parents=True, exist_ok=True)
    trace = folder / "trace.json.gz"
    written = []
    session = run.Session(recorder, str(trace), args.skip, args.steps, args.seconds, lambda lines: written.append(_report(args.pyflame, trace, folder, lines, args.json)))
    session.start()
    code = run.run_program(file, args.module, arguments)
    if code == 130:
        _say("interrupted; the report follows when what was recorded is computed")
    session.finish()
    if session.failure is not None:
        _say(f"there is no report: {session.failure}")
        return code or 1
    return code if all(written) else code or 1


if __name__ == "__main__":
    sys.exit(main())
