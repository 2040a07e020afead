"""Recorded machines that are damaged, wrong or made to do harm: the report is always printed, the exit code is a documented one, and
nothing outside of the folder is read."""
import json
import os
import random
import re
import shutil
import subprocess

import pytest

from machines import mi300x, rx7900xt

REPORT = (0, 3, 4, 5)
NODES = "sys/class/kfd/kfd/topology/nodes"
BAD = re.compile(r"Traceback|terminate called|json\.exception|\x1b|\x00")


@pytest.fixture
def tree(tmp_path):
    return rx7900xt(2).write(tmp_path / "machine")


@pytest.fixture
def report(run):
    """The document of a tree. Text, JSON, HTML and the script are all printed."""

    def call(tree, codes=REPORT):
        r = run("doctor", "--root", tree, "--json", code=None, timeout=60)
        assert r.returncode in codes, f"exit code {r.returncode}: {r.stderr[-2000:]}"
        if r.returncode not in REPORT:
            assert r.returncode == 1 and len(r.stderr.strip().splitlines()) == 1 and not BAD.search(r.stderr), r.stderr
            return None
        document = json.loads(r.stdout)
        for options in ([], ["--fix"], ["--html", os.fspath(tree) + ".html"]):
            other = run("doctor", "--root", tree, *options, code=None, timeout=60)
            assert other.returncode in REPORT and other.stdout and not BAD.search(other.stdout), other.stderr
        return document

    return call


def edit(tree, change):
    path = tree / "pyflame-record.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def test_truncated_properties(report, tree):
    for n, size in ((1, 100), (2, 7)):
        path = tree / NODES / str(n) / "properties"
        path.write_bytes(path.read_bytes()[:size])
    document = report(tree)
    assert len(document["facts"]["gpus"]) >= 1


def test_properties_of_garbage(report, tree):
    noise = random.Random(1)
    for path in sorted((tree / NODES).rglob("properties")):
        path.write_bytes(bytes(noise.randrange(256) for _ in range(2000)))
    assert report(tree)["facts"]["gpus"] == []


def test_every_file_of_garbage(report, tree):
    noise = random.Random(2)
    for path in sorted(tree.rglob("*")):
        if path.is_file() and path.name != "pyflame-record.json":
            path.write_bytes(bytes(noise.randrange(256) for _ in range(300)))
    report(tree)


def test_every_file_empty(report, tree):
    for path in tree.rglob("*"):
        if path.is_file() and path.name != "pyflame-record.json":
            path.write_bytes(b"")
    report(tree)


@pytest.mark.parametrize("number", ["-1", "-9223372036854775808", "18446744073709551615", "99999999999999999999999999", "0x7fffffffffffffff", "nan", "1e308", "4294967296", ""])
def test_numbers_out_of_range(report, tree, number):
    for path in sorted((tree / NODES).rglob("properties")):
        path.write_text(re.sub(r"(?m)^(\w+) \d+$", lambda m: f"{m.group(1)} {number}" if m.group(1) != "simd_count" else m.group(0), path.read_text()))
    for path in (tree / "sys/bus/pci/devices").rglob("*"):
        if path.is_file():
            path.write_text(number)
    for name in ("proc/sys/kernel/numa_balancing", "sys/devices/system/cpu/online", "proc/meminfo"):
        (tree / name).write_text(number)
    assert len(report(tree)["facts"]["gpus"]) >= 2


def test_negative_and_huge_simd_counts(report, tree):
    for n, count in ((1, -4), (2, 2**63), (3, 2**64 - 1)):
        path = tree / NODES / str(n) / "properties"
        path.write_text(re.sub(r"simd_count \d+", f"simd_count {count}", path.read_text()))
    report(tree)


