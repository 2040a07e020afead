"""Multiplies the matrices of a list, so that the products are measured: the program that `pyflame tune --problems FILE` and `--import FILE` tune."""
import argparse
import sys

LEFT_OUT = "left out: "  # how a line of the output begins that names a row which is not measured


def main():
    p = argparse.ArgumentParser(prog="pyflame tune --problems", add_help=False)
    p.add_argument("--problems")
    p.add_argument("--import", dest="imported", action="append", default=[])
    p.add_argument("--device", default="cpu")
    args = p.parse_args()
    import pyflame as pf

    from .. import _C
    from ..benchmarking import gemms, problems
    from . import imports

    pf.set_device(args.device)
    suggestions = {}
    listed, refused = gemms.read(args.problems) if args.problems else ([], [])
    for text in refused:
        print(LEFT_OUT + text)
    suggestions = {gemm: [] for gemm in listed}
    for path in args.imported:
        for s in imports.read(path)[0]:
            suggestions.setdefault(s.gemm, []).append(s.candidate)
    for gemm, candidates in suggestions.items():
        _C._suggest_candidates(candidates, gemm not in listed)
        budget = _C._tune_budget_ms()
        _C._set_tune_budget_ms(0)  # what makes the operands is not of the list
        try:
            call = problems.of_gemm(gemm).call
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
