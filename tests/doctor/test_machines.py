"""`pyflame doctor --root TREE` on each of the synthetic machines: the facts, why there is no GPU, what is found and what is not."""
import json
import re
import subprocess

import pytest

from machines import MACHINES, mi300x, rx7900xt

SEVERITIES = {"CRIT": 5, "HIGH": 4, "MED": 3, "LOW": 0, "INFO": 0}
TRACEBACK = re.compile(r"Traceback|terminate called|nlohmann|\[json\.exception|std::|\x1b\[|\x00")

MI300X = dict(gpus=8, name="AMD Instinct MI300X", gfx="gfx942", cus=304, gib=192, wave=64, xccs=8)
RX7900XT = dict(gpus=1, name="AMD Radeon RX 7900 XT", gfx="gfx1100", cus=84, gib=20, wave=32, xccs=1)

# gpus …: facts of the first GPU; links: (number of them, kind); absence: its code, and a part of its command; has: ids with their
# severities; lacks: ids that must not be there, "MED+" for none of MED or worse.
CASES = {
    "mi300x": dict(MI300X, links=(56, "xgmi"), lacks=["MED+", "SYS-08", "SYS-09", "SYS-15", "SYS-16", "SYS-21", "SYS-28"]),
    "mi300x_cpx": dict(MI300X, cus=38, gib=24, xccs=1, has={"SYS-21": "INFO"}, lacks=["MED+"]),
    "mi300x_cpx_older_kernel": dict(MI300X, cus=38, gib=24, xccs=1, has={"SYS-21": "INFO"}, lacks=["MED+"]),
    "mi100": dict(gpus=4, name="AMD Instinct MI100", gfx="gfx908", cus=120, gib=32, wave=64, xccs=1, links=(12, "xgmi"), lacks=["MED+", "ENV-08", "SYS-05", "SYS-21"]),
    "mi250x": dict(gpus=8, name="AMD Instinct MI250X", gfx="gfx90a", cus=110, gib=64, wave=64, xccs=1, links=(56, "xgmi"), lacks=["MED+", "ENV-08", "SYS-21"]),
    "rx7900xt": dict(RX7900XT, gpus=3, links=(6, "pcie"), has={"ENV-08": "HIGH", "SYS-70": "INFO"}, lacks=["ENV-83", "SYS-15", "SYS-16", "SYS-17", "SYS-05"]),
    "rx7900xt_igpu_first": dict(gpus=2, name="AMD Radeon 610M", gfx="gfx1036", cus=2, wave=32, xccs=1, has={"ENV-08": "HIGH"}),
    "rx9070xt": dict(gpus=1, name="AMD Radeon RX 9070 XT", gfx="gfx1201", cus=64, gib=16, wave=32, xccs=1, lacks=["MED+", "ENV-08"]),
    "strix_halo": dict(gpus=1, name="AMD Radeon 8060S Graphics", gfx="gfx1151", cus=40, wave=32, xccs=1, lacks=["MED+", "ENV-08", "SYS-16"]),
    "no_module": dict(gpus=0, absence=("no_driver", "linux-modules-extra"), has={"SYS-04": "HIGH"}),
    "blacklisted": dict(gpus=0, absence=("module_not_loaded", "/etc/modprobe.d/blacklist-amdgpu.conf"), has={"SYS-04": "HIGH"}),
    "no_permission": dict(RX7900XT, absence=("no_permission", "usermod -a -G render"), has={"SYS-02": "HIGH"}, lacks=["SYS-03"]),
    "container_without_kfd": dict(MI300X, absence=("container", "--device=/dev/kfd --device=/dev/dri"), has={"SYS-03": "HIGH"}),
    "container_without_group": dict(MI300X, absence=("no_permission", "--group-add 109"), has={"SYS-02": "HIGH"}),
    "stacked_filters": dict(RX7900XT, gpus=2, absence=("hidden", "unset HIP_VISIBLE_DEVICES"), has={"ENV-03": "HIGH"}, visible=[]),
    "override_same_family": dict(gpus=1, name="AMD Radeon RX 6700 XT", gfx="gfx1031", cus=40, gib=12, wave=32, xccs=1, has={"ENV-07": None}, lacks=["HIGH+"]),
    "override_mi100_as_mi200": dict(gpus=4, name="AMD Instinct MI100", gfx="gfx908", cus=120, gib=32, wave=64, xccs=1, has={"ENV-07": "CRIT"}),
    "override_other_family": dict(gpus=1, name="AMD Radeon RX 7600", gfx="gfx1102", cus=32, gib=8, wave=32, xccs=1, has={"ENV-07": "CRIT"}),
    "wsl": dict(gpus=0, absence=("wsl", "--usecase=wsl,rocm")),
    "no_atomics": dict(gpus=0, absence=("no_atomics", "dmesg"), has={"SYS-17": "HIGH"}),
    "slow_link": dict(RX7900XT, has={"SYS-15": "MED"}),
    "low_clocks": dict(RX7900XT, has={"SYS-19": "HIGH"}),
    "memory_errors": dict(MI300X, has={"SYS-28": "HIGH"}),
    "shared_memory": dict(MI300X, has={"SYS-23": "HIGH", "SYS-24": "LOW"}),
    "numa_balancing": dict(MI300X, has={"SYS-08": "HIGH"}),
    "nfs_home": dict(MI300X, has={"SYS-25": "MED"}),
    "two_versions": dict(RX7900XT, has={"SYS-29": "MED"}),
    "graphs_corrupt": dict(MI300X, has={"ENV-25": "CRIT"}),
    "unknown_gfx": dict(gpus=1, name="AMD GPU (gfx1399)", gfx="gfx1399", cus=48, gib=24, wave=32, xccs=1, absence=("unsupported", ""), has={"SYS-05": "HIGH"}),
    "without_rocm": dict(RX7900XT, absence=("no_rocm", "install"), has={"SYS-06": "HIGH"}),
    "mismatch": dict(RX7900XT, absence=("version_mismatch", "pip install"), has={"SYS-06": "HIGH"}),
}


