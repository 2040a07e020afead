"""`pyflame fit` and `pyflame memory monitor`."""
import json
import sys

import pyflame as pf

from .._command_help import Parser
from .._entry import command
from . import _architecture, _fit, _watch


def _arguments(words):
    parser = Parser(prog="pyflame", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    fit = commands.add_parser("fit")
    fit.add_argument("model")
    fit.add_argument("--program", default=None)
    fit.add_argument("--device", default=None)
    fit.add_argument("--batch", type=int, default=1)
    fit.add_argument("--context", type=int, default=None)
    fit.add_argument("--dtype", default="stored")
    fit.add_argument("--precision", default="mixed")
    fit.add_argument("--optimizer", default="adamw")
    fit.add_argument("--for", dest="kind", default="both")
    fit.add_argument("--checkpointing", action="store_true")
    fit.add_argument("--json", action="store_true")
    monitor = commands.add_parser("monitor", prog="pyflame memory monitor")
    monitor.add_argument("--interval", type=float, default=1.0)
    monitor.add_argument("--count", type=int, default=0)
    monitor.add_argument("--json", action="store_true")
    return parser.parse_args(words)


def _run_fit(args):
    _architecture.program = args.program
    kinds = _fit.KINDS if args.kind == "both" else (args.kind,)
    found = _fit.fit(args.model, device=args.device, batch=args.batch, context=args.context, dtype=args.dtype, precision=args.precision, optimizer=args.optimizer,
                     checkpointing=args.checkpointing, kinds=kinds)  # fmt: skip
    print(json.dumps(found.as_dict(), indent=2) if args.json else found)
    return 0


def _tell(error, words):
    name = words[0]
    print(f"pyflame {'' if name == 'fit' else 'memory '}{str(error) if str(error).startswith(name) else name + ': ' + str(error)}", file=sys.stderr)


@command((OSError, ValueError, TypeError, NotImplementedError, ImportError, pf.DeviceError), _tell)
def main(words):
    args = _arguments(words)
    if args.command == "fit":
        return _run_fit(args)
    return _watch.watch(args.interval, args.count, args.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
