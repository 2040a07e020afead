"""`pyflame bench`: measures problems by name, functions of programs, and lists of products; compares records and programs."""
import inspect
import json
import os
import pathlib
import shutil
import sys
import textwrap
import time

import pyflame as pf

from .._command_help import Parser
from .._entry import command
from ..distributed.bench import main as measure_collectives
from ..distributed._environment import place_of_process
from ..profiler.run import import_program
from ..tuning.watch import Progress
from . import environment, fresh, gemms, problems, results, shares
from .compare import compare, compare_functions
from .measure import bench
from .records import Records, add_options, of_options

_SHOWN = 8  # names of records in a message
REJECTED = 3  # exit code: a figure was not accepted


def _fitted(text, stream=None):
    """str(text) with lines that fit the terminal (60 to 160 columns), if the stream (standard output) is one."""
    if not (stream or sys.stdout).isatty():
        return str(text)
    width = min(160, max(60, shutil.get_terminal_size().columns))
    lines = str(text).split("\n")
    return "\n".join(textwrap.fill(line, width, subsequent_indent=" " * (len(line) - len(line.lstrip()) + 2), break_long_words=False, break_on_hyphens=False) for line in lines)


def _fail(text):
    print(f"pyflame bench: {text}", file=sys.stderr)
    return 1


def _function(spec):
    """The function of FILE.py:function."""
    path, _, name = spec.rpartition(":")
    if not os.path.exists(path):
        raise ValueError(f"there is no such file; got {path!r} of {spec!r}; expected FILE.py:function")
    module = import_program(path)
    sys.argv = [path]  # also where its functions read the arguments
    fn = getattr(module, name, None)
    if not callable(fn):
        names = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", None) == module.__name__]
        raise ValueError(f"{path} has no function {name!r}; it has {', '.join(names) or 'none'}")
    _check_needs_nothing(fn, name, path)
    return fn


def _same_names(words):
    """Names of modules that the folders of both programs have, and that one of the programs has imported."""
    paths = [os.path.abspath(word.rpartition(":")[0]) for word in words]
    first, second = map(os.path.dirname, paths)
    programs = {pathlib.Path(path).stem for path in paths}

    def has(folder, name):
        return any(os.path.exists(os.path.join(folder, name + end)) for end in (".py", "/__init__.py"))

    def is_theirs(module):
        return (getattr(module, "__file__", None) or "").startswith((first + os.sep, second + os.sep))

    if first == second:
        return []
    return sorted(name for name, module in list(sys.modules.items()) if name not in programs and is_theirs(module) and has(first, name) and has(second, name))


def _compare_programs(a, b, args):
    """Compares functions of two programs in this process. A process has one module of a name, so that one of two programs would run with the modules of the other."""

    def check():
        if names := _same_names((a, b)):
            raise ValueError(f"both programs have modules of the same names, of which one process can hold one each; got {', '.join(names)} beside {a} and {b}; expected different names; "
                             "hint: --cold compares them by fresh processes")

    functions = _function(a), _function(b)
    check()
    result = compare_functions(*functions, device=args.device, max_seconds=args.seconds, names=(a, b))
    check()  # what the functions have imported while they ran
    return result


