"""`pyflame optimize`: the command line, and what is written at the end."""
import argparse
import fcntl
import json
import os
import shutil
import sys

from .._command_help import Parser, program_of
from .._entry import command
from ..profiler.run import NoProgram, find_program, framework_of, misplaced
from ..tuning import watch
from ..tuning.__main__ import seconds
from . import candidates, page, suggestions
from .journal import Journal, digest
from .machine import Interrupted, Machine, Stopped, commit_of


def _say(text=""):
    print(f"pyflame optimize: {text}" if text else "", file=sys.stderr, flush=True)


def _arguments():
    p = Parser(prog="pyflame optimize", add_help=False)
    p.add_argument("--metric", default="step time")
    p.add_argument("--budget", type=seconds, default=1800.0)
    p.add_argument("--level", type=int, default=4)
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--hang", type=seconds, default=600.0)
    p.add_argument("--out")
    p.add_argument("--allow-noise", action="store_true")
    p.add_argument("--resume", action="store_true")
    p.add_argument("--list", action="store_true")
    p.add_argument("--json", action="store_true")
    p.add_argument("--module")
    p.add_argument("--plugins", default="")
    p.add_argument("--pyflame", default=shutil.which("pyflame"))
    p.add_argument("program", nargs=argparse.REMAINDER)
    args = p.parse_args()
    args.program = program_of(args)
    return args


def _program(args):
    """(file, module, arguments); Stopped if it cannot be run."""
    try:
        file, module, arguments = find_program(args, here=False)
    except NoProgram as e:
        raise Stopped(str(e)) from None
    if module:
        return file, module, arguments
    if framework_of(file) == "torch":
        raise Stopped("this is a program of PyTorch, whose settings PyFlame does not change; hint: pyflame profile shows what limits it, and docs/from-pytorch.md how it runs with PyFlame")
    wrong = misplaced(args, file, arguments)
    if wrong:
        _say(wrong)
    return file, None, arguments


def _alone(folder):
    """One session at a time in a folder, until this process ends: two would write the same files."""
    try:
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Stopped(f"another pyflame optimize works in this folder; got {folder!r}; expected one session at a time; hint: wait until it has ended, or --out FOLDER") from None
    except OSError:  # a file system without locks
        pass


def _journal(args, program, folder):
    """The journal of the folder: a new one, or one to go on with."""
    path = os.path.join(folder, "optimize.jsonl")
    session = {"program": program[0] or program[1], "arguments": program[2], "metric": args.metric, "digest": digest(program[0])}
    if args.resume and not os.path.exists(path):
        raise Stopped(f"there is no journal to go on with; got {path}; hint: the --out of the first session, or leave --resume out")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as e:
        raise Stopped(f"the folder of the journal cannot be made: {e.strerror}; got {folder!r}; hint: --out FOLDER") from None
    _alone(folder)
    if os.path.exists(path) and not args.resume and Journal(path).of("candidate"):
        raise Stopped(f"there is a journal already; got {path}; hint: --resume goes on with it, and --out names another folder")
    if not args.resume and os.path.exists(path):  # of a session that tried nothing, as where the program was refused and has been changed since
        os.remove(path)
    journal = Journal(path)
    for first in journal.of("session")[:1]:
        other = [key for key, value in session.items() if first.get(key) != value]
        if other:
            raise Stopped(f"the journal is of another session: {', '.join('the text of the program' if k == 'digest' else k for k in other)} differs; got {path}; hint: another --out, or remove the folder")
    journal.add("session", **session, level=args.level, budget=args.budget, commit=commit_of(program[0]))
    return journal


def _finish(machine, folder, title, total, as_json=False):
    """Writes the page and the diff, and says what to do with the result."""
    diff = suggestions.diff(machine.head, os.getcwd()) if machine.head else ""
    if diff:
        with open(os.path.join(folder, "suggestions.diff"), "w", encoding="utf-8") as file:
            file.write(diff)
        _say(f"changes of the program to look at, which are not applied: {folder}/suggestions.diff")
    with open(os.path.join(folder, "optimize.html"), "w", encoding="utf-8") as file:
        file.write(page.render(machine.journal, title, diff))
    if as_json:
        print(json.dumps({"kept": [c.name for c in machine.kept], "total": None if total is None else total if isinstance(total, str) else total.to_dict(),
                          "settings": machine.result if machine.kept else None, "folder": folder}))
    elif total is not None:
        print(total)
    if machine.kept:
        if not as_json:
            print(f"kept: {', '.join(c.name for c in machine.kept)}")
        _say(f"use it: PYFLAME_SETTINGS={machine.result} python {title} …, or pf.load_settings({machine.result!r}) right after `import pyflame`")
    else:
        _say("nothing was kept; the program runs as it is" + ("" if machine.reference else ", and it was not measured"))
    _say(f"{folder}/optimize.html shows every trial; the journal is optimize.jsonl beside it")


def _list(as_json=False):
    facts = candidates.Facts("cpu", reads=2, waiting=0.5, idle=0.7, capacity=100, convolutions=1, accumulation={"batches": 2, "trainer": True})
    recomputation = ({"off": {"saves": 1, "flops": 4 / 3}}, 1), ({"on": {"modules": ["BLOCK"], "saves": 1, "flops": 4 / 3}}, 99)
    everything = {c.name: c for device in ("cpu", "cuda:0", "rocm:0") for facts.device in [device] for facts.recomputation, facts.peak in recomputation for facts.retries in [1]
                  for c in candidates.candidates(5, facts, ".", plugins="MODULE")}
    if as_json:
        print(json.dumps([{"level": c.level, "name": c.name, "exactness": c.exactness, "when": c.when or c.reason} for c in sorted(everything.values(), key=lambda c: c.level)]))
        return 0
    for level, title in candidates.LEVELS.items():
        found = [c for c in everything.values() if c.level == level]
        print(f"level {level}: {title}" + ("" if found else ": none"))
        for c in found:
            print(f"  {c.name:28} {c.exactness:34} {c.when or c.reason}")
    return 0


def _optimize(args):
    program = _program(args)
    title = os.path.basename(program[0]) if program[0] else program[1]
    folder = args.out or f"optimize-{os.path.splitext(title)[0]}"
    journal = _journal(args, program, folder)
    progress = watch.Progress()
    machine = Machine(program, folder, journal, args.metric, args.budget, args.level, args.pairs, args.hang, lambda text: (progress.clear(), _say(text)), progress, args.pyflame, args.plugins, args.allow_noise)
    tried, total, code = machine.resume() if args.resume else set(), None, 0
    try:
        total = machine.cycle(tried)
    except (Interrupted, KeyboardInterrupt):
        journal.add("interrupted")
        progress.clear()
        _say("interrupted; --resume goes on")
        code = 130
    except Stopped as e:
        journal.add("stopped", why=str(e))
        progress.clear()
        _say(str(e))
        return e.code
    progress.clear()
    _finish(machine, folder, title, total, args.json)
    return code


@command()
def main():
    args = _arguments()
    if args.list:
        return _list(args.json)
    try:
        return _optimize(args)
    except Stopped as e:
        _say(str(e))
        return e.code


if __name__ == "__main__":
    sys.exit(main())