@pytest.fixture
def doctor(run):
    def call(tree, *options, **kwargs):
        r = run("doctor", "--root", tree, "--json", *options, code=None, **kwargs)
        assert r.returncode in (0, 3, 4, 5), f"exit code {r.returncode}\n{r.stderr}"
        document = json.loads(r.stdout)
        worst = max((SEVERITIES[f["severity"]] for f in document["findings"]), default=0)
        assert r.returncode == worst
        return document

    return call


def found(document):
    return {f["id"]: f["severity"] for f in document["findings"]}


def test_every_machine_has_a_case():
    assert set(CASES) == set(MACHINES)


@pytest.mark.parametrize("name", CASES)
def test_machine(doctor, tmp_path, name):
    case = CASES[name]
    document = doctor(MACHINES[name]().write(tmp_path / "machine"))
    facts, ids = document["facts"], found(document)
    assert document["schema"] == "pyflame.doctor/1"
    assert facts["failed_probes"] == []
    assert len(facts["gpus"]) == case["gpus"]
    if case["gpus"]:
        gpu = facts["gpus"][0]
        for key in ("name", "gfx", "cus", "wave", "xccs"):
            assert gpu[key] == case[key], key
        if "gib" in case:
            assert gpu["vram_bytes"] == case["gib"] << 30
    if "links" in case:
        assert (len(facts["links"]), {link["kind"] for link in facts["links"]}) == (case["links"][0], {case["links"][1]})
    if "visible" in case:
        assert facts["visible"]["gpus"] == case["visible"]
    code, command = case.get("absence", (None, ""))
    assert (facts["absence"] or {}).get("code") == code, facts["absence"]
    if code:
        assert command in facts["absence"]["fix"] and facts["absence"]["what"] and facts["absence"]["why"]
        assert any(f["command"] and facts["absence"]["fix"] in f["command"] for f in document["findings"]), "a finding has the command"
    for rule, severity in case.get("has", {}).items():
        assert rule in ids and severity in (None, ids[rule]), f"{rule} {severity}: {ids}"
    for rule in case.get("lacks", ()):
        if rule.endswith("+"):
            assert not [f for f in document["findings"] if SEVERITIES[f["severity"]] >= SEVERITIES[rule[:-1]]]
        else:
            assert rule not in ids
    assert document["counts"] == {**dict.fromkeys(document["counts"], 0), **{s: sum(f["severity"] == s for f in document["findings"]) for s in ids.values()}}
    assert document["checked"] >= 50 and document["verdict"]


