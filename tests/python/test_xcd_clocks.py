"""The clocks of the XCDs in the amdgpu driver's file gpu_metrics. The files are made here, from the order and the types of the fields; no AMD GPU has been read."""
import ctypes
import json
import random
import struct

import pytest

from pyflame.benchmarking import environment, gpu_metrics, measure, shares
from pyflame.profiler import diagnose, process
from pyflame.profiler.machine import MachineSampler

U16, U32, U64 = ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
HEADER = [("size", U16), ("format", ctypes.c_uint8), ("version", ctypes.c_uint8)]
CLOCKS = [("firmware_time", U64), ("clocks", U16 * 8), ("other_clocks", U16 * 13)]


def structure(name, fields):
    """A table whose fields lie as C lays them out."""
    return type(name, (ctypes.Structure,), {"_fields_": fields})


def partition(engines, counters):
    """What a table from version 6 on holds for each partition."""
    return structure("Partition", [("busy", U32 * 8), ("engines", U16 * engines), ("video", U16 * 4), ("counters", U64 * 8 * counters)])


def later(extra, links, partitions):
    """A table of versions 6 to 8. extra: what stands before the energy; links: what stands behind the data of the links."""
    return HEADER + [("now", U16 * 6)] + extra + [("energy", U64), ("time", U64), ("counters", U32 * 7), ("pcie", U16 * 2), ("xgmi", U16 * 2), ("activity", U32 * 2), ("pcie_data", U64 * 5),
                     ("naks", U32 * 2), ("xgmi_data", U64 * 16)] + links + CLOCKS + [("partitions", U16), ("of_partitions", partitions * 8), ("recoveries", U32)]  # fmt: skip


def earlier(engines, naks):
    """A table of versions 4 and 5."""
    return HEADER + [("now", U16 * 6), ("video", U16 * 4)] + engines + [("energy", U64), ("time", U64), ("status", U32 * 2), ("links", U16 * 4), ("activity", U32 * 2), ("pcie_data", U64 * 5)] + naks + [
        ("xgmi_data", U64 * 16)] + CLOCKS + [("padding", U16)]  # fmt: skip


LINKS, BANDWIDTH = [("link_status", U16 * 8), ("padding", U16)], [("most_bandwidth", U64)]
TABLES = {  # version: (table, size that the driver's tables have)
    "4": (earlier([], []), 288),
    "5": (earlier([("engines", U16 * 32)], [("naks", U32 * 2)]), 360),
    "6": (later([], [], partition(32, 1)), 1664),
    "7": (later(BANDWIDTH, LINKS, partition(32, 2)), 2208),
    "8": (later(BANDWIDTH, LINKS, partition(40, 5)), 3872),
}
XCDS = [2100, 2087, 1893, 2100, 1999, 2050, 2075, 2099]


def table(key, clocks=XCDS):
    """The bytes of a table, in which everything that is not known has all bits set, as the driver does it."""
    fields, size = TABLES[key]
    made = structure("Table", fields)()
    assert ctypes.sizeof(made) == size
    ctypes.memset(ctypes.byref(made), 0xFF, size)
    made.size, made.format, made.version = size, 1, int(key)
    made.clocks[:len(clocks)] = clocks
    return bytes(made)


def word(values, field, kind, unit):
    return struct.pack("<Q", values | field << 10 | kind << 20 | unit << 24)


TEMPERATURE = word(1, 0, 2, 2) + struct.pack("<H", 61)
ENERGY = word(1, 7, 6, 0) + struct.pack("<Q", 1 << 40)
CLOCK = word(8, 33, 2, 1) + struct.pack("<8H", *XCDS)


def listed(*fields, count=None, size=None):
    """The bytes of a table of version 9."""
    rest = struct.pack("<i", len(fields) if count is None else count) + b"".join(fields)
    return struct.pack("<HBB", 4 + len(rest) if size is None else size, 1, 9) + rest


@pytest.mark.parametrize("key", TABLES)
def test_clocks_of_each_version(key):
    assert gpu_metrics.xcd_clocks(table(key)) == (XCDS, None)


@pytest.mark.parametrize("key", TABLES)
def test_xcds_that_are_not_there_do_not_count(key):
    assert gpu_metrics.xcd_clocks(table(key, [1800, 1790, 0, 1805, 1700, 1801]))[0] == [1800, 1790, 1805, 1700, 1801]
    assert gpu_metrics.xcd_clocks(table(key, [])) == (None, "gpu_metrics has no clock of an XCD")


def test_clocks_of_a_list_of_fields():
    assert gpu_metrics.xcd_clocks(listed(TEMPERATURE, ENERGY, CLOCK, TEMPERATURE)) == (XCDS, None)
    assert gpu_metrics.xcd_clocks(listed(TEMPERATURE, word(2, 33, 2, 1) + struct.pack("<2H", 900, 950))) == ([900, 950], None)
    many = [ENERGY] * 300  # longer than what the driver gives of a file
    assert gpu_metrics.xcd_clocks(listed(CLOCK, *many)[:4095]) == (XCDS, None)


