"""The check of a replay (docs/internals/replay.md) leaves the memory as the launches left it."""


def test_inputs_that_serve_as_workspaces_are_there_for_the_check(program):
    """`big` is read first, and then its memory is the workspace of paged_attention. What the program writes of `cache` is too much to be saved, but rows of it
    are replaced only."""
    program.run(
        """
import numpy as np
pf.set_device("rocm")
texts, heads, dim = 256, 8, 128
keys, values, q = pf.randn(4, 16, 1, dim), pf.randn(4, 16, 1, dim), pf.randn(texts, heads, dim)
table, lengths = pf.zeros(texts, 4096, dtype=pf.int32), pf.full((texts,), 3, dtype=pf.int32)
cache, rows = pf.empty(9 << 20, 8), pf.tensor([3, 7])
want = np.exp(np.arange(8) - 7.0)
want /= want.sum()

def step(big):
    a = pf.softmax(big[:8], 0)
    del big
    y = pf._C.paged_attention(q, keys, values, table, lengths, scale=0.1)
    cache.index_copy_(0, rows, pf.stack([a, 2 * a]))
    return y[0, 0, :8] * 0 + a

for i in range(9):
    big = pf.empty(18 << 20)
    big[:8].copy_(pf.arange(8, dtype=pf.float32))
    pf.synchronize()
    held = [big]
    del big
    np.testing.assert_allclose(step(held.pop()).numpy(), want, rtol=1e-5)
    np.testing.assert_allclose(cache.index_select(0, rows).numpy(), [want, 2 * want], rtol=1e-5, err_msg=f"run {i}")
stats = pf.gpu_graph_stats()
assert stats["verified"] >= 2 and stats["differed"] == 0, stats
""",
        PYFLAME_GPU_GRAPHS="1", PYFLAME_INTERPRET="0", PYFLAME_EMULATOR_MEMORY="2G")