def test_links_out_of_the_tree(report, tree, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("TOP-SECRET-1")
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "card7").write_text("TOP-SECRET-2")
    (folder / "product_name").write_text("TOP-SECRET-3")
    for name in ("proc/cmdline", "etc/os-release", "proc/sys/kernel/osrelease", "sys/bus/pci/devices/0000:03:00.0/power_dpm_force_performance_level"):
        (tree / name).unlink()
        (tree / name).symlink_to(secret)
    (tree / "sys/bus/pci/devices/0000:03:00.0/product_name").symlink_to(secret)
    (tree / "opt/rocm-9.9.9").symlink_to(folder)
    (tree / "etc/modprobe.d").symlink_to(folder)
    edit(tree, lambda r: r["links"].update({"/proc/version": os.fspath(secret), "/etc/hostname": "/../../../../etc/hostname", "/opt/rocm": "/../" * 30 + "etc",
                                            "/sys/class/infiniband": os.fspath(folder)}))
    document = report(tree)
    assert "TOP-SECRET" not in json.dumps(document)
    assert "rocm-9.9.9" not in json.dumps(document["facts"]["rocm"])


def test_nothing_outside_is_opened(program, tree):
    strace = shutil.which("strace")
    if not strace:
        pytest.skip("needs strace")
    (tree / "opt/rocm-9.9.9").symlink_to("/etc")
    r = subprocess.run([strace, "-f", "-e", "trace=openat,open", program, "doctor", "--root", os.fspath(tree), "--json"], capture_output=True, text=True, timeout=120)
    if r.returncode not in REPORT:
        pytest.skip("strace is not allowed here")
    opened = re.findall(r'open(?:at)?\((?:\w+, )?"([^"]+)", [^)]*\) = \d', r.stderr)
    assert any(p.startswith(os.fspath(tree)) for p in opened)
    # the loader and the C++ runtime open files of their own: libraries, locales, the number of processors
    of_the_machine = re.compile(r"/sys/(class|module|bus|kernel)|/opt/rocm|/home/|/etc/(os-release|modprobe|passwd|group)|/proc/(cmdline|1/|modules|meminfo)|/dev/(kfd|dri)")
    assert not [p for p in opened if not p.startswith(os.fspath(tree)) and of_the_machine.match(p)]


def test_loops(report, tree):
    (tree / "sys/loop").symlink_to(tree / "sys")
    (tree / NODES / "7").symlink_to(tree / NODES)
    edit(tree, lambda r: r["links"].update({"/opt/rocm": "/opt/rocm", "/a": "/b", "/b": "/a", "/sys": "/sys/sys", "/proc": "/proc/../proc", "/dev": "/dev/dev/dev"}))
    report(tree)


def test_folders_where_files_should_be_and_the_other_way(report, tree):
    for name in ("proc/cmdline", "etc/os-release", f"{NODES}/1/properties", "proc/meminfo"):
        (tree / name).unlink()
        (tree / name).mkdir()
    os.mkfifo(tree / "proc/cmdline/fifo")
    (tree / "proc/uptime").unlink(missing_ok=True)
    os.mkfifo(tree / "proc/uptime")
    (tree / "sys/module/amdgpu/version").unlink()
    os.mkfifo(tree / "sys/module/amdgpu/version")
    report(tree)


def test_large_files(report, tree):
    for name in (f"{NODES}/1/properties", "proc/cmdline", "etc/os-release"):
        with open(tree / name, "ab") as f:
            f.write(b"\nx 1")
            f.truncate(100 << 20)
    with open(tree / "proc/meminfo", "wb") as f:
        f.write(b"A" * (4 << 20))
    report(tree)


def test_text_that_is_no_utf8_or_commands_a_terminal(report, tree):
    (tree / "etc/os-release").write_bytes(b'PRETTY_NAME="\xff\xfe\x1b[2J\x1b]0;owned\x07 \xc3"\nID=ubuntu\n')
    (tree / "proc/cmdline").write_bytes(b"\x80\x81 \x1b[31m iommu=pt")
    (tree / "sys/bus/pci/devices/0000:03:00.0/product_name").write_bytes(b"\x1b[1mCard\xff\n")
    path = tree / NODES / "1" / "properties"
    path.write_text(path.read_text().replace(f"device_id {0x744C}", "device_id 4242"))
    edit(tree, lambda r: r["env"].update({"HIP_VISIBLE_DEVICES": "0\x1b[2J", "HSA_XNACK": "\u0080 \u202e", "ROCM_\x1b[31mX": "1", "NCCL_DEBUG": "x" * 100000}))
    report(tree)