@pytest.mark.parametrize("data,why", [
    (b"", "too short: it has 0 bytes, and its header 4"),
    (b"\x20\x01\x01", "too short: it has 3 bytes"),
    (struct.pack("<HBB", 120, 1, 3) + bytes(116), "version 1.3 has one clock for the whole GPU"),
    (struct.pack("<HBB", 128, 2, 2) + bytes(124), "has version 2.2; the clocks of XCDs are read from 1.4 to 1.9"),
    (struct.pack("<HBB", 264, 3, 0) + bytes(260), "has version 3.0"),
    (struct.pack("<HBB", 288, 1, 10) + bytes(284), "has version 1.10"),
    (struct.pack("<HBB", 288, 0, 4) + bytes(284), "has version 0.4"),
    (table("4")[:-1], "has 287 bytes, and its header says 288"),
    (table("4") + b"\0", "has 289 bytes, and its header says 288"),
    (table("7")[:100], "has 100 bytes, and its header says 2208"),
    (struct.pack("<H", 0) + table("6")[2:], "has 1664 bytes, and its header says 0"),
    (struct.pack("<H", 0xFFFF) + table("6")[2:], "has 1664 bytes, and its header says 65535"),
    (struct.pack("<HBB", 200, 1, 4) + bytes(196), "says that it has 200 bytes; such a table has at least 288"),
    (struct.pack("<HBB", 4, 1, 8), "says that it has 4 bytes; such a table has at least 3872"),
    (struct.pack("<HBB", 6, 1, 9) + bytes(2), "too short: it has 6 bytes, and its list of fields begins at byte 8"),
    (listed(), "has no clocks among its 0 fields"),
    (listed(count=-1), "has no clocks among its 0 fields"),
    (listed(TEMPERATURE, count=0x7FFFFFFF), "has no clocks among its 2147483647 fields"),
    (listed(word(1, 0, 8, 2) + b"\0"), "a field of an unknown type: type 8 at byte 8"),
    (listed(word(8, 33, 4, 1) + bytes(32)), "another form: type 4 and unit 1"),
    (listed(word(8, 33, 2, 2) + bytes(16)), "another form: type 2 and unit 2"),
    (listed(word(0x3FF, 33, 2, 1) + bytes(16)), "ends within the clocks: it has 32 bytes, and they need 2062"),
    (listed(word(0, 33, 2, 1)), "has no clock of an XCD"),
    (listed(CLOCK, size=9), "has 32 bytes, and its header says 9"),
])
def test_files_that_are_not_understood(data, why):
    clocks, reason = gpu_metrics.xcd_clocks(data)
    assert clocks is None and why in reason


def test_any_bytes_give_clocks_or_a_reason():
    draw = random.Random(5)
    for _ in range(3000):
        data = bytearray(draw.choice([listed(TEMPERATURE, CLOCK), table("4"), table("8"), draw.randbytes(40)]))
        for _ in range(draw.randrange(6)):
            data[draw.randrange(min(len(data), 24))] = draw.randrange(256)
        clocks, why = gpu_metrics.xcd_clocks(bytes(data[:draw.choice([len(data), draw.randrange(len(data))])]))
        assert (clocks is None) != (why is None) and all(0 < c < 0xFFFF for c in clocks or [1])


PCI = "0000:83:00.0"


@pytest.fixture
def card(tmp_path):
    folder = tmp_path / "pci" / PCI  # the card's device is a link to it, as in sysfs
    (folder / "hwmon" / "hwmon3").mkdir(parents=True)
    (tmp_path / "card1").mkdir()
    (tmp_path / "card1" / "device").symlink_to(folder)
    (folder / "pp_dpm_sclk").write_text("S: 19Mhz\n0: 132Mhz\n1: 2100Mhz *\n")
    return folder


def test_the_state_of_a_gpu_has_them(card, tmp_path):
    (card / "gpu_metrics").write_bytes(table("6"))
    assert environment.amd_state(PCI, tmp_path, tmp_path) == {"clock_max_mhz": 2100.0, "xcd_clocks_mhz": XCDS, "xcd_clock_low_mhz": 1893, "xcd_clock_high_mhz": 2100, "xcd_clock_spread_mhz": 207}


def test_the_state_says_why_it_has_none(card, tmp_path):
    assert environment.amd_state(PCI, tmp_path, tmp_path)["xcd_clocks_unknown"] == "gpu_metrics cannot be read: No such file or directory"
    (card / "gpu_metrics").mkdir()
    assert environment.amd_state(PCI, tmp_path, tmp_path)["xcd_clocks_unknown"] == "gpu_metrics cannot be read: Is a directory"
    (card / "gpu_metrics").rmdir()
    (card / "gpu_metrics").write_bytes(table("6")[:50])
    found = environment.amd_state(PCI, tmp_path, tmp_path)
    assert found["xcd_clocks_unknown"] == "gpu_metrics has 50 bytes, and its header says 1664" and "xcd_clocks_mhz" not in found


