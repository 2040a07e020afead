"""Tuning files through the program: `pyflame report FILE`."""
import json
import sqlite3

import pytest

TUNABLE = """Validator,PT_VERSION,2.6.0
Validator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-
GemmTunableOp_BFloat16_TN,tn_8192_8192_8192_ld_8192_8192_8192,Gemm_Hipblaslt_1219,2.0
GemmTunableOp_BFloat16_TN,tn_64_512_4096_ld_4096_4096_64,Default,0.05
nonsense
"""
MIOPEN = "64-56-56-1x1-256-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F=ConvDirectNaiveConvFwd:0.045,0,miopenConvolutionFwdAlgoDirect\n"


def test_tunableop_text_and_json(run, tmp_path):
    path = tmp_path / "tunableop_results0.csv"
    path.write_text(TUNABLE)
    document = json.loads(run("report", path, "--json").stdout)
    assert document["schema"] == "pyflame.report/1" and "TunableOp results" in document["format"]
    first = document["tuned"][0]
    assert first["problem"] == "GEMM 8192x8192x8192 TN bf16" and first["us"] == 2000 and first["line"] == 3
    # The file names its architecture, so peaks are known: 2 * 8192^3 / 2 ms = 550 TFLOP/s of MI300X's 1307.
    assert first["roofline"]["bound"] == "compute" and first["roofline"]["of_peak"] == pytest.approx(0.4206, abs=0.001)
    assert document["validators"]["PT_VERSION"] == "2.6.0"
    assert any("line 5" in p["where"] for p in document["problems"])
    assert any("drops this whole file" in a["what"] for a in document["advice"])
    text = run("report", path).stdout
    assert "Gemm_Hipblaslt_1219" in text and "2 problems" in text


def test_the_number_of_rows_holds(run, tmp_path):
    path = tmp_path / "tunableop_results0.csv"
    path.write_text("".join(f"GemmTunableOp_BFloat16_TN,tn_64_{n}_4096,Gemm_Hipblaslt_{n},{n / 1000}\n" for n in range(1, 61)))
    shown = [line for line in run("report", path, "--top", "7").stdout.splitlines() if line.startswith("GEMM")]
    assert len(shown) == 7 and "64x60x4096" in shown[0]
    assert "and 53 more" in run("report", path, "--top", "7").stdout
    assert len(json.loads(run("report", path, "--top", "7", "--json").stdout)["tuned"]) == 60


def test_an_untuned_list_of_tunableop(run, tmp_path):
    path = tmp_path / "tunableop_untuned0.csv"
    path.write_text("GemmTunableOp_float_TN,tn_256_64_128\n")
    text = " ".join(run("report", path).stdout.split())
    assert "recorded and not tuned" in text and "pyflame tune --problems FILE --device rocm --export tunableop=FILE" in text and "PYTORCH_TUNABLEOP_TUNING=1" in text


def test_an_untuned_list_of_aiter(run, tmp_path):
    path = tmp_path / "a4w4_blockscale_untuned_gemm.csv"
    path.write_text("M,N,K\n16, 512, 4096\n")
    document = json.loads(run("report", path, "--json").stdout)
    assert document["verdict"] == "1 problem in aiter untuned list." and document["tuned"][0]["problem"] == "GEMM 16x512x4096 fp4 -> bf16"
    assert "aiter's tuner" in document["advice"][0]["fix"] and "TUNABLEOP" not in json.dumps(document["advice"])
    path.write_text("M,N,K\n")
    assert json.loads(run("report", path, "--json").stdout)["verdict"] == "0 problems in aiter untuned list."


@pytest.mark.parametrize("given, name", [("MI300X", "AMD Instinct MI300X"), ("7900 XT", "AMD Radeon RX 7900 XT"), ("7900 XTX", "AMD Radeon RX 7900 XTX")])
def test_a_product_is_the_nearest_name(run, tmp_path, given, name):
    path = tmp_path / "tunableop_results0.csv"
    path.write_text(TUNABLE)
    assert json.loads(run("report", path, "--product", given, "--json").stdout)["device"]["name"] == name


def test_miopen_find_db(run, tmp_path):
    path = tmp_path / "gfx1100_48.HIP.3_2_0.ufdb.txt"
    path.write_text(MIOPEN)
    document = json.loads(run("report", path, "--json").stdout)
    assert document["tuned"][0]["choice"] == "ConvDirectNaiveConvFwd"
    assert "gfx1100 with 96 CUs" in document["verdict"]
    assert any("naive" in a["what"] for a in document["advice"])