def test_markup_in_names(report, run, tree):
    (tree / "sys/bus/pci/devices/0000:03:00.0/power_dpm_force_performance_level").write_text("<script>alert(1)</script>")
    edit(tree, lambda r: r["env"].update({"HSA_ENABLE_SDMA": "0", "NCCL_SOCKET_IFNAME": "</script><script>alert(2)</script>", "AMD_SERIALIZE_KERNEL": "'; rm -rf ~ #"}))
    report(tree)
    page = (tree.parent / (tree.name + ".html")).read_text()
    assert "<script>alert(" not in page
    script = run("doctor", "--root", tree, "--fix", code=None).stdout
    assert not re.search(r"(?m)^[^#\n]*rm -rf ~", script), script


@pytest.mark.parametrize("record", [None, "", "{", "[]", "null", '"x"', "1", "{}", '{"schema": "pyflame.record/9"}', "[" * 200_000, '{"a":' * 100_000, "\x00", '{"schema": 1}', '{"schema": "pyflame.record/1", "env": {"A": "\\udc80"}}'])
def test_records_that_are_none(report, tree, record):
    path = tree / "pyflame-record.json"
    path.unlink()
    if record is not None:
        path.write_text(record)
    assert report(tree, codes=(1,)) is None


def test_the_record_is_a_link_or_a_folder(report, tree):
    path = tree / "pyflame-record.json"
    path.rename(tree / "other.json")
    path.symlink_to("/dev/zero")
    report(tree, codes=(1,))
    path.unlink()
    path.mkdir()
    report(tree, codes=(1,))


def test_no_such_folder(report, tmp_path):
    report(tmp_path / "absent", codes=(1,))
    (tmp_path / "file").write_text("x")
    report(tmp_path / "file", codes=(1,))


WRONG = [None, 0, -1, 1.5, True, "", "x", [], {}, [[]], [None, 1, "a", {}], {"": ""}, {"/x": None}, {"/x": []}, {"relative": "../../etc"}, {"/dev/kfd": "0660"}, {"/dev/kfd": {"mode": 660, "uid": "a", "gid": [], "group": 7}},
         {"/dev/kfd": {"mode": "99999999999999", "uid": -1, "gid": 2**63}}, {"0": {"id": {}}}, {"/opt/rocm/lib": "x"}, {"/opt/rocm/lib": [1, None, "../../../../etc/passwd", "a/b", "\x1b[2J", ""]}]


@pytest.mark.parametrize("key", ["env", "process_env", "user", "nodes", "links", "listed", "unreadable", "filesystems"])
def test_records_of_wrong_types(report, run, tree, key):
    for value in WRONG:
        edit(tree, lambda r, value=value: r.__setitem__(key, value))
        r = run("doctor", "--root", tree, "--json", code=None, timeout=60)
        assert r.returncode in REPORT, f"{key} = {value!r}: exit code {r.returncode}: {r.stderr[-2000:]}"
        json.loads(r.stdout)
    report(tree)


def test_users_and_spaces_of_wrong_types(run, tree):
    for user in ({"uid": "x"}, {"uid": 2**64, "name": 7}, {"groups": "render"}, {"groups": [{"id": "x", "name": {}}, 5, None]}, {"uid": -5, "groups": [{}] * 10000}):
        edit(tree, lambda r, user=user: r.__setitem__("user", user))
        assert run("doctor", "--root", tree, "--json", code=None).returncode in REPORT
    for space in ({"type": 1, "bytes": "a", "free": []}, {"bytes": -5, "free": 2**63}, {"bytes": 1e300}):
        edit(tree, lambda r, space=space: r.__setitem__("filesystems", {"/dev/shm": space, "/home/user": space}))
        assert run("doctor", "--root", tree, "--json", code=None).returncode in REPORT


