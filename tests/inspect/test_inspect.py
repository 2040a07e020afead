"""`pyflame inspect` on real code objects of six architectures (data/co, made by tools/make_inspect_data.sh) in each container that they
come in, and on what is none."""
import bz2
import gzip
import json
import os
import shutil
import sqlite3
import struct
import subprocess

import pytest

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "co")
ARCHS = ["gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"]
SCALE = "_ZN6sample5scaleIfEEvPT_S1_i"
KERNELS = {SCALE, "tile_sum", "indexed", "spilling", "accumulators"}


def data(name):
    return os.path.join(DATA, name)


def read(name):
    with open(data(name), "rb") as f:
        return f.read()


@pytest.fixture
def inspect(run):
    """inspect(*arguments): the document. --no_isa is set, because these tests do not depend on the LLVM that is installed."""

    def call(*args, code=0):
        return json.loads(run("inspect", *args, "--no_isa", "--json", code=code).stdout)

    return call


def only(document, symbol, gfx=None):
    (k,) = [k for k in document["kernels"] if k["symbol"] == symbol and gfx in (None, k["gfx"])]
    return k


# --- one file


@pytest.mark.parametrize("arch", ARCHS)
def test_document(inspect, arch):
    d = inspect(data(arch + ".co"))
    assert d["schema"] == "pyflame.inspect/1" and d["problems"] == []
    assert {k["symbol"] for k in d["kernels"]} == KERNELS
    (o,) = d["objects"]
    assert (o["container"], o["gfx"], o["code_object_version"], o["kernels"]) == ("elf", arch, 6, 5)
    assert o["bytes"] == os.path.getsize(data(arch + ".co"))
    k = only(d, SCALE)
    assert k["name"] == "void sample::scale<float>(float*, float, int)"
    assert [a["kind"] for a in k["args"]] == ["global_buffer", "by_value", "by_value"]
    assert k["occupancy"]["waves_per_simd"] == k["occupancy"]["max_waves"]
    t = only(d, "tile_sum")
    assert (t["lds"], t["max_workgroup"], t["scratch"]) == (4096, 256, 0)
    assert (t["wgp_mode"] is None) == arch.startswith("gfx9")
    assert only(d, "indexed")["scratch"] == 816


def test_worst_comes_first_and_sort_changes_it(inspect):
    d = inspect(data("gfx1100.co"))
    assert [k["symbol"] for k in d["kernels"]][:2] == ["spilling", "indexed"]
    for key, field in [("vgpr", "vgpr"), ("scratch", "scratch"), ("code", "code_bytes")]:
        values = [k[field] for k in inspect(data("gfx1100.co"), "--sort", key)["kernels"]]
        assert values == sorted(values, reverse=True)
    names = [k["name"] for k in inspect(data("gfx1100.co"), "--sort", "name")["kernels"]]
    assert names == sorted(names)


def test_choice_of_kernels(run, inspect):
    d = inspect(DATA, "--kernel", "^(tile|spil)", "--arch", "gfx1201")
    assert [k["symbol"] for k in d["kernels"]] == ["spilling", "tile_sum"]
    assert d["summary"]["kernels"] == 2 and d["summary"]["kernels_found"] > 30
    assert len(inspect(data("gfx942.co"), "--kernel", "scale<float>")["kernels"]) == 1
    assert "is not a regular expression" in run("inspect", data("gfx942.co"), "--kernel", "(", "--no_isa", code=1).stderr


def test_waves_that_registers_allow(run, inspect, tmp_path):
    """The steps of the chart: on gfx942, four waves fit with 128 VGPRs, and three with 129 (LLVM's figures)."""
    steps = dict(map(tuple, inspect(data("gfx942.co"), "--no_isa")["summary"]["curve"]["gfx942"]["64"]))
    assert steps[128] == 4 and steps[168] == 3 and max(steps) == 512
    assert set(inspect(data("gfx1100.co"), "--no_isa")["summary"]["curve"]) == {"gfx1100"}
    page = tmp_path / "page.html"
    run("inspect", data("gfx942.co"), "--no_isa", "--html", page)
    assert "VGPRs of a wave" in page.read_text(encoding="utf-8")


def test_text_of_one_kernel(run):
    out = run("inspect", data("gfx942.co"), "--kernel", "accumulators", "--no_isa").stdout
    assert "36 VGPRs (32 of them accumulators)" in out and "wave64, code object V6" in out
    assert "Occupancy with 256 threads: 8 of 8 waves per SIMD" in out
    assert "\x1b" not in out


