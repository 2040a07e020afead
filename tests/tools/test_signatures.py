"""Signatures that a reader meets: in the reference, in help() and from inspect.signature()."""
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "site"))

import names  # noqa: E402
import python_reference  # noqa: E402

import pyflame as pf  # noqa: E402

BARE = re.compile(r"\(\*\w+, \*\*\w+\)")
# What truly takes any arguments, or has forms that no one signature has. Names that are not available, whose call is an error with advice, are left out by their text.
TAKES_ANY = {
    **dict.fromkeys(("nn.Module.forward", "nn.LazyModuleMixin.initialize_parameters"), "a subclass says what it takes"),
    **dict.fromkeys(("nn.DataParallel.forward", "nn.parallel.DistributedDataParallel.forward", "optim.swa_utils.AveragedModel.forward"), "the arguments are those of the module inside"),
    "onnx.OnnxModule.forward": "the arguments are the inputs of the file",
    "nn.LazyModuleMixin": "the arguments are those of the class that it is mixed into",
    "nn.Identity": "any arguments are accepted and not used",
    "compiler.set_stance": "any arguments are accepted and not used",
    "nn.Module.compile": "any arguments are accepted and not used",
    "data.StackDataset": "datasets by position, or by any names",
    **dict.fromkeys(("Tensor.to", "nn.Module.to", "nn.utils.rnn.PackedSequence.to", "nn.utils.rnn.PackedSequence.cuda"), "a device, a dtype, both in either order, or a tensor"),
    **dict.fromkeys(("gru", "lstm", "rnn_relu", "rnn_tanh"), "two forms, which the text of lstm and gru shows"),
    **dict.fromkeys(("optim.SparseAdam", "distributed.tensor.DTensor"), "a call is always an error"),
}


def signed(entries):
    """(path below the package, docstring, signatures as in the reference) of functions, classes and methods."""
    for path, entry in entries.items():
        if entry.kind == "data":
            continue
        short = path.partition(".")[2]
        yield short, names.doc_of(entry.value), python_reference.signatures(entry.value)
        for name, member in entry.members.items():
            if not isinstance(member, property):
                yield f"{short}.{name}", names.member_doc(entry.value, name), python_reference.member_signatures(entry.value, name)


@pytest.fixture(scope="module")
def reference():
    return list(signed(names.inventory(pf)))


def test_no_signature_of_the_reference_says_nothing(reference):
    bare = {path for path, doc, signatures in reference if any(map(BARE.match, signatures)) and not doc.startswith("Not available in PyFlame")}
    assert len(reference) > 2500
    assert not bare - set(TAKES_ANY), f"give these a signature, or add them to TAKES_ANY with a reason: {', '.join(sorted(bare - set(TAKES_ANY)))}"
    assert not set(TAKES_ANY) - bare, f"these have a signature; remove them from TAKES_ANY: {', '.join(sorted(set(TAKES_ANY) - bare))}"


def test_a_signature_that_says_nothing_is_found():
    class Of:
        def any(self, *args, **kwargs):
            """Any arguments."""

        def two(self, a, *args, **kwargs):
            """One argument, and any others."""

    found = {path: signatures for path, _, signatures in signed({"pyflame.Of": names.Entry("pyflame.Of", Of)})}
    assert [path for path, signatures in found.items() if any(map(BARE.match, signatures))] == ["Of.any"]


def test_a_method_of_the_reference_does_not_show_the_tensor():
    assert python_reference.member_signatures(pf.Tensor, "addmm") == ["(mat1, mat2, *, beta=1, alpha=1)"]
    assert python_reference.member_signatures(pf.nn.Module, "add_module") == ["(name, module)"]
    assert python_reference.member_signatures(pf.distributed.tensor.DTensor, "from_local")[0].startswith("(local_tensor, device_mesh=None")  # static


def test_an_in_place_method_gives_the_tensor(reference):
    """C++ calls the tensor itself an object; the stub knows better."""
    if not (pathlib.Path(pf.__file__).parent / "_C.pyi").exists():
        pytest.skip("this build has no stub of the compiled module")
    assert python_reference.member_signatures(pf.Tensor, "add_") == ["(other: Tensor | float, *, alpha: float | None = None) -> Tensor"]
    assert python_reference.signatures(pf.sort)[0].endswith(" -> ValuesIndices")
    unknown = [path for path, _, signatures in reference if any(each.endswith("-> object") for each in signatures)]
    assert not unknown, ", ".join(unknown)
