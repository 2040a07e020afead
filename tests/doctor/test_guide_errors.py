"""docs/optimization-guide.md, "What other guides got wrong": what is right instead, where no rule of doctor has it and a program can compute
or try it. test_guides.py has the verdicts on the guides' settings."""
import json
import subprocess
import sys

import numpy as np
import pytest


def architecture(run, gfx, **kernel):
    options = [word for key, value in kernel.items() for word in (f"--{key}", value)]
    return json.loads(run("occupancy", "--arch", gfx, *options, "--json").stdout)


@pytest.fixture
def fit(run, tmp_path):
    """What `pyflame fit` says of training a model of 8 billion parameters."""
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
              "num_key_value_heads": 8, "vocab_size": 128256, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return json.loads(run("fit", tmp_path, "--for", "training", "--json", code=None).stdout)


def test_memory_of_rx_7900_xt_and_xtx(fit):
    memory = {card["name"]: card["memory_bytes"] >> 30 for card in fit["cards"]}
    assert (memory["AMD Radeon RX 7900 XT"], memory["AMD Radeon RX 7900 XTX"]) == (20, 24)


def test_training_8_billion_parameters_takes_16_bytes_each(fit):
    needs, count = fit["needs"]["training"], fit["parameters"]
    assert 8.0e9 < count < 8.1e9
    assert needs["weights"] + needs["gradients"] + needs["optimizer"] == 16 * count > 128e9
    assert not any(card["fits"]["training"] for card in fit["cards"] if card["memory_bytes"] <= 24 << 30)


def test_units_and_bandwidth_of_rx_7900_xt(run):
    peaks = {p["product"]: p for p in architecture(run, "gfx1100")["arch"]["peaks"]}
    xt, xtx = peaks["AMD Radeon RX 7900 XT"], peaks["AMD Radeon RX 7900 XTX"]
    assert (xt["cus"], xt["cus"] * 64) == (84, 5376)
    clock = xt["fp32_tflops"] * 1e12 / (xt["cus"] * 64 * 4)  # each processor issues two multiply-adds
    assert 2.3e9 < clock < 2.5e9  # the rate of the data sheet fits 5,376 processors, not 2,304
    assert (xt["bandwidth_gbs"], xtx["bandwidth_gbs"]) == (800, 960)


@pytest.mark.parametrize("gfx", ["gfx1200", "gfx1201"])
def test_rdna_4_is_there(run, gfx):
    assert architecture(run, gfx)["arch"]["family"] == "RDNA 4"


@pytest.mark.parametrize("gfx", ["gfx90a", "gfx942", "gfx950"])
def test_registers_are_given_out_in_steps_of_8(run, gfx):
    found = architecture(run, gfx, vgpr=165)["occupancy"]
    assert (found["allocated_vgpr"], found["waves_per_simd"]) == (168, 512 // 168) == (168, 3)
    assert 512 // 176 == 2  # what steps of 16 would give


@pytest.mark.parametrize("gfx, limit", [("gfx90a", 65536), ("gfx942", 65536), ("gfx950", 163840)])
def test_lds_that_limits_occupancy(run, gfx, limit):
    found = architecture(run, gfx, lds=65536, block=64)
    assert found["arch"]["lds_bytes"] == limit
    workgroups = next(b["workgroups"] for b in found["occupancy"]["blocks"] if b["block"] == 64)
    assert workgroups == limit // 65536  # one such workgroup on a compute unit, and two on gfx950


def test_two_pipes_in_a_row_are_a_syntax_error():
    judged = {text: subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True).returncode for text in ("python kernel.py | grep x\n", "python kernel.py | | grep x\n")}
    assert list(judged.values()) == [0, 2]


def test_python_does_not_run_shell_scripts(tmp_path):
    script = tmp_path / "monitor.sh"
    script.write_text("#!/bin/sh\nwhile true; do\n  sleep 1\ndone\n")
    r = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert r.returncode and "SyntaxError" in r.stderr


def test_sums_of_1024_numbers_in_another_order():
    """Relative differences of float32 sums pass 1e-5, and stay below 6e-5 of the sum of magnitudes."""
    x = np.random.default_rng(0).standard_normal((1000, 1024)).astype(np.float32)
    forward, backward = (np.cumsum(rows, axis=1, dtype=np.float32)[:, -1] for rows in (x, x[:, ::-1]))
    difference = np.abs(forward - backward)
    assert (difference > 1e-5 * np.abs(forward)).sum() > 10
    assert (difference <= 6e-5 * np.abs(x).sum(axis=1)).all()
