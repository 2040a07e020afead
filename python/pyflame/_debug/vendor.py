"""The vendors' tools for faults of a GPU: AMD's debug agent is loaded into the process, and NVIDIA's compute-sanitizer starts it."""
import ctypes.util
import glob
import os
import shutil

AGENT = "librocm-debug-agent.so.2"
CHECKS = ("memcheck", "initcheck", "racecheck", "synccheck")


def find_agent(environment=os.environ):
    """The path of AMD's debug agent, or None. It is looked for in ROCM_PATH, in /opt/rocm*, on LD_LIBRARY_PATH and in the linker's cache."""
    folders = [os.path.join(environment["ROCM_PATH"], "lib")] if environment.get("ROCM_PATH") else []
    folders += environment.get("LD_LIBRARY_PATH", "").split(":") + ["/opt/rocm/lib", *sorted(glob.glob("/opt/rocm-*/lib"), reverse=True)]
    for folder in filter(None, folders):
        path = os.path.join(folder, AGENT)
        if os.path.exists(path):
            return path
    return AGENT if ctypes.util.find_library("rocm-debug-agent") else None


def load_agent(environment=os.environ):
    """Has ROCm load the agent when the process opens a GPU: sets HSA_TOOLS_LIB and HSA_ENABLE_DEBUG, which ROCm reads then. Returns what to say about it; False if
    there is no agent. A value that is set already stays."""
    present = environment.get("HSA_TOOLS_LIB")
    path = find_agent(environment)
    if path is None and not (present and "debug-agent" in present):
        return False, f"AMD's debug agent is not installed, so a fault of an AMD GPU is told without its wave and registers; {AGENT} is in ROCm's package rocm-debug-agent"
    if present and "debug-agent" not in present:
        environment["HSA_TOOLS_LIB"] = f"{present} {path}"  # a list, with spaces
    elif not present:
        environment["HSA_TOOLS_LIB"] = path
    environment.setdefault("HSA_ENABLE_DEBUG", "1")
    return True, f"AMD's debug agent is loaded with the GPU (HSA_TOOLS_LIB={environment['HSA_TOOLS_LIB']}): it prints the wave, its registers and the machine code of a fault"


def find_sanitizer(environment=os.environ):
    """The path of compute-sanitizer, or None."""
    found = shutil.which("compute-sanitizer", path=environment.get("PATH"))
    if found:
        return found
    roots = filter(None, (environment.get("CUDA_HOME"), environment.get("CUDA_PATH"), "/usr/local/cuda"))
    return next((path for root in roots if os.access(path := os.path.join(root, "bin", "compute-sanitizer"), os.X_OK)), None)


def sanitizer_command(tool, words, environment=os.environ):
    """The command line that runs `words` under compute-sanitizer. ValueError without it."""
    path = find_sanitizer(environment)
    if path is None:
        raise ValueError("compute-sanitizer is not installed; it is part of the CUDA toolkit; hint: put it on PATH, or set CUDA_HOME")
    return [path, f"--tool={tool}", "--error-exitcode=4", *words]
