"""pf.memory.record and snapshot: every byte in use has a holder and a line."""
import json
import os
import pickle
import subprocess
import sys

import pytest

import pyflame as pf

DEVICE = os.environ.get("PYFLAME_TEST_DEVICE", "cpu")
PROGRAM = """
import sys
import pyflame as pf
nn = pf.nn
pf.set_device(sys.argv[2])
before = pf.zeros(1000) + 1
pf.synchronize()
if sys.argv[3] == "record":
    pf.memory.record()
net = nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 10))
adam = pf.optim.AdamW(net.parameters())
def train(x):
    loss = net(x).pow(2).sum()
    loss.backward()
    adam.step()
    return loss
x = pf.randn(64, 100)
for _ in range(3):
    adam.zero_grad()
    last = train(x)
def look():
    mine = pf.full((3000,), 2.0)
    pf.synchronize()
    found = pf.memory.snapshot()
    del mine
    return found
found = look()
found.save(sys.argv[1])
print(found)
"""


def snapshot(tmp_path, record="record", device=DEVICE):
    script, out = tmp_path / "train.py", tmp_path / "snapshot.json"
    script.write_text(PROGRAM)
    r = subprocess.run([sys.executable, str(script), str(out), device, record], capture_output=True, text=True, timeout=300)
    assert r.returncode == 0, r.stderr
    return json.loads(out.read_text()), r.stdout


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    return snapshot(tmp_path_factory.mktemp("snapshot"))


def test_every_byte_is_accounted_for(taken):
    d, _ = taken
    assert d["recorded"] and d["dropped"] == 0
    listed = sum(b["bytes"] for b in d["blocks"])
    assert listed == pytest.approx(d["stats"]["allocated"], abs=512)  # of what was there before, the tensor's bytes are known and not the block's
    assert listed == sum(k["bytes"] for k in d["kinds"]) == sum(p["bytes"] for p in d["places"])
    assert d["timeline"][-1][1] == d["stats"]["allocated"]
    assert max(n for _, n in d["timeline"]) <= d["stats"]["peak_allocated"]
    assert all(a[0] <= b[0] for a, b in zip(d["timeline"], d["timeline"][1:]))


def test_holders_and_lines(taken):
    d, text = taken
    by_holder = {b["holder"]: b for b in d["blocks"]}
    weight, gradient = by_holder["Sequential.0.weight"], by_holder["Sequential.0.weight.grad"]
    assert weight["kind"] == "parameters" and weight["bytes"] >= 80000 and weight["at"] == "train.py:10 in <module>"
    assert gradient["kind"] == "gradients" and gradient["at"].startswith("train.py:14 in train")
    moments = [b for b in d["blocks"] if b["kind"] == "optimizer" and b["holder"].endswith("of Sequential.0.weight") and b["bytes"] >= 80000]
    assert len(moments) == 2 and {b["at"] for b in moments} == {"train.py:15 in train"}
    assert by_holder["x in <module>"]["at"].startswith("train.py:17")
    assert by_holder["mine in look"]["kind"] == "variables" and by_holder["mine in look"]["at"].startswith("train.py:22 in look")
    assert by_holder["before in <module>"]["at"] == "before the recording"
    assert "optimizer" in text and "train.py:15 in train" in text


def test_without_a_recording_the_holders_are_known(tmp_path):
    d, text = snapshot(tmp_path, record="no")
    assert not d["recorded"] and d["timeline"] == []
    assert {b["at"] for b in d["blocks"]} == {"before the recording"}
    assert "Sequential.0.weight" in {b["holder"] for b in d["blocks"]}
    assert "pf.memory.record() before would say which line took it" in text


def test_a_plan_has_a_snapshot_too(tmp_path):
    d, _ = snapshot(tmp_path, device="null")
    assert d["device"].startswith("null") and d["stats"]["total"] == 0
    assert {b["at"] for b in d["blocks"] if b["holder"] == "Sequential.0.weight"} == {"train.py:10 in <module>"}


