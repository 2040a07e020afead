"""Which processors each process of the launcher runs on: those of its GPU's NUMA node, its share of the nodes, or cores of its own.

Memory needs no setting of its own: Linux takes a page from the node of the processor that first writes to it.
"""
import os

_DRIVERS = ("amdgpu", "nvidia")
_DISPLAY, _ACCELERATOR = "0x03", "0x12"  # of the classes of PCI devices
_VISIBLE = {"amdgpu": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"), "nvidia": ("CUDA_VISIBLE_DEVICES",)}


def _text(*path):
    try:
        with open(os.path.join(*path)) as f:
            return f.read().strip()
    except OSError:
        return ""


def _numbers(text):
    """The numbers of a list as Linux writes it, such as 0-3,8."""
    found = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def _names(*path):
    try:
        return sorted(os.listdir(os.path.join(*path)))
    except OSError:
        return []


class Machine:
    """The processors that this process may use, by NUMA node, and where the GPUs are. `root` is the folder /sys."""

    def __init__(self, root="/sys", allowed=None, environment=None):
        self.root, self.environment = root, os.environ if environment is None else environment
        self.allowed = set(os.sched_getaffinity(0) if allowed is None else allowed)
        self.nodes = self._nodes() or {0: sorted(self.allowed)}

    def _nodes(self):
        found = {}
        for name in _names(self.root, "devices/system/node"):
            if name.startswith("node") and name[4:].isdigit():
                processors = [p for p in _numbers(_text(self.root, "devices/system/node", name, "cpulist")) if p in self.allowed]
                if processors:
                    found[int(name[4:])] = processors
        return dict(sorted(found.items()))

    def cores(self, nodes):
        """The cores of some nodes, each as the set of its processors."""
        found = {}
        for processor in (p for node in nodes for p in self.nodes[node]):
            siblings = _numbers(_text(self.root, f"devices/system/cpu/cpu{processor}/topology/thread_siblings_list")) or [processor]
            found.setdefault(siblings[0], set()).add(processor)
        return list(found.values())

    def gpu_nodes(self, count):
        """The NUMA node of each of the `count` GPUs that programs see, or None where /sys does not tell which ones these are."""
        for driver in _DRIVERS:
            gpus = [name for name in _names(self.root, "bus/pci/devices") if self._is_gpu(name, driver)]
            for variable in _VISIBLE[driver]:
                chosen = self.environment.get(variable)
                if chosen is not None:
                    words = chosen.split(",")
                    if not all(w.strip().isdigit() and int(w) < len(gpus) for w in words):
                        gpus = []
                        break
                    gpus = [gpus[int(w)] for w in words]
            if gpus and len(gpus) == count:
                nodes = [_text(self.root, "bus/pci/devices", name, "numa_node") for name in gpus]
                return [int(node) for node in nodes] if all(node.isdigit() and int(node) in self.nodes for node in nodes) else None
        return None

    def _is_gpu(self, name, driver):
        folder = os.path.join(self.root, "bus/pci/devices", name)
        return _text(folder, "class").startswith((_DISPLAY, _ACCELERATOR)) and os.path.basename(os.path.realpath(os.path.join(folder, "driver"))) == driver


def _homes(machine, n, gpus):
    """For each of n processes the nodes where it belongs: its GPU's, if each has one, otherwise its share of all."""
    count = gpus() if len(machine.nodes) > 1 else 0
    nodes = machine.gpu_nodes(count) if count >= n else None
    if nodes:
        return [(node,) for node in nodes[:n]]
    every = list(machine.nodes)
    return [tuple(every[i * len(every) // n:max(i * len(every) // n + 1, (i + 1) * len(every) // n)]) for i in range(n)]


def processors(bind, n, machine, gpus):
    """For each of n processes the set of its processors, and how many of the processes share that set.

    bind: 'none' (all processors), 'numa' (those of its nodes) or 'cores' (cores that no other one has). gpus() is the number of GPUs that programs
    see. ValueError when there are fewer cores than processes.
    """
    if bind == "none":
        return [(set(machine.allowed), n)] * n
    homes = _homes(machine, n, gpus)
    if bind == "numa":
        return [({p for node in home for p in machine.nodes[node]}, homes.count(home)) for home in homes]
    found = []
    for i, home in enumerate(homes):
        cores, sharing, mine = machine.cores(home), homes.count(home), homes[:i].count(home)
        if sharing > len(cores):
            raise ValueError(f"--bind: there are fewer cores than processes; got {sharing} processes for the {len(cores)} cores of NUMA node {', '.join(map(str, home))}; expected at most one for each core; hint: --bind numa")
        found.append((set().union(*cores[mine * len(cores) // sharing:(mine + 1) * len(cores) // sharing]), 1))
    return found
