"""Who this process is among the processes of a job: the variables of torchrun (and `pyflame run`), SLURM, Open MPI and MPICH."""
import os
import re
import zlib
from dataclasses import dataclass
from typing import Optional


@dataclass
class Place:
    """The place of a process: its rank, the number of processes, its rank on its host, and where rank 0 can be reached."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    address: Optional[str] = None
    port: Optional[int] = None
    source: str = "no variables: the only process"


def _number(op, variables, name):
    text = variables[name]
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise ValueError(f"{op}: {name} is not a number; got {text!r}; expected an integer that is not negative")
    return number


def _need(op, variables, given, names):
    missing = [n for n in names if not variables.get(n)]
    if missing:
        raise ValueError(
            f"{op}: variables of the launcher are missing; got {', '.join(f'{n}={variables[n]}' for n in given if variables.get(n))} without {', '.join(missing)}; "
            f"expected {', '.join(names)}; hint: start with `pyflame run --nproc N script.py`, set all of them, or unset {', '.join(n for n in given if variables.get(n))}"
        )


def _checked(op, place, names):
    if place.world_size < 1:
        raise ValueError(f"{op}: {names[1]} is no number of processes; got {place.world_size}; expected at least 1")
    if place.rank >= place.world_size:
        raise ValueError(f"{op}: {names[0]} is out of range; got {place.rank}; expected 0 to {place.world_size - 1} ({names[1]}={place.world_size})")
    return place


def _torchrun(op, v):
    given = [n for n in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if v.get(n)]
    if not given:
        return None
    several = v.get("WORLD_SIZE") != "1"
    _need(op, v, [*given, "LOCAL_RANK"], ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if several else ("RANK", "WORLD_SIZE"))
    rank = _number(op, v, "RANK")
    place = Place(rank, _number(op, v, "WORLD_SIZE"), _number(op, v, "LOCAL_RANK") if v.get("LOCAL_RANK") else rank, source="RANK and WORLD_SIZE, as torchrun and `pyflame run` set them")
    return _checked(op, place, ("RANK", "WORLD_SIZE"))


def _port_of(job):
    """The same number in each process of the job; other jobs have others."""
    return 20000 + zlib.crc32(job.encode()) % 12000


def _job(op, v, names, local, job, source):
    """The variables of a launcher that says nothing of an address."""
    given = [n for n in names if v.get(n)]
    if not given:
        return None
    _need(op, v, given, names)
    place = Place(_number(op, v, names[0]), _number(op, v, names[1]), source=source)
    place.local_rank = _number(op, v, local) if v.get(local) else place.rank
    place.port = _port_of(job)
    return _checked(op, place, names)


def _open_mpi(op, v):
    job = v.get("PMIX_NAMESPACE") or v.get("OMPI_MCA_ess_base_jobid") or str(os.getppid())
    place = _job(op, v, ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_LOCAL_RANK", job, "Open MPI's variables")
    if place and v.get("OMPI_COMM_WORLD_LOCAL_SIZE") == v["OMPI_COMM_WORLD_SIZE"]:
        place.address = "127.0.0.1"
    return place


def _mpich(op, v):
    place = _job(op, v, ("PMI_RANK", "PMI_SIZE"), "MPI_LOCALRANKID", v.get("PMI_JOBID") or str(os.getppid()), "MPICH's variables")
    if place and v.get("MPI_LOCALNRANKS") == v["PMI_SIZE"]:
        place.address = "127.0.0.1"
    return place


def _slurm(op, v):
    step = v.get("SLURM_STEP_ID", "")
    if not step.isdigit() or int(step) >= 0xFFFFFFF0:  # a batch script itself, whose other tasks do not run
        return None
    place = _job(op, v, ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"), "SLURM_LOCALID", f"{v.get('SLURM_JOB_ID')}.{step}", "SLURM's variables")
    if place:
        place.address = "127.0.0.1" if v.get("SLURM_STEP_NUM_NODES", "1") == "1" else first_host(v.get("SLURM_STEP_NODELIST", ""))
    return place


def first_host(nodes):
    """The first host of a list as SLURM writes it, such as gpu[03-05,9],cpu1: there rank 0 runs. SLURM_LAUNCH_NODE_IPADDR may be a login node."""
    first = re.match(r"(?:[^,\[\]]|\[[^\]]*\])*", nodes)[0]
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first) or None


def place_of_process(op, variables=None):
    """The Place that the variables tell. ValueError when some of a launcher's variables are there and others are not."""
    v = os.environ if variables is None else variables
    for read in (_open_mpi, _mpich, _slurm):
        # MASTER_ADDR and MASTER_PORT may be set beside these, to say where rank 0 is.
        place = None if v.get("RANK") or v.get("WORLD_SIZE") else read(op, v)
        if place:
            break
    else:
        place = _torchrun(op, v) or Place()
    if v.get("MASTER_ADDR"):
        place.address = v["MASTER_ADDR"]
    if v.get("MASTER_PORT"):
        place.port = _number(op, v, "MASTER_PORT")
        if v.get("TORCHELASTIC_USE_AGENT_STORE") == "True":  # there torchrun has a store of its own, which only PyTorch can read
            place.port = _port_of(f"torchrun {place.port}")
    if place.world_size > 1 and place.address is None:
        raise ValueError(f"{op}: nothing says where rank 0 is; got {place.source}; expected MASTER_ADDR; hint: set it to the address of the host of rank 0")
    return place
