"""The steps of an engine have few shapes: each shape is a program, and each program that is kept takes memory."""
import os
import random

import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm._paged import BLOCK, Pages, Part, Step, coarsely_rounded, step_sizes  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

pytestmark = pytest.mark.skipif(os.environ.get("PYFLAME_WINDOW") == "1", reason="in windows of one op, each op is a program")
TEXTS, TOKENS, CONTEXT = 8, 128, 256  # the most texts and tokens of a step, and of a text


def random_parts(draw, most_readers):
    """One to eight texts of any length: up to so many read their prompts, the others write."""
    count, left, parts, block = draw.randint(1, TEXTS), TOKENS - TEXTS, [], 1
    readers = draw.randint(min(1, most_readers), min(most_readers, count))
    for i in range(count):
        size = draw.randint(2, left // readers) if i < readers else 1
        begin = draw.randint(0, CONTEXT - size)
        blocks = -(-(begin + size) // BLOCK)
        parts.append(Part([draw.randrange(4, small.VOCABULARY) for _ in range(size)], begin, list(range(block, block + blocks)), size == 1 or draw.random() < 0.5))
        block += blocks
    return parts


def programs_of_steps(folder, steps, most_readers=2):
    network, draw = pf.llm.load(folder)._network, random.Random(7)
    pages = Pages(network, TEXTS * CONTEXT // BLOCK)
    for x in [*pages.keys, *pages.values]:
        x.zero_()
    before = pf.program_cache_stats()["misses"]
    for _ in range(steps):
        parts = random_parts(draw, most_readers)
        Step(network, pages, parts, *step_sizes(parts, sum(p.wanted for p in parts))).run()
    return pf.program_cache_stats()["misses"] - before


# 13 numbers of rows up to 128, 2 of blocks to gather, with and without texts that write, with and without logits. With a window or a soft cap, the
# attention of each part has a mask, and programs of its own where there are two parts.
@pytest.mark.parametrize("kind, most", [("llama", 60), ("mistral", 125), ("gemma2", 125)])
def test_steps_that_read_prompts_find_their_programs(tmp_path, kind, most):
    assert programs_of_steps(small.write_random_model(tmp_path, kind, seed=3), 250) <= most


def test_steps_that_write_find_their_programs(tmp_path):
    # Six numbers of rows up to 8, and three widths of the table up to 16 blocks.
    assert programs_of_steps(small.write_random_model(tmp_path, "llama", seed=3), 250, most_readers=0) <= 18


def test_sizes_of_a_step():
    def parts(*sizes):
        return [Part([1] * n, 0, [1], 1) for n in sizes]

    assert [coarsely_rounded(n, 8) for n in (0, 1, 8, 9, 16, 17, 1000)] == [8, 8, 8, 16, 16, 32, 1024]
    assert step_sizes(parts(1, 1, 1), 3) == (3, 3)  # texts that write have no more rows than they need
    assert step_sizes(parts(2), 1) == (8, 8)
    assert step_sizes(parts(100, 1, 1), 3) == (112, 8)
    assert step_sizes(parts(*[2] * 9), 9) == (24, 16)