def test_text_of_many_kernels(run):
    out = run("inspect", DATA, "--no_isa", "--top", "3").stdout
    table = out.splitlines()
    assert table[0].split()[:3] == ["kernel", "gfx", "VGPR"] and len(table[1:4]) == 3
    assert "more kernels; --all shows them" in table[4]
    assert "spill VGPRs" in out and max(map(len, table)) <= 100
    assert len(run("inspect", DATA, "--no_isa", "--all").stdout.splitlines()) > 50


def test_block_size(inspect, run):
    assert only(inspect(data("gfx942.co"), "--block", "1024"), SCALE)["occupancy"]["block"] == 1024
    assert only(inspect(data("gfx942.co")), SCALE)["occupancy"]["block"] == 256
    run("inspect", data("gfx942.co"), "--block", "2000", code=2)


def test_launch(run, inspect):
    k = only(inspect(data("gfx942.co"), "--launch", "100,256", "--kernel", "tile"), "tile_sum")
    assert k["launch"]["workgroups"] == 100 and k["launch"]["waves"] == 400
    assert "Launch of 64 workgroups" in run("inspect", data("gfx942.co"), "--launch", "8,8,256", "--kernel", "tile", "--no_isa").stdout
    for wrong in ["256", "0,256", "x,256", "1,2,3,4,5", "10,2048", "-1,64"]:
        run("inspect", data("gfx942.co"), "--launch=" + wrong, code=2)


def test_html(run, tmp_path):
    page = tmp_path / "page.html"
    run("inspect", DATA, "--no_isa", "--html", page)
    text = page.read_text(encoding="utf-8")
    assert text.lstrip().lower().startswith("<!doctype html") and "tile_sum" in text
    assert "src=\"http" not in text


# --- containers


@pytest.mark.parametrize("name, container, targets", [
    ("fat.o", "bundle", ["gfx1100", "gfx942"]),
    ("fat_compressed.o", "compressed bundle", ["gfx1100", "gfx942"]),
    ("compressed.hipfb", "compressed bundle", ["gfx1100", "gfx942"]),
    ("thin.a", "archive", ["gfx90a", "gfx1030"]),
])
def test_containers(inspect, name, container, targets):
    d = inspect(data(name))
    assert d["problems"] == []
    assert [o["target"] for o in d["objects"]] == targets
    assert {o["container"] for o in d["objects"]} == {container}
    assert len(d["kernels"]) == 10


def test_the_name_of_a_file_does_not_matter(inspect, tmp_path):
    shutil.copy(data("fat_compressed.o"), tmp_path / "README.txt")
    assert len(inspect(tmp_path / "README.txt")["kernels"]) == 10


def test_folder(inspect, tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    shutil.copy(data("gfx942.co"), tmp_path / "a" / "b" / "k.hsaco")
    shutil.copy(data("fat.o"), tmp_path / "a")
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / "lib.dat").write_bytes(b"\x83\xa9solutions" + bytes(100))
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "again.co").symlink_to(data("gfx942.co"))
    os.mkfifo(tmp_path / "pipe")
    d = inspect(tmp_path)
    assert [os.path.relpath(o["path"], tmp_path) for o in d["objects"]] == ["a/b/k.hsaco", "a/fat.o", "a/fat.o"]
    assert d["summary"]["others"] == {"Tensile selection library (no machine code)": 1}
    assert d["problems"] == []


def test_triton_cache(inspect, tmp_path):
    folder = tmp_path / "RHX7BZ3ETKVLJ5"
    folder.mkdir()
    shutil.copy(data("gfx942.co"), folder / "attn.hsaco")
    (folder / "attn.json").write_text(json.dumps({"name": "attn", "num_warps": 4, "num_stages": 2, "shared": 16384, "target": {"arch": "gfx942"}}))
    (folder / "__grp__attn.json").write_text("{}")
    d = inspect(tmp_path)
    (o,) = d["objects"]
    assert o["container"] == "triton cache"
    assert o["triton"] == {"name": "attn", "num_warps": 4, "num_stages": 2, "shared": 16384}
    # Shared memory of a Triton kernel is asked for at the launch: it limits occupancy all the same.
    k = only(d, SCALE)
    assert k["lds"] == 0 and k["occupancy"]["allocated_lds"] == 16384 and k["occupancy"]["block"] == 1024


