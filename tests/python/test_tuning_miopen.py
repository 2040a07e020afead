"""MIOpen's find-db and perf-db: what is read of them, and what is written. The files are made here; what runs them is in tests/faults/test_miopen.py."""
import contextlib
import sqlite3

import pytest

from pyflame.tuning import convolutions, exchange, imports, miopen, miopen_export
from pyflame.tuning.convolutions import Convolution
from pyflame.tuning.database import Row

RESNET = Convolution("conv2d", 32, 64, 128, (56, 40), (3, 1), (2, 1), (1, 0), (1, 1), 1, "float16", "NCHW")
FORWARD = "64-56-40-3x1-128-28-40-32-1x0-2x1-1x1-0-NCHW-FP16-F"
BACKWARD = "128-28-40-3x1-64-56-40-32-1x0-2x1-1x1-0-NCHW-FP16-B"  # the gradient of the result is read, that of the image is made
WEIGHTS = "128-28-40-3x1-64-56-40-32-1x0-2x1-1x1-0-NCHW-FP16-W"
GROUPS = "8-9-9-3x3-8-9-9-4-1x1-1x1-1x1-0-NHWC-NHWC-NHWC-BF16-F_g8"


def of(tmp_path, text, name="gfx942130.HIP.3_3_0.ufdb.txt"):
    """What an import takes over of a file with this text, and what it leaves out."""
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found, left = imports.read(path)
    return found, [line.replace(f"{path}:", "") for line in left]


@pytest.mark.parametrize("key, op", [(FORWARD, "conv2d"), (BACKWARD, "conv2d_grad_input"), (WEIGHTS, "conv2d_grad_weight")])
def test_keys_have_the_tensor_that_is_read_first(key, op):
    found = miopen.parse(key)
    assert (found.op, found.n, found.c, found.k, found.size, found.out) == (op, 32, 64, 128, (56, 40), (28, 40))
    assert found.shapes == RESNET.shapes and miopen.key(found) == key
    assert (found == RESNET) == (op == "conv2d")


def test_keys_of_groups_in_another_order():
    found = miopen.parse(GROUPS)
    assert (found.groups, found.layout, found.dtype, found.shapes[1]) == (8, "NHWC", "bfloat16", (8, 1, 3, 3)) and miopen.key(found) == GROUPS
    dilated = miopen.parse("4-20-20-3x3-6-8-7-2-0x1-2x3-2x1-0-NCHW-FP32-F_g2")
    assert (dilated.stride, dilated.padding, dilated.dilation, dilated.out) == ((2, 3), (0, 1), (2, 1), (8, 7))


@pytest.mark.parametrize("name", ["gfx942130.HIP.3_3_0.ufdb.txt", "a copy of it"])
def test_solvers_of_a_row(tmp_path, name):
    """All that PyFlame can ask MIOpen for, with time and workspace; the format is recognized by the name or by the first line."""
    found, left = of(tmp_path, f"{FORWARD}=ConvBinWinogradRxSf3x2:0.03,0,miopenConvolutionFwdAlgoWinograd;ConvDirectNaiveConvFwd:0.0452,1024,miopenConvolutionFwdAlgoDirect;"
                               "GemmFwdRest:1.5e-01,4096,miopenConvolutionFwdAlgoGEMM\n\n" + GROUPS + "=ConvHipImplicitGemmGroupFwdXdlops:2,0,miopenConvolutionFwdAlgoImplicitGEMM\r\n", name)
    assert [(s.problem, s.candidate, round(s.us, 6), s.workspace, s.line.rsplit(":", 1)[1]) for s in found] == [
        (RESNET, "gpu.dnn:solution=85,contiguous", 45.2, 1024, "1"), (RESNET, "gpu.dnn:solution=91,contiguous", 150.0, 4096, "1"),
        (miopen.parse(GROUPS), "gpu.dnn:solution=137,channels_last", 2000.0, 0, "3")]
    assert len(left) == 1 and left[0].startswith("1: ConvBinWinogradRxSf3x2 computes with a transform")


