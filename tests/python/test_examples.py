"""The digits example: what it makes of its data, and what it says without. All of it, and the one in C++, run in `.ci/run examples`."""
import gzip
import importlib.util
import os
import pathlib
import re

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MNIST = os.environ.get("PYFLAME_TEST_MNIST") or str(ROOT.parent / "shared" / "data" / "mnist")


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("mnist_cnn", ROOT / "examples" / "mnist_cnn.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_digits_are_learned(example, capsys):
    if not os.path.isdir(MNIST):
        pytest.skip(f"no data in {MNIST}; PYFLAME_TEST_MNIST names the folder")
    assert example.main(["--data", MNIST, "--epochs", "1", "--expect", "0.95"]) == 0
    accuracy = float(re.search(r"test accuracy ([0-9.]+) %", capsys.readouterr().out).group(1))
    assert 95 <= accuracy < 100
    assert example.main(["--data", MNIST, "--epochs", "1", "--batch_size", "500", "--expect", "1"]) == 1


def idx(values):
    return b"".join(int(n).to_bytes(4, "big") for n in (0x800 + values.ndim, *values.shape)) + values.tobytes()


def test_reader(example, tmp_path):
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "plain").write_bytes(idx(values))
    (tmp_path / "packed.gz").write_bytes(gzip.compress(idx(values)))
    (tmp_path / "short").write_bytes(idx(values)[:-1])
    for name in ("plain", "packed"):
        assert np.array_equal(example.read_idx(tmp_path, name, 3), values)
    for name, dims in (("short", 3), ("plain", 1)):
        with pytest.raises(SystemExit, match=f"{name} is not an IDX file of {dims} dimensions"):
            example.read_idx(tmp_path, name, dims)
    with pytest.raises(SystemExit, match="is not there; see the top"):
        example.read_idx(tmp_path, "nothing", 3)
