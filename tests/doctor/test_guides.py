"""What the five guides tell people to export, judged: tests/doctor/guides has their settings as they stand there, and for each variable
the verdict is written here. A verdict of None: right as it is, nothing worse than INFO is said."""
import itertools
import json
import pathlib

import pytest

from machines import MACHINES as ALL, mi300x, rx7900xt

GUIDES = pathlib.Path(__file__).parent / "guides"
TITLES = {"rx7000": "AMD GPU optimization guide (RX 7000)", "mi300x": "MI300X workload guide", "backend": "PyFlame ROCm backend manual", "rocm63": "ROCm 6.3 reference (RX 7900)", "skill": "kernel-optimization skill"}
MACHINES = {
    "rx7000": lambda **o: rx7900xt(2, igpu=False, **o),
    "rocm63": lambda **o: rx7900xt(2, igpu=False, **o),
    "backend": lambda **o: rx7900xt(1, igpu=False, **o),
    "mi300x": mi300x,
    "skill": mi300x,
}
NOTHING = ("INFO", True)  # no component reads it, or it is the default

# file → variable → (rule, severity, changes nothing)
VERDICTS = {
    "rx7000_environment": {
        "HIP_VISIBLE_DEVICES": None, "CUDA_VISIBLE_DEVICES": ("ENV-02", "INFO", None), "PYTORCH_ROCM_DEVICE": ("ENV-05", *NOTHING), "HSA_ENABLE_SDMA": ("ENV-30", "MED", False),
        "GPU_MAX_HEAP_SIZE": ("ENV-18", *NOTHING), "GPU_MAX_ALLOC_PERCENT": ("ENV-20", *NOTHING), "GPU_SINGLE_ALLOC_PERCENT": ("ENV-19", *NOTHING),
        "NCCL_DEBUG": ("ENV-90", "LOW", False), "NCCL_IB_DISABLE": ("ENV-92", {"INFO", "LOW"}, None), "NCCL_SOCKET_IFNAME": ("ENV-91", *NOTHING)},
    "rx7000_rccl": {"NCCL_DEBUG": ("ENV-90", "LOW", False), "NCCL_SOCKET_IFNAME": ("ENV-91", *NOTHING), "NCCL_P2P_DISABLE": ("ENV-93", *NOTHING), "NCCL_IB_DISABLE": ("ENV-92", {"INFO", "LOW"}, None)},
    "rocm63_core": {
        "HIP_VISIBLE_DEVICES": None, "PYTORCH_ROCM_ARCH": ("ENV-06", "INFO", None), "PYTORCH_HIP_ALLOC_CONF": ("ENV-50", "CRIT", False), "HSA_ENABLE_SDMA": ("ENV-30", "MED", False),
        "HSA_ENABLE_INTERRUPT": ("ENV-32", "MED", False), "HSA_UNALIGNED_ACCESS_MODE": ("ENV-41", *NOTHING), "GPU_MAX_ALLOC_PERCENT": ("ENV-20", *NOTHING),
        "HIP_HIDDEN_FREE_MEM": ("ENV-21", "LOW", False), "GPU_SINGLE_ALLOC_PERCENT": ("ENV-19", "MED", False)},
    "rocm63_pytorch": {"TORCH_COMPILE_BACKEND": ("ENV-59", *NOTHING), "CUDA_LAUNCH_BLOCKING": ("ENV-17", "HIGH", False), "HIP_LAUNCH_BLOCKING": ("ENV-16", *NOTHING)},
    "rocm63_two_gpus": {
        "HIP_VISIBLE_DEVICES": None, "CUDA_VISIBLE_DEVICES": ("ENV-02", "INFO", None), "WORLD_SIZE": ("ENV-97", "HIGH", False), "NCCL_DEBUG": None,
        "NCCL_SOCKET_IFNAME": ("ENV-91", {"LOW", "MED", "HIGH"}, False), "NCCL_NSOCKS_PERTHREAD": ("ENV-95", "LOW", False)},
    "rocm63_access": {
        "PYTORCH_ROCM_ARCH": ("ENV-06", "INFO", None), "PYTORCH_HIP_ALLOC_CONF": ("ENV-50", "CRIT", False), "GPU_SINGLE_ALLOC_PERCENT": ("ENV-19", "MED", False), "GPU_MAX_ALLOC_PERCENT": ("ENV-20", *NOTHING)},
    "rocm63_performance": {
        "HSA_ENABLE_SDMA": ("ENV-30", "MED", False), "HSA_ENABLE_INTERRUPT": ("ENV-32", "MED", False), "HSA_UNALIGNED_ACCESS_MODE": ("ENV-41", *NOTHING), "HIP_HIDDEN_FREE_MEM": ("ENV-21", "LOW", False),
        "TORCH_COMPILE_BACKEND": ("ENV-59", *NOTHING), "CUDA_LAUNCH_BLOCKING": ("ENV-17", "HIGH", False)},
    "rocm63_memory": {"PYTORCH_CUDA_ALLOC_CONF": ("ENV-50", "CRIT", False), "TORCH_BLAS_PREFER_HIPBLASLT": None},
    "rocm63_debug": {"NCCL_DEBUG": None, "ROCM_LOG_LEVEL": ("ENV-26", *NOTHING), "HIP_LAUNCH_BLOCKING": ("ENV-16", *NOTHING)},
    "rocm63_setup": {
        "PYTORCH_ROCM_ARCH": ("ENV-06", "INFO", None), "TORCH_BLAS_PREFER_HIPBLASLT": None, "PYTORCH_HIP_ALLOC_CONF": ("ENV-50", "CRIT", False), "GPU_SINGLE_ALLOC_PERCENT": ("ENV-19", "MED", False),
        "GPU_MAX_ALLOC_PERCENT": ("ENV-20", *NOTHING), "HIP_HIDDEN_FREE_MEM": ("ENV-21", "LOW", False), "HSA_ENABLE_SDMA": ("ENV-30", "MED", False), "HSA_ENABLE_INTERRUPT": ("ENV-32", "MED", False),
        "HSA_UNALIGNED_ACCESS_MODE": ("ENV-41", *NOTHING), "TORCH_COMPILE_BACKEND": ("ENV-59", *NOTHING), "NCCL_DEBUG": None, "NCCL_SOCKET_IFNAME": ("ENV-91", {"LOW", "MED", "HIGH"}, False)},
    "rocm63_out_of_memory": {"PYTORCH_HIP_ALLOC_CONF": ("ENV-50", "CRIT", False)},
    "rocm63_production": {"TORCH_BLAS_PREFER_HIPBLASLT": None, "PYTORCH_HIP_ALLOC_CONF": ("ENV-50", "CRIT", False)},
    "skill_level1": {
        "GPU_MAX_HW_QUEUES": ("ENV-11", "LOW", False), "HIP_FORCE_DEV_KERNARG": ("ENV-10", *NOTHING), "HSA_NO_SCRATCH_RECLAIM": ("ENV-33", "LOW", False), "AMD_LOG_LEVEL": ("ENV-12", *NOTHING),
        "PYTORCH_TUNABLEOP_ENABLED": ("ENV-52", "LOW", False), "TORCH_BLAS_PREFER_HIPBLASLT": None},
    "mi300x_gemm_tuning": {
        "VLLM_UNTUNE_FILE": ("ENV-103", *NOTHING), "HIP_FORCE_DEV_KERNARG": ("ENV-10", *NOTHING), "DEBUG_CLR_GRAPH_PACKET_CAPTURE": ("ENV-23", *NOTHING)},
    "mi300x_vllm": {"HIP_FORCE_DEV_KERNARG": ("ENV-10", *NOTHING), "VLLM_USE_TRITON_FLASH_ATTN": ("ENV-102", *NOTHING)},
    "mi300x_hipblaslt_bench": {"HIP_FORCE_DEV_KERNARG": ("ENV-10", *NOTHING)},
    "mi300x_rccl": {"NCCL_MIN_NCHANNELS": ("ENV-94", {"INFO", "LOW"}, None)},
    "mi300x_fsdp": {"TORCH_NCCL_HIGH_PRIORITY": ("ENV-62", {"INFO", "LOW"}, False), "GPU_MAX_HW_QUEUES": ("ENV-11", "LOW", False)},
    "mi300x_memory_faults": {"PYTORCH_NO_HIP_MEMORY_CACHING": ("ENV-51", "HIGH", False), "HSA_DISABLE_FRAGMENT_ALLOCATOR": ("ENV-37", "MED", False)},
    "mi300x_miopen": {"MIOPEN_FIND_ENFORCE": ("ENV-72", "HIGH", False), "MIOPEN_FIND_MODE": ("ENV-70", {"LOW", "MED", "INFO"}, None)},
    "mi300x_inductor": {
        "TORCHINDUCTOR_MAX_AUTOTUNE": ("ENV-56", "LOW", False), "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING": ("ENV-58", "LOW", False), "TORCHINDUCTOR_FREEZING": ("ENV-58", "LOW", False),
        "TORCHINDUCTOR_CPP_WRAPPER": ("ENV-58", "LOW", False), "TORCH_COMPILE_DEBUG": ("ENV-60", "LOW", False)},
    "mi300x_debug_agent": {"HSA_TOOLS_LIB": ("ENV-39", "MED", False), "HSA_ENABLE_DEBUG": ("ENV-39", "MED", False)},
    "backend_manual": {"MIOPEN_FIND_MODE": ("ENV-70", {"LOW", "MED"}, False), "MIOPEN_USER_DB_PATH": None},
}
RANK = {"INFO": 0, "LOW": 1, "MED": 2, "HIGH": 3, "CRIT": 4}
EXIT = {"INFO": 0, "LOW": 0, "MED": 3, "HIGH": 4, "CRIT": 5}


