"""The check of the paths between processes names what is wrong."""
import pytest
from processes import run

import pyflame as pf
from pyflame.distributed import _expected
from pyflame.distributed.check import check_paths, is_good, main

PROGRAM = """
from pyflame.distributed import check
dist.init_process_group(timeout=60)
report = check.check_paths(nbytes=4000, repeat=3)
assert check.is_good(report) and report["ranks"] == world
assert [(p["from"], p["to"]) for p in report["paths"]] == [(a, b) for a in range(2) for b in range(2) if a != b]
assert all(p["transport"] == dist.group.WORLD.transports()[1 - rank] and p["elements"] == 1000 and p["latency_us"] > 0 and p["bandwidth_gb_s"] > 0 and p["expected_gb_s"] > 0 and p["verdict"] for p in report["paths"])
assert f"    1     0  {dist.group.WORLD.transports()[1 - rank]}" in check._text(report)

# Rank 1 gets other bytes from rank 0 than were sent, and rank 1 adds wrongly.
receive, reduce = check._receive, dist.all_reduce
def changed(tensor, peer, group):
    receive(tensor, peer, group)
    if (rank, peer) == (1, 0):
        tensor[7:9] += 1
def wrong(tensor, group=None):
    reduce(tensor, group=group)
    if rank == 1:
        tensor[3] += 1
check._receive, dist.all_reduce = changed, wrong
report = check.check_paths(nbytes=4000, repeat=3)
assert not check.is_good(report) and report["sums_wrong"] == {"1": 1}
assert [(p["from"], p["to"], p["wrong"], p["first_wrong"]) for p in report["paths"] if p["wrong"]] == [(0, 1, 2, 7)]
text = check._text(report)
assert "2 of 1000, the first at 7" in text and "the sum over all ranks is wrong on rank 1: 1 elements" in text
print("checked")
"""


def test_two_processes(tmp_path):
    assert run(2, PROGRAM, tmp_path) == ["checked\n"] * 2


def test_one_process():
    assert check_paths() == {"ranks": 1, "device": "cpu", "paths": [], "sums_wrong": {}} and is_good(check_paths(device=pf.device("cpu")))
    for name in ("nbytes", "repeat"):
        with pytest.raises(ValueError, match=f"check_paths: {name} is not a number above 0; got 0; expected such as"):
            check_paths(**{name: 0})


def test_the_command(capfd):
    """`pyflame doctor --comm` starts the processes by this."""
    assert main(["--launch", "2", "--bytes", "4000", "--repeat", "2"]) == 0
    assert "2 ranks, tensors on cpu" in capfd.readouterr().out


