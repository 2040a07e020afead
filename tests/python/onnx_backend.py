"""PyFlame as a backend of ONNX's own tests, and what does not pass: onnx_not_passing.txt has a pattern of names and a reason in each line.

    python tests/python/onnx_backend.py [--only PATTERN]      the share that passes, and what fails
"""
import argparse
import fnmatch
import pathlib
import sys
import warnings

import numpy as np
import onnx
import onnx.backend.base
import onnx.numpy_helper
from onnx.backend.test.case.node import collect_testcases

import pyflame as pf
from pyflame.onnx import values

LIST = pathlib.Path(__file__).with_name("onnx_not_passing.txt")
# Element types that tensors do not have, or cannot compute with.
TYPES = {"string", "uint16", "uint32", "uint64", "complex64", "complex128", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
         "uint4", "int4", "uint2", "int2", "float4_e2m1fn"}


class Prepared(onnx.backend.base.BackendRep):
    """A model that is ready to run."""

    def __init__(self, model, device):
        self.module = pf.onnx.load(model).to(device)

    def run(self, inputs, **kwargs):
        with pf.no_grad():
            results = self.module(*inputs)
        return tuple(to_numpy(r) for r in (results if isinstance(results, tuple) else (results,)))


class Backend(onnx.backend.base.Backend):
    """What onnx.backend.test.BackendTest takes."""

    @classmethod
    def prepare(cls, model, device="CPU", **kwargs):
        return Prepared(model, {"CPU": "cpu", "CUDA": "cuda"}.get(device, device))

    @classmethod
    def supports_device(cls, device):
        return device in ("CPU", "cpu")


def to_numpy(value):
    if isinstance(value, (list, tuple)):
        return [to_numpy(v) for v in value]
    return values.to_array(value)


def from_proto(value):
    """The value of a case, which may be a proto."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return onnx.numpy_helper.to_list(value)
    return onnx.numpy_helper.to_optional(value) if isinstance(value, onnx.OptionalProto) else value


def types_of(model):
    """The names of the element types that a model takes and gives."""
    found = set()
    for info in (*model.graph.input, *model.graph.output):
        kind = info.type
        while kind.WhichOneof("value") in ("sequence_type", "optional_type"):
            kind = getattr(kind, kind.WhichOneof("value")).elem_type
        found.add(values.NAMES.get(kind.tensor_type.elem_type, ""))
    return found


def compare(have, want, rtol, atol):
    if isinstance(want, (list, tuple)):
        assert len(have) == len(want), f"{len(have)} elements; expected {len(want)}"
        for a, b in zip(have, want):
            compare(a, b, rtol, atol)
        return
    if want is None:
        assert have is None
        return
    have, want = np.asarray(have), np.asarray(want)
    want = want.astype(np.float32) if want.dtype.name == "bfloat16" else want
    assert have.shape == want.shape and have.dtype == want.dtype, f"{have.dtype}{have.shape}; expected {want.dtype}{want.shape}"
    np.testing.assert_allclose(have, want, rtol=rtol, atol=atol)


def check(case):
    """Raises where the results of a case differ."""
    prepared = Backend.prepare(case.model)
    for inputs, outputs in case.data_sets:
        inputs = [from_proto(i) for i in inputs]
        for _ in range(2):  # the second call repeats what the first one noted
            for have, want in zip(prepared.run(inputs), outputs):
                compare(have, from_proto(want), case.rtol, case.atol)


def exceptions():
    """[(pattern, reason)] of the list."""
    lines = [line.partition(" ") for line in LIST.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return [(pattern, reason.strip()) for pattern, _, reason in lines]


def cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return collect_testcases(None)


def run(only="*"):
    """(names that pass, {name: error}, names with other types)."""
    passed, failed, other = [], {}, []
    for case in cases():
        if not fnmatch.fnmatch(case.name, only):
            continue
        if types_of(case.model) & TYPES:
            other.append(case.name)
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(case)
            passed.append(case.name)
        except Exception as error:
            failed[case.name] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return passed, failed, other


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*")
    passed, failed, other = run(parser.parse_args().only)
    listed = exceptions()
    for name, error in failed.items():
        reason = next((r for p, r in listed if fnmatch.fnmatch(name, p)), "NOT LISTED")
        print(f"{name} | {reason} | {error}")
    for pattern, reason in listed:
        if not any(fnmatch.fnmatch(name, pattern) for name in failed):
            print(f"passes now, or is no case: {pattern}")
    total = len(passed) + len(failed)
    print(f"{len(passed)} of {total} cases pass ({100 * len(passed) / max(total, 1):.1f} %); {len(other)} have types that tensors do not have")
    return 0


if __name__ == "__main__":
    sys.exit(main())