@pytest.fixture
def judge(run, tmp_path):
    count = itertools.count()

    def call(*names, machine=None):
        """The report on the settings of these files, one after the other, for a machine."""
        path = GUIDES / f"{names[0]}.sh"
        if len(names) > 1:
            path = tmp_path / "settings.sh"
            path.write_text("".join((GUIDES / f"{n}.sh").read_text() for n in names))
        tree = (machine or MACHINES[names[0].split("_")[0]]()).write(tmp_path / f"machine {next(count)}")
        r = run("doctor", "--env", path, "--root", tree, "--json", code=None)
        document = json.loads(r.stdout)
        assert r.returncode == max((EXIT[f["severity"]] for f in document["findings"]), default=0)
        return document

    return call


def about(document, variable):
    return [f for f in document["findings"] if variable in f["names"]]


def test_every_guide_has_verdicts():
    assert {p.stem for p in GUIDES.glob("*.sh")} == set(VERDICTS)


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts(judge, name):
    document = judge(name)
    lines = (GUIDES / f"{name}.sh").read_text().splitlines()
    for variable, verdict in VERDICTS[name].items():
        findings = about(document, variable)
        if verdict is None:
            assert all(RANK[f["severity"]] <= RANK["INFO"] for f in findings), findings
            continue
        rule, severities, no_op = verdict
        finding = next((f for f in findings if f["id"] == rule), None)
        assert finding, f"{variable}: nothing by {rule} in {[f['id'] for f in document['findings']]}"
        assert finding["severity"] in (severities if isinstance(severities, set) else {severities}), finding
        assert no_op is None or finding["no_op"] == no_op, finding
        assert finding["what"] and (finding["why"] or finding["no_op"]) and finding["source"]
        number = int(finding["where"].rsplit(":", 1)[1])
        assert variable in lines[number - 1], finding["where"]
        if finding["no_op"] or RANK[finding["severity"]] >= RANK["MED"]:
            assert TITLES[name.split("_")[0]] in finding["recommended_by"], finding
    # nothing else that matters is said of the file
    known = {v[0] for v in VERDICTS[name].values() if v} | {"LINT-13"}
    assert not [f["id"] for f in document["findings"] if RANK[f["severity"]] >= RANK["MED"] and f["id"] not in known]


