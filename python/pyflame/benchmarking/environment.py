"""What a figure depends on: the device, its clocks and limits, the libraries, the program. What cannot be read is left out."""
import ctypes
import os
import pathlib
import platform
import re
import resource
import subprocess
import sys

from .. import _C
from . import gpu_metrics

CACHE_BYTES = {"cpu": 64 << 20, "cuda": 128 << 20, "rocm": 256 << 20}  # where the size of the last-level cache is not read: the largest that GPUs have
NVML_TOO_SMALL = 7  # the answer to a question about processes that has no room for them; their number is there
THERMAL, POWER = 0x60, 0x8C  # NVML's reasons: software and hardware thermal slowdown; power cap, hardware slowdown, power brake
SYSFS = pathlib.Path("/sys/class/drm")
KFD = pathlib.Path("/sys/class/kfd/kfd")  # AMD's processes on GPUs, and the numbers that they have there
# Variables that change how fast something is: those that `pyflame doctor` judges, and those of NVIDIA's software and of threads.
SETTINGS = ("PYFLAME_", "HSA", "HIP_", "ROC", "AMD_", "GPU_", "DEBUG_CLR_", "DEBUG_HIP_", "HIPBLASLT_", "MIOPEN_", "TENSILE_", "AITER_", "NCCL_", "RCCL_", "PYTORCH_", "TORCH", "VLLM_", "TRITON_", "OPTIMIZE_EPILOGUE",
            "WORLD_SIZE", "CUDA_", "CUBLAS", "CUDNN_", "NVIDIA_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "MALLOC_", "LD_PRELOAD")
SECRETS = {"APIKEY", "AUTH", "AUTHORIZATION", "CREDENTIAL", "CREDENTIALS", "KEY", "PASSPHRASE", "PASSWD", "PASSWORD", "SECRET", "TOKEN"}  # words in names of variables whose values no record shows


def is_gpu(device):
    return str(device).split(":")[0] in ("cuda", "rocm")


# ---- the cache


def cache_bytes(device):
    """The size of the last-level cache."""
    kind = str(device).split(":")[0]
    if kind in ("cuda", "rocm"):
        return CACHE_BYTES[kind]
    sizes = []
    for path in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            sizes.append(int(path.read_text().strip().rstrip("K")) << 10)
        except (OSError, ValueError):
            pass
    return max(sizes, default=CACHE_BYTES["cpu"])


def flusher(device, times):
    """A function that replaces what is in the cache: it writes a tensor that is `times` as large."""
    block = _C.zeros(max(1, times * cache_bytes(device) // 4), dtype=_C.float32, device=device)

    def flush():
        block.add_(1.0)
        _C.cut()

    return flush


# ---- clocks, power, temperature


class _Nvml:
    """Reads NVIDIA's management library, if it is there."""

    def __init__(self):
        self.library = None
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
            if library.nvmlInit_v2() == 0:
                self.library = library
        except OSError:
            pass

    def read(self, pci):
        """Of the GPU at a PCI address: numbers of CUDA depend on the environment, those of NVML do not."""
        if self.library is None:
            return {}
        handle, found = ctypes.c_void_p(), {}
        if self.library.nvmlDeviceGetHandleByPciBusId_v2(pci.encode(), ctypes.byref(handle)) != 0:
            return {}

        def number(name, kind, *arguments):
            value = kind()
            ok = getattr(self.library, name)(handle, *arguments, ctypes.byref(value)) == 0
            return value.value if ok else None

        found["clock_mhz"] = number("nvmlDeviceGetClockInfo", ctypes.c_uint, 1)
        found["memory_clock_mhz"] = number("nvmlDeviceGetClockInfo", ctypes.c_uint, 2)
        found["temperature_c"] = number("nvmlDeviceGetTemperature", ctypes.c_uint, 0)
        for name, function in (("power_w", "nvmlDeviceGetPowerUsage"), ("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit")):
            milliwatts = number(function, ctypes.c_uint)
            found[name] = None if milliwatts is None else milliwatts / 1e3
        reasons = number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong)
        if reasons is not None:
            found["thermal_limit"], found["power_limit"] = bool(reasons & THERMAL), bool(reasons & POWER)
        processes = ctypes.c_uint(0)
        if self.library.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(processes), None) in (0, NVML_TOO_SMALL):
            found["other_processes"] = max(0, processes.value - 1)
        return {k: v for k, v in found.items() if v is not None}


_nvml = []


def _number(path, scale=1.0):
    try:
        return float(path.read_text().split()[0]) * scale
    except (OSError, ValueError, IndexError):
        return None


def _highest_level(path):
    """The highest clock among the levels of a file like pp_dpm_sclk, in MHz; None if it names none."""
    try:
        levels = re.findall(r":\s*(\d+)\s*[Mm][Hh]z", path.read_text())
    except (OSError, ValueError):
        return None
    return max(map(float, levels), default=None)


def _amd_processes(pci, root):
    """How many processes but this one have memory on the GPU at a PCI address; None where the driver does not say so."""
    found = re.fullmatch(r"([0-9a-fA-F]+):([0-9a-fA-F]+):([0-9a-fA-F]+)\.([0-7])", pci)
    if not found:
        return None
    domain, bus, slot, function = (int(part, 16) for part in found.groups())
    for node in root.glob("topology/nodes/*"):
        try:
            properties = dict(line.split() for line in (node / "properties").read_text().splitlines() if len(line.split()) == 2)
            number = (node / "gpu_id").read_text().strip()
        except OSError:
            continue
        if number != "0" and int(properties.get("location_id", -1)) == bus << 8 | slot << 3 | function and int(properties.get("domain", 0)) == domain:
            return sum(1 for process in root.glob("proc/[0-9]*") if process.name != str(os.getpid()) and _number(process / f"vram_{number}"))
    return None


def amd_state(pci, root=SYSFS, kfd=KFD):
    """Clocks, temperature, power and other processes of amdgpu's card at a PCI address. `root` is a folder like /sys/class/drm, `kfd` one like /sys/class/kfd/kfd. `xcd_clocks_mhz` is there for
    GPUs whose driver tells the clock of each XCD, with the lowest, the highest and their spread; `xcd_clocks_unknown` says why it is not."""
    cards = [c / "device" for c in root.glob("card[0-9]*") if (c / "device" / "pp_dpm_sclk").exists()]
    card = next((c for c in cards if c.resolve().name.lower() == pci.lower()), None)
    if card is None:
        return {}
    found = {"clock_max_mhz": _highest_level(card / "pp_dpm_sclk"), **gpu_metrics.state(card)}
    hwmon = next(iter(sorted((card / "hwmon").glob("hwmon*"))), card)
    for name, path, scale in (("clock_mhz", hwmon / "freq1_input", 1e-6), ("memory_clock_mhz", hwmon / "freq2_input", 1e-6), ("temperature_c", hwmon / "temp1_input", 1e-3),
                              ("power_w", hwmon / "power1_average", 1e-6), ("power_limit_w", hwmon / "power1_cap", 1e-6), ("busy_percent", card / "gpu_busy_percent", 1)):
        found[name] = _number(path, scale)
    found["other_processes"] = _amd_processes(pci, kfd)
    limit, critical = _number(hwmon / "power1_cap", 1e-6), _number(hwmon / "temp1_crit", 1e-3)
    if found["power_w"] is not None and limit:
        found["power_limit"] = found["power_w"] >= 0.98 * limit
    if found["temperature_c"] is not None and critical:
        found["thermal_limit"] = found["temperature_c"] >= critical - 2
    return {k: v for k, v in found.items() if v is not None}


def state(device):
    """What changes while a program runs: clocks, power, temperature, the load of the machine. Entries that cannot be read are missing."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    found = {"involuntary_switches": usage.ru_nivcsw, "load": os.getloadavg()[0]}
    kind = str(device).partition(":")[0]
    if kind == "cuda":
        if not _nvml:
            _nvml.append(_Nvml())
        found.update(_nvml[0].read(_C.device_info(str(device)).get("pci", "")))
    elif kind == "rocm":
        found.update(amd_state(_C.device_info(str(device)).get("pci", "")))
    else:
        mhz = _number(pathlib.Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"), 1e-3)
        found.update({} if mhz is None else {"clock_mhz": mhz})
    return found


def limits(before, after):
    """Reasons for noise that two states of the device show: other processes on a GPU, limits of temperature and power, a clock that changed."""
    found = []
    if others := int(after.get("other_processes", 0)):
        found.append(f"{others} other process{'es' * (others > 1)} use{'s' * (others == 1)} this GPU; hint: stop {'them' if others > 1 else 'it'}, or take another GPU")
    if after.get("thermal_limit"):
        found.append(f"the device lowers its clock because of its temperature, {after.get('temperature_c', 0):.0f} degrees")
    if after.get("power_limit"):
        found.append(f"the device lowers its clock at its power limit, {after.get('power_limit_w', 0):.0f} W")
    first, last = before.get("clock_mhz"), after.get("clock_mhz")
    if first and last and abs(last / first - 1) > 0.02:
        found.append(f"the clock changed from {first:.0f} to {last:.0f} MHz")
    return found


# ---- the rest of the record


def _file_of(fn):
    """The file of the module that has the function; None for one that has no file."""
    return getattr(sys.modules.get(getattr(fn, "__module__", None) or ""), "__file__", None)


def _commit(file):
    """The commit of the folder that the file is in, or without a file of the working folder; None without git."""
    folder = os.path.dirname(os.path.abspath(file)) if file else "."
    try:
        run = subprocess.run(["git", "-C", folder, "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip() or None if run.returncode == 0 else None


def _is_secret(name):
    return bool(SECRETS & set(re.split(r"[_-]", name.upper())))


def _shown(text):
    """A text without passwords and queries of addresses, and without what a header says who asks with."""
    if re.match(r"(authorization:|bearer\s)", text.strip(), re.IGNORECASE):
        return "(not shown)"
    return re.sub(r"(://[^\s?]*\?)\S+", r"\1(not shown)", re.sub(r"(://)\S*@", r"\1", text))


def without_secrets(words):
    """The words of a command line. The values of options such as --api_key are not shown, nor what _shown() leaves out of the others."""
    shown, hide = [], False
    for word in words:
        name, equals, _ = word.partition("=")
        is_option = name.startswith("--") and _is_secret(name[2:])
        shown.append("(not shown)" if hide else f"{name}=(not shown)" if is_option and equals else _shown(word))
        hide = is_option and not equals
    return shown


def settings(variables):
    """Those of these environment variables that a figure can depend on, in order. The value of a secret is not shown."""
    return {k: "(not shown)" if _is_secret(k) else _shown(v) for k, v in sorted(variables.items()) if k.startswith(SETTINGS)}


command = None  # the arguments of `pyflame bench`, while it measures functions of programs, which have none; None: those of the process


def describe(device, fn=None, file=None):
    """The device, versions and settings, as a dict for a record. fn, file: what says where the program is, whose commit is noted."""
    from .. import __version__

    info = _C.device_info(device)
    found = {"pyflame": __version__, "python": platform.python_version(), "system": platform.system(), "kernel": platform.release(), "cores": len(os.sched_getaffinity(0)),
             "device": {k: v for k, v in info.items() if isinstance(v, (str, int, float)) and k not in ("free_memory", "device")}, "libraries": _C._device_libraries(str(device)),
             "settings": settings(os.environ), "arguments": without_secrets(sys.argv[1:] if command is None else command)}
    try:
        found["governor"] = pathlib.Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").read_text().strip()
    except OSError:
        pass
    commit = _commit(file or _file_of(fn))
    return {**found, "commit": commit} if commit else found