def test_the_older_form(tmp_path):
    found, left = of(tmp_path, f"{WEIGHTS}=miopenConvolutionBwdWeightsAlgoDirect:ConvOclBwdWrW2<16>,0.5,64,miopenConvolutionBwdWeightsAlgoDirect,<unused>;"
                               "miopenConvolutionBwdWeightsAlgoGEMM:gemm,0.6\n")
    assert [(s.candidate, s.us, s.workspace) for s in found] == [("gpu.dnn:solution=22,contiguous", 500.0, 64)]
    assert left == ["1: a solver without its time and workspace; got 'gemm,0.6'"]


def test_a_text_with_parameters_alone(tmp_path):
    found, left = of(tmp_path, f"{FORWARD}=ConvAsm1x1U:1,8,2,64;ConvAsm1x1U:1\n", "gfx1030_36.udb.txt")
    assert [(s.candidate, s.us, s.workspace) for s in found] == [("gpu.dnn:solution=2,contiguous", None, None)]
    assert left == ["1: ConvAsm1x1U is named for this convolution a second time"]


DIRECT = "ConvDirectNaiveConvFwd:0.5,0,miopenConvolutionFwdAlgoDirect"


@pytest.mark.parametrize("line, why", [
    (f"4-4-4-4-1x1x1-4-4-4-4-1-0x0x0-1x1x1-1x1x1-0-NCDHW-FP32-F={DIRECT}", "a convolution of volumes; expected one of images"),
    (f"{FORWARD.replace('FP16', 'INT8')}={DIRECT}", "got 'INT8'; expected one of FP32, FP16, BF16"),
    (f"{FORWARD.replace('FP16', 'FP64')}={DIRECT}", "got 'FP64'"),
    (f"{FORWARD.replace('FP16', 'FP16FP32FP16')}={DIRECT}", "got 'FP16FP32FP16'"),
    (f"{FORWARD.replace('NCHW', 'NHWC-NCHW-NCHW')}={DIRECT}", "got 'NHWC-NCHW-NCHW'; expected NCHW or NHWC for all tensors"),
    (f"{FORWARD.replace('-0-NCHW', '-1-NCHW')}={DIRECT}", "a convolution with a bias"),
    (f"{FORWARD}_ciFP8={DIRECT}", "got 'F_ciFP8'; expected F, B or W"),
    (f"{FORWARD}_g3={DIRECT}", "got 64 and 128 channels in 3 groups"),
    (f"{FORWARD.replace('-28-', '-29-')}={DIRECT}", "got a result of 29x40; expected 28x40"),
    (f"{FORWARD.replace('64-56', '0-56')}={DIRECT}", "a size is no whole number from 1 upwards; got '0'"),
    (f"{FORWARD.replace('-32-', '-99999999999-')}={DIRECT}", "a size is no whole number from 1 upwards"),
    (f"{FORWARD.replace('-32-', '-4000000-')}={DIRECT}", "a tensor of 573440000000 elements; expected 2147483647 at most"),
    (f"{FORWARD.replace('-2x1-', '-0x1-')}={DIRECT}", "the stride is no whole number from 1 upwards; got '0'"),
    (f"{FORWARD.replace('-1x0-', '-1x0x0-')}={DIRECT}", "the padding has 3 numbers"),
    (f"4-2-2-3x3-4-0-0-1-0x0-1x1-1x1-0-NCHW-FP32-F={DIRECT}", "a size is no whole number from 1 upwards"),
    (f"4-2-2-3x3-4-1-1-1-0x0-1x1-1x1-0-NCHW-FP32-F={DIRECT}", "a kernel that is larger than the image with its padding"),
    (f"a pooling={DIRECT}", "not a key of a convolution; got 'a pooling'"),
    ("no key at all", "a line without a key"),
    (f"{FORWARD}=", "a solver without values"),
    (f"{FORWARD}=ConvUnheardOf:0.5,0,miopenConvolutionFwdAlgoDirect", "no solver of convolutions of images by this name is known here; got 'ConvUnheardOf'"),
    (f"{FORWARD}=fft:0.5,0,miopenConvolutionFwdAlgoFFT", "fft computes with a transform"),
    (f"{FORWARD}=ConvDirectNaiveConvFwd:0.5,0", "expected MILLISECONDS,WORKSPACE,ALGORITHM"),
    (f"{FORWARD}={DIRECT.replace('0.5', 'nan')}", "got 'nan'"),
    (f"{FORWARD}={DIRECT.replace('0.5', 'inf')}", "got 'inf'"),
    (f"{FORWARD}={DIRECT.replace('0.5', '0.0')}", "above 0; got '0.0'"),
    (f"{FORWARD}={DIRECT.replace('0.5', '-1')}", "got '-1'"),
    (f"{FORWARD}={DIRECT.replace(',0,', ',-8,')}", "no number of bytes; got '-8'"),
    (f"{FORWARD}={DIRECT.replace('Fwd', 'BwdData')}", "for another direction; got 'miopenConvolutionBwdDataAlgoDirect'"),
    (f"{FORWARD}={DIRECT};{DIRECT}", "is named for this convolution a second time"),
    (f"{FORWARD}=" + ";".join(f"{n}:1" for n in range(65)), "a row of 65 solvers; expected 64 at most"),
])
def test_what_is_left_out_has_its_reason(tmp_path, line, why):
    found, left = of(tmp_path, f"{GROUPS}={DIRECT}\n{line}\n{BACKWARD}=ConvDirectNaiveConvBwd:0.5,0,miopenConvolutionBwdDataAlgoDirect\n")
    assert len(left) == 1 and left[0].startswith("2: ") and why in left[0], left
    assert [s.line.rsplit(":", 1)[1] for s in found if "2" != s.line.rsplit(":", 1)[1]] == ["1", "3"]  # the other rows are read
    assert len(found) == (3 if line.count(DIRECT) == 2 else 2)