def test_a_value_that_only_a_shell_knows_is_said(judge):
    document = judge("mi300x_gemm_tuning")
    said = [f["what"] for f in about(document, "VLLM_TUNE_FILE")] + [p["why"] for p in document["facts"]["failed_probes"] if "VLLM_TUNE_FILE" in p["why"]]
    assert len(said) == 1


def test_the_program_that_export_does_not_start(judge):
    finding, = [f for f in judge("mi300x_hipblaslt_bench")["findings"] if f["id"] == "LINT-13"]
    assert finding["severity"] == "HIGH" and "hipblaslt-bench" in finding["what"] and finding["where"].endswith(":1")
    assert not [f for f in judge("mi300x_fsdp")["findings"] if f["id"] == "LINT-13"]


def test_blocking_is_on_and_off(judge):
    """One block of the ROCm 6.3 reference sets two switches that contradict each other."""
    document = judge("rocm63_pytorch")
    groups = {f["group"] for f in document["findings"] if set(f["names"]) & {"CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING"}}
    assert len(groups) == 1 and None not in groups


@pytest.mark.parametrize("first, second, variable", [
    ("rocm63_setup", "skill_level1", "TORCH_BLAS_PREFER_HIPBLASLT"),
    ("rx7000_environment", "rocm63_two_gpus", "NCCL_SOCKET_IFNAME"),
    ("rx7000_environment", "rocm63_core", "GPU_SINGLE_ALLOC_PERCENT"),
])
def test_guides_that_contradict_each_other(judge, first, second, variable):
    document = judge(first, second)
    finding, = [f for f in document["findings"] if f["id"] == "FILE-01" and variable in f["what"]]
    lines = [i for name, at in ((first, 0), (second, len((GUIDES / f"{first}.sh").read_text().splitlines())))
             for i, line in enumerate((GUIDES / f"{name}.sh").read_text().splitlines(), at + 1) if variable in line]
    assert all(str(i) in finding["what"] for i in lines), finding["what"]


