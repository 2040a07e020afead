"""Hosts made of network namespaces, which a bridge connects."""
import contextlib
import os
import shutil
import subprocess

import pytest

NETWORK = "10.77.0."


def _ip(*words):
    r = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30)
    if r.returncode:
        raise OSError(f"ip {' '.join(words)}: {r.stderr.strip()}")


class Host:
    def __init__(self, name, address):
        self.name, self.address = name, address

    def words(self, *command):
        """The command line that runs a command on this host."""
        return ["ip", "netns", "exec", self.name, *command]


@contextlib.contextmanager
def hosts(n, job=""):
    """n hosts in a network of their own. The test is skipped, with a message, where no namespaces can be made."""
    if not shutil.which("ip"):
        pytest.skip("there is no program `ip` (Debian's package iproute2)")
    names = [f"pyflame-{os.getpid()}{job}-{k}" for k in range(n)]
    bridge = f"pyflame-{os.getpid()}{job}-bridge"
    made = []
    try:
        try:
            for name in [bridge, *names]:
                _ip("netns", "add", name)
                made.append(name)
                _ip("-n", name, "link", "set", "lo", "up")
                _ip("netns", "exec", name, "true")
            _ip("-n", bridge, "link", "add", "bridge", "type", "bridge")
            _ip("-n", bridge, "link", "set", "bridge", "up")
            for k, name in enumerate(names):
                _ip("link", "add", f"port{k}", "netns", bridge, "type", "veth", "peer", "name", "eth0", "netns", name)
                _ip("-n", bridge, "link", "set", f"port{k}", "master", "bridge", "up")
                _ip("-n", name, "address", "add", f"{NETWORK}{k + 1}/24", "dev", "eth0")
                _ip("-n", name, "link", "set", "eth0", "up")
        except OSError as e:
            pytest.skip(f"network namespaces cannot be made: {e}")
        yield [Host(name, f"{NETWORK}{k + 1}") for k, name in enumerate(names)]
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, timeout=30)
