"""Each advice of docs/optimization-guide.md. `pyflame doctor` reports a recorded machine, or a program, that the advice is for, and does not
report one that follows it. The guide names the case beside the advice. None of the machines was recorded on hardware (machines.py). The
tests at the end compute what an advice gives as its reason; tests/python/test_advice_effects.py observes more of them in PyFlame."""
import json
from dataclasses import dataclass

import pytest

from machines import GIB, MACHINES, Machine, desktop, instinct, mi100, mi250x, mi300x, override, radeon, rx7900xt, rx9070xt

RANK = {"INFO": 0, "LOW": 1, "MED": 2, "HIGH": 3, "CRIT": 4}
TORCH, VLLM = {"torch": "2.9.0+rocm7.0"}, {"vllm": "0.11.0"}


@dataclass
class Case:
    """reported: what doctor reports, each with the severity and a word of the finding. silent: what it does not report with severity `least`
    or above. An entry of either is a machine, or the text of a program. An advice to measure a setting has one that is set in `reported`,
    because doctor then says to measure it."""
    rule: str
    reported: list
    silent: list
    least: str = "INFO"
    workload: str = ""


def with_env(machine, **env):
    machine.env.update(env)
    return machine


def rx6000(gfx="gfx1031", built_for=None, **env):
    """A desktop with one RX 6000. built_for: architectures that the installed rocBLAS has kernels for beside those of ROCm 6.3."""
    m = with_env(desktop(), **env).gpu(gfx, 40, 0x73DF, 3, 12, revision=0xC1, path=radeon(0), power=230)
    if built_for:
        m.listed["/opt/rocm-6.3.0/lib/rocblas/library"].append(f"TensileLibrary_lazy_{built_for}.dat")
    return m


def rx7600(packages=None, **env):
    m = with_env(desktop(), **env).gpu("gfx1102", 32, 0x7480, 3, 8, revision=0xCF, path=radeon(0), power=165)
    return m.python(packages) if packages else m


def radeons(packages=None, count=1, **env):
    """RX 7900 XT without the processor's GPU."""
    m = rx7900xt(count, igpu=False, env=env)
    return m.python(packages) if packages else m


def rx9000(packages=None, count=1, **env):
    m = rx9070xt(env=env)
    for i in range(1, count):
        m.gpu("gfx1201", 64, 0x7550, 3 * i + 3, 16, revision=0xC0, path=radeon(i), speed="32.0 GT/s PCIe", power=304)
    return m.python(packages) if packages else m


def mi100s(numa_balancing=0, **env):
    return with_env(mi100(), **env).file("/proc/sys/kernel/numa_balancing", str(numa_balancing))


def mi200(numa_balancing=0, **env):
    return with_env(mi250x(), **env).file("/proc/sys/kernel/numa_balancing", str(numa_balancing))


def mi300(count=8, packages=None, rocm="6.3.0", **env):
    m = mi300x(count, rocm=rocm, env=env)
    return m.python(packages) if packages else m


def mi300a(huge_pages):
    """A node with one MI300A. (Nothing but the device number tells it from MI300X.)"""
    m = instinct(sockets=1)
    m.gpu("gfx942", 228, 0x74A0, 0x05, 128, xccs=6, pci_class="0x120000", clock=2100, power=550, path=("0000:04:01.1",), partition="SPX")
    return m.file("/sys/kernel/mm/transparent_hugepage/enabled", huge_pages)


def mi350(count=8, packages=None, **env):
    m = instinct(rocm="7.0.0", driver="6.14.14", env=env)
    for i in range(count):
        m.gpu("gfx950", 256, 0x75A0, 0x05 + 0x20 * i, 288, xccs=8, socket=i // 4, hive=0x7B1E5, pci_class="0x120000", clock=2400, power=1000, path=(f"0000:{0x04 + 0x20 * i:02x}:01.1",),
              speed="32.0 GT/s PCIe", partition="SPX")
    m.mesh()
    return m.python(packages) if packages else m