def test_hostile_files(tmp_path, monkeypatch):
    """Bytes that are no text, a line without an end, more rows than are read: all of it is told, and what fits is taken."""
    good = f"{FORWARD}={DIRECT}\n"
    found, left = of(tmp_path, b"\xff\x00=\x80:;=,\n" + b"7-" * 200_000 + b"\n" + good.encode() + b"\x00" * 10)
    assert [s.line.rsplit(":", 1)[1] for s in found] == ["3"]
    assert [line[:2] for line in left] == ["1:", "2:", "4:"] and "more than 65536 characters" in left[1]
    assert all(len(line) < 300 for line in left)
    found, left = of(tmp_path, good[:-1] + ";" + "x" * (1 << 17))
    assert found == [] and left == ["1: a line of more than 65536 characters"]
    monkeypatch.setattr(miopen, "_MOST_ROWS", 2)
    found, left = of(tmp_path, "nothing\n" + good + good)
    assert len(found) == 1 and left[1] == "3: this row and what follows is not read; expected 2 solvers at most"


CONFIG = {"spatial_dim": 2, "in_channels": 64, "in_h": 56, "in_w": 40, "in_d": 1, "fil_h": 3, "fil_w": 1, "fil_d": 1, "out_channels": 128, "batchsize": 32, "pad_h": 1, "pad_w": 0, "pad_d": 0,
          "conv_stride_h": 2, "conv_stride_w": 1, "conv_stride_d": 0, "dilation_h": 1, "dilation_w": 1, "dilation_d": 0, "bias": 0, "group_count": 1, "layout": "NCHW", "data_type": "FP16", "direction": "F"}


def perf_db(path, rows, solver="ConvAsm3x3U"):
    """A perf-db with these rows of config, each with one solver."""
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE config (id INTEGER PRIMARY KEY, {', '.join(CONFIG)})")
        db.execute("CREATE TABLE perf_db (id INTEGER PRIMARY KEY, solver, config, params)")
        for number, row in enumerate(rows, 1):
            db.execute(f"INSERT INTO config VALUES ({number}, {', '.join('?' * len(CONFIG))})", [row[name] for name in CONFIG])
            db.execute("INSERT INTO perf_db (solver, config, params) VALUES (?, ?, '1,2')", (solver, number))
    return path


