"""A SLURM of its own: two nodes on this machine, with key, socket and files in one folder, which leaves those of the machine alone."""
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time

import pytest

CONFIGURATION = """
ClusterName=pyflame
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
StateSaveLocation={folder}/state
SlurmUser=root
SlurmdUser=root
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
JobAcctGatherType=jobacct_gather/none
PlugStackConfig={folder}/plugstack.conf
ReturnToService=2
NodeName={host},zz-second NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]},{ports[2]} CPUs=4
PartitionName=all Nodes={host},zz-second Default=YES MaxTime=5 State=UP
"""
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "sinfo")
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"


def _free_ports(n):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]


def _lives(pid):
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


def _end(folder):
    """Ends the programs, by the numbers that they wrote."""
    left = []
    for path in folder.glob("*.pid"):
        with contextlib.suppress(OSError, ValueError):
            left.append(int(path.read_text()))
            os.kill(left[-1], signal.SIGTERM)
    until = time.monotonic() + 2
    while any(map(_lives, left)) and time.monotonic() < until:
        time.sleep(0.05)
    for pid in filter(_lives, left):
        os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def slurm(folder):
    """The variables with which srun and sbatch use it. The test is skipped, with a message, where SLURM is not installed or does not start."""
    missing = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
    if missing:
        pytest.skip(f"SLURM is not installed: there is no {', '.join(missing)} (Debian's packages slurm-wlm and munge)")
    if os.getuid() != 0:
        pytest.skip("SLURM starts jobs only as root")
    environment = {**{k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}, "PATH": PATH, "SLURM_CONF": f"{folder}/slurm.conf"}
    host = socket.gethostname().split(".")[0]
    (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder, host=host, ports=_free_ports(3)))
    (folder / "plugstack.conf").touch()
    (folder / "state").mkdir()
    (folder / "key").write_bytes(os.urandom(1024))
    (folder / "key").chmod(0o600)
    try:
        munged = ["munged", "--force", "--num-threads=1", *(f"--{option}={folder}/{name}" for option, name in
                  (("key-file", "key"), ("socket", "munge.socket"), ("pid-file", "munged.pid"), ("log-file", "munged.log"), ("seed-file", "seed")))]
        for words in munged, ["slurmctld"], ["slurmd", "-N", host], ["slurmd", "-N", "zz-second"]:
            r = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=30, env=environment, cwd=folder)
            if r.returncode:
                pytest.skip(f"SLURM does not start: {' '.join(words)}: {r.stderr.decode(errors='replace').strip()}")
        until, states = time.monotonic() + 30, []
        while states != ["idle"] * 2:
            if time.monotonic() > until:
                pytest.skip(f"SLURM does not start: its nodes are {' and '.join(states) or 'unknown'}")
            time.sleep(0.1)
            states = subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], capture_output=True, text=True, timeout=30, env=environment).stdout.split()
        yield {"SLURM_CONF": environment["SLURM_CONF"]}
    finally:
        _end(folder)
