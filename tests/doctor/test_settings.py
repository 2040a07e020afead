"""Files of settings as people write them: what has its reason in the file, counts for one command or under a condition, or is for another
GPU than this machine's is not reported as a fault."""
import json

import pytest

RANK = {"INFO": 0, "LOW": 1, "MED": 2, "HIGH": 3, "CRIT": 4}
ARCHS = ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1010", "gfx1030", "gfx1100", "gfx1151", "gfx1201"]


@pytest.fixture
def check(run, tmp_path):
    """The findings about a file: {(id, name): (severity, what)}, without those of severity INFO."""

    def call(name, text, *options, least="LOW"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        document = json.loads(run("doctor", "--env", path, "--json", *options, code=None).stdout)
        return {(f["id"], (f["names"] or [""])[0]): (f["severity"], f["what"]) for f in document["findings"] if RANK[f["severity"]] >= RANK[least]}

    return call


def severities(found):
    return {key[0]: value[0] for key, value in found.items()}


def test_a_setting_without_a_reason_is_reported(check):
    assert severities(check("run.sh", "export HSA_ENABLE_SDMA=0\nexport AMD_SERIALIZE_KERNEL=3\n")) == {"ENV-30": "MED", "ENV-14": "HIGH"}
    assert severities(check("run.sh", "# Settings\nexport HSA_ENABLE_SDMA=0\n")) == {"ENV-30": "MED"}


def test_settings_are_named_and_verbose_shows_their_values(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a short path, so that the line is not wrapped
    (tmp_path / "run.sh").write_text("export NCCL_DEBUG=INFO\nexport HSA_ENABLE_SDMA=0\nexport EDITOR=vi\n")
    short = run("doctor", "--env", "run.sh", code=None).stdout
    assert "\nSettings    2 of run.sh: HSA_ENABLE_SDMA, NCCL_DEBUG\n" in short and "--verbose shows the values of the settings." in short
    for flag in ("-v", "--verbose"):
        long = run("doctor", flag, "--env", "run.sh", code=None).stdout
        assert "\nSettings    2 of run.sh\n            HSA_ENABLE_SDMA=0\n            NCCL_DEBUG=INFO\n" in long and "shows the values" not in long
    (tmp_path / "none.sh").write_text("echo\n")
    none = run("doctor", "--env", "none.sh", code=None).stdout
    assert "none.sh:" not in none and "shows the values" not in none


@pytest.mark.parametrize("text", [
    "# Copies hang on this host without it.\nexport HSA_ENABLE_SDMA=0\n",
    "export HSA_ENABLE_SDMA=${HSA_ENABLE_SDMA:-0}  # workaround for a lost signal\n",
    "# See https://example.org/issues/1\nexport OMP_NUM_THREADS=1\nexport HSA_ENABLE_SDMA=0\n",
    "# avoids a fault\nHSA_ENABLE_SDMA=0\n\npodman run -e HSA_ENABLE_SDMA=\"$HSA_ENABLE_SDMA\" image\n",
])
def test_a_reason_makes_it_low_and_is_quoted(check, text):
    found = check("run.sh", text)
    assert severities(found) == {"ENV-30": "LOW"}
    assert "The file says why" in found["ENV-30", "HSA_ENABLE_SDMA"][1]


def test_a_reason_does_not_excuse_what_cannot_work(check):
    assert severities(check("run.sh", "# needed for memory\nexport PYTORCH_ALLOC_CONF=expandable_segments:True,max_split_size_mb:64\n"))["ENV-50"] == "CRIT"
    assert severities(check("run.sh", "# needed\nexport NNODES=2\nexport NCCL_SOCKET_IFNAME=lo\n"))["ENV-91"] == "HIGH"


def test_known_workarounds_of_serving_images(check):
    image = "FROM rocm/dev-ubuntu-22.04:7.2.1-complete\n\n# For a slow convolution, see https://example.org/1\nENV MIOPEN_DEBUG_CONV_DIRECT=0\nENV MIOPEN_DEBUG_CONV_GEMM=0\n\nENV HSA_ENABLE_IPC_MODE_LEGACY=1\n"
    assert not check("Dockerfile", image, least="MED")
    assert not check("Dockerfile", "FROM x\nENV MIOPEN_DEBUG_CONV_DIRECT=0\nCMD vllm serve model\n", least="MED")
    assert check("Dockerfile", "FROM x\nENV MIOPEN_DEBUG_CONV_DIRECT=0\n", least="MED")


def test_one_command_a_condition_a_test_and_a_guide_leave_nothing_on(check):
    assert severities(check("run.sh", "AMD_LOG_LEVEL=4 ./a.out\n./b.out\n")) == {"ENV-12": "LOW"}
    assert severities(check("run.sh", 'if [ -n "$X" ]; then\n  export AMD_LOG_LEVEL=4\nfi\n')) == {"ENV-12": "LOW"}
    assert severities(check("tests/saxpy.sh", "export AMD_LOG_LEVEL=3\n")) == {"ENV-12": "LOW"}
    assert severities(check("notes.md", "# Streams\n```bash\nexport AMD_SERIALIZE_COPY=3\n```\n")) == {"ENV-15": "LOW"}
    assert severities(check("notes.md", "Transfers pass the host (`NCCL_P2P_DISABLE=1`).\n")) == {"ENV-93": "LOW"}
    assert severities(check("notes.md", "# Compare\n```bash\nHSA_ENABLE_SDMA=0 ./a\nHSA_ENABLE_SDMA=1 ./a\n```\n")) == {"ENV-30": "LOW"}
    assert severities(check("run.sh", "export AMD_LOG_LEVEL=4\n./a.out\n")) == {"ENV-12": "MED"}


def test_unified_memory_is_no_fault(check):
    assert severities(check("run.sh", "export HSA_XNACK=1\n./a.out\n")) == {"ENV-35": "LOW"}
    assert not check("run.sh", "# the arrays are managed\nexport HSA_XNACK=1\n./a.out\n")
    assert not check("openmp_run.sh", "export HSA_XNACK=1\n./a.out\n")


def test_alternatives_do_not_contradict_each_other(check):
    branches = 'if [ "$1" = a ]; then\n  export HIP_VISIBLE_DEVICES=0\nelse\n  export CUDA_VISIBLE_DEVICES=1\nfi\n'
    assert not check("run.sh", branches)
    assert severities(check("run.sh", "export HIP_VISIBLE_DEVICES=0\nexport CUDA_VISIBLE_DEVICES=1\n")) == {"ENV-02": "MED"}
    stages = "FROM x AS a\nENV HIP_VISIBLE_DEVICES=0\nFROM x AS b\nENV CUDA_VISIBLE_DEVICES=1\n"
    assert not check("Dockerfile", stages)
    assert severities(check("Dockerfile", stages.replace("FROM x AS b", "FROM a AS b"))) == {"ENV-02": "MED"}
    assert not check("run.sh", "case $1 in\n  a) export NCCL_DEBUG=WARN ;;\n  *) export NCCL_DEBUG=VERSION ;;\nesac\n")
    assert "FILE-01" in severities(check("run.sh", "export NCCL_DEBUG=WARN\nexport NCCL_DEBUG=VERSION\n"))


def test_a_list_that_grows_is_no_repetition(check):
    assert not check("run.sh", "export LD_LIBRARY_PATH=/a\nexport LD_LIBRARY_PATH=/b:$LD_LIBRARY_PATH\nexport LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/c\n")
    assert "FILE-01" in severities(check("run.sh", "export OMP_NUM_THREADS=1\nexport OMP_NUM_THREADS=16\n"))
    assert "FILE-01" in severities(check("run.sh", "export LD_LIBRARY_PATH=/a\nexport LD_LIBRARY_PATH=/b\n"))


def test_many_places_end_in_bounded_time(run, tmp_path):
    path = tmp_path / "many.sh"
    path.write_text("".join(f"if x; then export HSA_A{i}=1; else export HSA_A{i}=2; fi\nHIP_B{i % 7}={i} ./a\n" for i in range(4000)))
    run("doctor", "--env", path, "--json", code=None, timeout=60)


def test_the_target_is_named_or_read_from_the_file(check):
    setting = "ENV TORCH_BLAS_PREFER_HIPBLASLT=0\n"
    assert severities(check("Dockerfile", "FROM x\n" + setting)) == {"ENV-55": "LOW"}
    assert severities(check("Dockerfile", "FROM x\n" + setting, "--arch", "gfx942")) == {"ENV-55": "MED"}
    assert not check("Dockerfile", "FROM x\n" + setting, "--arch", "gfx1151")
    assert severities(check("Dockerfile", "FROM x\nARG PYTORCH_ROCM_ARCH=gfx942\n" + setting)) == {"ENV-55": "MED"}
    assert severities(check("Dockerfile", "FROM rocm/vllm:mi300x\n" + setting)) == {"ENV-55": "MED"}
    assert severities(check("config_MI355X.sh", "export TORCH_BLAS_PREFER_HIPBLASLT=0\n")) == {"ENV-55": "MED"}
    assert severities(check("Dockerfile", "FROM x\nARG PYTORCH_ROCM_ARCH='gfx942;gfx1100'\n" + setting)) == {"ENV-55": "LOW"}, "two architectures"
    kernarg = "export HIP_FORCE_DEV_KERNARG=0\n"
    assert severities(check("run.sh", kernarg, "--rocm", "6.3")) == {"ENV-10": "MED"}
    assert not check("run.sh", kernarg, "--rocm", "6.1")
    assert not check("Dockerfile", "FROM rocm/pytorch:rocm6.1_ubuntu22.04\nENV HIP_FORCE_DEV_KERNARG=0\n")
    tuning = "export PYTORCH_TUNABLEOP_ENABLED=1\nexport PYTORCH_TUNABLEOP_TUNING=1\n"
    assert severities(check("run.sh", tuning, "--workload", "inference"))["ENV-53"] == "MED"
    assert severities(check("run.sh", tuning + "vllm serve model\n"))["ENV-53"] == "MED"
    assert "ENV-53" not in severities(check("run.sh", tuning, least="MED"))


def test_how_many_gpus_a_target_has_is_not_assumed(check):
    assert not check("run.sh", "export HIP_VISIBLE_DEVICES=0,1,2,3,4,5,6,7\n", "--arch", "gfx1100", least="MED")


def test_the_report_says_what_the_file_is_for(run, tmp_path):
    path = tmp_path / "run.sh"
    path.write_text("export TORCH_BLAS_PREFER_HIPBLASLT=0\n")
    report = run("doctor", "--env", path, "--arch", "gfx942", "--rocm", "6.3", code=3).stdout
    assert "gfx942, ROCm 6.3" in report and "NUMA" not in report and "System" not in report
    page = tmp_path / "page.html"
    run("doctor", "--env", path, "--arch", "gfx942", "--html", page, code=3)
    assert "hipBLASLt" in page.read_text()


def test_names_that_the_file_itself_uses(check):
    assert ("ENV-00", "ROCM_MY_FLAG") in check("run.sh", "export ROCM_MY_FLAG=1\n", least="INFO")
    assert ("ENV-00", "ROCM_MY_FLAG") not in check("run.sh", 'export ROCM_MY_FLAG=1\nif [ "$ROCM_MY_FLAG" = 1 ]; then make; fi\n', least="INFO")
    for name in ("ROCM_USE_SKINNY_GEMM", "PYTORCH_TUNABLEOP_TUNING_AFTER_WARMUP", "AMD_OCL_WAIT_COMMAND"):
        assert ("ENV-00", name) not in check("run.sh", f"export {name}=1\n", least="INFO")


def test_local_variables_are_no_program(check):
    assert not check("run.sh", "f() {\n  local target=$1 element\n  local i=0 n\n}\n")
    assert severities(check("run.sh", "export A=1 python train.py\n")) == {"LINT-13": "HIGH"}


def test_which_wheel_is_for_which_rocm(check):
    wheel = "RUN pip install torch=={} --index-url https://download.pytorch.org/whl/rocm{}\n"
    found = check("Dockerfile", "FROM x\n" + wheel.format("2.1.0", "6.0"))
    assert severities(found) == {"FILE-02": "HIGH"} and "2.3.0" in next(iter(found.values()))[1]
    for torch, rocm in (("2.3.1", "6.0"), ("2.4.0", "6.1"), ("2.5.1", "6.2"), ("2.7.0", "6.3"), ("2.8.0", "6.4"), ("2.9.1", "6.4"), ("1.0.0", "99.0")):
        assert not check("Dockerfile", "FROM x\n" + wheel.format(torch, rocm)), (torch, rocm)
    assert not check("Dockerfile", "FROM x\n" + wheel.format("2.1.0", "5.6") + wheel.format("2.4.0", "6.1")), "two indices"


@pytest.mark.parametrize("content, said", [
    (b"\x7fELF\x02\x01\x01\x00\x00\x00", "a binary file"),
    ("export HSA_ENABLE_SDMA=0\n".encode("utf-16"), "UTF-16"),
])
def test_what_is_no_text_is_an_error(run, tmp_path, content, said):
    path = tmp_path / "settings.sh"
    path.write_bytes(content)
    r = run("doctor", "--env", path, code=1)
    assert said in r.stderr and not r.stdout


def test_what_env_prints_the_doctor_does_not_mark(run, check):
    for arch in ARCHS:
        for workload in ("training", "inference", "multi-gpu"):
            for rocm in ("6.1", "7.2"):
                text = run("env", "--arch", arch, "--workload", workload, "--rocm", rocm).stdout
                found = check("env.sh", text, "--arch", arch, "--workload", workload, "--rocm", rocm, least="MED")
                assert not found, (arch, workload, rocm)
            assert not check("env.sh", run("env", "--arch", arch).stdout, least="MED"), arch


def test_wrong_targets_are_errors(run, tmp_path):
    (tmp_path / "a.sh").write_text("export HSA_XNACK=1\n")
    assert "gfx9999" in run("doctor", "--env", tmp_path / "a.sh", "--arch", "gfx9999", code=1).stderr
    assert "release" in run("doctor", "--env", tmp_path / "a.sh", "--rocm", "new", code=1).stderr
