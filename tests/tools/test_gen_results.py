"""Pages with measured figures: they are what the committed results give, and no measured figure is typed into a template by hand."""
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import gen_results  # noqa: E402

MEASURED = re.compile(r"\d[\d.,]*\s?(ns|µs|us|ms|s|GB/s|GFLOP/s|TFLOP/s|MiB|GiB|kB|MB|GB|%)(?![\w/])|\bratio (is|of) \d")
# 16 Mi float32, which is arithmetic; the name of a GPU; the limit that .ci/run sets for a wheel
GIVEN = {"64 MiB", "80GB", "26 MB"}


def typed_by_hand(template):
    text = re.sub(r"\]\([^)]*\)", "]", gen_results.EXPRESSION.sub("", template))
    return [m.group(0) for m in MEASURED.finditer(text) if m.group(0) not in GIVEN]


def test_pages_are_what_the_results_give():
    for path, text in gen_results.outputs(gen_results.Figures()).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `make docs`"


@pytest.mark.parametrize("name", ["readme", "performance", "first_hour", "packages", "llm_accuracy"])
def test_no_measured_figure_is_typed_by_hand(name):
    assert typed_by_hand((gen_results.TEMPLATES / f"{name}.md").read_text(encoding="utf-8")) == []


def test_figures_typed_by_hand_are_found():
    assert typed_by_hand("took 3.5 ms, 40 GB/s and {{ ms(x) }} of 64 MiB, 12 % more, [so](a/12ms.md)") == ["3.5 ms", "40 GB/s", "12 %"]


def test_another_result_is_another_page(monkeypatch):
    figures = gen_results.Figures()
    before = gen_results.outputs(figures)
    figures.cpu["mlp"]["median_ms"]["pyflame"] = 0.987
    after = gen_results.outputs(figures)
    readme, performance = ROOT / "README.md", ROOT / "docs" / "performance.md"
    assert "0.99 ms" in after[readme] and "987 µs" in after[performance]
    assert before[readme] != after[readme] and before[performance] != after[performance]


def test_a_figure_that_was_not_measured_ends_the_tool():
    with pytest.raises(SystemExit, match="KeyError"):
        gen_results.fill('{{ cpu["no such work"] }}', gen_results.Figures())


def test_every_workload_of_the_tables_is_measured():
    figures = gen_results.Figures()
    assert {name for _, name in gen_results.CPU_ROWS} <= set(figures.cpu)
    assert {name for _, name in gen_results.GPU_ROWS if name} <= set(figures.gpu)