def test_perf_db_of_sqlite(tmp_path):
    same = {"conv_stride_h": 1, "in_channels": 128, "out_channels": 64, "in_h": 56}
    rows = [CONFIG, {**CONFIG, **same, "direction": "B"}, {**CONFIG, "direction": "W"}, {**CONFIG, "spatial_dim": 3}, {**CONFIG, "in_h": "56"}, {**CONFIG, "in_w": 2**62}, {**CONFIG, "layout": b"\xff"},
            {**CONFIG, "direction": "X"}, {**CONFIG, "conv_stride_h": 0}, {**CONFIG, "data_type": "FP32" * 1000}]
    found, left = imports.read(perf_db(tmp_path / "gfx942130_1.1.0.udb", rows))
    assert [(s.problem.op, s.candidate, s.us, s.line.rsplit(":", 1)[1]) for s in found] == [("conv2d", "gpu.dnn:solution=1,contiguous", None, "1"), ("conv2d_grad_input", "gpu.dnn:solution=1,contiguous", None, "2")]
    assert found[0].problem == RESNET and found[1].problem.shapes == ((32, 64, 56, 40), (128, 64, 3, 1), (32, 128, 56, 40))
    assert len(left) == 8
    for line, why in zip(left, ["a gradient with a stride", "a convolution of volumes", "the column in_h is not of its type", "a tensor of", "the column layout is not of its type", "no such direction",
                               "a stride that is not above 0", "a dtype that"]):
        assert why in line and len(line) < 400, line


def test_sqlite_files_that_are_none(tmp_path, monkeypatch):
    with contextlib.closing(sqlite3.connect(tmp_path / "gfx942.ukdb")) as db, db:
        db.execute("CREATE TABLE kern_db (id INTEGER PRIMARY KEY, kernel_name, kernel_blob)")
    assert "this is no perf-db of MIOpen: no such table: perf_db; expected its tables config and perf_db" in imports.read(tmp_path / "gfx942.ukdb")[1][0]
    (tmp_path / "broken.udb").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    assert "this is no perf-db of MIOpen" in imports.read(tmp_path / "broken.udb")[1][0]
    endless = tmp_path / "endless.udb"
    with contextlib.closing(sqlite3.connect(endless)) as db, db:
        columns = ", ".join(f"0 AS {name}" for name in CONFIG)
        db.execute(f"CREATE VIEW config AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id, {columns} FROM n WHERE id < 0")
        db.execute("CREATE TABLE perf_db (id INTEGER PRIMARY KEY, solver, config, params)")
        db.execute("INSERT INTO perf_db VALUES (1, 'x', 1, '')")
    monkeypatch.setattr(miopen, "_MOST_TURNS", 5)
    assert "interrupted" in imports.read(endless)[1][0]


def measured(op, image, weight, result, entry, us, attributes="stride_h=1 stride_w=1 pad_h=1 pad_w=1 dilation_h=1 dilation_w=1 groups=1 any_order=0 stride_d=1 pad_d=0 dilation_d=1 rounded=0", sound=True,
             libraries="miopen 3.3.0", workspace=0, after=""):
    problem = f"{op}({image}, {weight}) {attributes} -> {result}{after}"
    return Row("gfx942", libraries, op, problem, entry, us, 0.01, 0.2, sound, False, workspace, us, "", "")


X, W, Y = "float32(2, 4, 6, 5)", "float32(8, 4, 3, 3)", "float32(2, 8, 6, 5)"
LAST = ("float32(2, 4, 6, 5) strides (120, 1, 20, 4)", "float32(8, 4, 3, 3) strides (36, 1, 12, 4)", "float32(2, 8, 6, 5) strides (240, 1, 40, 8)")
KEY = "4-6-5-3x3-8-6-5-2-1x1-1x1-1x1-0-NCHW-FP32-F"


