"""Kernels of our own take the matrix instructions of 16 rows and 16 columns. AMD's guide for the MI300X prefers them to those of 32, which draw more power."""
import pathlib
import re

KERNELS = pathlib.Path(__file__).resolve().parents[2] / "src" / "pyflame" / "kernels"
INSTRUCTION = re.compile(r"__builtin_amdgcn_(?:mfma|smfmac|wmma|swmmac)_\w+")


def of(text):
    return INSTRUCTION.findall(text)


def test_the_search_finds_both_families():
    named = ["__builtin_amdgcn_mfma_f32_32x32x8f16", "__builtin_amdgcn_smfmac_f32_16x16x32_f16", "__builtin_amdgcn_wmma_f32_16x16x16_f16_w32"]
    assert of("; ".join(f"d = {name}(a, b, c, 0, 0, 0)" for name in named)) == named


def test_all_have_16_rows_and_16_columns():
    found = {name for path in KERNELS.rglob("*.h") for name in of(path.read_text(encoding="utf-8"))}
    assert any("mfma" in name for name in found) and any("wmma" in name for name in found)
    assert [name for name in sorted(found) if "_16x16x" not in name] == []
