"""Writes the texts of all GPU kernels that the op cases need: forward, gradient and second gradient, in every dtype and layout of
python/pyflame/testing/cases. The wave emulator keeps the texts instead of compiling and running them, so the numbers are meaningless and nothing
is compared. tools/loop_code.py starts it.

    LD_LIBRARY_PATH=build/release/emulator PYFLAME_EMULATOR_TEXTS=FOLDER python tools/loop_texts.py [--part 0 --parts 2] [--only 'cross_entropy*']
"""
import argparse
import collections
import fnmatch
import os
import sys
import warnings

import numpy as np

import pyflame as pf
from pyflame.testing import harness
from pyflame.testing.cases import all_cases
from pyflame.testing.tolerance import is_float

DEVICE = "rocm"
# These functions take a size from numbers that were computed, or check them. Without numbers they end with an error.
READ_NUMBERS = {"masked_select", "nonzero", "one_hot", "unique", "unique_consecutive", "bincount", "cov", "istft", "matrix_exp", "nanquantile", "quantile", "segment_reduce", "nn.functional.ctc_loss"}
MOST_ERRORS = 10  # of others


def values(case, layout=None):
    return harness.run(case, case.arrays(), DEVICE, layout)


def in_context(case):
    """Between two other ops, as test_fused_in_context has it."""
    xs = [x * 2 if is_float(s.dtype) else x for x, s in zip(harness.tensors(case, case.arrays(), DEVICE), case.inputs)]
    return [y if harness.dtype_name(y) == "bool" else y + 1 for y in harness.call(case, xs, DEVICE)]


def gradients(case):
    f = harness.Differentiated(case, case.arrays(), DEVICE)
    f.gradient_arrays(f.arrays)
    f.gradient_arrays(f.arrays, create_graph=True)
    if case.twice:
        f.second(f.arrays, f.direction())
    return []


def programs(case):
    """What tests/ops runs of a case, each in windows of its own."""
    yield lambda: values(case)
    if case.inputs and case.layouts:
        yield from (lambda layout=layout: values(case, layout) for layout in harness.LAYOUTS)
    if any(is_float(s.dtype) for s in case.inputs):
        yield lambda: in_context(case)
    if case.grad:
        yield lambda: gradients(case)
        if case.inputs[case.grad[0]].dtype == "float32":
            yield lambda: gradients(harness.in_float64(case))


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--only", default="*", help="names of cases, as a pattern")
    a = parser.parse_args(arguments)
    if not os.environ.get("PYFLAME_EMULATOR_TEXTS"):
        parser.error("PYFLAME_EMULATOR_TEXTS names no folder")
    cases = [c for c in all_cases() if fnmatch.fnmatchcase(c.name, a.only) and not c.cpu_only][a.part::a.parts]
    errors = collections.Counter()
    warnings.simplefilter("ignore")
    with np.errstate(all="ignore"):
        for case in cases:
            for program in programs(case):
                try:
                    for y in program():
                        harness.to_array(y)
                except pf.linalg.LinAlgError:
                    pass  # no numbers, no factorization
                except (pf.OutOfMemoryError, IndexError, ValueError) as e:
                    if not READ_NUMBERS & {*case.functions}:
                        errors[f"{case.name}: {str(e).splitlines()[0][:120]}"] += 1
                except RuntimeError as e:  # nor a gradient of a factorization's vectors
                    if not READ_NUMBERS & {*case.functions} and not str(e).startswith("linalg."):
                        raise
    for text, n in errors.items():
        print(f"loop-texts: {n} x {text}")
    print(f"loop-texts: {len(cases)} cases")
    return 1 if sum(errors.values()) > MOST_ERRORS or not cases else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
