"""The name under which results of this machine are kept: a slug of the CPU's model and the number of cores that may be used. No host
name, so that results can be published, and equal machines share a folder. `python benchmarks/machine.py` prints it."""
import os
import platform
import re


def cpu_model():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            for line in f:
                if line.startswith(("model name", "Model name", "cpu model")):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"


def cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def slug():
    model = re.sub(r"\((r|tm|c)\)|\bcpu\b|\bprocessor\b|@.*", " ", cpu_model().lower())
    return re.sub(r"[^a-z0-9]+", "-", f"{model} {cores()} core{'s' * (cores() != 1)}").strip("-")


if __name__ == "__main__":
    print(slug())