def without_passthrough(count):
    """The IOMMU translates addresses: nothing on the kernel's command line, and the groups say so."""
    m = mi300x(count, cmdline="quiet")
    for path in [p for p in m.files if p.startswith("/sys/kernel/iommu_groups/")]:
        m.file(path, "DMA-FQ")
    return m


def link(lanes, speed="16.0 GT/s PCIe", busy=None):
    m = rx7900xt(1, igpu=False, slot=(speed, lanes))
    if busy is not None:
        m.file(f"/sys/bus/pci/devices/{m.gpus[0][2]}/gpu_busy_percent", str(busy))
    return m


def small_window(machine):
    """Without a large BAR the host sees 256 MiB of each GPU."""
    for _, _, address in machine.gpus:
        machine.file(f"/sys/bus/pci/devices/{address}/mem_info_vis_vram_total", str(256 << 20))
    return machine


def shared(machine, busy):
    """Another process computes on the first GPU."""
    node, folder, address = machine.gpus[0]
    number = machine.files[folder + "/gpu_id"].strip()
    machine.file(f"/sys/class/kfd/kfd/proc/4242/vram_{number}", str(8 * GIB))
    return machine.file(f"/sys/bus/pci/devices/{address}/gpu_busy_percent", str(busy))


BOTH = "expandable_segments:True,max_split_size_mb:128"
AOTRITON, HIPBLASLT = "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL", "TORCH_BLAS_PREFER_HIPBLASLT"
TRAINING = "import torch\nscaler = torch.amp.GradScaler('cuda')\ndef step(model, x):\n    with torch.autocast('cuda', dtype=torch.{}):\n        loss = model(x).sum()\n    scaler.scale(loss).backward()\n"
LOOP = "import torch\ndef train(model, loader, optimizer):\n    for x in loader:\n        model(x).sum().backward()\n        optimizer.step()\n{}torch.cuda.empty_cache()\n"
TIMED = """import time
import torch
model = torch.nn.Linear(8, 8).cuda()
x = torch.randn(8, 8, device='cuda')
for _ in range({warm}):
    model(x)
torch.cuda.synchronize()
start = time.time()
for _ in range(100):
    model(x)
{wait}
print(time.time() - start)
"""
STRIDES = "import torch\nx = torch.randn(4096, {0}, device='cuda', dtype=torch.float16)\nw = torch.randn(4096, {0}, device='cuda', dtype=torch.float16)\ny = x @ w.t()\n"
PRODUCT = """import time
import torch
a = torch.{}(4096, 4096, device='cuda', dtype=torch.float16)
b = torch.randn(4096, 4096, device='cuda', dtype=torch.float16)
for _ in range(10):
    a @ b
torch.cuda.synchronize()
start = time.time()
for _ in range(100):
    c = torch.matmul(a, b)
torch.cuda.synchronize()
print(time.time() - start)
"""
PARALLEL = "import torch\nmodel = torch.nn.{}(torch.nn.Linear(8, 8))\n"
BACKEND = "import torch\nimport torch.distributed as dist\ndist.init_process_group(backend='{}')\nmodel = torch.nn.Linear(2, 2).to('cuda')\n"

