"""Computes the products of a list, and products and convolutions that other software has tuned, so that they are measured: the program that `pyflame tune --problems FILE` and
`--import FILE` tune."""
import sys

from .._command_help import Parser

LEFT_OUT = "left out: "  # how a line of the output begins that names a row which is not measured


def _call(problem):
    """A function that computes the product or the Convolution."""
    from ..benchmarking import gemms, problems
    from . import convolutions

    return problems.of_gemm(problem).call if isinstance(problem, gemms.Gemm) else convolutions.call_of(problem)


def main():
    p = Parser(prog="pyflame tune", add_help=False)
    p.add_argument("--problems")
    p.add_argument("--import", dest="imported", action="append", default=[])
    p.add_argument("--device", default="cpu")
    args = p.parse_args()
    import pyflame as pf

    from .. import _C
    from ..benchmarking import gemms
    from . import imports

    pf.set_device(args.device)
    listed, refused = gemms.read(args.problems) if args.problems else ([], [])
    for text in refused:
        print(LEFT_OUT + text)
    suggestions = {gemm: [] for gemm in listed}
    for path in args.imported:
        for s in imports.read(path)[0]:
            suggestions.setdefault(s.problem, []).append(s.candidate)
    for problem, candidates in suggestions.items():
        _C._suggest_candidates(candidates, problem not in listed)
        budget = _C._tune_budget_ms()
        _C._set_tune_budget_ms(0)  # what makes the operands is not of the list
        try:
            call = _call(problem)
            pf.synchronize()
        except NotImplementedError as e:
            print(f"{LEFT_OUT}{e}")
            continue
        finally:
            _C._set_tune_budget_ms(budget)
        for _ in range(2):
            call()
            pf.synchronize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
