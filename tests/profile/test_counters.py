"""Hardware counters in a report: AMD's metrics over them. The files are synthetic, in the formats of AMD's tools."""
import os
import sqlite3

import pytest
import traces

HEADER = ["Correlation_Id", "Dispatch_Id", "Agent_Id", "Queue_Id", "Process_Id", "Thread_Id", "Grid_Size", "Kernel_Id", "Kernel_Name", "Workgroup_Size",
          "LDS_Block_Size", "Scratch_Size", "VGPR_Count", "Accum_VGPR_Count", "SGPR_Count", "Counter_Name", "Counter_Value"]
US = 100  # length of a dispatch


def write_counters(path, kernels, dispatches=2, times=True):
    """`kernels`: {name: {counter: value of a dispatch}}. A dispatch has a row for each counter, as rocprofv3 writes them."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(",".join(f'"{h}"' for h in HEADER + (["Start_Timestamp", "End_Timestamp"] if times else [])) + "\n")
        number = 0
        for kernel, counters in kernels.items():
            for _ in range(dispatches):
                number += 1
                at = 1_000_000 + number * 1_000_000
                for name, value in counters.items():
                    f.write(f'{number},{number},"Agent 1",1,7,7,524288,1,"{kernel}",256,0,0,64,0,32,"{name}",{value}'
                            + (f",{at},{at + US * 1000}" if times else "") + "\n")
    return path


def metrics(d, kernel=0):
    return d["counters"]["kernels"][kernel]["metrics"]


CYCLES = 8 * 1000.0  # 1000 cycles of each of the eight dies of an MI300X, as files have it
MI300X = {"GRBM_GUI_ACTIVE": CYCLES, "SQ_WAVE_CYCLES": 304 * 1000 * 32 / 4 * 0.25, "SQ_ACTIVE_INST_VALU": 304 * 1000 * 0.5,
          "SQ_THREAD_CYCLES_VALU": 304 * 1000 * 0.5 * 48, "SQ_VALU_MFMA_BUSY_CYCLES": 304 * 1000 * 4 * 0.125, "TCC_HIT_sum": 900, "TCC_MISS_sum": 100,
          "SQ_LDS_BANK_CONFLICT": 304 * 1000 * 0.0625, "TCC_EA0_RDREQ_sum": 1000, "TCC_EA0_RDREQ_32B_sum": 200, "TCC_BUBBLE_sum": 300,
          "TCC_EA0_WRREQ_sum": 500, "TCC_EA0_WRREQ_64B_sum": 400}
EXPECTED = {"occupancy": 0.25, "valu_busy": 0.5, "valu_threads": 0.75, "mfma_busy": 0.125, "l2_hit": 0.9, "lds_bank_conflict": 0.0625,
            "fetch_bytes": 300 * 128 + 500 * 64 + 200 * 32, "write_bytes": 100 * 32 + 400 * 64}


def test_the_definitions_on_an_mi300x(report, tmp_path):
    path = write_counters(str(tmp_path / "1_counter_collection.csv"), {traces.GEMM: MI300X})
    d = report(path, "--product", "MI300X")
    bytes_ = EXPECTED["fetch_bytes"] + EXPECTED["write_bytes"]
    assert metrics(d) == pytest.approx(EXPECTED | {"hbm_gbs": bytes_ / US / 1e3, "hbm_of_peak": bytes_ / US / 1e3 / 5300})
    assert d["counters"]["missing"] == [] and d["counters"]["why_not"] is None and d["problems"] == []
    # Its times are those of the dispatches, each counted once.
    assert d["kernels"][0]["calls"] == 2 and d["kernels"][0]["us"] == 2 * US and d["time"]["timeline"] is False


def test_text_and_page_show_them(run, tmp_path):
    path = write_counters(str(tmp_path / "1_counter_collection.csv"), {traces.GEMM: MI300X, traces.ADD: {"TCC_HIT_sum": 1, "TCC_MISS_sum": 3}})
    page = tmp_path / "page.html"
    text = run("report", path, "--product", "MI300X", "--html", page).stdout
    row, other = (next(line for line in text[text.index("Hardware counters"):].splitlines() if name in line) for name in ("Cijk", "elementwise"))
    for value in ("25.0 %", "50.0 %", "75.0 %", "12.5 %", "90.0 %", "6.2 %"):
        assert value in row, text
    assert other.split()[-5:] == ["-", "-", "-", "25.0", "%"] or "25.0 %" in other
    assert "75 KiB" in text and "OccupancyPercent" in text
    html = page.read_text()
    assert "Hardware counters" in html and "MFMA" in html and "SQ_VALU_MFMA_BUSY_CYCLES" in html and "12.5 %" in html


@pytest.mark.parametrize("product,gui,counters,expected", [
    ("MI250X", 1000, {"SQ_WAVE_CYCLES": 110 * 1000 * 32 / 4 * 0.5, "TCC_EA_RDREQ_sum": 10, "TCC_EA_RDREQ_32B_sum": 4, "TCC_EA_WRREQ_sum": 5, "TCC_EA_WRREQ_64B_sum": 2},
     {"occupancy": 0.5, "fetch_bytes": 4 * 32 + 6 * 64, "write_bytes": 3 * 32 + 2 * 64}),
    ("RX 7900 XTX", 1000, {"SQ_WAVE_CYCLES": 96 * 1000 * 32 * 0.5, "GL2C_HIT_sum": 3, "GL2C_MISS_sum": 1, "SQC_LDS_BANK_CONFLICT": 5, "SQC_LDS_IDX_ACTIVE": 100},
     {"occupancy": 0.5, "l2_hit": 0.75, "lds_bank_conflict": 0.05}),
    ("MI300X", CYCLES, {"OccupancyPercent": 40.0, "MfmaUtil": 70.0, "VALUBusy": 10.0, "FETCH_SIZE": 2.0},
     {"occupancy": 0.4, "mfma_busy": 0.7, "valu_busy": 0.1, "fetch_bytes": 2048}),
    ("MI300X", CYCLES, {"MeanOccupancyPerCU": 8.0}, {"occupancy": 0.25}),
])
def test_other_devices_and_metrics_that_the_profiler_computed(report, tmp_path, product, gui, counters, expected):
    path = write_counters(str(tmp_path / "1_counter_collection.csv"), {traces.GEMM: {"GRBM_GUI_ACTIVE": gui} | counters})
    got = metrics(report(path, "--product", product))
    assert {k: got[k] for k in expected} == pytest.approx(expected) and not set(got) - set(expected) - {"hbm_gbs", "hbm_of_peak"}


def test_what_is_missing_is_named_with_the_command(run, report, tmp_path):
    path = write_counters(str(tmp_path / "1_counter_collection.csv"), {traces.GEMM: {"TCC_HIT_sum": 1, "TCC_MISS_sum": 1}})
    text = run("report", path, "--product", "MI300X").stdout
    assert "50.0 %" in text and "rocprofv3 --pmc OccupancyPercent" in " ".join(text.split())
    # Without the device, cycles mean nothing, and no figure is made up.
    path = write_counters(str(tmp_path / "1_counter_collection.csv"), {traces.GEMM: MI300X})
    assert set(metrics(report(path))) == {"l2_hit"} and "--product" in report(path)["counters"]["why_not"]
    assert "architecture" in run("report", path).stdout


def test_counters_without_times(run, report, tmp_path):
    path = write_counters(str(tmp_path / "1_counter_collection.csv"), {traces.GEMM: MI300X}, times=False)
    d = report(path, "--product", "MI300X")
    assert metrics(d) == pytest.approx(EXPECTED) and d["verdict"].startswith("Hardware counters of 1 kernels, without their times")
    assert "25.0 %" in run("report", path, "--product", "MI300X").stdout


def test_passes_of_one_program_are_timed_once(report, tmp_path):
    first = {k: v for k, v in MI300X.items() if k.startswith(("GRBM", "SQ"))}
    second = {k: v for k, v in MI300X.items() if k.startswith("TCC")}
    write_counters(str(tmp_path / "pmc_1/host/11_counter_collection.csv"), {traces.GEMM: first})
    write_counters(str(tmp_path / "pmc_2/host/12_counter_collection.csv"), {traces.GEMM: second})
    d = report(tmp_path, "--product", "MI300X")
    assert {k: v for k, v in metrics(d).items() if k in EXPECTED} == pytest.approx(EXPECTED)
    assert d["kernels"][0]["calls"] == 2 and d["time"]["wall_us"] == 2 * US


def test_counters_beside_a_trace(report, tmp_path):
    folder = traces.write_csv(traces.training(), str(tmp_path))
    write_counters(os.path.join(folder, "4242_counter_collection.csv"), {traces.GEMM: MI300X})
    d = report(folder)
    assert d["time"]["timeline"] is True and metrics(d)["occupancy"] == pytest.approx(0.25)
    assert d["counters"]["kernels"][0]["mean_us"] == pytest.approx(d["kernels"][0]["mean_us"])


def test_a_database_has_a_row_for_each_dimension(report, tmp_path):
    path = traces.write_rocpd(traces.training(), str(tmp_path / "1_results.db"))
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE rocpd_info_pmc_0000abcd (id INTEGER PRIMARY KEY, name TEXT, symbol TEXT)")
        db.execute("CREATE TABLE rocpd_pmc_event_0000abcd (id INTEGER PRIMARY KEY, event_id INTEGER, pmc_id INTEGER, value REAL)")
        db.execute("INSERT INTO rocpd_info_pmc_0000abcd VALUES (1, 'TCC_HIT', 'TCC_HIT'), (2, 'TCC_MISS', 'TCC_MISS')")
        for (event,) in db.execute("SELECT event_id FROM rocpd_kernel_dispatch_0000abcd").fetchall():
            for pmc, value in ((1, 3.0), (2, 1.0)):
                db.executemany("INSERT INTO rocpd_pmc_event_0000abcd (event_id, pmc_id, value) VALUES (?, ?, ?)", [(event, pmc, value)] * 4)
    d = report(path)
    assert d["problems"] == [] and all(metrics(d, i)["l2_hit"] == 0.75 for i in range(len(d["counters"]["kernels"])))
    assert d["counters"]["kernels"][0]["counters"] == {"TCC_HIT": 12.0, "TCC_MISS": 4.0}


def test_a_trace_without_counters_has_no_such_part(run, report, tmp_path):
    folder = traces.write_csv(traces.training(), str(tmp_path))
    assert report(folder)["counters"] is None and "Hardware counters" not in run("report", folder).stdout