def test_a_measurement_has_the_clocks_under_load(monkeypatch):
    idle, busy, calls, states = [132] * 8, XCDS, [0], []

    def work():
        calls[0] += 1

    def state(device):
        states.append(calls[0])
        clocks = busy if len(states) == 3 else idle  # before the samples, behind them, and while the calls run that are no sample
        return {"involuntary_switches": 0, "load": 0.0, "clock_max_mhz": 2100.0, "xcd_clocks_mhz": clocks, "xcd_clock_low_mhz": min(clocks), "xcd_clock_high_mhz": max(clocks),
                "xcd_clock_spread_mhz": max(clocks) - min(clocks)}

    monkeypatch.setattr(environment, "state", state)
    m = measure.bench(work, max_seconds=0.3, min_samples=3, device="cpu")
    assert len(states) == 3 and states[2] == states[1] + m.calls and m.environment["state"]["xcd_clocks_mhz"] == busy
    assert m.notes == ["the clocks of the 8 XCDs are 1893 to 2100 MHz, a spread of 207 MHz (9.9%) while they compute"]
    assert json.loads(json.dumps(m.to_dict()))["environment"]["state"]["xcd_clock_spread_mhz"] == 207


def test_the_share_of_the_peak_at_the_lowest_clock(monkeypatch):
    monkeypatch.setattr(shares._C, "_gpu_peaks", lambda device: {"name": "a GPU", "gbs": 1.0, "tflops": {"bfloat16": 1000.0}})
    state = {"xcd_clocks_mhz": [2100, 1890], "xcd_clock_low_mhz": 1890, "clock_max_mhz": 2100.0}

    def said(**changes):
        m = measure.Measurement("gemm", "rocm:0", [1.0] * 5, [1.0] * 5, [0.0] * 5, 1, 1.0, 1, "warm", 0.01, flops=6.3e11, environment={"state": state | changes})
        return shares._of_peak(m, "bfloat16")

    assert said() == ["63% of the peak: 1000 TFLOP/s by the data sheet", "70% of the peak at the lowest clock: 900 TFLOP/s, as the slowest XCD has 1890 of at most 2100 MHz; work that is divided evenly "
                      "ends when the slowest XCD has done its part"]  # fmt: skip
    assert len(said(xcd_clocks_mhz=[1890])) == len(said(clock_max_mhz=None)) == len(said(clock_max_mhz=1000.0)) == 1


def test_a_profile_says_how_far_they_lie_apart():
    sampler = MachineSampler(["rocm:0"])
    for at, low in enumerate((132, 1890, 1900, 1880)):
        sampler.rows.append((at, "rocm:0", {"busy_percent": 0 if low == 132 else 99, "clock_max_mhz": 2100.0, "xcd_clocks_mhz": [low, 2090], "xcd_clock_low_mhz": low, "xcd_clock_high_mhz": 2090,
                                            "xcd_clock_spread_mhz": 2090 - low}))  # fmt: skip
    assert sampler.summary()[1:] == ["rocm:0: the clocks of its 2 XCDs lie 200 MHz apart, the lowest is 1890 MHz; at the lowest clock the peak is 90% of the data sheet's, so that a share of the peak "
                                     "is 1.11 times as large"]  # fmt: skip
    assert {"ph": "C", "name": "lowest clock of an XCD of rocm:0 (MHz)", "ts": 0.001, "args": {"MHz": 1890}} in list(sampler.counters(0))
    for _, _, values in sampler.rows:
        del values["xcd_clocks_mhz"]
    assert len(sampler.summary()) == 1


def test_diagnose_says_it_too(card, tmp_path, monkeypatch):
    monkeypatch.setattr(process.os, "readlink", lambda path: "/dev/kfd")
    (card / "gpu_busy_percent").write_text("99\n")
    (card / "gpu_metrics").write_bytes(table("8"))
    watcher, seen = process.Watcher(process.os.getpid(), drm=tmp_path), process.Observation(5, "train", seconds=1.0)
    cards = watcher._cards()
    for _ in range(3):
        watcher._sample_gpus(seen, cards)
    assert seen.gpus == {"AMD card1": [(99.0, None)] * 3} and len(seen.xcds["AMD card1"]) == 1
    assert "GPU AMD card1: the clocks of the 8 XCDs are 1893 to 2100 MHz, a spread of 207 MHz (9.9%), in the sample where they lie farthest apart" in diagnose.evidence(seen)
    (card / "gpu_metrics").write_bytes(b"")
    bare = process.Observation(5, "train", seconds=1.0)
    watcher._sample_gpus(bare, cards)
    assert bare.xcds == {"AMD card1": [{"xcd_clocks_unknown": "gpu_metrics is too short: it has 0 bytes, and its header 4"}]} and not any("XCD" in line for line in diagnose.evidence(bare))
