"""`pyflame report` on synthetic runs with known answers, in each profiler's format, and on what is not a profile."""
import gzip
import json
import re
import os
import random
import sqlite3

import pytest
import traces


def write(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def shares(document):
    return {c["name"]: c["us"] for c in document["categories"]}


def advice(document):
    return {a["id"] for a in document["advice"]}


FORMATS = {
    "kineto": lambda run_, folder: traces.write_kineto(run_, str(folder / "trace.json")),
    "kineto gzip": lambda run_, folder: traces.write_kineto(run_, str(folder / "trace.pt.trace.json.gz")),
    "csv": lambda run_, folder: (traces.write_csv(run_, str(folder)), str(folder))[1],
    "rocpd": lambda run_, folder: traces.write_rocpd(run_, str(folder / "1_results.db")),
    "rocpd 4": lambda run_, folder: traces.write_rocpd(run_, str(folder / "1_results.db"), tracks=True),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_the_same_run_has_the_same_answers_in_each_format(report, tmp_path, kind):
    d = report(FORMATS[kind](traces.training(), tmp_path))
    assert d["schema"] == "pyflame.report/1"
    got = shares(d)
    assert {k: got[k] for k in traces.TRAINING} == pytest.approx({k: 3 * v for k, v in traces.TRAINING.items()})
    assert d["time"]["wall_us"] == pytest.approx(3000)
    assert got["launch-bound"] == pytest.approx(150) and got["idle"] == pytest.approx(570)
    assert sum(c["share"] for c in d["categories"]) == pytest.approx(1, abs=1e-6)
    assert d["time"]["steps"] | {"first_us": 0} == {"by": "annotation", "count": 3, "first": 2, "last": 4, "first_us": 0, "median_us": 1000, "name": "ProfilerStep", "spread": 0}
    assert d["device"]["name"] == "AMD Instinct MI300X" and d["device"]["gfx"] == "gfx942" and d["device"]["peaks"]["bandwidth_gbs"] > 5000
    reasons = {g["code"]: g["us"] for g in d["gap_reasons"]}
    assert reasons["synchronise"] == pytest.approx(300) and reasons["data_loading"] == pytest.approx(270)
    # Only PyTorch's traces have operators: without them it is Python, as far as the file says.
    assert reasons["launching" if "kineto" in kind else "python"] == pytest.approx(150)
    assert d["communication"]["exposed_us"] == pytest.approx(300) and d["communication"]["overlapped_us"] == pytest.approx(300)
    assert d["verdict"].startswith("Matrix products take the most time: 30.0 % of the step") and d["problems"] == []
    assert {"data-loading", "host-sync", "exposed-communication", "gemm"} <= advice(d)
    kernel = d["kernels"][0]
    assert kernel["name"] == "Cijk_Alik_Bljk_BBS_BH MT256x256x64 MI16x16x1" and kernel["calls"] == 3
    assert kernel["grid"] == [2048, 1, 1] and kernel["block"] == [256, 1, 1] and kernel["mean_us"] == 300
    copy = [c for c in d["copies"] if c["kind"] == "copy"]
    assert len(copy) == 1 and copy[0]["direction"] == "device to host" and copy[0]["calls"] == 3


def test_sizes_give_a_roofline(report, tmp_path):
    d = report(traces.write_kineto(traces.training(), str(tmp_path / "t.json")))
    kernels = {k["name"]: k["roofline"] for k in d["kernels"]}
    gemm = kernels["Cijk_Alik_Bljk_BBS_BH MT256x256x64 MI16x16x1"]
    assert gemm["flops"] == 3 * 2 * 4096**3 and gemm["bytes"] == 3 * 2 * 3 * 4096**2
    assert gemm["tflops"] == pytest.approx(2 * 4096**3 / 300e-6 / 1e12, rel=1e-3) and gemm["bound"] == "compute" and gemm["dtype"] == "bf16"
    peak = d["device"]["peaks"]["bf16_tflops"]
    assert gemm["of_peak"] == pytest.approx(gemm["tflops"] / peak, rel=1e-3)
    add = kernels["vectorized_elementwise_kernel [CUDAFunctor_add]"]
    assert add["bytes"] == 3 * 3 * 4 * 4096**2 and add["bound"] == "memory"
    attention = next(v for k, v in kernels.items() if "FmhaFwd" in k)
    assert attention["flops"] == 3 * 4 * 4 * 16 * 1024 * 1024 * 128
    assert kernels["ncclDevKernel_Generic_1"] is None


def test_collectives_have_bytes_and_ranks(report, tmp_path):
    c = report(traces.write_kineto(traces.training(), str(tmp_path / "t.json")))["communication"]["collectives"]
    assert c == [{"name": "allreduce", "calls": 3, "us": 600, "bytes": 3 * 2 * (1 << 20), "gbs": pytest.approx(3 * 2 * (1 << 20) / 600e-6 / 1e9, abs=1e-3), "ranks": 8}]


def test_steps_are_chosen(report, run, tmp_path):
    path = traces.write_kineto(traces.training(steps=5), str(tmp_path / "t.json"))
    d = report(path, "--steps", "3:4")
    assert d["time"]["steps"]["count"] == 2 and d["time"]["wall_us"] == pytest.approx(2000)
    assert report(path, "--steps", "6")["time"]["steps"]["count"] == 1
    assert "numbers from 2 to 6" in run("report", path, "--steps", "20:30", code=1).stderr
    assert "expected FIRST:LAST" in run("report", path, "--steps", "a:b", code=1).stderr
    assert "ends before it begins" in run("report", path, "--steps", "5:3", code=1).stderr


def test_steps_are_found_by_repetition(report, tmp_path):
    d = report(traces.write_rocpd(traces.training(steps=6, with_steps=False), str(tmp_path / "r.db")))
    steps = d["time"]["steps"]
    assert steps["by"] == "repetition" and steps["count"] in (5, 6) and steps["median_us"] == pytest.approx(1000)


def test_without_steps_the_whole_is_reported(report, tmp_path):
    r = traces.Run(work=[traces.Work(traces.GEMM, 0, 100), traces.Work(traces.ADD, 100, 50)])
    d = report(traces.write_kineto(r, str(tmp_path / "t.json")))
    assert d["time"]["steps"] is None and d["time"]["wall_us"] == 150 and d["time"]["idle_us"] == 0 and d["gaps"] == []


def test_many_small_kernels_are_launch_bound(report, tmp_path):
    work = [traces.Work(traces.ADD, i * 12, 3, launched=i * 12 - 9, launch_length=9, op="aten::add") for i in range(500)]
    d = report(traces.write_kineto(traces.Run(work=work), str(tmp_path / "t.json")))
    assert d["verdict"].startswith("The device waits for the CPU's launches: 7") and "launch-bound" in advice(d)
    assert d["signals"]["shorter_than_launch"] == 500
    # The same kernels back to back are not.
    work = [traces.Work(traces.ADD, i * 3, 3, launched=i - 600, launch_length=1, op="aten::add") for i in range(500)]
    d = report(traces.write_kineto(traces.Run(work=work), str(tmp_path / "t.json")))
    assert "launch-bound" not in advice(d) and d["time"]["gpu_busy_us"] == pytest.approx(1500)


def one(name, length=1000, **kwargs):
    """A run in which one kernel takes 90 %, and a GEMM the rest."""
    return traces.Run(work=[traces.Work(name, 0, length, **kwargs), traces.Work(traces.GEMM, length, length / 9)])


FLOAT32 = "Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x2x1_SN"


@pytest.mark.parametrize("first, second, ids", [(FLOAT32, traces.ALL_REDUCE, ["fp32-gemm", "exposed-communication"]),
                                                (traces.ALL_REDUCE, FLOAT32, ["exposed-communication", "fp32-gemm"])])
def test_of_equally_severe_findings_the_larger_share_comes_first(report, tmp_path, first, second, ids):
    run = traces.Run(work=[traces.Work(first, 0, 600), traces.Work(second, 600, 400)])
    found = [a["id"] for a in report(traces.write_kineto(run, str(tmp_path / "a.json")))["advice"]]
    assert [i for i in found if i in ids] == ids


@pytest.mark.parametrize("rule,fires,quiet", [
    ("naive-convolution", one("naive_conv_ab_nonpacked_fwd_nchw_half_double_half"), one("miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_edc_stride1")),
    ("convolution", one("igemm_fwd_gtcx3_nhwc_fp16_bx0_ex1_bt256x128x32"), one(traces.ADD)),
    ("layout", one("batched_transpose_32x32_half"), one(traces.ADD)),
    ("gemm", one(traces.GEMM), one(traces.ADD)),
    ("gemm", one(traces.GEMM, launched=-9, op="aten::mm"), one(traces.GEMM, launched=-9, op="aiter::hipb_gemm")),
    ("gemm", one(traces.GEMM), one("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu")),
    ("other-gemm", one("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu"), one(traces.GEMM)),
    ("other-gemm", one("_ZN5aiter32fmoe_bf16_pertokenFp8_g1u1_silu_1tg_32x256E"), one(traces.ADD)),
    ("eager-kernels", one(traces.ADD), one("triton_poi_fused_add_mul_0")),
    ("triton", one("triton_poi_fused_add_mul_0"), one(traces.ADD)),
    ("exposed-communication", one(traces.ALL_REDUCE), one(traces.ADD)),
    ("narrow-grids", one(traces.ADD, grid=(100, 1, 1)), one(traces.ADD, grid=(4096, 1, 1))),
    ("narrow-grids", one(traces.ADD, grid=(19, 8, 1)), one(traces.ADD, grid=(296, 1, 1))),  # persistent kernels on 304 units
    ("narrow-grids", one(traces.ADD, grid=(64, 1, 1)), one(traces.ADD, grid=(304, 1, 1))),
    ("narrow-grids", one(traces.ADD, grid=(1, 1, 1)), one(traces.ADD, grid=(608, 1, 1))),
    ("fp32-gemm", one("Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x2x1_SN"), one(traces.GEMM)),
    ("attention", one(traces.ATTENTION), one(traces.ADD)),
    ("math-attention", one("void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>(float*, float const*, int)"),
     one(traces.ATTENTION)),
])
def test_each_rule_fires_and_does_not(report, tmp_path, rule, fires, quiet):
    assert rule in advice(report(traces.write_kineto(fires, str(tmp_path / "a.json"))))
    assert rule not in advice(report(traces.write_kineto(quiet, str(tmp_path / "b.json"))))


@pytest.mark.parametrize("kernel,next_step", [
    (traces.GEMM, "tune them (TunableOp), and try a lower precision"),
    ("Cijk_Alik_Bljk_F8BS_BH_Bias_HA_S_SAV_MT256x256x64_MI16x16x1_SN", "tune them (TunableOp)"),
    ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu", "autotune these Triton kernels for their sizes"),
    ("_ZN5aiter32fmoe_bf16_pertokenFp8_g1u1_silu_1tg_32x256E", "look for their sizes in aiter's tuned tables"),
])
def test_who_made_the_products_decides_what_helps(report, tmp_path, kernel, next_step):
    d = report(traces.write_kineto(one(kernel, 10000), str(tmp_path / "t.json")))
    assert d["verdict"].startswith("Matrix products take the most time") and d["verdict"].endswith(f"Next: {next_step}.")


def test_the_module_around_a_launch_tells_what_no_name_does(report, tmp_path):
    def category(*frames):
        t = traces.kineto(one("kernel_17(float*)", launched=-9))
        call = next(e for e in t["traceEvents"] if e["cat"] == "cuda_runtime")
        for i, name in enumerate(frames):
            t["traceEvents"].append({"ph": "X", "cat": "python_function", "name": name, "pid": call["pid"], "tid": call["tid"],
                                     "ts": call["ts"] - 50 + i, "dur": 100 - 2 * i, "args": {}})
        return report(write(tmp_path / "t.json", t))["kernels"][0]["category"]

    assert category() == "other" and category("nn.Module: Decoder_0") == "other"
    assert category("nn.Module: Decoder_0", "nn.Module: LlamaRMSNorm_3") == "normalisation"
    assert category("nn.Module: LlamaAttention_3", "nn.Module: Rotary_0") == "elementwise"
    # A folder says nothing of the kernels in it.
    assert category("layers/quantization/run.py(7): forward") == "other"


def test_tunable_op_is_not_advised_where_it_runs(report, run, tmp_path):
    trace = traces.write_kineto(one(traces.GEMM), str(tmp_path / "t.json"))
    results = write(tmp_path / "tunableop_results0.csv", "Validator,PT_VERSION,2.6.0\nGemmTunableOp_BFloat16_TN,tn_64_512_4096,Gemm_Hipblaslt_12,0.05\n")
    assert "gemm" in advice(report(trace))
    d = json.loads(run("report", trace, results, "--json").stdout)
    assert "gemm" not in advice(d) and "TunableOp" not in d["verdict"]
    # One operator that runs many products: they are being tried out.
    work = [traces.Work(traces.GEMM.replace("MT256", f"MT{16 * i}"), i * 100, 100, launched=i - 50, launch_length=0.5) for i in range(1, 40)]
    tried = traces.Run(work=work, cpu=[traces.Cpu("aten::mm", -60, 60)])
    assert "gemm" not in advice(report(traces.write_kineto(tried, str(tmp_path / "tried.json"))))


def test_kernels_that_are_compiled_are_not_to_be_compiled(report, tmp_path):
    d = report(traces.write_kineto(one("triton_poi_fused_add_mul_0"), str(tmp_path / "t.json")))
    assert "compiled already" in d["verdict"]


def test_math_attention_on_radeon_names_the_variable(report, tmp_path):
    softmax = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>(float*, float const*, int)"
    path = traces.write_kineto(one(softmax), str(tmp_path / "t.json"), device_properties=False)
    d = report(path, "--gfx", "gfx1100")
    found = [a for a in d["advice"] if a["id"] == "math-attention-rdna"]
    assert found and "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1" in found[0]["command"] and "math-attention" not in advice(d)
    assert "math-attention-rdna" not in advice(report(path, "--gfx", "gfx942"))


def test_advice_for_another_vendor_names_no_software_of_amd(report, tmp_path):
    amd = re.compile(r"ROCm|rocprof|MIOPEN|MI300X|RDNA|Radeon|waves_per_eu|aiter|pyflame (doctor|inspect)")
    products = "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x128_32x5_tn_align8>(Params)"
    for kernel in (products, "volta_scudnn_128x64_relu_interior_nn_v1", "taylor_base(float*)"):
        path = traces.write_kineto(one(kernel, 10000), str(tmp_path / "t.json"), device_properties=False)
        assert not re.search("TunableOp|MIOpen|pyflame", report(path, "--gfx", "sm_90")["verdict"])
    for kernel in (traces.ALL_REDUCE, "triton_poi_fused_add_mul_0", traces.ADD, "Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x2x1_SN"):
        path = traces.write_kineto(one(kernel), str(tmp_path / "t.json"), device_properties=False)
        texts = {gfx: [text for a in report(path, "--gfx", gfx)["advice"] for text in (*a["do"], a["command"] or "")] for gfx in ("gfx942", "sm_90")}
        assert texts["sm_90"] and not [t for t in texts["sm_90"] if amd.search(t)]
        assert kernel == traces.ADD or [t for t in texts["gfx942"] if amd.search(t)]


def device_of(report, path, **properties):
    t = traces.kineto(one(properties.pop("kernel", traces.ADD)))
    t["deviceProperties"][0].update({"name": "", "warpSize": 64, **properties})
    return report(write(path, t))["device"]


@pytest.mark.parametrize("product,properties", [
    ("AMD Instinct MI300X", {"computeMajor": 9, "computeMinor": 4, "numSms": 304, "totalGlobalMem": 206141652992}),
    ("AMD Instinct MI300X", {"name": "AMD Instinct MI300X OAM", "computeMajor": 9, "computeMinor": 4, "numSms": 304}),
    ("AMD Instinct MI325X", {"computeMajor": 9, "computeMinor": 4, "numSms": 304, "totalGlobalMem": 274861129728}),
    ("AMD Instinct MI300A", {"computeMajor": 9, "computeMinor": 4, "numSms": 228, "totalGlobalMem": 137438953472}),
    ("AMD Instinct MI350X", {"computeMajor": 9, "computeMinor": 5, "numSms": 256, "totalGlobalMem": 309220868096}),
    ("AMD Instinct MI210", {"name": "AMD Instinct MI210", "computeMajor": 9, "computeMinor": 0, "numSms": 104, "totalGlobalMem": 68702699520}),
    # HIP counts pairs of compute units, and calls every Radeon the same.
    ("AMD Radeon RX 7900 XTX", {"name": "AMD Radeon Graphics", "computeMajor": 11, "computeMinor": 0, "numSms": 48, "totalGlobalMem": 25753026560, "warpSize": 32}),
    ("NVIDIA A100-SXM4-40GB", {"name": "NVIDIA A100-PG509-200", "computeMajor": 8, "computeMinor": 0, "numSms": 108, "totalGlobalMem": 42505273344, "warpSize": 32}),
    ("NVIDIA H100 80GB HBM3", {"name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0, "numSms": 132, "totalGlobalMem": 85029158912, "warpSize": 32}),
    ("NVIDIA L4", {"name": "NVIDIA L4", "computeMajor": 8, "computeMinor": 9, "numSms": 58, "totalGlobalMem": 23570481152, "warpSize": 32}),
])
def test_devices_are_known_by_name_or_numbers(report, tmp_path, product, properties):
    d = device_of(report, tmp_path / "t.json", **properties)
    assert d["peaks"]["product"] == product and d["amd"] == product.startswith("AMD")


@pytest.mark.parametrize("properties", [
    # No product that is known: a roofline of another one would be wrong.
    {"name": "NVIDIA A10G", "computeMajor": 8, "computeMinor": 6, "numSms": 80, "totalGlobalMem": 23609475072, "warpSize": 32},
    {"name": "NVIDIA H100 NVL", "computeMajor": 9, "computeMinor": 0, "numSms": 132, "totalGlobalMem": 100500000000, "warpSize": 32},
    {"name": "NVIDIA GH200 480GB", "computeMajor": 9, "computeMinor": 0, "numSms": 132, "totalGlobalMem": 101536759808, "warpSize": 32},
    # A part of a device
    {"name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "numSms": 38, "totalGlobalMem": 206141652992},
    {"name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "computeMajor": 9, "computeMinor": 0, "numSms": 16, "totalGlobalMem": 10200547328, "warpSize": 32},
])
def test_another_device_has_no_roofline(report, tmp_path, properties):
    d = device_of(report, tmp_path / "t.json", **properties)
    assert d["peaks"] is None and d["name"] == properties["name"] and d["amd"] == ("AMD" in properties["name"])


def test_the_vendor_without_a_name(report, tmp_path):
    unnamed = {"name": "", "computeMajor": 9, "computeMinor": 0, "numSms": 132, "totalGlobalMem": 85029158912, "warpSize": 32}
    assert not device_of(report, tmp_path / "t.json", kernel="nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT", **unnamed)["amd"]
    calls = traces.Run(work=[traces.Work(traces.ADD, 0, 100, launched=-9, call="cudaLaunchKernel")])
    t = traces.kineto(calls)
    t["deviceProperties"][0].update(unnamed)
    d = report(write(tmp_path / "t.json", t))["device"]
    assert d["name"] == "NVIDIA H100 80GB HBM3" and d["gfx"] == "sm_90"


def test_gaps_by_cause(report, tmp_path):
    def gap_of(*cpu, call="hipLaunchKernel", launched=395, before=()):
        work = [traces.Work(traces.ADD, 0, 100, launched=-10), *before, traces.Work(traces.ADD, 400, 100, launched=launched, call=call)]
        d = report(traces.write_kineto(traces.Run(work=work, cpu=list(cpu)), str(tmp_path / "t.json")))
        return d["gap_reasons"][0]["code"], advice(d)

    C = traces.Cpu
    assert gap_of(C("hipMalloc", 110, 250, "call")) == ("allocation", {"allocation"} | gap_of(C("hipMalloc", 110, 250, "call"))[1])
    assert gap_of(C("hipModuleLoadData", 110, 250, "call"))[0] == "loading"
    assert gap_of(C("hiprtcCompileProgram", 110, 250, "call"))[0] == "compilation"
    assert gap_of(C("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 90, 290, "annotation"))[0] == "data_loading"
    assert gap_of(C("hipDeviceSynchronize", 10, 95, "call"))[0] == "synchronise"
    copy = traces.Work("Memcpy DtoH (Device -> Pageable)", 100, 2, kind="copy", direction="DtoH", bytes=4, launched=20, call="hipMemcpyWithStream")
    assert gap_of(C("hipStreamSynchronize", 30, 75, "call"), before=[copy])[0] == "copy_to_host"
    assert gap_of(C("aten::many", 90, 300))[0] == "launching"
    assert gap_of()[0] == "python"
    assert gap_of(launched=5)[0] == "dependency"  # it was in the queue all the time


def copy_run(memory):
    return traces.Run(work=[traces.Work(traces.ADD, 0, 900), traces.Work(f"Memcpy HtoD ({memory} -> Device)", 900, 100, kind="copy", direction="HtoD", bytes=10**6)])


def ranks_run(n):
    return traces.Run(work=[traces.Work(traces.ADD, 0, 500),
                            traces.Work(traces.ALL_REDUCE, 500, 100, extra={"Collective name": "allreduce", "In msg nelems": 1024, "dtype": "Float", "Group size": n})])


def two_kernels(gap, *cpu):
    return traces.Run(work=[traces.Work(traces.ADD, 0, 100, launched=-10), traces.Work(traces.ADD, 100 + gap, 100, launched=95 + gap)], cpu=list(cpu))


def uneven_steps(lengths):
    run, at = traces.Run(), 0
    for i, length in enumerate(lengths):
        run.work.append(traces.Work(traces.ADD, at, length))
        run.cpu.append(traces.Cpu(f"ProfilerStep#{i}", at, length, kind="annotation"))
        at += length
    return run


@pytest.mark.parametrize("rule,fires,quiet", [
    ("pageable-copies", copy_run("Pageable"), copy_run("Pinned")),
    ("partial-node", ranks_run(4), ranks_run(8)),
    ("compilation", two_kernels(300, traces.Cpu("hiprtcCompileProgram", 105, 280, "call")), two_kernels(300)),
    ("code-loading", two_kernels(300, traces.Cpu("hipModuleLoadData", 105, 280, "call")), two_kernels(300)),
    ("host-code", two_kernels(3000, traces.Cpu("app.py(3): prepare", 105, 2980, "python")), two_kernels(300, traces.Cpu("app.py(3): prepare", 105, 280, "python"))),
    ("queue-wait", traces.Run(work=[traces.Work(traces.ADD, 0, 100, launched=-10), traces.Work(traces.ADD, 500, 100, launched=5)]), two_kernels(300)),
    ("unrecorded-work", two_kernels(3000, traces.Cpu("hipStreamSynchronize", 105, 2980, "call")), two_kernels(300)),
    ("allocation", two_kernels(300, traces.Cpu("hipMalloc", 105, 280, "call")), two_kernels(300)),
    ("data-loading", two_kernels(300, traces.Cpu("enumerate(DataLoader)#_X.__next__", 105, 280, "annotation")), two_kernels(300)),
    ("host-sync", two_kernels(300, traces.Cpu("hipDeviceSynchronize", 10, 95, "call")), two_kernels(300)),
    ("unsteady-steps", uneven_steps([3000, 1000, 1000, 1000]), uneven_steps([1000, 1010, 1000, 990])),
    ("idle-unknown", traces.Run(work=[traces.Work(traces.ADD, 0, 100), traces.Work(traces.ADD, 500, 100)]), two_kernels(20)),
])
def test_each_rule_about_time_fires_and_does_not(report, tmp_path, rule, fires, quiet):
    assert rule in advice(report(traces.write_kineto(fires, str(tmp_path / "a.json"))))
    assert rule not in advice(report(traces.write_kineto(quiet, str(tmp_path / "b.json"))))


def steps_that_wait(call, first):
    """Four steps of 1,000 us. In each the device waits for 700 us while the CPU is in a call."""
    run = traces.Run()
    for i in range(4):
        t = i * 1000
        run.work += [traces.Work(traces.ADD, t, 100, launched=t), traces.Work(traces.ADD, t + 800, 200, launched=t + 795)]
        run.cpu += [traces.Cpu(f"ProfilerStep#{first + i}", t, 1000, kind="annotation"), traces.Cpu(call, t + 105, 680, "call")]
    return run


@pytest.mark.parametrize("call,rule,because", [("hiprtcCompileProgram", "compilation", "code is compiled"), ("hipModuleLoadData", "code-loading", "code is loaded")])
def test_a_recording_after_a_warm_up_is_not_told_to_warm_up(report, tmp_path, call, rule, because):
    def of(first):
        return report(traces.write_kineto(steps_that_wait(call, first), str(tmp_path / "t.json")))

    early, late = of(0), of(4)  # no schedule, and schedule(wait=1, warmup=3, active=4)
    assert rule in advice(early) and "new-code" not in advice(early)
    assert because in early["verdict"] and "record after a warm-up of several steps" in early["verdict"]
    assert "new-code" in advice(late) and rule not in advice(late)
    assert because in late["verdict"] and "find out what is new in these steps" in late["verdict"] and "warm-up" not in late["verdict"]
    assert [g["warm"] for first in (0, 1, 2, 3) for g in of(first)["gap_reasons"]] == pytest.approx([0.25, 0.5, 0.75, 1])  # the part of the time after three steps


def test_rules_about_scratch_and_the_profiler_itself(report, tmp_path):
    for scratch in (0, 64):
        folder = traces.write_csv(traces.Run(work=[traces.Work(traces.ADD, 0, 100, scratch=scratch)]), str(tmp_path / str(scratch)))
        assert ("scratch" in advice(report(folder))) == (scratch > 0)
    t = traces.kineto(traces.training())
    assert "profiler-overhead" not in advice(report(write(tmp_path / "t.json", t)))
    t["traceEvents"].append({"ph": "X", "cat": "python_function", "name": "train.py(3): step", "pid": 1, "tid": 1, "ts": traces.BASE_NS / 1000, "dur": 5, "args": {}})
    assert "profiler-overhead" in advice(report(write(tmp_path / "t.json", t)))


def test_counters_and_old_headers(report, tmp_path):
    folder = traces.write_csv(traces.training(with_steps=False), str(tmp_path), columns=traces.OLD_KERNEL_COLUMNS, agent="{}")
    with open(os.path.join(folder, "4242_counter_collection.csv"), "w") as f:
        f.write('"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Id","Kernel_Name","Workgroup_Size",'
                '"LDS_Block_Size","Scratch_Size","VGPR_Count","SGPR_Count","Counter_Name","Counter_Value"\n')
        for i in range(3):
            f.write(f'1,{i},1,1,1,1,524288,1,"{traces.GEMM}",256,0,0,64,32,"SQ_WAVES",{100 + i}.0\n')
    d = report(folder)
    assert shares(d)["GEMM"] == pytest.approx(900) and d["problems"] == []
    assert d["kernels"][0]["counters"] == {"SQ_WAVES": 101.0} and d["kernels"][0]["grid"] == [2048, 1, 1]


def test_statistics_alone(report, tmp_path):
    path = write(tmp_path / "1_kernel_stats.csv", '"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"\n'
                 f'"{traces.GEMM}",10,9000000,900000.0,90.0,800000,1000000,5.0\n"{traces.ADD}",5,1000000,200000.0,10.0,1,2,3\n"hipLaunchKernel",15,100,1,1,1,1,1\n')
    d = report(path)
    assert shares(d) == {"GEMM": 9000, "elementwise": 1000} and d["time"]["timeline"] is False and "statistics-only" in advice(d)
    assert d["kernels"][0]["share"] == pytest.approx(0.9) and d["verdict"].startswith("Matrix products take the most time: 90.0 % of the kernels' time")


def test_first_rocprof(report, tmp_path):
    path = write(tmp_path / "results.csv", '"Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","grd","wgr","lds","scr","arch_vgpr","accum_vgpr","sgpr",'
                 '"wave_size","sig","obj","DispatchNs","BeginNs","EndNs","CompleteNs","DurationNs"\n'
                 f'0,"{traces.GEMM}.kd",4,0,0,1,1,524288,256,0,0,64,0,32,64,0x0,0x1,1000,2000,302000,302500,300000\n')
    d = report(path)
    assert d["format"] == "rocprof CSV" and shares(d)["GEMM"] == 300 and d["kernels"][0]["grid"] == [2048, 1, 1]
    assert d["kernels"][0]["name"] == "Cijk_Alik_Bljk_BBS_BH MT256x256x64 MI16x16x1"


def test_a_trace_that_was_cut_off_gives_what_is_there(report, tmp_path):
    text = json.dumps(traces.kineto(traces.training(steps=4)))
    for cut in (len(text) - 1, len(text) // 2, len(text) * 9 // 10):
        d = report(write(tmp_path / "cut.json", text[:cut]))
        assert shares(d)["GEMM"] >= 300
        assert any("before it are reported" in p["what"] for p in d["problems"])
    packed = gzip.compress(text.encode())
    (tmp_path / "cut.json.gz").write_bytes(packed[: len(packed) * 3 // 4])
    d = report(tmp_path / "cut.json.gz")
    assert any("ends early" in p["what"] for p in d["problems"]) and d["kernels"]


def test_json_that_is_not_quite_json(report, tmp_path):
    text = json.dumps(traces.kineto(traces.training()))
    broken = text.replace('"memory bandwidth (GB/s)": 0.0004096', '"memory bandwidth (GB/s)": inf', 1).replace("slow_op", "slow\x01op", 1)
    assert broken != text
    (tmp_path / "t.json").write_bytes(broken.encode().replace(b"DataLoader", b"\xff\xfeDataLoader", 1))
    d = report(tmp_path / "t.json")
    assert shares(d)["GEMM"] == 900 and any("were repaired" in p["what"] for p in d["problems"])


def test_an_array_of_events_is_a_trace_too(report, tmp_path):
    events = traces.kineto(traces.training())["traceEvents"]
    assert shares(report(write(tmp_path / "t.json", events)))["GEMM"] == 900


HOSTILE = [
    '{"traceEvents": [' + "[" * 200_000,
    '{"traceEvents": [{"ph":"X","cat":"kernel","name":"k","ts":1e300,"dur":1,"args":{}},{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":-5}]}',
    '{"traceEvents": [{"ph":"X","cat":"kernel","name":"k","ts":"soon","dur":{}, "args":[[[1]]]}, 5, null, [], {"ph":5}]}',
    '{"traceEvents": [{"ph":"X","cat":"kernel","name":"k","ts":4000000000000000,"dur":4000000000000000,"args":{"grid":[99999999999,-1,1.5],"block":[0,0,0,0],'
    '"correlation":-1,"External id":-7,"stream":99999999999}},{"ph":"X","cat":"kernel","name":"k2","ts":-4000000000000000,"dur":1}]}',
    '{"traceEvents": {}}', '{"traceEvents": 1}', '{"schemaVersion":1}', '[]', '[{"ph":"X"}]',
    '{"deviceProperties": [' + '{"id":99999999999999999999,"name":"' + "x" * 10_000 + '"},' * 3 + '{}], "traceEvents": []}',
    '{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"aten::mm","ts":1,"dur":1,"args":{"External id":1,"Input Dims":' + "[" * 3000 + "]" * 3000 +
    '}},{"ph":"X","cat":"kernel","name":"Cijk_","ts":1,"dur":1,"args":{"External id":1}}]}',
]


@pytest.mark.parametrize("content", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_traces_are_an_answer_or_a_message(run, tmp_path, content):
    r = run("report", write(tmp_path / "t.json", content), "--json", code=None)
    assert r.returncode in (0, 1)
    if r.returncode == 1:
        assert r.stderr.startswith("pyflame: report:") and r.stderr.count("\n") == 1
    else:
        d = json.loads(r.stdout)
        assert 0 <= sum(c["share"] for c in d["categories"]) <= 1.000001


def test_terminal_codes_in_names_do_not_reach_the_terminal(run, tmp_path):
    r = traces.Run(work=[traces.Work("evil\x1b[31mkernel\x07", 0, 10), traces.Work("after\u202egnp", 10, 5)])
    out = run("report", traces.write_kineto(r, str(tmp_path / "t.json"))).stdout
    assert "\x1b" not in out and "\x07" not in out


def test_what_is_no_profile_is_told(run, tmp_path):
    def message(name, content):
        path = tmp_path / name
        path.write_bytes(content)
        return run("report", path, code=1).stderr

    assert "unknown format" in message("a.txt", b"hello world\n")
    assert "empty file" in message("b.json", b"")
    assert "holds no records" in message("c.json", b'{"rocprofiler-sdk-tool": [{"metadata": {}}]}')
    assert "ui.perfetto.dev" in message("d.pftrace", b"\x0a\x05\x00\x00\x00\x00\x01")
    assert ".xplane.pb beside it" in message("j.json", b'{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},"traceEvents":[{"ph":"M","pid":1,'
                                             b'"name":"process_name","args":{"name":"/device:GPU:0"}}]}')
    assert "OTF2" in message("e.otf2", b"OTF2xxxx")
    assert f"report: the path does not exist; got '{tmp_path / 'none'}'; expected a trace, a tuning file, or a folder of them\n" in run("report", tmp_path / "none", code=1).stderr
    (tmp_path / "folder").mkdir()
    assert "no file of a known format" in run("report", tmp_path / "folder", code=1).stderr
    db = sqlite3.connect(tmp_path / "other.db")
    db.executescript("CREATE TABLE rocpd_nothing (id INTEGER); INSERT INTO rocpd_nothing VALUES (1);")
    db.close()
    assert "not of rocprofv3" in run("report", tmp_path / "other.db", code=1).stderr
    assert "--gfx: unknown architecture; got gfx12345" in run("report", traces.write_kineto(traces.training(), str(tmp_path / "t.json")), "--gfx", "gfx12345", code=1).stderr


def test_a_second_trace_is_not_mixed_in(report, tmp_path):
    for name in ("a.json", "b.json"):
        traces.write_kineto(traces.training(), str(tmp_path / name))
    d = report(tmp_path)
    assert shares(d)["GEMM"] == 900 and any("got a second trace" in p["what"] for p in d["problems"])


def test_several_devices(report, run, tmp_path):
    r = traces.training()
    r.work += [traces.Work(traces.ADD, 0, 30, device=1)]
    path = traces.write_kineto(r, str(tmp_path / "t.json"))
    assert report(path)["device"]["with_work"] == [0, 1] and shares(report(path, "--device", 1))["elementwise"] == 30
    assert "no work in this profile; got 7" in run("report", path, "--device", 7, code=1).stderr


def test_processes_of_one_run_do_not_mix_their_numbers(report, tmp_path):
    # Two processes with the same correlation numbers: the launches of the second come 350 us earlier relative to its kernels.
    for pid, launched in ((1, 390), (2, 40)):
        r = traces.Run(work=[traces.Work(traces.ADD, 0, 100, launched=-10), traces.Work(traces.ADD, 400, 100, launched=launched)])
        traces.write_csv(r, str(tmp_path), pid=pid, agent="Agent " + str(pid))
    assert report(tmp_path, "--device", 1)["gap_reasons"][0]["code"] == "python"
    assert report(tmp_path, "--device", 2)["gap_reasons"][0]["code"] == "dependency"
    assert len(report(tmp_path)["inputs"]) == 10


def test_a_watchdog_that_waits_is_no_reason(report, tmp_path):
    work = [traces.Work(traces.ADD, 0, 100, launched=-10), traces.Work(traces.ADD, 400, 100, launched=395)]
    t = traces.kineto(traces.Run(work=work))
    t["traceEvents"].append({"ph": "X", "cat": "cuda_runtime", "name": "hipEventSynchronize", "pid": 4242, "tid": 99, "ts": traces.BASE_NS / 1000 + 10,
                             "dur": 100, "args": {"correlation": 5}})
    assert report(write(tmp_path / "t.json", t))["gap_reasons"][0]["code"] == "python"


def test_one_launch_of_a_graph_is_not_each_kernels(report, tmp_path):
    t = traces.kineto(traces.Run(work=[traces.Work(traces.ADD, i * 5, 5) for i in range(20)]))
    for e in t["traceEvents"]:
        e["args"]["correlation"] = 77
    t["traceEvents"].append({"ph": "X", "cat": "cuda_runtime", "name": "hipGraphLaunch", "pid": 1, "tid": 1, "ts": traces.BASE_NS / 1000 - 60, "dur": 50,
                             "args": {"correlation": 77}})
    d = report(write(tmp_path / "t.json", t))
    assert d["signals"]["shorter_than_launch"] == 0 and d["time"]["idle_us"] == 0


def test_the_timeline_is_bounded(report, tmp_path):
    work = [traces.Work(traces.ADD, i * 4, 3, stream=i % 3) for i in range(25_000)]
    d = report(traces.write_kineto(traces.Run(work=work), str(tmp_path / "t.json")))
    events = sum(len(t["events"]) for t in d["timeline"]["tracks"])
    assert 100 < events <= 20_000 and d["timeline"]["merged"] and len(d["timeline"]["tracks"]) == 3
    # Time is not lost by merging.
    assert sum(e[1] for t in d["timeline"]["tracks"] for e in t["events"]) == pytest.approx(75_000)


def test_text_and_page(run, tmp_path):
    page = tmp_path / "page.html"
    out = run("report", traces.write_kineto(traces.training(), str(tmp_path / "t.json")), "--html", page, "--top", 2).stdout
    for expected in ("Matrix products take the most time", "Where the time goes", "Why the device waits", "What to do", "PYTORCH_TUNABLEOP_ENABLED=1", "Kernels that take most (2 of 5)"):
        assert expected in out
    assert "<html" in page.read_text(encoding="utf-8")
    assert "cannot create a file" in run("report", tmp_path / "t.json", "--html", tmp_path / "no" / "page.html", code=1).stderr


@pytest.mark.parametrize("kind", ["kineto", "csv", "rocpd"])
def test_damaged_files_never_crash_the_reader(run, tmp_path, kind):
    source = tmp_path / "source"
    source.mkdir()
    FORMATS[kind](traces.training(steps=2), source)
    files = sorted(p for p in source.rglob("*") if p.is_file())
    originals = {p: p.read_bytes() for p in files}
    draw = random.Random(7)
    read = 0
    for _ in range(40):
        for path, content in originals.items():
            damaged = bytearray(content)
            for _ in range(draw.randint(1, 12)):
                at = draw.randrange(len(damaged))
                what = draw.randrange(4)
                if what == 0:
                    damaged[at] = draw.randrange(256)
                elif what == 1:
                    del damaged[at: at + draw.randint(1, 200)]
                elif what == 2:
                    damaged[at:at] = damaged[at: at + draw.randint(1, 100)]
                else:
                    damaged[at:at] = draw.choice([b"9" * 40, b"-1", b'"', b"[[[[", b"\x00\xff", b"null", b"1e999"])
                if not damaged:
                    damaged = bytearray(b"x")
            path.write_bytes(bytes(damaged))
        r = run("report", source, "--json", code=None, timeout=60)
        assert r.returncode in (0, 1), r.stderr
        assert "runtime error" not in r.stderr and "Sanitizer" not in r.stderr
        if r.returncode == 0:
            read += 1
            assert sum(c["share"] for c in json.loads(r.stdout)["categories"]) == pytest.approx(1, abs=1e-3) or not json.loads(r.stdout)["categories"]
    assert read > 5  # the damage was such that something was left to read


def test_a_trace_that_pytorch_itself_writes(report, tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from torch.profiler import ProfilerActivity, profile
    model = torch.nn.Linear(32, 8)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=True) as p:
        model(torch.randn(4, 32)).sum().backward()
    p.export_chrome_trace(str(tmp_path / "cpu.json"))
    d = report(tmp_path / "cpu.json")
    assert d["problems"] == [] and d["signals"]["operators"] is True and "ProfilerActivity.CUDA" in d["advice"][-1]["fix"]