@pytest.mark.parametrize("name", CASES)
def test_text(run, tmp_path, name):
    tree = MACHINES[name]().write(tmp_path / "machine")
    text = run("doctor", "--root", tree, code=None)
    assert text.returncode in (0, 3, 4, 5) and not text.stderr
    assert not TRACEBACK.search(text.stdout), text.stdout
    assert all(len(line) <= 200 for line in text.stdout.splitlines())
    document = json.loads(run("doctor", "--root", tree, "--json", code=text.returncode).stdout)
    for finding in document["findings"]:
        if SEVERITIES[finding["severity"]] >= 3:
            assert finding["id"] in text.stdout
    if document["facts"]["absence"]:
        words = " ".join(text.stdout.split())
        assert " ".join(document["facts"]["absence"]["fix"].split())[:40] in words


def test_topology(doctor, run, tmp_path):
    tree = MACHINES["mi250x"]().write(tmp_path / "machine")
    links = {(link["from"], link["to"]): link["max_mb_s"] for link in doctor(tree)["facts"]["links"]}
    assert links[0, 1] == links[1, 0] == 200000 and links[0, 2] == 50000, "the halves of a card are closer"
    assert doctor(MACHINES["mi300x"]().write(tmp_path / "two sockets"))["facts"]["cpu_links"][7]["numa"] == 1
    page = tmp_path / "page.html"
    run("doctor", "--root", tree, "--html", page, code=None)
    html = page.read_text(encoding="utf-8")
    assert "<svg" in html and "xGMI" in html and "http://" not in re.sub(r"http://www\.w3\.org/\S+", "", html)


def test_order_and_filters(doctor, tmp_path):
    def visible(**env):
        tree = rx7900xt(2, igpu_first=True, env=env).write(tmp_path / str(len(list(tmp_path.iterdir()))))
        return doctor(tree)["facts"]["visible"]["gpus"]

    assert visible() == [0, 1, 2]
    assert visible(HIP_VISIBLE_DEVICES="2,1") == [2, 1]
    assert visible(CUDA_VISIBLE_DEVICES="0", HIP_VISIBLE_DEVICES="1") == [1]
    assert visible(ROCR_VISIBLE_DEVICES="1,2", HIP_VISIBLE_DEVICES="1") == [2]
    assert visible(HIP_VISIBLE_DEVICES="1,7,2") == [1]
    assert visible(HIP_VISIBLE_DEVICES="-1") == []


def test_another_process(doctor, run, tmp_path):
    machine = rx7900xt(1, igpu=False)
    tree = machine.write(tmp_path / "machine")
    record = machine.record()
    record["process_env"] = {"4242": {"HSA_ENABLE_SDMA": "0", "SECRET": "x"}}
    (tree / "pyflame-record.json").write_text(json.dumps(record))
    assert "ENV-30" not in found(doctor(tree))
    document = doctor(tree, "--pid", 4242)
    assert found(document)["ENV-30"] == "MED" and document["facts"]["env"] == {"HSA_ENABLE_SDMA": "0"}
    assert "4242" in document["facts"]["env_source"]


