"""The commands and scripts of docs/distributed.md under the launchers themselves: mpirun, SLURM, Ray, torchrun. Tests of what is not installed are skipped."""
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest
from slurm import slurm

IN_ONE_PROCESS = "one SLURM serves all tests"
PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "distributed.md").read_text()
TRAIN = """
import pyflame as pf
import pyflame.distributed as dist
from pyflame.nn.parallel import DistributedDataParallel

dist.init_process_group(timeout=60)
rank, world = dist.get_rank(), dist.get_world_size()
pf.manual_seed(0)
model = DistributedDataParallel(pf.nn.Linear(3, 1))
optimizer = pf.optim.SGD(model.parameters(), lr=0.1)
part = (pf.arange(24.0) / 24).reshape(8, 3)[rank * 8 // world:(rank + 1) * 8 // world]
for step in range(3):
    optimizer.zero_grad()
    loss = (model(part) - 1).square().mean()
    loss.backward()
    optimizer.step()
mean = loss.detach().clone()
dist.all_reduce(mean, op=dist.ReduceOp.AVG)
print(f"rank {rank} of {world}, {dist.get_node_local_rank()} on its host: {mean.item():.5f}", flush=True)
dist.destroy_process_group()
"""
FAILS = "import pyflame.distributed as dist\ndist.init_process_group(timeout=60)\ndist.barrier()\nif dist.get_rank() == 1:\n    raise ValueError('there is no data')\ndist.barrier()\n"


def shown(text):
    """The words of a command that the page shows."""
    assert f"`{text}`" in PAGE
    return text.split()


def block(start):
    """The code of the page's block that begins with this."""
    return next(code for code in re.findall(r"^```\w+[^\n]*\n(.*?)^```$", PAGE, re.M | re.S) if code.startswith(start))


@pytest.fixture
def folder(tmp_path, program):
    """A folder with train.py, in which `python` and `pyflame` are those of this environment."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "bin").mkdir()
    for name, path in (("python", sys.executable), ("python3", sys.executable), ("pyflame", program)):
        command(tmp_path, name, path)
    return tmp_path


def command(folder, name, path):
    """In the folder, `name` is the program at this path."""
    (folder / "bin" / name).write_text(f'#!/bin/sh\nexec "{path}" "$@"\n')
    (folder / "bin" / name).chmod(0o755)


def environment(folder, **more):
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    return {**{k: v for k, v in os.environ.items() if k not in names}, "PATH": f"{folder}/bin:{os.environ['PATH']}", "PYFLAME_NUM_THREADS": "1", **more}


def run(folder, words, code=0, **more):
    r = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=folder, env=environment(folder, **more))
    assert r.returncode == code, r
    return r


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """(rank, number of ranks, rank on its host) of each process, in order, of what they printed. All have the loss of one process."""
    path = tmp_path_factory.mktemp("one") / "train.py"
    path.write_text(TRAIN)
    one = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60, env=environment(path.parent))
    want = re.fullmatch(r"rank 0 of 1, 0 on its host: (\S+)\n", one.stdout)[1]

    def read(text):
        found = sorted(re.findall(r"rank (\d) of (\d), (\d) on its host: (\d\.\d{5})", text))
        assert {loss for *_, loss in found} == {want}, text
        return [tuple(map(int, place)) for *place, _ in found]

    return read


def test_pyflame_run(folder, ranks):
    r = run(folder, shown("pyflame run --nproc 2 train.py"))
    assert ranks(r.stdout) == [(0, 2, 0), (1, 2, 1)]


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torchrun is not installed")
def test_torchrun(folder, ranks):
    words = shown("torchrun --nproc-per-node 2 train.py")
    r = run(folder, [sys.executable, "-m", "torch.distributed.run", *words[1:]])
    assert ranks(r.stdout) == [(0, 2, 0), (1, 2, 1)]


# Open MPI asks for leave where root runs it, or processes are more than cores.
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def use_mpirun(folder, name):
    """`mpirun` in this folder is that of an MPI; Debian gives each of them a name of its own as well."""
    found = shutil.which(f"mpirun.{name}")
    if not found:
        pytest.skip(f"there is no mpirun.{name} (Debian's packages openmpi-bin and mpich)")
    command(folder, "mpirun", found)


@pytest.mark.parametrize("name", ["openmpi", "mpich"])
def test_mpirun(name, folder, ranks):
    use_mpirun(folder, name)
    r = run(folder, shown("mpirun -n 2 python train.py"), **MPI)
    assert ranks(r.stdout) == [(0, 2, 0), (1, 2, 1)]


@pytest.mark.parametrize("name", ["openmpi", "mpich"])
def test_mpirun_with_a_rank_that_fails(name, folder):
    """The error is shown, and mpirun ends with it."""
    use_mpirun(folder, name)
    (folder / "train.py").write_text(FAILS)
    r = run(folder, shown("mpirun -n 2 python train.py"), code=1, **MPI)
    assert "ValueError: there is no data" in r.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm(tmp_path_factory.mktemp("slurm")) as variables:
        yield variables


def submit(folder, cluster, script):
    """What a batch script prints."""
    (folder / "job.sh").write_text(script)
    job = run(folder, ["sbatch", "--parsable", "--output=out.txt", "job.sh"], **cluster).stdout.strip()
    until = time.monotonic() + 60
    while "JobState=COMPLETED" not in (said := run(folder, ["scontrol", "show", "job", job], **cluster).stdout) and "JobState=FAILED" not in said:
        assert time.monotonic() < until, said
        time.sleep(0.2)
    return (folder / "out.txt").read_text()


def test_srun(cluster, folder, ranks):
    r = run(folder, shown("srun -n 2 python train.py"), **cluster)
    assert ranks(r.stdout) == [(0, 2, 0), (1, 2, 1)]


def test_srun_with_a_rank_that_fails(cluster, folder):
    (folder / "train.py").write_text(FAILS)
    r = run(folder, shown("srun -n 2 python train.py"), code=1, **cluster)
    assert "ValueError: there is no data" in r.stderr


def test_a_batch_script_with_srun(cluster, folder, ranks):
    """Two hosts, whose first one is known by its name."""
    out = submit(folder, cluster, block("#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=2\n"))
    assert ranks(out) == [(0, 4, 0), (1, 4, 1), (2, 4, 0), (3, 4, 1)]


def test_a_batch_script_with_pyflame_run(cluster, folder, ranks):
    script = block("#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=1\n").replace(":29500", f":{20000 + os.getpid() % 10000}")
    out = submit(folder, cluster, script)
    assert ranks(out) == [(0, 4, 0), (1, 4, 1), (2, 4, 0), (3, 4, 1)] and "[3] rank 3 of 4" in out
    (folder / "train.py").write_text(FAILS)
    out = submit(folder, cluster, script)
    assert re.search(r"pyflame run: the last lines of rank 1 on host 0 \(\S+\):", out) and "ValueError: there is no data" in out


@pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="Ray is not installed")
def test_ray(folder, ranks):
    """The page's program. What a rank raises, it raises as well."""
    (folder / "start.py").write_text(block("import os\nimport runpy\n"))
    (folder / "train.py").write_text(TRAIN + "if rank == 1:\n    raise ValueError('there is no data')\n")
    r = run(folder, [sys.executable, "start.py"], code=1, RAY_USAGE_STATS_ENABLED="0", PYTHONPATH=os.pathsep.join(sys.path))
    assert ranks(r.stdout + r.stderr) == [(0, 2, 0), (1, 2, 0)] and "ValueError: there is no data" in r.stderr
