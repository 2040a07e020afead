"""Which processors the ranks of `pyflame run` get: python/pyflame/distributed/_binding.py, with made-up folders /sys."""
import json
import os
import subprocess
import sys

import pytest

from pyflame.distributed._binding import Machine, processors

NVIDIA, AMD = "nvidia", "amdgpu"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def gpu(root, address, node, driver, kind="0x030200"):
    folder = root / "bus/pci/devices" / address
    write(folder / "class", kind)
    write(folder / "numa_node", str(node))
    (root / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
    (folder / "driver").symlink_to(f"../../drivers/{driver}")


def machine(root, nodes, siblings=lambda p: str(p), allowed=None, environment=()):
    """A machine whose nodes have these lists of processors."""
    every = set()
    for node, text in enumerate(nodes):
        write(root / f"devices/system/node/node{node}/cpulist", text)
    for k in range(64):
        write(root / f"devices/system/cpu/cpu{k}/topology/thread_siblings_list", siblings(k))
        every.add(k)
    return Machine(str(root), allowed or every, dict(environment))


def choose(bind, n, m, gpus=0):
    return [sorted(found) for found, _ in processors(bind, n, m, lambda: gpus)]


def test_the_node_of_the_gpu(tmp_path):
    """GPUs in the order of their addresses, of which the display that no program computes on is none."""
    m = machine(tmp_path, ["0-3", "4-7"])
    gpu(tmp_path, "0000:01:00.0", 0, "ast", "0x030000")
    for address, node in ("0000:c1:00.0", 0), ("0000:21:00.0", 1), ("0000:a1:00.0", 0), ("0000:81:00.0", 1):
        gpu(tmp_path, address, node, AMD, "0x038000")
    gpu(tmp_path, "0000:02:00.0", 0, NVIDIA, "0x040300")  # sound
    assert choose("numa", 4, m, gpus=4) == [[4, 5, 6, 7], [4, 5, 6, 7], [0, 1, 2, 3], [0, 1, 2, 3]]
    assert choose("cores", 4, m, gpus=4) == [[4, 5], [6, 7], [0, 1], [2, 3]]
    assert [sharing for _, sharing in processors("numa", 4, m, lambda: 4)] == [2, 2, 2, 2]
    assert choose("numa", 2, m, gpus=4) == [[4, 5, 6, 7], [4, 5, 6, 7]]


@pytest.mark.parametrize("driver, environment, count, want", [
    (NVIDIA, {"CUDA_VISIBLE_DEVICES": "3,0"}, 2, [1, 0]),
    (AMD, {"HIP_VISIBLE_DEVICES": "2,1"}, 2, [1, 0]),
    (AMD, {"ROCR_VISIBLE_DEVICES": "1,2,3", "HIP_VISIBLE_DEVICES": "1"}, 1, [1]),
    (NVIDIA, {"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}, 1, None),  # which one that is, /sys does not tell
    (NVIDIA, {}, 3, None),  # a container that has some of the GPUs
    (NVIDIA, {}, 4, [0, 0, 1, 1]),
])
def test_gpus_that_programs_see(driver, environment, count, want, tmp_path):
    m = machine(tmp_path, ["0-3", "4-7"], environment=environment)
    for k in range(4):
        gpu(tmp_path, f"0000:{k + 1}1:00.0", k // 2, driver)
    assert m.gpu_nodes(count) == want


def test_a_share_of_the_nodes(tmp_path):
    """Without GPUs, processes are spread over the nodes, and one that is alone keeps all."""
    m = machine(tmp_path, ["0-3", "4-7"])
    assert choose("numa", 1, m) == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert choose("numa", 2, m) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert choose("numa", 4, m) == [[0, 1, 2, 3]] * 2 + [[4, 5, 6, 7]] * 2
    assert choose("none", 2, m) == [list(range(64))] * 2
    four = machine(tmp_path / "four", ["0-1", "2-3", "4-5", "6-7"])
    assert choose("numa", 2, four) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert choose("numa", 3, four) == [[0, 1], [2, 3], [4, 5, 6, 7]]


def test_a_gpu_without_a_node(tmp_path):
    """A virtual machine may say -1: then the processes are spread."""
    m = machine(tmp_path, ["0-3", "4-7"])
    for k in range(2):
        gpu(tmp_path, f"0000:0{k}:00.0", -1, NVIDIA)
    assert choose("numa", 2, m, gpus=2) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_cores_have_both_their_threads(tmp_path):
    m = machine(tmp_path, ["0-3,8-11", "4-7,12-15"], siblings=lambda p: f"{p % 8},{p % 8 + 8}")
    assert choose("cores", 4, m) == [[0, 1, 8, 9], [2, 3, 10, 11], [4, 5, 12, 13], [6, 7, 14, 15]]
    assert choose("cores", 8, m) == [[k, k + 8] for k in range(8)]


def test_only_what_this_process_may_use(tmp_path):
    """As in a container, a job of SLURM or under taskset. A node of which nothing is left counts for nothing."""
    m = machine(tmp_path, ["0-3", "4-7", "8-11"], allowed={2, 3, 4, 5, 6})
    assert choose("numa", 2, m) == [[2, 3], [4, 5, 6]]
    assert choose("cores", 4, m) == [[2], [3], [4], [5, 6]]


def test_no_nodes_at_all(tmp_path):
    m = Machine(str(tmp_path), {0, 1}, {})
    assert choose("numa", 4, m) == [[0, 1]] * 4 and choose("cores", 2, m) == [[0], [1]]


def test_more_processes_than_cores(tmp_path):
    with pytest.raises(ValueError, match=r"^--bind: there are fewer cores than processes; got 3 processes for the 2 cores of NUMA node 0; expected at most one for each core; hint: --bind numa$"):
        processors("cores", 3, Machine(str(tmp_path), {0, 1}, {}), lambda: 0)


PROGRAM = "import os\nprint(sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])\n"


def test_the_ranks_run_there(tmp_path):
    """On this machine's own processors."""
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "PYFLAME_NUM_THREADS")}

    def run(*options):
        return subprocess.run([sys.executable, "-m", "pyflame.distributed.run", *options, str(tmp_path / "program.py")], capture_output=True, text=True, timeout=60, env=environment)

    mine = sorted(os.sched_getaffinity(0))
    assert run("--bind", "none").stdout == f"[0] {mine} {len(mine)}\n"
    one = run("--bind", "cores")
    assert one.stdout == f"[0] {mine} {len(mine)}\n", one
    cores = len(Machine().cores(Machine().nodes))
    if cores >= 2:
        found = sorted(run("--bind", "cores", "--nproc", "2").stdout.splitlines())
        sets = [set(json.loads(line[4:line.index("]", 4) + 1])) for line in found]
        assert len(found) == 2 and sets[0] | sets[1] <= set(mine) and not sets[0] & sets[1] and all(sets), found
    many = run("--bind", "cores", "--nproc", str(cores + 1))
    assert many.returncode == 2 and "--bind: there are fewer cores than processes" in many.stderr