def test_fix_is_a_script_that_changes_nothing(run, tmp_path):
    tree = mi300x(env={"AMD_SERIALIZE_KERNEL": "3"}).file("/proc/sys/kernel/numa_balancing", "1").write(tmp_path / "machine")
    before = sorted(p for p in tree.rglob("*"))
    script = run("doctor", "--root", tree, "--fix", code=None).stdout
    lines = [line for line in script.splitlines() if line.strip()]
    assert lines[0].startswith("#!") and any("kernel.numa_balancing=0" in line for line in lines) and any("unset AMD_SERIALIZE_KERNEL" in line for line in lines)
    for i, line in enumerate(lines[1:], 1):
        assert line.startswith("#") or lines[i - 1].startswith("#") or "#" in line, f"no comment says what this is for: {line}"
    assert sorted(p for p in tree.rglob("*")) == before


@pytest.mark.parametrize("name", ["mi300x", "rx7900xt", "no_permission", "container_without_kfd", "blacklisted", "two_versions", "no_atomics"])
def test_a_record_of_a_record_says_the_same(doctor, run, tmp_path, name):
    first = MACHINES[name]().write(tmp_path / "first")
    run("doctor", "--root", first, "--record", tmp_path / "second", code=None)
    a, b = doctor(first), doctor(tmp_path / "second")
    assert a["findings"] == b["findings"]
    assert {k: v for k, v in a["facts"].items() if k != "probe"} == {k: v for k, v in b["facts"].items() if k != "probe"}


def test_this_machine_recorded_says_the_same(run, doctor, tmp_path):
    live = run("doctor", "--json", code=None)
    assert live.returncode in (0, 3, 4, 5), live.stderr
    run("doctor", "--record", tmp_path / "here", code=None)
    recorded = doctor(tmp_path / "here")
    live = json.loads(live.stdout)
    assert [f["id"] for f in live["findings"]] == [f["id"] for f in recorded["findings"]]
    assert (live["facts"]["absence"] or {}).get("code") == (recorded["facts"]["absence"] or {}).get("code")
    assert live["facts"]["rocm"] == recorded["facts"]["rocm"] and live["facts"]["frameworks"] == recorded["facts"]["frameworks"]


def test_secrets_are_not_recorded(run, tmp_path):
    import os
    env = {**os.environ, "HF_TOKEN": "hf_verysecret", "AWS_SECRET_ACCESS_KEY": "abcdefghij", "HIP_VISIBLE_DEVICES": "0", "PYTORCH_API_KEY": "pk_hidden"}
    run("doctor", "--record", tmp_path / "here", code=None, env=env)
    everything = "".join(p.read_text(encoding="utf-8", errors="replace") for p in (tmp_path / "here").rglob("*") if p.is_file())
    for secret in ("hf_verysecret", "abcdefghij", "pk_hidden"):
        assert secret not in everything
    assert '"HIP_VISIBLE_DEVICES": "0"' in everything


def test_the_script_of_mends_is_safe_to_run(run, tmp_path):
    """Nothing that is merely worth knowing changes a machine (clocks, partitions), and nothing with a word to fill in is run."""
    for name in ("mi300x_cpx", "graphs_corrupt", "container_without_group", "memory_errors"):
        MACHINES[name]().write(tmp_path / name)
        script = run("doctor", "--root", tmp_path / name, "--fix", code=None).stdout
        assert subprocess.run(["sh", "-n"], input=script, text=True).returncode == 0
        commands = [line for line in script.splitlines() if line and not line.startswith("#")]
        assert not [c for c in commands if re.search(r"IMAGE|COMMAND|--setperfdeterminism|--compute-partition|reboot", c)], name
        assert max(map(len, script.splitlines())) <= 140


def test_a_process_that_is_not_there_is_no_sound_one(run):
    r = run("doctor", "--pid", 2**22 + 1, code=None)
    assert r.returncode != 0 and "Not everything was read: the environment of process 4194305 cannot be read" in " ".join(r.stdout.split())