@pytest.mark.parametrize("broken", ["", "[", "[1]", "{\"num_warps\": \"x\"}", "{\"a\":" * 100000],
                         ids=["empty", "cut", "list", "text", "deep"])
def test_triton_metadata_that_is_broken(inspect, tmp_path, broken):
    shutil.copy(data("gfx942.co"), tmp_path / "k.hsaco")
    (tmp_path / "k.json").write_text(broken)
    assert len(inspect(tmp_path)["kernels"]) == 5


def test_comgr_cache(inspect, tmp_path):
    linked = read("gfx1100.co")
    (tmp_path / "llvmcache-0011").write_bytes(struct.pack("<Q", len(linked)) + linked + b"a warning")
    relocatable = bytearray(linked)
    relocatable[16] = 1
    (tmp_path / "llvmcache-0022").write_bytes(struct.pack("<Q", len(linked)) + relocatable)
    d = inspect(tmp_path)
    assert [o["container"] for o in d["objects"]] == ["comgr cache"]
    assert d["summary"]["others"] == {"intermediate object of the compiler's cache": 1}


def kernel_db(path, rows):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE kern_db (id INTEGER PRIMARY KEY ASC, kernel_name TEXT NOT NULL, kernel_args TEXT NOT NULL, "
                   "kernel_blob BLOB NOT NULL, kernel_hash TEXT NOT NULL, uncompressed_size INT NOT NULL)")
        db.executemany("INSERT INTO kern_db (kernel_name, kernel_args, kernel_blob, kernel_hash, uncompressed_size) VALUES (?, ?, ?, '', ?)", rows)
    db.close()


def test_miopen_kernel_database(inspect, tmp_path):
    a, b = read("gfx942.co"), read("gfx90a.co")
    kernel_db(tmp_path / "gfx942.kdb", [("conv.cpp.o", "-mcpu=gfx942", bz2.compress(a), len(a)), ("plain.o", "", b, 0),
                                        ("broken.o", "", bz2.compress(a)[:200], len(a)), ("bomb.o", "", bz2.compress(bytes(1000)), 1 << 40)])
    d = inspect(tmp_path / "gfx942.kdb")
    assert [(o["member"], o["container"], o["gfx"]) for o in d["objects"]] == [("conv.cpp.o", "kdb", "gfx942"), ("plain.o", "kdb", "gfx90a")]
    what = " ".join(p["what"] for p in d["problems"])
    assert "kernel 'broken.o': the compressed data ends early" in what and "kernel 'bomb.o': it announces 1099511627776 bytes" in what
    assert os.listdir(tmp_path) == ["gfx942.kdb"]  # nothing was written beside it