CASES = {
    "rx6000-override": Case("ENV-07", [(override("gfx1032", 28, 0x73FF, 0xC1, 8, "11.0.0"), "CRIT", "gfx1100")], [override(gfx, 40, 0x73DF, 0xC1, 12, "10.3.0") for gfx in ("gfx1031", "gfx1032", "gfx1034", "gfx1035", "gfx1036")], least="HIGH"),
    "rx6000-build": Case("ENV-83", [(rx6000(), "HIGH", "gfx1031")], [rx6000(built_for="gfx1031"), rx6000("gfx1030")]),
    "rx6000-xnack": Case("ENV-35", [(rx6000(HSA_XNACK="1"), "LOW", "cannot retry")], [rx6000()]),
    "rx6000-integrated": Case("ENV-08", [(rx7900xt(1), "HIGH", "gfx1036"), (rx7900xt(1, igpu_first=True), "HIGH", "gfx1036")], [rx7900xt(1, igpu=False), rx7900xt(1, env={"HIP_VISIBLE_DEVICES": "0"})]),
    "rx7000-attention": Case("ENV-61", [(rx7600(TORCH), "HIGH", "gfx1102"), (radeons(TORCH), "MED", "gfx1100")], [rx7600(TORCH, **{AOTRITON: "1"}), radeons(TORCH, **{AOTRITON: "1"}), radeons()], least="LOW"),
    "rx7000-products": Case("ENV-55", [(radeons(**{HIPBLASLT: "1"}), "LOW", "measure both")], [radeons()]),
    "rx7000-allocator": Case("ENV-50", [(radeons(PYTORCH_HIP_ALLOC_CONF=BOTH), "CRIT", "max_split_size_mb")], [radeons(PYTORCH_HIP_ALLOC_CONF="expandable_segments:True"), radeons()], least="LOW"),
    "rx7000-convolutions": Case("SYS-70", [(radeons(), "INFO", "gfx1100")], [rx6000("gfx1030"), mi300(1)]),
    "rx7000-transfers": Case("ENV-93", [(radeons(count=2, NCCL_P2P_DISABLE="1"), "LOW", "Measure")], [radeons(count=2)]),
    "rx7000-override": Case("ENV-07", [(rx7600(HSA_OVERRIDE_GFX_VERSION="11.0.0"), "MED", "gfx1102")], [rx7600()]),
    "rx9000-attention": Case("ENV-61", [(rx9000(TORCH), "MED", "gfx1201")], [rx9000(TORCH, **{AOTRITON: "1"})], least="LOW"),
    "rx9000-products": Case("ENV-55", [(rx9000(**{HIPBLASLT: value}), "LOW", "compare their results") for value in ("0", "1")], [rx9000()]),
    "rx9000-allocator": Case("ENV-50", [(rx9000(PYTORCH_CUDA_ALLOC_CONF=BOTH), "CRIT", "max_split_size_mb")], [rx9000(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"), rx9000()], least="LOW"),
    "rx9000-transfers": Case("ENV-93", [(rx9000(count=4, NCCL_P2P_DISABLE="1"), "LOW", "hung the machine")], [rx9000(count=4, NCCL_P2P_DISABLE="1"), rx9000(count=4)], least="MED"),
    "mi200-numa": Case("SYS-08", [(mi200(numa_balancing=n), "HIGH", str(n)) for n in (1, 2, 3)] + [(mi100s(numa_balancing=1), "HIGH", "1")], [mi200(), mi100s()]),
    "mi200-products": Case("ENV-55", [(mi200(**{HIPBLASLT: "0"}), "MED", "gfx90a")], [mi200(), mi100s()]),
    "mi200-xnack": Case("ENV-35", [(mi200(HSA_XNACK="1"), "LOW", "unified memory"), (mi100s(HSA_XNACK="1"), "LOW", "unified memory")], [mi200(), mi100s()]),
    "mi200-transfers": Case("ENV-93", [(mi200(NCCL_P2P_DISABLE="1"), "HIGH", "gfx90a"), (mi100s(NCCL_P2P_DISABLE="1"), "HIGH", "gfx908")], [mi200(), mi100s()]),
    "mi300-arguments": Case("ENV-10", [(mi300(rocm="6.1.2"), "MED", "6.1.2"), (mi300(HIP_FORCE_DEV_KERNARG="1"), "INFO", "default")], [mi300(rocm="6.1.2", HIP_FORCE_DEV_KERNARG="1"), mi300(rocm="6.2.0")], least="LOW"),
    "mi300-aiter": Case("ENV-100", [(mi300(packages=VLLM), "HIGH", "gfx942")], [mi300(packages=VLLM, VLLM_ROCM_USE_AITER="1")], least="LOW"),
    "mi300-tuned": Case("ENV-104", [(mi300(VLLM_ROCM_USE_AITER="1"), "LOW", "gfx942")], [mi300(VLLM_ROCM_USE_AITER="1", AITER_CONFIG_GEMM_BF16="/srv/tuned.csv"), mi350(VLLM_ROCM_USE_AITER="1")], least="LOW"),
    "mi300-graphs": Case("ENV-25", [(mi300(rocm=v), "CRIT", v) for v in ("7.2.0", "7.2.1", "7.2.3")], [mi300(rocm=v) for v in ("7.1.1", "7.2.4")]),
    "mi300-channels": Case("ENV-94", [(mi300(4, NCCL_MIN_NCHANNELS="112"), "MED", "4 GPUs"), (radeons(count=2, NCCL_MIN_NCHANNELS="112"), "MED", "not meant")], [mi300(NCCL_MIN_NCHANNELS="112"), mi300(4)], least="LOW"),
    "mi300-huge-pages": Case("SYS-12", [(mi300a("always [madvise] never"), "MED", "MI300A")], [mi300a("[always] madvise never"), mi300(1)]),
    "mi300-partitions": Case("SYS-21", [(MACHINES["mi300x_cpx"](), "INFO", "CPX")], [mi300(1)]),
    "mi300-strides": Case("LINT-11", [(STRIDES.format(8192), "MED", "512")], [STRIDES.format(8192 + 64)]),
    "mi350-aiter": Case("ENV-100", [(mi350(packages=VLLM), "HIGH", "gfx950")], [mi350(packages=VLLM, VLLM_ROCM_USE_AITER="1")], least="LOW"),
    "mi350-queues": Case("ENV-11", [(mi350(GPU_MAX_HW_QUEUES="8"), "LOW", "measurement"), (mi350(GPU_MAX_HW_QUEUES="0"), "HIGH", "0")], [mi350()]),
    "mi350-channels": Case("ENV-94", [(mi350(n, NCCL_MIN_NCHANNELS="112"), "MED", "default of eight") for n in (4, 8)], [mi350()]),
    "mi350-autotune": Case("ENV-56", [(mi350(TORCHINDUCTOR_MAX_AUTOTUNE="1"), "LOW", "variants")], [mi350()]),
    "train-cache": Case("ENV-65", [(LOOP.format(" " * 8), "MED", "loop")], [LOOP.format("")]),
    "train-scaler": Case("LINT-04", [(TRAINING.format("bfloat16"), "LOW", "GradScaler")], [TRAINING.format("float16")]),
    "train-blocking": Case("ENV-16", [(mi300(HIP_LAUNCH_BLOCKING="1"), "HIGH", "every kernel"), (radeons(HIP_LAUNCH_BLOCKING="1"), "HIGH", "every kernel")], [mi300(), radeons()]),
    "train-search": Case("ENV-70", [(mi300(MIOPEN_FIND_MODE="NORMAL"), "MED", "full search"), (mi300(MIOPEN_FIND_MODE="FAST"), "LOW", "predicts")], [mi300()]),
    "train-results": Case("ENV-73", [(mi300x(home="nfs"), "HIGH", "temporary folder")], [mi300x(home="nfs", env={"MIOPEN_USER_DB_PATH": "/var/tmp/miopen"}), mi300x()], least="LOW"),
    "several-processes": Case("LINT-06", [(PARALLEL.format("DataParallel"), "MED", "DataParallel")], [PARALLEL.format("parallel.DistributedDataParallel")]),
    "several-backend": Case("ENV-98", [(BACKEND.format("gloo"), "MED", "gloo")], [BACKEND.format("nccl")]),
    "several-launcher": Case("ENV-97", [(mi300(WORLD_SIZE="8"), "HIGH", "RANK"), (mi300(WORLD_SIZE="8", RANK="0"), "HIGH", "MASTER_ADDR")], [mi300(), mi300(WORLD_SIZE="8", RANK="0", MASTER_ADDR="10.0.0.1")], least="LOW"),
    "several-iommu": Case("SYS-09", [(without_passthrough(8), "HIGH", "8 GPUs")], [mi300(), without_passthrough(1)]),
    "several-shm": Case("SYS-23", [(mi300x().container(), "HIGH", "container")], [mi300x()]),
    "several-scratch": Case("ENV-33", [(mi300(HSA_NO_SCRATCH_RECLAIM="1"), "LOW", "measurement")], [mi300()]),
    "several-bar": Case("SYS-16", [(small_window(radeons(count=2)), "MED", "256")], [radeons(count=2), mi300()]),
    "several-fine-grain": Case("ENV-36", [(radeons(count=2, HSA_FORCE_FINE_GRAIN_PCIE="1"), "LOW", "RCCL requires it"), (mi300(HSA_FORCE_FINE_GRAIN_PCIE="1"), "LOW", "connected by xGMI")], [radeons(count=2), mi300()]),
    "serve-tunableop": Case("ENV-53", [(mi300(packages=VLLM, PYTORCH_TUNABLEOP_ENABLED="1"), "MED", "each new shape"), (mi300(PYTORCH_TUNABLEOP_ENABLED="1", PYTORCH_TUNABLEOP_TUNING="1"), "MED", "while serving")],
                            [mi300(packages=VLLM, PYTORCH_TUNABLEOP_ENABLED="1", PYTORCH_TUNABLEOP_TUNING="0")], least="LOW", workload="inference"),
    "serve-parts": Case("ENV-101", [(mi300(VLLM_ROCM_USE_AITER_MHA="0"), "LOW", "no effect"), (mi300(VLLM_ROCM_USE_AITER="1", VLLM_ROCM_USE_AITER_MHA="0"), "LOW", "differs")], [mi300(VLLM_ROCM_USE_AITER="1")]),
    "serve-gone": Case("ENV-102", [(mi300(VLLM_USE_TRITON_FLASH_ATTN="0"), "INFO", "VLLM_USE_TRITON_FLASH_ATTN")], [mi300()]),
    "measure-wait": Case("LINT-01", [(TIMED.format(warm=20, wait=""), "HIGH", "clock")], [TIMED.format(warm=20, wait="torch.cuda.synchronize()")]),
    "measure-warm-up": Case("LINT-02", [(TIMED.format(warm=0, wait="torch.cuda.synchronize()"), "HIGH", "nothing ran before"), (TIMED.format(warm=1, wait="torch.cuda.synchronize()"), "LOW", "caches settle")], [TIMED.format(warm=20, wait="torch.cuda.synchronize()")]),
    "measure-level": Case("SYS-19", [(rx7900xt(1, igpu=False, level="low"), "HIGH", "lowest clocks"), (mi300x(level="profile_peak"), "LOW", "profile_peak")], [rx7900xt(1, igpu=False), mi300x()]),
    "measure-link": Case("SYS-15", [(link(4), "MED", "x4 of x16"), (link(16, "8.0 GT/s PCIe", busy=90), "MED", "8 of 16 GT/s under load")], [link(16), link(16, busy=90)]),
    "measure-data": Case("LINT-03", [(PRODUCT.format("zeros"), "MED", "zeros"), (PRODUCT.format("ones"), "MED", "ones")], [PRODUCT.format("randn")]),
    "measure-alone": Case("SYS-26", [(shared(mi300(), busy=40), "HIGH", "40 % busy")], [mi300()], workload="benchmark"),
}


@pytest.fixture
def findings(run, tmp_path):
    """Those of one rule about a machine or the text of a program."""
    def call(what, case):
        options = ["--workload", case.workload] if case.workload else []
        if isinstance(what, Machine):
            document = json.loads(run("doctor", "--root", what.write(tmp_path / str(len(list(tmp_path.iterdir())))), *options, "--json", code=None).stdout)
            assert not document["facts"]["failed_probes"] and document["facts"]["gpus"]
        else:
            path = tmp_path / "program.py"
            path.write_text(what, encoding="utf-8")
            document = json.loads(run("doctor", "lint", path, "--json", code=None).stdout)
        return [f for f in document["findings"] if f["id"] == case.rule]

    return call


@pytest.mark.parametrize("name", CASES)
def test_advice(findings, name):
    case = CASES[name]
    assert case.reported and case.silent
    for what, severity, word in case.reported:
        found = findings(what, case)
        assert found, f"{name}: {case.rule} does not report what the advice is for"
        said = [(f["severity"], f"{f['what']} {f['why']} {f['fix']}") for f in found]
        assert any(s == severity and word in text for s, text in said), said
    for what in case.silent:
        found = findings(what, case)
        assert not [f for f in found if RANK[f["severity"]] >= RANK[case.least]], found


# What `pyflame env` prints: the line, options with which it is printed, and options with which it is not.
ENV = {
    "rx7000-attention": (f"{AOTRITON}=1", ["--arch", "gfx1102"], ["--arch", "gfx1030"]),
    "rx9000-attention": (f"{AOTRITON}=1", ["--arch", "gfx1201"], ["--arch", "gfx90a"]),
    "mi300-arguments": ("HIP_FORCE_DEV_KERNARG=1", ["--arch", "gfx942", "--rocm", "6.1"], ["--arch", "gfx942", "--rocm", "6.2"]),
    "mi300-aiter": ("VLLM_ROCM_USE_AITER=1", ["--arch", "gfx942", "--workload", "inference"], ["--arch", "gfx1100", "--workload", "inference"]),
    "mi350-aiter": ("VLLM_ROCM_USE_AITER=1", ["--arch", "gfx950", "--workload", "inference"], ["--arch", "gfx950", "--workload", "training"]),
    "several-fine-grain": ("HSA_FORCE_FINE_GRAIN_PCIE=1", ["--arch", "gfx1100", "--workload", "multi-gpu"], ["--arch", "gfx942", "--workload", "multi-gpu"]),
    "serve-tunableop": ("PYTORCH_TUNABLEOP_TUNING=0", ["--arch", "gfx942", "--workload", "inference"], ["--arch", "gfx942", "--workload", "training"]),
}


@pytest.mark.parametrize("name", ENV)
def test_env_prints_it(run, name):
    def exports(options):
        return {e["name"]: e["value"] for e in json.loads(run("env", *options, "--json").stdout)["exports"]}

    line, printed, not_printed = ENV[name]
    variable, value = line.split("=")
    assert exports(printed)[variable] == value
    assert variable not in exports(not_printed)


def occupancy(run, gfx, vgpr):
    document = json.loads(run("occupancy", "--arch", gfx, "--vgpr", vgpr, "--wave", 32, "--block", 32, "--json").stdout)
    return document["arch"]["vgprs"], document["arch"]["vgpr_granule"], document["occupancy"]["waves_per_simd"]


@pytest.mark.parametrize("gfx", ["gfx1031", "gfx1032", "gfx1034", "gfx1035", "gfx1036"])
def test_gfx1030_has_the_same_instructions_and_registers(run, gfx):
    """The generic target is code that runs on each of them."""
    for name in (gfx, "gfx1030"):
        assert json.loads(run("occupancy", "--arch", name, "--json").stdout)["arch"]["generic"] == "gfx10-3-generic"
    assert json.loads(run("occupancy", "--arch", "gfx1010", "--json").stdout)["arch"]["generic"] != "gfx10-3-generic"
    for vgpr in (64, 96, 160, 250):
        assert occupancy(run, gfx, vgpr) == occupancy(run, "gfx1030", vgpr)


def test_gfx1102_has_another_register_file_than_gfx1100(run):
    real, passed_off = occupancy(run, "gfx1102", 160), occupancy(run, "gfx1100", 160)
    assert real[:2] == (1024, 16) and passed_off[:2] == (1536, 24)
    assert (real[2], passed_off[2]) == (1024 // 160, 1536 // 168) == (6, 9)  # 160 registers are 7 granules of 24


def test_a_partitioned_module_is_several_gpus(run, tmp_path):
    whole, parts = (json.loads(run("doctor", "--root", m.write(tmp_path / name), "--json", code=None).stdout)["facts"]["gpus"] for name, m in (("whole", mi300(1)), ("parts", MACHINES["mi300x_cpx"]())))
    assert len(whole) == 1 and len(parts) == 8
    for key in ("cus", "vram_bytes"):
        assert sum(g[key] for g in parts) == whole[0][key] and {g[key] for g in parts} == {whole[0][key] // 8}