def test_the_command_without_a_gpu(capfd, monkeypatch):
    monkeypatch.setattr(pf.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(pf, "rocm_device_count", lambda: 0)
    assert main(["--launch", "gpu", "--bytes", "4000", "--repeat", "2"]) == 0
    said = capfd.readouterr()
    assert "pyflame doctor: there is no GPU, so two processes on the CPU check their paths; hint: `pyflame doctor` says why there is none, --nproc N takes another number\n" in said.err
    assert "2 ranks, tensors on cpu" in said.out


def _end(**changed):
    return {"host": "a", "copy_gb_s": 20.0, "network_gb_s": None, "pci": None, **changed}


def _gpu(pci, lanes=16, most=16, direct=None):
    gb_s = 16 * lanes * 128 / 130 / 8
    return _end(pci=pci, pcie=lanes and {"gb_s": gb_s, "now": (16.0, lanes), "most": (16.0, most)}, direct=direct or {}, direct_name="NVLink")


SHARED, TCP, NCCL = "shared memory", "TCP", "nccl"


@pytest.mark.parametrize("transport, a, b, got, expected, verdict", [
    (SHARED, _end(), _end(copy_gb_s=40.0), 8.0, 10.0, "as expected"),
    (SHARED, _end(), _end(), 2.0, 10.0, "20 % of what two copies in memory gives: look at other programs on these processors, and at `pyflame run --bind`"),
    (TCP, _end(), _end(), 2.0, None, "unknown: nothing says how fast TCP within a host is; shared memory is faster: look at PYFLAME_SHARED_MEMORY, and whether the ranks are in one container"),
    (TCP, _end(network_gb_s=1.25), _end(host="b", network_gb_s=12.5), 0.25, 1.25, "20 % of what the network card gives: look at other traffic, at the cable, and at the speed of the switch"),
    (TCP, _end(network_gb_s=1.25), _end(host="b"), 1.0, None, "unknown: the network card does not say how fast it is"),
    (NCCL, _gpu("0000:01:00.0"), _gpu("0000:02:00.0"), 25.0, 16 * 16 * 128 / 130 / 8, "as expected"),
    (NCCL, _gpu("0000:01:00.0"), _gpu("0000:02:00.0", lanes=8), 5.0, 16 * 8 * 128 / 130 / 8, "32 % of what PCIe of 16 GT/s with 8 lanes gives: look at the slot, because the GPU has 16 GT/s and 16 lanes"),
    (NCCL, _gpu("0000:01:00.0"), _gpu("0000:02:00.0", lanes=0), 5.0, None, "unknown: /sys does not say how fast the PCIe link is"),
    (NCCL, _gpu("0000:01:00.0", direct={"0000:02:00.0": 100.0}), _gpu("0000:02:00.0", direct={"0000:01:00.0": 100.0}), 20.0, 100.0, "20 % of what NVLink gives: look at NCCL_DEBUG=INFO, which names the path that the library takes, and at NCCL_P2P_DISABLE"),
    (NCCL, _gpu("0000:01:00.0", direct={"switch": 450.0}), _gpu("0000:02:00.0", direct={"switch": 450.0}), 300.0, 450.0, "as expected"),
    (NCCL, _gpu("0000:01:00.0"), {**_gpu("0000:02:00.0"), "host": "b"}, 20.0, None, "unknown: nothing says how GPUs of two hosts are linked"),
    (SHARED, _gpu("0000:01:00.0"), _gpu("0000:02:00.0"), 5.0, None, "unknown: tensors of GPUs go through the host's memory"),
])
def test_what_a_path_should_give(transport, a, b, got, expected, verdict):
    path = {"transport": transport, "latency_us": 0.0, "bandwidth_gb_s": got}
    _expected.judge(path, a, b, 1 << 20)
    assert path["expected_gb_s"] == pytest.approx(expected) and path["verdict"] == verdict


def test_small_messages_are_not_judged():
    path = {"transport": SHARED, "latency_us": 10.0, "bandwidth_gb_s": 0.1}
    _expected.judge(path, _end(), _end(), 4000)
    assert path["verdict"] == "unknown: a message of 4000 bytes shows the latency; hint: more --bytes" and path["expected_gb_s"] == pytest.approx(4e-6 / 10.4e-6)


def test_links_that_sys_names(tmp_path):
    folder = tmp_path / "bus/pci/devices/0000:01:00.0"
    folder.mkdir(parents=True)
    assert _expected.pcie("0000:01:00.0", tmp_path) is None
    for name, text in {"current_link_speed": "8.0 GT/s PCIe", "current_link_width": "8", "max_link_speed": "16.0 GT/s PCIe", "max_link_width": "16"}.items():
        (folder / name).write_text(text + "\n")
    assert _expected.pcie("0000:01:00.0", tmp_path) == {"gb_s": pytest.approx(64 * 128 / 130 / 8), "now": (8.0, 8.0), "most": (16.0, 16.0)}
    (folder / "current_link_width").write_text("255\n")  # it is down
    assert _expected.pcie("0000:01:00.0", tmp_path) is None
    nodes = tmp_path / "class/kfd/kfd/topology/nodes"
    for node, place in (("0", 0), ("1", 0x0500), ("2", 0x2600)):
        links = nodes / node / "io_links/0"
        links.mkdir(parents=True)
        (nodes / node / "properties").write_text(f"simd_count 4\nlocation_id {place}\ndomain 0\n")
        (links / "properties").write_text(f"type 11\nnode_to {3 - int(node)}\nmax_bandwidth 64000\n")
    assert _expected.xgmi("0000:05:00.0", tmp_path) == {"0000:26:00.0": 64.0} and _expected.xgmi("0000:99:00.0", tmp_path) == {}