def test_lines_have_all_right_solutions_the_fastest_first():
    rows = [measured("conv2d", X, W, Y, "gpu.dnn:solution=91,contiguous", 50.0, workspace=512), measured("conv2d", X, W, Y, "gpu.dnn:solution=85,contiguous", 43.1),
            measured("conv2d", X, W, Y, "gpu.dnn:solution=26,contiguous", 1.0, sound=False), measured("conv2d", X, W, Y, "gpu.conv", 30.0), measured("conv2d", X, W, Y, "gpu.dnn", 60.0),
            measured("conv2d_grad_input", Y, W, X, "gpu.dnn:solution=86,contiguous", 7.0), measured("conv2d", *LAST, "gpu.dnn:solution=107,channels_last", 9.0)]
    lines, left = miopen_export.lines(rows)
    assert lines == [KEY + "=ConvDirectNaiveConvFwd:0.0431,0,miopenConvolutionFwdAlgoDirect;GemmFwdRest:0.05,512,miopenConvolutionFwdAlgoGEMM",
                     "8-6-5-3x3-4-6-5-2-1x1-1x1-1x1-0-NCHW-FP32-B=ConvDirectNaiveConvBwd:0.007,0,miopenConvolutionBwdDataAlgoDirect",
                     KEY.replace("NCHW", "NHWC-NHWC-NHWC") + "=ConvAsmImplicitGemmGTCDynamicFwdXdlopsNHWC:0.009,0,miopenConvolutionFwdAlgoImplicitGEMM"]
    assert left == {}


def test_the_plan_of_the_search_has_a_name():
    """The entry without a configuration runs what the search for plans found. Where it found two, it is not known which."""
    searched = "miopen conv2d float32 stride 1x1 padding 1x1 dilation 1x1 groups 1 any_order 0 rounded 0, image (2, 4, 6, 5) contiguous, weight (8, 4, 3, 3) contiguous, result (2, 8, 6, 5) contiguous"

    def found(entry, us, ms=30, sound=True):
        return Row("gfx942", "miopen 3.3.0", "convolution plan", f"{searched}, searched for {ms} ms", entry, us, 0.0, 0.0, sound, False, 0, 0.0, "", "")

    rows = [found("solution=26,contiguous", 1.0, sound=False), found("solution=91,contiguous", 20.0), found("solution=85,contiguous", 30.0), found("gpu.conv", 40.0),
            measured("conv2d", X, W, Y, "gpu.dnn:solution=85,contiguous", 43.1), measured("conv2d", X, W, Y, "gpu.dnn", 21.0)]
    assert miopen_export.lines(rows)[0] == [KEY + "=GemmFwdRest:0.021,0,miopenConvolutionFwdAlgoGEMM;ConvDirectNaiveConvFwd:0.0431,0,miopenConvolutionFwdAlgoDirect"]
    assert miopen_export.lines([found("solution=85,contiguous", 5.0, ms=90), *rows])[0] == [KEY + "=ConvDirectNaiveConvFwd:0.0431,0,miopenConvolutionFwdAlgoDirect"]


def test_what_is_not_in_the_lines_is_counted():
    rows = [measured("conv2d", X, W, Y, "gpu.dnn:solution=85,contiguous", 5.0, libraries="miopen 3.2.0"), measured("conv2d", X, W, Y, "gpu.dnn:solution=85,contiguous", 43.1),
            measured("conv2d", X, W, Y, "gpu.dnn:solution=85,contiguous", 4.0, after=" | relu(float32(2, 8, 6, 5)) -> float32(2, 8, 6, 5)"), measured("conv2d_grad_input", Y, W, X, "gpu.conv", 7.0),
            measured("conv2d_grad_weight", Y, X, W, "gpu.dnn:solution=14,contiguous", 7.0), measured("conv2d", *LAST, "gpu.dnn:plan=3,channels_last", 9.0)]
    lines, left = miopen_export.lines(rows)
    assert lines == [KEY + "=ConvDirectNaiveConvFwd:0.0431,0,miopenConvolutionFwdAlgoDirect"]
    assert left == {"that were measured on another device or with other versions": 1, "with other ops fused to them, or of volumes": 1, "of which no solution of MIOpen with a known name was measured and right": 3}


