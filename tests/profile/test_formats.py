"""`pyflame report` on the rarer formats of AMD's profilers, and on small files that grow without end."""
import gzip
import json
import random

import amd_formats
import pytest
import traces
import xplane_format


@pytest.fixture
def report(run):
    def call(path, *args, **kwargs):
        return json.loads(run("report", path, "--json", *args, **kwargs).stdout)

    return call


def shares(document):
    return {c["name"]: c["us"] for c in document["categories"]}


def test_rocprofv3_json(report, tmp_path):
    path = tmp_path / "1_results.json"
    path.write_text(json.dumps(amd_formats.rocprofv3_json(traces.training(), counters=True)))
    d = report(path)
    assert d["format"] == "rocprofv3 JSON" and d["problems"] == []
    got = shares(d)
    assert {k: got[k] for k in traces.TRAINING} == pytest.approx({k: 3 * v for k, v in traces.TRAINING.items()})
    assert d["device"]["name"] == "AMD Instinct MI300X" and d["device"]["gfx"] == "gfx942" and d["device"]["cus"] == 304
    assert d["time"]["steps"]["count"] == 3 and d["time"]["wall_us"] == pytest.approx(3000)
    assert {g["code"]: g["us"] for g in d["gap_reasons"]}["synchronise"] == pytest.approx(300)
    kernel = d["kernels"][0]
    assert kernel["grid"] == [2048, 1, 1] and kernel["block"] == [256, 1, 1] and kernel["vgpr"] == 68 and kernel["calls"] == 3
    assert kernel["counters"] == {"SQ_WAVES": 101.0}
    copy, = (c for c in d["copies"] if c["kind"] == "copy")
    assert copy["direction"] == "device to host" and copy["bytes"] == 3 * 4096


def test_rocprofv3_json_with_counters_only_has_no_timeline(report, tmp_path):
    path = tmp_path / "1_results.json"
    path.write_text(json.dumps(amd_formats.rocprofv3_json(traces.Run(work=traces.training().work[:2]), counters=True, times=False)))
    d = report(path)
    assert shares(d) == {"GEMM": 300, "elementwise": 100} and d["time"]["timeline"] is False
    assert d["kernels"][0]["counters"] == {"SQ_WAVES": 101.0}


def test_rocprofv3_json_that_was_cut_off(report, run, tmp_path):
    text = json.dumps(amd_formats.rocprofv3_json(traces.training()))
    path = tmp_path / "1_results.json"
    path.write_text(text[:text.index('"hip_api"') - 400])
    d = report(path)
    assert 0 < shares(d)["GEMM"] <= 900 and "cut off" in d["problems"][0]["what"]
    path.write_text('{"rocprofiler-sdk-tool": [{"metadata": ')
    assert "holds no records" in run("report", path, code=1).stderr
    # Numbers that point nowhere, and more nesting than any file has.
    path.write_text('{"rocprofiler-sdk-tool":[{"buffer_records":{"hip_api":[{"kind":-5,"operation":99,"start_timestamp":5,"end_timestamp":9}],'
                    '"kernel_dispatch":[{"start_timestamp":7,"end_timestamp":3},{"start_timestamp":"x"},{"start_timestamp":1,"end_timestamp":3,'
                    '"dispatch_info":{"kernel_id":-1,"agent_id":{"handle":1e99},"workgroup_size":{"x":-3},"grid_size":{"x":9e99}}}]}}]}')
    d = report(path)
    assert d["kernels"][0]["calls"] == 1 and "2 records without a usable time" in d["problems"][0]["what"]
    path.write_text('{"rocprofiler-sdk-tool":' + "[" * 100_000)
    assert "nested too deeply" in run("report", path, code=1).stderr


def test_json_of_the_first_rocprof(report, tmp_path):
    path = tmp_path / "results.json"
    path.write_text(amd_formats.rocprof_v1_json(traces.training()))
    d = report(path, "--gfx", "gfx942")
    assert d["format"] == "rocprof JSON" and d["problems"] == []
    got = shares(d)
    assert {k: got[k] for k in traces.TRAINING} == pytest.approx({k: 3 * v for k, v in traces.TRAINING.items()})
    assert d["time"]["steps"]["count"] == 3 and d["time"]["wall_us"] == pytest.approx(3000)
    assert [c["direction"] for c in d["copies"]] == ["device to host"]