def test_ten_thousand_nodes(report, tmp_path):
    machine = rx7900xt(1, igpu=False)
    _, folder, _ = machine.gpus[0]
    properties = machine.files[folder + "/properties"]
    for n in range(2, 10_000):
        machine.file(f"/{NODES}/{n}/properties", properties)
        machine.file(f"/{NODES}/{n}/gpu_id", str(n))
    document = report(machine.write(tmp_path / "machine"))
    assert len(document["facts"]["gpus"]) >= 1


def test_links_between_nodes_that_do_not_exist(report, tmp_path):
    machine = mi300x(2)
    for node, folder, _ in machine.gpus:
        for i, (source, target) in enumerate(((node, 99), (-1, node), (node, node), (2**63, 2**64 - 1), (node, -7))):
            machine.link(folder, "io_links", 10 + i, source, target, 11, -15, 2**63)
            machine.link(folder, "p2p_links", 10 + i, source, target, 2**40, 2**62, -1)
    report(machine.write(tmp_path / "machine"))


def test_many_variables(report, tree):
    edit(tree, lambda r: r["env"].update({f"HIP_UNKNOWN_{i}": "1" for i in range(5000)}))
    assert len(report(tree)["findings"]) < 1000


def test_random_damage(run, tmp_path):
    """A byte, a line or a file less, many times over."""
    noise = random.Random(3)
    for turn in range(40):
        tree = mi300x(2).write(tmp_path / str(turn))
        paths = sorted(p for p in tree.rglob("*") if p.is_file() and p.name != "pyflame-record.json")
        for path in noise.sample(paths, len(paths) // 3):
            data = bytearray(path.read_bytes())
            kind = noise.randrange(4)
            if kind == 0:
                path.unlink()
                continue
            if kind == 1 and data:
                data = data[:noise.randrange(len(data))]
            elif kind == 2 and data:
                for _ in range(1 + len(data) // 20):
                    data[noise.randrange(len(data))] = noise.randrange(256)
            else:
                lines = data.split(b"\n")
                noise.shuffle(lines)
                data = b"\n".join(lines)
            path.write_bytes(bytes(data))
        r = run("doctor", "--root", tree, "--json", code=None, timeout=60)
        assert r.returncode in REPORT, f"turn {turn}: exit code {r.returncode}: {r.stderr[-2000:]}"
        json.loads(r.stdout)


HOSTILE_SETTINGS = {
    "binary": bytes(range(256)) * 100,
    "no end": b"export A='unfinished\nexport HSA_ENABLE_SDMA=0\n" * 5,
    "deep": b"export HIP_X=" + b"$(" * 50_000 + b"\n",
    "braces": b"export HIP_X=" + b"${" * 50_000 + b"\n",
    "quotes": b"'" * 100_001,
    "long line": b"export HIP_X=" + b"x" * (1 << 20) + b"\n",
    "many lines": b"export HIP_X=1\n" * 100_000,
    "many names": b"".join(b"export HIP_X%d=1\n" % i for i in range(20_000)),
    "commands": b"export HIP_X=$(touch /tmp/pyflame-doctor-was-here)\n`touch /tmp/pyflame-doctor-was-here`\n",
    "here document": b"cat <<EOF\nexport HSA_ENABLE_SDMA=0\n",
    "continued": b"export \\\n" * 10_000,
    "empty": b"",
    "nul": b"export HSA_ENABLE_SDMA=0\0\nexport AMD_LOG_LEVEL=4\n",
}


@pytest.mark.parametrize("name", HOSTILE_SETTINGS)
def test_files_of_settings(run, tree, tmp_path, name):
    path = tmp_path / "env.sh"
    path.write_bytes(HOSTILE_SETTINGS[name])
    for options in (["--json"], []):
        r = run("doctor", "--root", tree, "--env", path, *options, code=None, timeout=60)
        assert r.returncode in REPORT + (1,) and not BAD.search(r.stdout + r.stderr), r.stderr[-2000:]
        assert r.stdout or r.stderr
    assert not os.path.exists("/tmp/pyflame-doctor-was-here")
