"""`pyflame convert`, whose command line the program checks first."""
import json
import sys

import pyflame as pf

from ..._command_help import Parser
from ..._entry import command, end_in_order
from . import TEXT, convert


def _arguments(words):
    p = Parser(prog="pyflame convert", allow_abbrev=False)
    p.add_argument("--type")
    p.add_argument("--text")
    p.add_argument("--perplexity", action="store_true")
    p.add_argument("--json", action="store_true")
    p.add_argument("source")
    p.add_argument("target")
    return p.parse_args(words)


def _progress(done, total, name):
    """A line on stderr that is written over and over in a terminal."""
    line = f"{done + 1}/{total} {name}"
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="\r\033[K" if done + 1 == total else "", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr)


def _run(args):
    text = TEXT if args.perplexity else None
    if args.text:
        with open(args.text, encoding="utf-8") as f:
            text = f.read()
    done = convert(args.source, args.target, args.type, text=text, progress=_progress)
    print(json.dumps(done.as_dict(), ensure_ascii=False) if args.json else done)
    return 0


@command((OSError, ValueError, TypeError, ImportError, NotImplementedError, MemoryError, pf.DeviceError))
def main(words=None):
    return _run(_arguments(words))


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