def test_the_page(run, tmp_path, taken):
    path = tmp_path / "s.json"
    path.write_text(json.dumps(taken[0]))
    run("memory", "snapshot", path, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Sequential.0.weight.grad" in page and "train.py:15 in train" in page and "bytes in use since the recording began" in page
    for text in ('{"tool": "another"}', "{", "[1]", '{"tool": "memory snapshot", "blocks": [3, {"bytes": "x"}], "timeline": [[1], "a", [1, 2]], "kinds": 3}'):
        path.write_text(text)
        r = run("memory", "snapshot", path, "--html", tmp_path / "other.html", code=None)
        whole = "memory snapshot" in text
        assert r.returncode == (0 if whole else 1) and (whole or "is not a snapshot; expected a file of pf.memory.snapshot().save(path)" in r.stderr)
    run("memory", "snapshot", tmp_path / "none.json", "--html", "x.html", code=2)


def test_the_document(run, tmp_path, taken):
    path = tmp_path / "s.json"
    path.write_text(json.dumps(taken[0]))
    assert json.loads(run("memory", "snapshot", path, "--json").stdout) == taken[0]
    r = run("memory", "snapshot", path, "--json", "--html", tmp_path / "page.html")
    assert json.loads(r.stdout)["tool"] == "memory snapshot" and (tmp_path / "page.html").is_file()
    r = run("memory", "snapshot", path, code=1)
    assert r.stdout == "" and "there is nothing to write; got neither --html nor --json; hint: --html page.html" in r.stderr
    path.write_text('{"tool": "another"}')
    assert run("memory", "snapshot", path, "--json", code=1).stdout == ""


def test_a_page_from_python_and_a_short_recording(tmp_path):
    kept = []
    with pf.memory.record(most=10):
        for i in range(40):
            kept = [pf.full((100 + i,), 1.0)]
            pf.synchronize()
    later = pf.full((77,), 1.0)
    pf.synchronize()
    found = pf.memory.snapshot("cpu") if DEVICE == "cpu" else pf.memory.snapshot()
    assert len(found.document["timeline"]) <= 10 and found.document["dropped"] > 0
    assert later is not None and kept
    assert not any("later" in b["holder"] and b["seconds"] is not None for b in found.document["blocks"])  # after the end
    found.save(tmp_path / "page.html")
    assert "older changes were forgotten" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("most", [0, -1, 1.5, True, "many"])
def test_a_wrong_length(most):
    with pytest.raises(ValueError, match="record: most is not a positive number; got"):
        pf.memory.record(most)


def test_pytorchs_form_of_a_snapshot(tmp_path):
    """Its segments add up, and its blocks have frames. PyTorch's own readers take it (torch.cuda._memory_viz)."""
    from pyflame.memory import _as_pytorch

    with pf.memory.record():
        x = pf.full((3 << 20,), 1.0, device="null")
        y = [pf.full((100,), 1.0, device="null") for _ in range(3)]
        pf.synchronize()
    _as_pytorch.dump(tmp_path / "s.pickle", "null")
    found = pickle.loads((tmp_path / "s.pickle").read_bytes())
    s = pf.memory.stats("null")
    assert sum(g["total_size"] for g in found["segments"]) == s["reserved"]
    assert sum(g["allocated_size"] for g in found["segments"]) == s["allocated"]
    for g in found["segments"]:
        assert sum(b["size"] for b in g["blocks"]) == g["total_size"]
        assert [b["address"] for b in g["blocks"]] == sorted(b["address"] for b in g["blocks"])
    frames = [b["frames"][0] for g in found["segments"] for b in g["blocks"] if b["frames"]]
    assert {(f["filename"], type(f["line"])) for f in frames} == {("test_memory_snapshot.py", int)} and len(frames) >= 4
    del x, y


GPU = next((d for d in ("rocm", "cuda") if getattr(pf, d + "_is_available")()), None)


@pytest.mark.skipif(GPU is None, reason="there is no GPU")
def test_pytorchs_names(tmp_path):
    cuda = pf.cuda
    cuda.memory._record_memory_history(max_entries=1000)
    x = pf.full((1 << 20,), 1.0, device=GPU)
    pf.synchronize()
    cuda.memory._dump_snapshot(str(tmp_path / "s.pickle"))
    cuda.memory._record_memory_history(enabled=None)
    stats, ours = cuda.memory_stats(), pf.memory.stats(GPU)
    assert stats["active_bytes.all.current"] == ours["allocated"] and stats["segment.all.current"] == len(cuda.memory_snapshot()) == ours["segments"]
    assert sum(g["total_size"] for g in pickle.loads((tmp_path / "s.pickle").read_bytes())["segments"]) == cuda.memory_reserved()
    try:
        cuda.set_per_process_memory_fraction(0.5)
        assert pf.memory.stats(GPU)["limit"] == ours["total"] // 2 and cuda.get_per_process_memory_fraction() == pytest.approx(0.5, rel=1e-6)
    finally:
        pf.memory.configure(fraction=1)
    assert cuda.get_per_process_memory_fraction() == 1 and cuda.mem_get_info() == (pf.memory.stats(GPU)["free"], ours["total"])
    del x


@pytest.mark.skipif(GPU is not None, reason="there is a GPU")
def test_pytorchs_names_without_a_gpu():
    assert pf.cuda.memory_snapshot() == []
    with pytest.raises(pf.DeviceError):
        pf.cuda.get_per_process_memory_fraction()
