"""Machine code through the program: code objects of the repository, and freshly compiled ones where a ROCm compiler is."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).parent
DATA = HERE / "data" / "isa"
ARCHS = ["gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"]


def inspect(run, path, *args):
    return json.loads(run("inspect", "--json", *args, path).stdout)


def kernels(document):
    return {k["name"]: k for k in document["kernels"]}


def isa_of(run, path, *args):
    document = inspect(run, path, *args)
    found = {name: k.get("isa") for name, k in kernels(document).items()}
    if not all(found.values()):
        assert document["missing"], "code was not read, and the document does not say why"
        pytest.skip(document["missing"][0])
    return found


def ids(isa):
    return {f["id"] for f in isa["findings"]}


@pytest.mark.parametrize("gfx", ARCHS)
def test_findings_of_code_objects(run, gfx):
    found = isa_of(run, DATA / f"isa_{gfx}.co")
    assert "narrow-global-load" in ids(found["scalar_copy"])
    assert "narrow-global-load" not in ids(found["vector_copy"])
    assert "double-lds-conversion" in ids(found["double_conversion"])
    assert "double-lds-conversion" not in ids(found["lds_transpose"])
    assert "scratch-in-loop" in ids(found["spilling"])
    for isa in found.values():
        assert sum(isa["mix"].values()) == isa["instructions"]
        assert isa["assumptions"]
        for f in isa["findings"]:
            assert f["severity"] in ("HIGH", "MED", "LOW", "INFO")
            assert f["what"] and f["why"] and f["fix"] and f["count"] > 0
            assert int(f["address"], 16) > 0


def test_matrix_share(run):
    loop = isa_of(run, DATA / "isa_gfx942.co")["matrix_gemm"]["loops"][0]
    assert loop["matrix"] == [{"name": "v_mfma_f32_16x16x16_f16", "shape": "16x16x16", "type": "f16", "count": 4, "cycles": 64}]
    assert loop["matrix_share"] == pytest.approx(64 / loop["issue_cycles"])
    # Four products of 16x16x16: each lane loads 8 bytes for each operand.
    assert loop["load_bytes"] == 4 * 2 * 8 * 64


def test_source_lines(run):
    found = isa_of(run, DATA / "isa_lines.co")
    sources = {f["source"] for f in found["sum_lines"]["findings"]}
    assert "isa_lines.h:5" in sources


def test_without_disassembler(run, tmp_path):
    """Registers and occupancy are still shown, and one sentence says what is missing."""
    (tmp_path / "libLLVM.so").write_bytes(b"no library")
    document = inspect(run, DATA / "isa_gfx942.co", "--llvm", tmp_path)
    assert all(k["vgpr"] > 0 and "isa" not in k for k in document["kernels"])
    assert len(document["missing"]) == 1
    assert "gfx942" in document["missing"][0] and "--llvm" in document["missing"][0]


def test_llvm_that_is_not_there(run):
    r = run("inspect", "--llvm", "/nonexistent", DATA / "isa_gfx942.co", code=1)
    assert "/nonexistent" in r.stderr and "libLLVM" in r.stderr


def compiler():
    """The compiler and flags of a ROCm installation, or a reason why there is none."""
    rocm = os.environ.get("ROCM_PATH", "/opt/rocm")
    if not os.path.isdir(os.path.join(rocm, "include", "hip")):
        return None, f"no HIP in {rocm}"
    for cxx in (os.environ.get("ROCM_CXX"), os.path.join(rocm, "llvm", "bin", "clang++"), shutil.which("clang++")):
        if cxx and os.path.exists(cxx):
            return [cxx, "-x", "hip", f"--rocm-path={rocm}", "-isystem", f"{rocm}/include", "--cuda-device-only", "--no-gpu-bundle-output"], None
    return None, "no clang"


@pytest.mark.parametrize("gfx", ARCHS)
def test_fresh_code(run, tmp_path, gfx):
    flags, why = compiler()
    if not flags:
        pytest.skip(why)
    target = tmp_path / "fresh.co"
    r = subprocess.run([*flags, f"--offload-arch={gfx}", "-O3", "-gline-tables-only", "-DBIG", "-c", str(HERE / "isa_kernels.hip"), "-o", str(target)],
                       capture_output=True, text=True)
    if r.returncode:
        pytest.skip(f"this compiler does not compile for {gfx}: {r.stderr[-300:]}")
    found = isa_of(run, target)
    assert "loop-exceeds-instruction-cache" in ids(found["big_unroll"])
    assert "narrow-global-load" in ids(found["scalar_copy"])
    assert "scratch-in-loop" in ids(found["spilling"])
    if gfx != "gfx1030":
        shapes = {m["shape"] for loop in found["matrix_gemm"]["loops"] for m in loop["matrix"]}
        assert shapes == {"16x16x16"}
        assert "no-matrix-instructions" in ids(found["vector_gemm"])
        assert "no-matrix-instructions" not in ids(found["matrix_gemm"])
    source = [f["source"] for f in found["scalar_copy"]["findings"] if f["id"] == "narrow-global-load"][0]
    assert "isa_kernels.hip:" in source


def test_the_docs_list_each_finding_with_its_severity():
    root = HERE.parents[1]
    source = (root / "src/tools/inspect/isa_lint.cpp").read_text(encoding="utf-8")
    lints = [(name, severity.upper()) for name, severity in re.findall(r'\.id = "([a-z0-9-]+)",\s*\.severity = Severity::(high|med|low|info)', source)]
    listed = re.findall(r"^\| `([a-z0-9-]+)` \| (HIGH|MED|LOW|INFO) \|", (root / "docs/inspect.md").read_text(encoding="utf-8"), re.M)
    assert len(lints) > 25 and listed == lints