def _check_needs_nothing(fn, name, path):
    """ValueError for a function that cannot be called without arguments."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # such as a class of C++, which has none
        return
    try:
        signature.bind()
    except TypeError:
        needed = [p for p in signature.parameters.values() if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        names = ", ".join(p.name for p in needed)
        call = ", ".join(f"{p.name}={p.name}" if p.kind == p.KEYWORD_ONLY else p.name for p in needed)
        raise ValueError(f"the function needs arguments; got {name}{signature} of {path}; expected one that is called as {name}(); hint: make the arguments outside of a function that uses them, such as: "
                         f"{names} = {'pf.randn(64, 64)' if len(needed) == 1 else '…'}, then def measured(): return {name}({call}), and pyflame bench {path}:measured") from None  # fmt: skip


def _is_function(word):
    path, _, name = word.rpartition(":")
    return path.endswith(".py") and name.isidentifier()


def _problems(args):
    """Problems one after the other, so that one at a time holds memory."""
    first, *rest = args.what
    if first == "all":
        here = pf.get_device().split(":")[0]
        for name, group in problems.GROUPS.items():
            if name != "comm" or here in ("cuda", "rocm"):
                yield from group(args.scale)
    elif first == "gemm" and (rest or args.problems):
        listed, refused = gemms.read(args.problems) if args.problems else ([], [])
        for text in refused:
            _left_out(text)
        for g in listed + [gemms.parse(text) for text in rest]:
            try:
                yield problems.of_gemm(g)
            except NotImplementedError as e:
                _left_out(e)
    elif _is_function(first):
        for word in args.what:
            yield problems.Problem(word, _function(word), train=True)
    else:
        for word in args.what:
            if word not in problems.GROUPS:
                raise ValueError(f"nothing of this name to measure; got {word!r}; expected {', '.join(problems.GROUPS)}, all, compare, list, or FILE.py:function")
            yield from problems.GROUPS[word](args.scale)


def _left_out(why):
    print(f"left out: {str(why).splitlines()[0]}", file=sys.stderr)


def _one(p, args, display):
    """The measurement of a problem; None if its device does not compute it."""
    tell = (lambda part, text: display.show(part, f"{p.name}: {text}")) if display else None
    try:
        with pf.set_grad_enabled(p.train):
            m = bench(p.call, device=args.device, cache="cold" if args.cold else "warm", max_seconds=args.seconds, relative=args.relative / 100, name=p.name, flops=p.flops, bytes=p.bytes,
                      tell=tell)
            if args.what[0] == "gemm":
                m.notes += shares.of(p, m, args.seconds if args.entries else 0)
    except NotImplementedError as e:
        return _left_out(f"{p.name} on {args.device or pf.get_device()}: {e}")
    finally:
        if display:
            display.clear()
    return m


def _measure(args):
    if "comm" in args.what and place_of_process("bench comm").world_size > 1:
        return measure_collectives(["--device", args.device or "cpu", *(["--records", args.records] if args.records else []), *(["--no-record"] if args.no_record else []), *(["--json"] if args.json else [])])
    if "comm" in args.what:
        print("copies only: this process is the only one; hint: `pyflame run --nproc N -m pyflame.distributed.bench` measures collectives", file=sys.stderr)
    found, records = [], of_options(args)
    display = Progress() if sys.stderr.isatty() else None
    for p in _problems(args):
        m = _one(p, args, display)
        if m is None:
            continue
        found.append(m)
        if records is not None:
            records.add(m)
        print(json.dumps(m.to_dict()) if args.json else _fitted(m), flush=True)
    if not found:
        raise ValueError(f"there was nothing to measure; got {' '.join(args.what)}{f' with {args.problems}' if args.problems else ''}")
    rejected = [m for m in found if not m.accepted]
    if rejected and not args.json:
        print(_fitted(f"{len(rejected)} of {len(found)} figures were rejected; hint: stop other programs and measure again, or give more time with --seconds", sys.stderr), file=sys.stderr)
    return REJECTED if rejected else 0


def _side(word, args):
    """The last measurement of a file or folder of records, or of this name among the kept ones."""
    path = pathlib.Path(word)
    records = Records(path.parent if path.is_file() else path) if path.exists() else Records(args.records)
    found = records.find(None if path.exists() else word, last=1, measured=True)
    if not found:
        raise ValueError(f"there is no record; got {word!r}; expected FILE.py:function, a folder of records, or the name of a record: pyflame bench list")
    return found[-1]


def _compare(args):
    if len(args.what) != 3:
        raise ValueError(f"compare takes two; got {len(args.what) - 1}; expected A and B, each FILE.py:function, a folder of records, or the name of a record")
    a, b = args.what[1:]
    sides = None
    if args.cold:
        result = fresh.compare_processes(a, b, args)
    elif _is_function(a) and _is_function(b):
        result = _compare_programs(a, b, args)
    else:
        sides = _side(a, args), _side(b, args)
        result = compare(*sides)
    print(json.dumps(result.to_dict()) if args.json else _fitted(result))
    records = of_options(args)
    if records is not None:
        records.add(_kept_comparison(a, b, result, sides, args))
    return 0


def _kept_comparison(a, b, result, sides, args):
    """The record of a comparison. That of two records has the device and the environment of the first one, and says of when both are."""
    name = f"compare {a} {b}"
    if sides is None:
        return results.of("comparison", name, args.device or pf.get_device(), result.to_dict(), str(result), file=a.rpartition(":")[0])
    first, second = sides
    figures = {**result.to_dict(), "first_time": first.time, "second_time": second.time}
    return results.Result(name, first.device if first.device == second.device else f"{first.device} and {second.device}", "comparison", figures, str(result), [], first.environment, time.time())


def _no_records(name, records):
    """What is said where nothing is listed: which names there are, the newest first."""
    names = list(dict.fromkeys(m.name for m in reversed(records.find())))
    if not names:
        return f"there are no records yet; got the folder {str(records.folder)!r}; hint: pyflame bench gemm makes some, and --records names another folder"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"there is no record of this name; got {name!r}; expected {', '.join(map(repr, names[:_SHOWN]))}{more}, or a pattern such as 'gemm*'; hint: pyflame bench list shows all"


def _list(args):
    name, *others = args.what[1:] or [None]
    if others:
        raise ValueError(f"list takes one name; got {' '.join(args.what[1:])}; expected a name, or a pattern in quotes such as 'gemm*'")
    records = Records(args.records)
    found = records.find(name)
    for m in found:
        print(json.dumps(m.to_dict()) if args.json else _fitted(m))
    if not found:
        _fail(_no_records(name, records))
    return 0 if found or name is None else 1


@command((ValueError, RuntimeError, OSError, ImportError), lambda error, *_: _fail(error))
def main(argv=None):
    parser = Parser(prog="pyflame bench", description=__doc__)
    parser.add_argument("what", nargs="+")
    parser.add_argument("--device")
    parser.add_argument("--problems")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--relative", type=float, default=1.0)
    add_options(parser)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--entries", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_intermixed_args(argv)
    if args.device:
        pf.set_device(args.device)
    before, environment.command = sys.argv, sys.argv[1:]
    try:
        return {"compare": _compare, "list": _list}.get(args.what[0], _measure)(args)
    finally:
        sys.argv, environment.command = before, None


if __name__ == "__main__":
    sys.exit(main())