def test_the_same_settings_on_other_machines(judge):
    """A verdict depends on the machine."""
    def severity(name, variable, machine):
        return max((f["severity"] for f in about(judge(name, machine=machine), variable)), key=RANK.get, default=None)

    assert RANK[severity("rocm63_production", "TORCH_BLAS_PREFER_HIPBLASLT", mi300x())] == RANK["MED"]
    assert RANK[severity("skill_level1", "TORCH_BLAS_PREFER_HIPBLASLT", rx7900xt(1, igpu=False))] == RANK["LOW"]
    assert RANK[severity("mi300x_rccl", "NCCL_MIN_NCHANNELS", mi300x(2))] >= RANK["MED"]
    fabric = mi300x().file("/sys/class/infiniband/mlx5_0/node_type", "1: CA")
    assert RANK[severity("rx7000_rccl", "NCCL_IB_DISABLE", fabric)] == RANK["HIGH"]
    old = judge("mi300x_vllm", machine=mi300x(rocm="6.1.2", driver="6.7.0"))
    assert not [f for f in about(old, "HIP_FORCE_DEV_KERNARG") if f["no_op"]], "it is no default before ROCm 6.2"


def test_the_environment_of_the_machine_itself(run, tmp_path):
    """The same variables in the environment of a process. They are judged together with the machine."""
    env = {"PYTORCH_HIP_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128", "HSA_ENABLE_SDMA": "0"}
    tree = rx7900xt(2, igpu=False, env=env).write(tmp_path / "machine")
    document = json.loads(run("doctor", "--root", tree, "--json", code=5).stdout)
    ids = {f["id"]: f for f in document["findings"]}
    assert ids["ENV-50"]["severity"] == "CRIT" and "zero" in ids["ENV-50"]["why"] + ids["ENV-50"]["what"]
    assert ids["ENV-30"]["severity"] == "MED"


def test_what_a_shell_makes_of_a_file(run, tmp_path):
    tree = mi300x().write(tmp_path / "machine")
    path = tmp_path / "settings.sh"
    path.write_text("""# export AMD_LOG_LEVEL=4
export AMD_LOG_LEVEL=0; export HSA_ENABLE_SDMA="0"   # trailing
NCCL_DEBUG=INFO \\
  MIOPEN_FIND_ENFORCE=3 ./program --x
declare -x HSA_XNACK=1
unset AMD_SERIALIZE_KERNEL
env HIP_LAUNCH_BLOCKING=1 python3 train.py
set -a
echo 'export AMD_SERIALIZE_COPY=3'
""")
    document = json.loads(run("doctor", "--env", path, "--root", tree, "--json", code=None).stdout)
    where = {n: f["where"] for f in document["findings"] for n in f["names"]}
    assert where["HSA_ENABLE_SDMA"].endswith(":2")
    assert "AMD_SERIALIZE_COPY" not in where and "AMD_SERIALIZE_KERNEL" not in where
    assert "MIOPEN_FIND_ENFORCE" in where and "HIP_LAUNCH_BLOCKING" in where


def test_env_prints_nothing_useless(run, tmp_path):
    """The doctor reports nothing about settings that `pyflame env` recommends."""
    for gfx, name in (("gfx942", "mi300x"), ("gfx908", "mi100"), ("gfx90a", "mi250x"), ("gfx1100", "rx7900xt"), ("gfx1201", "rx9070xt")):
        tree = ALL[name]().write(tmp_path / gfx)
        for workload in ("training", "inference", "multi-gpu"):
            text = run("env", "--arch", gfx, "--workload", workload).stdout
            path = tmp_path / "settings.sh"
            path.write_text(text)
            document = json.loads(run("doctor", "--env", path, "--root", tree, "--json", code=None).stdout)
            assert not [f for f in document["findings"] if f["no_op"]], f"{gfx} {workload}: {document['findings']}\n{text}"
            assert not [f for f in document["findings"] if f["severity"] in ("HIGH", "CRIT")], f"{gfx} {workload}: {document['findings']}"
