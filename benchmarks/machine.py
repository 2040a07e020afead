"""The name under which results of this machine are kept: a slug of the CPU's model and the number of cores that may be used. No host
name, so that results can be published, and equal machines share a folder. `python benchmarks/machine.py` prints it."""
import os
import platform
import re


def cpu_facts():
    """What /proc/cpuinfo says of the first CPU, by name."""
    facts = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            for line in f:
                if not line.strip():
                    break
                name, _, value = line.partition(":")
                facts[name.strip().lower()] = value.strip()
    except OSError:
        pass
    return facts


def cpu_model():
    facts = cpu_facts()
    return facts.get("model name") or facts.get("cpu model") or platform.processor() or platform.machine() or "unknown"


def cpu():
    """The model with its family and number, as results keep it: virtual machines call different CPUs "AMD EPYC"."""
    facts = cpu_facts()
    return cpu_model() + (f" (family {facts['cpu family']}, model {facts['model']})" if "cpu family" in facts and "model" in facts else "")


def cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def slug():
    model = re.sub(r"\((r|tm|c)\)|\bcpu\b|\bprocessor\b|@.*", " ", cpu_model().lower())
    return re.sub(r"[^a-z0-9]+", "-", f"{model} {cores()} core{'s' * (cores() != 1)}").strip("-")


if __name__ == "__main__":
    print(slug())
