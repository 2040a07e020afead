"""What a process imports before the first token of a text, and that what stands in the place of NumPy there computes the same."""
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm._random_numbers import RandomNumbers  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

# No text needs these, by whichever way it is asked for.
NEVER = ("numpy", "llguidance", "aiohttp", "asyncio", "http", "prometheus_client", "pyflame.distributed", "pyflame.llm.conversion", "pyflame.llm.serving", "pyflame.nn", "pyflame.optim", "pyflame.testing")
ENGINE = ("pyflame.llm.engine", "pyflame.llm.offline", "pyflame.llm.embedding")
CODES = {
    "import": ("import pyflame.llm", ("jinja2", "regex", "dataclasses", "pyflame.llm.language_model", *ENGINE)),
    "load": ("import pyflame as pf; list(pf.llm.load(PATH).generate('the', max_tokens=2, stream=True))", ("jinja2", *ENGINE)),
    "generate": ("from pyflame.llm.__main__ import main; main(['generate', '--model', PATH, '--prompt', 'the', '--max_tokens', '2', '--seed', '1'])", ("jinja2", *ENGINE)),
    "chat": ("from pyflame.llm.__main__ import main; main(['chat', '--model', PATH, '--max_tokens', '2'])", ENGINE),
    "LLM": ("import pyflame as pf; pf.llm.LLM(PATH, max_model_len=64).generate('the', pf.llm.SamplingParams(max_tokens=2))", ("jinja2",)),
}


@pytest.fixture(scope="module", params=["folder", "gguf"])
def path(request, tmp_path_factory):
    folder = small.write_random_model(tmp_path_factory.mktemp("start"), "llama", seed=3)
    if request.param == "folder":
        return folder
    file = str(tmp_path_factory.mktemp("gguf") / "model.gguf")
    pf.llm.convert(folder, file, "Q4_1")
    return file


def imported(code, path, unwanted):
    """The modules of `unwanted` that a new process has imported when the code has run."""
    code = f"import sys; before = set(sys.modules); PATH = {path!r}; {code}; import json; new = set(sys.modules) - before; print(); print(json.dumps(sorted(m for m in new if any(m == u or m.startswith(u + '.') for u in {unwanted}))))"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYFLAME_")}
    return json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, input="hello\n").stdout.splitlines()[-1])


@pytest.mark.parametrize("way", CODES)
def test_a_text_imports_what_it_needs(way, path):
    code, further = CODES[way]
    assert imported(code, path, (*NEVER, *further)) == []


def test_what_needs_numpy_imports_it(path):
    """So the test above would see it."""
    assert "numpy" in imported("import pyflame as pf; next(pf.llm.load(PATH).generate('the', max_tokens=2, repetition_penalty=1.5, stream=True))", path, ("numpy",))


def test_names_are_imported_when_they_are_used():
    code = ("import sys, pyflame as pf; d = dir(pf.llm); assert 'LLM' in d and 'engine' in d and 'pyflame.llm.engine' not in sys.modules; "
            "assert all(getattr(pf.llm, name).__name__ == name for name in pf.llm.__all__); assert pf.llm.engine.Engine is pf.llm.Engine and pf.llm.tools.format_of")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_that_is_absent_is_told():
    with pytest.raises(AttributeError, match="module 'pyflame.llm' has no attribute 'Samplng'; did you mean 'Sampling'"):
        pf.llm.Samplng


@pytest.mark.parametrize("seed", [0, 1, 7, 2**32 - 1, 2**32, 2**64 + 3, 2**128 + 1, 2**300 + 12345])
def test_random_numbers_are_those_of_numpy(seed):
    ours, numpys = RandomNumbers(seed), np.random.Generator(np.random.Philox(seed))
    assert [ours.random() for _ in range(41)] == [numpys.random() for _ in range(41)]


def test_without_a_seed_each_text_has_other_random_numbers():
    assert len({RandomNumbers().random() for _ in range(20)}) == 20


def test_tables_of_positions(tmp_path):
    network = pf.llm.load(small.write_random_model(tmp_path, "llama", seed=3))._network
    network.reserve(2048)
    angles, factor = network._angles(network.config.rope_base, network.config.scaling, False)
    turns = np.arange(2048)[:, None] * np.array([*angles, *angles])[None, :]
    for table, f in zip(network.rope[0], (np.cos, np.sin)):
        assert table.shape == turns.shape and np.abs(table.numpy() - f(turns) * factor).max() < 2.0**-24