def test_files_of_rocprof_compute(report, tmp_path):
    d = report(amd_formats.write_rocprof_compute(traces.training(), tmp_path))
    assert d["format"] == "rocprof-compute CSV" and d["problems"] == [] and len(d["inputs"]) == 4
    assert d["device"]["gfx"] == "gfx942" and d["device"]["name"] == "AMD Instinct MI300X"
    # Three files measure the same dispatches, which are counted once; passes have no timeline.
    assert shares(d) == {"GEMM": 900, "communication": 600, "attention": 450, "elementwise": 300, "normalisation": 300}
    assert d["time"]["timeline"] is False and d["kernels"][0]["calls"] == 3
    assert d["kernels"][0]["counters"] == {"SQ_WAVES": 8 * (1 + 6 + 11) / 3, "TCC_HIT_sum": 100}
    one = report(tmp_path / "timestamps.csv")
    assert shares(one)["GEMM"] == 900


def packed(path, head, unit, size):
    with gzip.open(path, "wb", compresslevel=9) as f:
        f.write(head)
        for _ in range(size // (1 << 20)):
            f.write(unit * ((1 << 20) // len(unit)))
    return path


@pytest.mark.parametrize("head,unit", [(b'{"traceEvents":[', b" "), (b'{"traceEvents":[{"ph":"M","name":"', b"a"), (b'{"traceEvents":', b"[")])
def test_a_small_file_that_grows_without_end_is_not_read_to_its_end(run, tmp_path, head, unit):
    path = packed(tmp_path / "bomb.json.gz", head, unit, 100 << 20)
    assert path.stat().st_size < 200_000
    assert "grows more than 100 times" in run("report", path, code=1).stderr


def test_events_before_the_bound_are_reported(report, tmp_path):
    event = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":0,"ts":1,"dur":1,"args":{"device":0,"stream":7}},'
    d = report(packed(tmp_path / "bomb.json.gz", b'{"traceEvents":[', event, 80 << 20))
    assert "grows more than 100 times" in d["problems"][0]["what"] and d["kernels"][0]["calls"] > 1000


def test_one_text_without_end_is_not_kept_in_memory(run, tmp_path):
    with open(tmp_path / "t.json", "wb") as f:
        f.write(b'{"traceEvents":[{"ph":"M","name":"')
        f.truncate(90 << 20)  # zeros, which take no room on the disk
    assert "more than 64 MB" in run("report", tmp_path / "t.json", code=1).stderr


def test_profile_of_jax(report, tmp_path):
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(xplane_format.xplane(traces.training()))
    d = report(path)
    assert d["format"] == "XPlane profile" and d["problems"] == []
    got = shares(d)
    assert {k: got[k] for k in traces.TRAINING} == pytest.approx({k: 3 * v for k, v in traces.TRAINING.items()})
    assert d["device"]["name"] == "AMD Instinct MI300X" and d["device"]["gfx"] == "gfx942"
    assert d["time"]["steps"]["count"] == 3 and d["time"]["steps"]["first"] == 2 and d["time"]["wall_us"] == pytest.approx(3000)
    kernel = d["kernels"][0]
    assert kernel["full"] == traces.GEMM and kernel["op"] == "aten::mm" and kernel["grid"] == [2048, 1, 1] and kernel["lds"] == 512
    copy, = (c for c in d["copies"] if c["kind"] == "copy")
    assert copy["direction"] == "device to host" and copy["bytes"] == 3 * 4096


def test_damaged_profiles_of_jax_are_told(run, tmp_path):
    whole, path = xplane_format.xplane(traces.training()), tmp_path / "host.xplane.pb"
    generator = random.Random(5)
    path.write_bytes(whole[:-300])  # in the plane of the host
    assert "cut off or damaged" in json.loads(run("report", path, "--json").stdout)["problems"][0]["what"]
    path.write_bytes(whole[:60])
    assert "holds no events" in run("report", path, code=1).stderr
    for _ in range(40):
        data = bytearray(whole)
        for _ in range(generator.randrange(1, 60)):
            data[generator.randrange(40, len(data))] = generator.randrange(256)
        path.write_bytes(data)
        result = run("report", path, "--json", code=None)
        assert result.returncode in (0, 1) and (result.returncode == 1 or json.loads(result.stdout))
