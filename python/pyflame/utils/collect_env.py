"""What PyFlame runs on, by PyTorch's names for it."""


def get_pretty_env_info():
    """A text: versions, processors, GPUs and the libraries that were found, as `pyflame info` prints it."""
    import subprocess
    import sys

    return subprocess.run([sys.executable, "-m", "pyflame", "info"], capture_output=True, text=True, check=True).stdout


def main():
    """Prints get_pretty_env_info()."""
    print(get_pretty_env_info())