def test_times_with_fewer_transposed_tensors_count():
    rows = [measured("conv2d", X, W, LAST[2], "gpu.dnn:solution=85,contiguous", 3.0), measured("conv2d", X, W, LAST[2], "gpu.dnn:solution=91,contiguous", 4.0),
            measured("conv2d", X, W, Y, "gpu.dnn:solution=85,contiguous", 5.0), measured("conv2d", *LAST, "gpu.dnn:solution=85,contiguous", 1.0)]
    assert miopen_export.lines(rows)[0] == [KEY + "=ConvDirectNaiveConvFwd:0.005,0,miopenConvolutionFwdAlgoDirect"]


def test_tensors_that_are_packed_in_both_orders_are_named_nchw():
    one = ("float32(2, 1, 6, 5)", "float32(1, 1, 3, 3)", "float32(2, 1, 6, 5)")
    assert miopen_export.lines([measured("conv2d", *one, "gpu.dnn:solution=85,channels_last", 3.0)])[0][0].startswith("1-6-5-3x3-1-6-5-2-1x1-1x1-1x1-0-NCHW-FP32-F=")


def test_what_is_written_is_read(tmp_path, monkeypatch):
    rows = [measured("conv2d", X, W, Y, "gpu.dnn:solution=85,contiguous", 43.1, workspace=512), measured("conv2d_grad_weight", LAST[2], LAST[0], LAST[1], "gpu.dnn:solution=110,channels_last", 9.0),
            measured("conv2d_grad_input", Y, "float32(8, 2, 3, 3)", X, "gpu.dnn:solution=86,contiguous", 7.0, "stride_h=1 stride_w=1 pad_h=1 pad_w=1 dilation_h=1 dilation_w=1 groups=2 any_order=1 rounded=1")]
    monkeypatch.setattr(exchange, "rows", lambda: rows)
    said = []
    path = tmp_path / "gfx942130.HIP.3_3_0.ufdb.txt"
    assert exchange.write(f"miopen={path}", None, said.append) == 0
    found, left = imports.read(path)
    assert left == [] and "3 convolutions are in" in said[0] and "MIOPEN_USER_DB_PATH" in said[1] and "Winograd" in said[2]
    assert [(s.problem.op, s.problem.groups, s.candidate, round(s.us, 3), s.workspace) for s in found] == [
        ("conv2d", 1, "gpu.dnn:solution=85,contiguous", 43.1, 512), ("conv2d_grad_weight", 1, "gpu.dnn:solution=110,channels_last", 9.0, 0), ("conv2d_grad_input", 2, "gpu.dnn:solution=86,contiguous", 7.0, 0)]
    known = imports.by_problem(rows)
    assert [imports.outcome(s, known)[0] for s in found] == ["fastest"] * 3


def test_outcomes_are_of_operands_in_the_same_order(tmp_path):
    found, _ = of(tmp_path, f"{KEY}=ConvDirectNaiveConvFwd:0.5,0,miopenConvolutionFwdAlgoDirect\n")
    for operands, word in ((LAST, "unknown"), ((X, W, LAST[2]), "fastest")):
        assert imports.outcome(found[0], imports.by_problem([measured("conv2d", *operands, "gpu.dnn:solution=85,contiguous", 3.0)]))[0] == word
    rows = [measured("conv2d", X, W, Y, "gpu.dnn:solution=85,contiguous", 3.0), measured("conv2d", X, W, Y, "gpu.conv", 2.0)]
    assert imports.outcome(found[0], imports.by_problem(rows)) == ("slower", "3.0 us; gpu.conv takes 2.0 us")


@pytest.mark.parametrize("op", list(convolutions.MADE))
@pytest.mark.parametrize("layout", convolutions.LAYOUTS)
def test_the_call_computes_this_convolution_alone(op, layout):
    """One program with one op, whose text is that of the Convolution."""
    import pyflame as pf

    c = Convolution(op, 2, 4, 6, (7, 6), (3, 2), (2, 1), (1, 0), (1, 2), 2, "float32", layout)
    call = convolutions.call_of(c)
    pf.synchronize()
    text = pf.explain(call)
    line = next(line.strip() for line in text.splitlines() if line.strip().startswith(f"{op}("))
    problem = convolutions.problem_of(line)
    assert problem.convolution.shapes == c.shapes and layout in problem.given, text
    assert [other for other in convolutions.MADE if f"{other}(" in text] == [op], text
