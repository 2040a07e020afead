"""`pyflame convert`, whose command line the program checks first."""
import argparse
import json
import os
import signal
import sys

import pyflame as pf

from . import TEXT, convert


def _arguments(words):
    p = argparse.ArgumentParser(prog="pyflame convert", allow_abbrev=False)
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


def main(words=None):
    try:
        return _run(_arguments(words))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, ValueError, TypeError, ImportError, NotImplementedError, MemoryError, pf.DeviceError) as e:
        print(f"pyflame: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