def miopen_database(path):
    db = sqlite3.connect(path)
    columns = ("spatial_dim in_channels in_h in_w in_d fil_h fil_w fil_d out_channels batchsize pad_h pad_w pad_d conv_stride_h conv_stride_w "
               "conv_stride_d dilation_h dilation_w dilation_d bias group_count")
    db.execute(f"CREATE TABLE config (id INTEGER PRIMARY KEY, {', '.join(c + ' INT' for c in columns.split())}, layout TEXT, data_type TEXT, direction TEXT)")
    db.execute("CREATE TABLE perf_db (id INTEGER PRIMARY KEY, solver TEXT, config INT, params TEXT)")
    db.execute("INSERT INTO config VALUES (1, 2, 64, 56, 56, 1, 3, 3, 1, 128, 32, 1, 1, 0, 2, 2, 0, 1, 1, 0, 0, 1, 'NCHW', 'FP16', 'F')")
    db.execute("INSERT INTO config VALUES (2, 2, 128, 28, 28, 1, 3, 3, 1, 64, 32, 1, 1, 0, 2, 2, 0, 1, 1, 0, 0, 1, 'NCHW', 'FP16', 'B')")
    db.execute("INSERT INTO perf_db VALUES (1, 'ConvHipImplicitGemm', 1, '1,2,3')")
    db.execute("INSERT INTO perf_db VALUES (2, 'ConvHipImplicitGemmBwd', 2, '4')")
    db.commit()
    db.close()


def test_miopen_sqlite(run, tmp_path):
    path = tmp_path / "gfx90a68_1.1.0.udb"
    miopen_database(path)
    document = json.loads(run("report", path, "--json").stdout)
    forward, backward = document["tuned"]
    assert forward["choice"] == "ConvHipImplicitGemm (1,2,3)" and "32x64x56x56 -> 128, filter 3x3" in forward["problem"]
    # With stride 2 the backward's output may be one longer than the forward's input was: the database has no more than this.
    assert backward["problem"].startswith("conv backward data 32x64x55x55 -> 128")
    assert "gfx90a with 104 CUs" in document["verdict"]


def test_damaged_databases_are_told(run, tmp_path):
    path = tmp_path / "gfx90a68_1.1.0.udb"
    miopen_database(path)
    data = path.read_bytes()
    for length in (16, 100, 4096, len(data) - 4096):
        cut = tmp_path / f"cut{length}.udb"
        cut.write_bytes(data[:length])
        r = run("report", cut, code=None)
        assert r.returncode in (0, 1) and "Traceback" not in r.stderr and (r.returncode == 0 or r.stderr.startswith("pyflame: ")), r


def test_hostile_texts_end_in_problems(run, tmp_path):
    cases = {
        "nul": b"Validator,A,B\n\0\0\0\n",
        "wrong utf-8": b"Validator,A,\xff\xfe\nGemmTunableOp_float_NN,nn_1_2_3,\xff,1\n",
        "terminal": b"Validator,A,\x1b[2J\nGemmTunableOp_float_NN,nn_1_2_3,\x1b]0;owned\x07,1\n",
        "long": b"Validator,A," + b"x" * 3_000_000 + b"\n",
        "numbers": b"GemmTunableOp_float_NN,nn_1e308_1e308_1e308,Default,1e-300\n",
    }
    for name, data in cases.items():
        path = tmp_path / "tunableop_results.csv"
        path.write_bytes(data)
        for options in ([], ["--json"]):
            r = run("report", path, *options, code=None)
            assert r.returncode in (0, 1), (name, r)
            if not options:  # nothing in the file may move the cursor or set a title
                assert "\x1b" not in r.stdout + r.stderr and "\x07" not in r.stdout + r.stderr, name


def test_endless_view(run, tmp_path):
    """A database can make SQLite work for ever without returning a row. The query is ended, and a message says so."""
    path = tmp_path / "gfx90a68.db"
    db = sqlite3.connect(path)
    columns = "spatial_dim in_channels in_d in_h in_w fil_d fil_h fil_w out_channels batchsize pad_h pad_w conv_stride_h conv_stride_w dilation_h dilation_w group_count layout data_type direction"
    db.execute(f"CREATE TABLE config (id INTEGER PRIMARY KEY, {columns.replace(' ', ', ')})")
    db.execute("CREATE VIEW perf_db AS WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS id, x AS config, '' AS solver, '' AS params FROM n WHERE x < 0")
    db.commit()
    db.close()
    problems = json.loads(run("report", path, "--json").stdout)["problems"]
    assert "interrupted" in problems[0]["what"]