def test_other_databases(inspect, tmp_path):
    with sqlite3.connect(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE t (x)")
    db.close()
    assert "SQLite database without kernels" in inspect(tmp_path / "other.db", code=1)["problems"][0]["what"]
    whole = (tmp_path / "other.db").read_bytes()
    for n in (16, 100, 4096, len(whole) - 1):
        (tmp_path / "cut.db").write_bytes(whole[:n])
        inspect(tmp_path / "cut.db", code=1)


# --- what is none


@pytest.mark.parametrize("content, says", [
    (b"", "has an unknown format"),
    (b"#!/bin/sh\necho\n", "has an unknown format"),
    (b"\x7fELF", "ends inside its header"),
    (b"BC\xc0\xde" + bytes(100), "LLVM bitcode"),
    (bytes(10000), "all of its 10000 bytes are zero"),
    (gzip.compress(b"x" * 1000), "has an unknown format"),
], ids=["empty", "script", "ELF", "bitcode", "zeros", "gzip"])
def test_foreign_files(inspect, tmp_path, content, says):
    (tmp_path / "file").write_bytes(content)
    d = inspect(tmp_path / "file", code=1)
    assert d["kernels"] == [] and says in d["problems"][0]["what"]


def test_a_truncated_file_shows_what_it_has(run, inspect, tmp_path):
    whole = read("gfx942.co")
    (tmp_path / "cut.co").write_bytes(whole[:-2000])
    d = inspect(tmp_path / "cut.co")
    assert {k["symbol"] for k in d["kernels"]} == KERNELS
    assert "is it truncated?" in d["problems"][0]["what"]
    assert only(d, "tile_sum")["vgpr"] == 10 and only(d, "tile_sum")["code_bytes"] is None
    assert "problem" in run("inspect", tmp_path / "cut.co", "--no_isa").stdout


def test_names_cannot_steer_the_terminal(run, inspect, tmp_path):
    hostile = read("gfx942.co").replace(b"tile_sum", b"\x1b[2J\xff\xfe\r\n"[:8])
    (tmp_path / "k.co").write_bytes(hostile)
    out = run("inspect", tmp_path / "k.co", "--no_isa").stdout
    assert "\x1b" not in out and "\r" not in out
    assert len(inspect(tmp_path / "k.co")["kernels"]) == 5  # valid JSON


def test_a_block_that_the_kernel_cannot_have_is_told(inspect, run):
    path = os.path.join(os.path.dirname(DATA), "isa", "isa_gfx942.co")  # matrix_gemm: __launch_bounds__(64)
    kernel = inspect(path, "--kernel", "^matrix_gemm$", "--block", 256)["kernels"][0]
    assert "occupancy" not in kernel and "at most 64" in kernel["occupancy_problem"]
    assert "at most 64" in run("inspect", path, "--kernel", "^matrix_gemm$", "--launch", "304,256").stdout
    kernel = inspect(path, "--kernel", "^matrix_gemm$")["kernels"][0]
    assert kernel["occupancy"]["block"] == 64 and [b["block"] for b in kernel["occupancy"]["blocks"]] == [64]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_output_that_cannot_be_written_is_a_failure(program):
    with open("/dev/full", "w") as full:
        r = subprocess.run([program, "inspect", os.path.join(DATA, "gfx942.co")], stdout=full, stderr=subprocess.PIPE, text=True)
    assert r.returncode == 1 and "cannot be written" in r.stderr


def test_missing_file_and_missing_argument(run):
    assert run("inspect", "nowhere.co", code=1).stderr == "pyflame: inspect: the path does not exist; got 'nowhere.co'; expected a file or a folder\n"
    assert "PATH" in run("inspect", code=2).stderr


# --- two builds, and a budget


def test_diff(run):
    d = json.loads(run("inspect", "diff", data("gfx942.co"), data("gfx942.co"), "--json", "--no_isa").stdout)
    assert d["summary"] == {"same": 5, "changed": 0, "added": 0, "removed": 0, "verdicts": {"better": 0, "mixed": 0, "worse": 0}}
    d = json.loads(run("inspect", "diff", data("gfx942.co"), data("archive.a"), "--json", "--no_isa").stdout)
    assert d["summary"]["same"] == 5 and d["summary"]["added"] == 10
    out = run("inspect", "diff", data("no_metadata.co"), data("gfx942.co"), "--no_isa").stdout
    assert "VGPRs" in out and "better" in out and "summary" in out
    run("inspect", "diff", data("gfx942.co"), data("../../kernels.hip"), "--no_isa", code=1)
    run("inspect", "diff", data("gfx942.co"), code=2)


def test_gate(run, tmp_path):
    budget = tmp_path / "budget.json"
    run("inspect", data("gfx1100.co"), "--no_isa", "--write_gate", budget)
    assert "passed: 5 kernels checked" in run("inspect", data("gfx1100.co"), "--no_isa", "--gate", budget).stdout
    rows = json.loads(budget.read_text())
    for row in rows["kernels"]:
        if row["kernel"] == "spilling":
            row["vgpr_spill"] -= 1
        if row["kernel"] == "tile_sum":
            row["kernel"] = "gone"
    budget.write_text(json.dumps(rows))
    r = run("inspect", data("gfx1100.co"), "--no_isa", "--gate", budget, code=3)
    assert "VGPR spills" in r.stdout and "1 kernel: tile_sum" in r.stdout and "1 row: gone" in r.stdout
    d = json.loads(run("inspect", data("gfx1100.co"), "--no_isa", "--gate", budget, "--json", code=3).stdout)
    assert [(w["symbol"], w["what"], w["now"] - w["budget"]) for w in d["gate"]["worse"]] == [("spilling", "VGPR spills", 1)]
    budget.write_text("{}")
    assert "is not a budget" in run("inspect", data("gfx1100.co"), "--no_isa", "--gate", budget, code=1).stderr
    run("inspect", data("gfx942.co"), "--no_isa", "--gate", tmp_path / "missing.json", code=2)
