"""What is deprecated says so in one way (docs/versions.md): pyflame._deprecation."""
import pathlib
import re
import subprocess
import sys
import warnings

import pytest

import pyflame as pf
from pyflame import _deprecation

PACKAGE = pathlib.Path(pf.__file__).parent


def old_name():
    _deprecation.deprecated("pf.old_name", "pf.new_name", removed_in="0.3")


def of(call):
    """[(category, text, file, line)] of the warnings of call()."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        call()
    return [(w.category, str(w.message), w.filename, w.lineno) for w in said]


def test_a_name_that_goes_away_warns_once_at_the_callers_line(monkeypatch):
    monkeypatch.setattr(_deprecation, "_said", set())

    def program():
        old_name()
        old_name()

    line = program.__code__.co_firstlineno + 1
    assert of(program) == [(DeprecationWarning, "pf.old_name is deprecated in favour of pf.new_name; PyFlame 0.3 will not have it", __file__, line)]
    assert of(program) == []


def test_a_program_sees_it(tmp_path):
    """Python shows a DeprecationWarning only where its line is in the program."""
    (tmp_path / "library.py").write_text("from pyflame._deprecation import deprecated\ndef old():\n    deprecated('library.old', 'library.new', removed_in='0.3')\n")
    (tmp_path / "program.py").write_text("import library\nlibrary.old()\n")
    r = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "program.py:2: DeprecationWarning: library.old is deprecated in favour of library.new" in r.stderr


LINEAR = pf.nn.Linear(2, 2)
DEPRECATED_BY_PYTORCH = {
    "nn.init.xavier_uniform": ("nn.init.xavier_uniform_", lambda: pf.nn.init.xavier_uniform(pf.empty(2, 2))),
    "nn.utils.clip_grad_norm": ("nn.utils.clip_grad_norm_", lambda: pf.nn.utils.clip_grad_norm([], 1.0)),
    "nn.utils.weight_norm": ("nn.utils.parametrizations.weight_norm", lambda: pf.nn.utils.weight_norm(pf.nn.Linear(2, 2))),
    "nn.Module.register_backward_hook": ("register_full_backward_hook", lambda: LINEAR.register_backward_hook(lambda *_: None).remove()),
}


@pytest.mark.parametrize("name", DEPRECATED_BY_PYTORCH)
def test_names_that_pytorch_has_deprecated_warn_at_each_call(name):
    instead, call = DEPRECATED_BY_PYTORCH[name]
    for _ in range(2):
        assert of(call) == [(FutureWarning, f"{name} is deprecated in favour of {instead}, as in PyTorch", __file__, call.__code__.co_firstlineno)]


def test_there_is_one_way():
    found = [p.relative_to(PACKAGE).as_posix() for p in PACKAGE.rglob("*.py") if re.search(r"\b(Deprecation|Future)Warning\b", p.read_text(encoding="utf-8"))]
    assert found == ["_deprecation.py"]


def test_what_has_had_its_time_is_gone():
    version = tuple(map(int, re.findall(r"\d+", pf.__version__)[:2]))
    for path in PACKAGE.rglob("*.py"):
        for removed_in in re.findall(r"removed_in=\"(\d+)\.(\d+)", path.read_text(encoding="utf-8")):
            assert version < tuple(map(int, removed_in)), path
