"""What surprises, written down so that it changes only on purpose: one test for each entry of docs/footguns.md, named after it.
test_page.py keeps the two together."""
import math
import os
import threading
import time

import numpy as np
import pytest
from sanitized import forks

import pyflame as pf
from pyflame import nn
from pyflame.nn import functional as F

one_by_one = os.environ.get("PYFLAME_WINDOW") == "1"
needs_windows = pytest.mark.skipif(one_by_one, reason="each op is a window of its own")


def windows(f):
    return int(pf.explain(f).split()[0])


def allocated():
    pf.synchronize()
    return pf.memory_stats()["allocated"]


# When things run


@needs_windows
def test_timing_without_synchronize():
    x = pf.randn(512, 512)
    (x @ x).sum().item()

    def times():
        pf.synchronize()
        start = time.perf_counter()
        y = x
        for _ in range(20):
            y = (y @ x).tanh()
        recorded = time.perf_counter() - start
        pf.synchronize()
        del y
        return recorded / (time.perf_counter() - start)

    assert min(times() for _ in range(5)) < 0.2  # what is left is the work


def test_errors_that_depend_on_data_come_later():
    with pytest.raises(IndexError):
        pf.index_select(pf.ones(2, 2), 0, pf.tensor([5]))  # the values are at hand
    if one_by_one:
        return
    y = pf.index_select(pf.ones(2, 2), 0, pf.tensor([2]) + 3)  # they are not: no error here
    z = y * 2
    with pytest.raises(IndexError, match=r"got 5(.|\n)*recorded at test_footguns.py"):
        y.tolist()
    with pytest.raises(IndexError):
        z.tolist()  # what was made of it says the same
    pf.index_select(pf.ones(2, 2), 0, pf.tensor([2]) + 3)
    with pytest.raises(IndexError):
        pf.synchronize()


@needs_windows
@pytest.mark.parametrize("read", [lambda t: t.item(), float, bool, repr, lambda t: t.tolist(), lambda t: t.numpy()])
def test_reading_a_value_inside_a_loop(read):
    def loop(look):
        for i in range(5):
            look((pf.ones(4) * i).sum())

    assert windows(lambda: loop(read)) == 5
    assert windows(lambda: loop(lambda t: t.detach())) <= 1


@needs_windows
@pytest.mark.parametrize("end", [lambda y: y.item(), lambda y: pf.synchronize(), lambda y: pf.cut()])
def test_pending_work_keeps_its_inputs(end):
    before = allocated()
    x = pf.zeros(1 << 20)
    pf.synchronize()
    y = (x + 1).sum()
    del x
    assert pf.memory_stats()["allocated"] - before > 3 << 20
    end(y)
    assert pf.memory_stats()["allocated"] - before < 1 << 20


def test_memory_that_is_free_stays_with_the_process():
    x = pf.zeros(1 << 20)
    pf.synchronize()
    before = pf.memory_stats()
    del x
    after = pf.memory_stats()
    assert before["allocated"] - after["allocated"] == after["cached"] - before["cached"] >= 4 << 20
    pf.empty_cache()
    assert pf.memory_stats()["cached"] == 0


@needs_windows
def test_a_living_array_makes_its_tensor_slow():
    x, a = pf.zeros(3), np.zeros(3, np.float32)
    assert windows(lambda: x.add_(1).mul_(2).add_(1)) == 1
    view = x.numpy()
    assert windows(lambda: x.add_(1).mul_(2).add_(1)) >= 3
    assert view.tolist() == x.tolist()
    del view
    assert windows(lambda: x.add_(1).mul_(2).add_(1)) == 1
    shared = pf.from_numpy(a)
    assert windows(lambda: shared.add_(1).mul_(2).add_(1)) >= 3


def test_shapes_that_never_repeat():
    def misses(sizes):
        before = pf.program_cache_stats()["misses"]
        for n in sizes:
            (pf.ones(n) * 3).sum().item()
        return pf.program_cache_stats()["misses"] - before

    new = range(1511, 1517)
    assert misses(new) >= len(new)
    assert misses(new) == 0
    before = pf.program_cache_stats()["misses"]
    for number in (1.5, 2.5, 3.5):  # numbers are no part of it
        (pf.ones(1511) * number).sum().item()
    assert pf.program_cache_stats()["misses"] - before <= (3 if one_by_one else 1)


def test_pythons_sum_over_a_tensor():
    x = pf.arange(50).float()
    assert sum(x).item() == x.sum().item() == 1225
    x.sum().item()
    adds = pf.explain(lambda: sum(x))
    assert "cpu.tile add x 50" in adds if one_by_one else adds.count("add(") >= 49
    assert "add(" not in pf.explain(lambda: x.sum())


# Gradients


def test_losses_that_remember():
    def growth(total_of):
        w, total, seen = pf.ones(1 << 14, requires_grad=True), 0.0, []
        for _ in range(6):
            total = total_of(total, w)
            seen.append(allocated())
        return (seen[5] - seen[1]) / 4

    saved = 4 << 14  # what exp() keeps for its gradient

    def quietly(total, w):
        with pf.no_grad():
            return total + w.exp().sum()

    assert growth(lambda total, w: total + w.exp().sum()) >= saved
    assert growth(lambda total, w: total + w.exp().sum().detach()) < 1024
    assert growth(quietly) < 1024
    assert growth(lambda total, w: total + w.exp().sum().item()) < 1024


def test_gradients_add_up():
    w = pf.ones(1, requires_grad=True)
    optimizer = pf.optim.SGD([w], lr=0.0)
    for expected in (2, 4, 6):
        (w * 2).sum().backward()
        assert w.grad.tolist() == [expected]
    optimizer.zero_grad()
    (w * 2).sum().backward()
    assert w.grad.tolist() == [2]


def test_backward_twice():
    x = pf.ones(2, requires_grad=True)
    y = (x**2).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4, 4]
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.backward()


@pytest.mark.parametrize("write", [lambda w: w.add_(1), lambda w: w.fill_(1), lambda w: w.__setitem__(0, 1), lambda w: w[0].zero_()])
def test_writing_into_a_leaf(write):
    w = pf.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        write(w)
    assert w.tolist() == [1, 1]
    with pf.no_grad():
        write(w)
    assert w.requires_grad and w.grad is None


@pytest.mark.parametrize("write", [lambda y: y.add_(1), lambda y: y.detach().zero_(), lambda y: y.data.zero_(), lambda y: y[0].zero_()])
def test_writing_into_what_a_gradient_needs(write):
    def loss(change):
        a = pf.ones(2, requires_grad=True)
        y = a.exp()
        z = y * y
        change(y)
        return a, z.sum()

    _, z = loss(write)
    with pytest.raises(RuntimeError, match="modified in place"):
        z.backward()
    a, z = loss(lambda y: write(y.clone()))
    z.backward()
    assert a.grad.tolist() == pytest.approx([2 * math.e**2] * 2)


def test_nan_in_the_branch_that_was_not_taken():
    def gradient(f, x=0.0):
        x = pf.tensor([x], requires_grad=True)
        f(x).sum().backward()
        return x.grad.item()

    assert math.isnan(gradient(lambda x: pf.where(x > 0, x.sqrt(), 0.0)))
    assert math.isnan(gradient(lambda x: pf.where(x > 0, x.log() * x, 0.0)))
    guarded = lambda x: pf.where(x > 0, pf.where(x > 0, x, 1.0).sqrt(), 0.0)  # noqa: E731
    assert gradient(guarded) == 0 and gradient(guarded, 4.0) == 0.25


def test_grad_is_a_new_name_each_time():
    x = pf.ones(2, requires_grad=True)
    x.sum().backward()
    assert x.grad is not x.grad and x.grad.is_same(x.grad)
    x.grad.zero_()  # yet it is the same tensor
    assert x.grad.tolist() == [0, 0]


def test_grad_modes_belong_to_a_thread():
    seen = []
    with pf.no_grad():
        t = threading.Thread(target=lambda: seen.append(pf.is_grad_enabled()))
        t.start()
        t.join()
    assert seen == [True]


# Views and copies


def test_views_write_through():
    for view in (lambda x: x[0:2], lambda x: x.view(3)[:2], lambda x: x.detach()[:2], lambda x: x.split(2)[0]):
        x = pf.zeros(3)
        view(x).add_(1)
        assert x.tolist() == [1, 1, 0]
    x = pf.zeros(3)
    for copy in (x[pf.tensor([0])], x.index_select(0, pf.tensor([0])), x[0:2].clone()):
        copy.add_(1)
    assert x.tolist() == [0, 0, 0]


def test_reshape_is_a_copy_at_times():
    x = pf.zeros(2, 3)
    x.reshape(6)[0] = 1
    x.T.reshape(6)[5] = 1
    x.flatten()[1] = 1
    assert x.tolist() == [[1, 1, 0], [0, 0, 0]]
    with pytest.raises(ValueError, match="reshape"):
        x.T.view(6)


def test_plus_equals_writes_for_everyone():
    x = pf.zeros(2)
    y = x
    y += 1
    assert x.tolist() == [1, 1] and y is x
    y = y + 1
    assert x.tolist() == [1, 1] and y.tolist() == [2, 2]


def test_expanded_views_cannot_be_written():
    x = pf.zeros(1).expand(3)
    with pytest.raises(RuntimeError):
        x += pf.arange(3).float()
    with pytest.raises(RuntimeError):
        pf.broadcast_to(pf.zeros(1), (3,)).fill_(1)
    assert x.clone().add_(1).tolist() == [1, 1, 1]


def test_from_numpy_shares_tensor_copies():
    a = np.zeros(2, np.float32)
    shared, copied = pf.from_numpy(a), pf.tensor(a)
    a[0] = 1
    assert shared.tolist() == [1, 0] and copied.tolist() == [0, 0]
    shared[1] = 2
    assert a.tolist() == [1, 2]


def test_a_state_dict_follows_the_training():
    layer = nn.Linear(1, 1)
    same = layer.state_dict()
    kept = {name: value.clone() for name, value in same.items()}
    before = layer.weight.item()
    optimizer = pf.optim.SGD(layer.parameters(), lr=1.0)
    layer(pf.ones(1, 1)).sum().backward()
    optimizer.step()
    assert layer.weight.item() != before
    assert same["weight"].item() == layer.weight.item() and kept["weight"].item() == before


def test_strides_of_channels_last_images():
    x = pf.randn(2, 3, 4, 4)
    last = x.to(memory_format=pf.channels_last)
    assert last.shape == x.shape and last.stride() == (48, 1, 12, 3) and pf.equal(last, x)
    assert last.numpy().strides == (192, 4, 48, 12)
    with pytest.raises(ValueError):
        last.view(2, -1)
    for flat in (last.reshape(2, -1), last.flatten(1), last.contiguous().view(2, -1)):
        assert pf.equal(flat, x.view(2, -1))


# Numbers


def test_numpys_float64_stays_float64():
    assert pf.tensor(np.ones(1)).dtype == pf.float64 and pf.tensor([1.0]).dtype == pf.float32
    assert pf.from_numpy(np.ones(1)).dtype == pf.float64
    assert (pf.tensor(np.ones(1)) + pf.tensor([1.0])).dtype == pf.float64
    assert pf.tensor(np.ones(1), dtype=pf.float32).dtype == pf.float32


def test_numbers_do_not_widen_a_tensor():
    for dtype in (pf.float16, pf.bfloat16, pf.float32):
        assert (pf.ones(1, dtype=dtype) * 0.1).dtype == dtype
        assert (pf.ones(1, dtype=dtype) * pf.tensor(2.0)).dtype == dtype  # without dimensions: as a number
    assert (pf.tensor([1], dtype=pf.int8) + 1000).dtype == pf.int8
    assert (pf.tensor([1]) + 0.5).dtype == pf.float32
    x = pf.tensor([1])
    with pytest.raises(RuntimeError, match="can't be cast to int64"):
        x += 0.5


def test_the_fill_value_decides_the_dtype():
    assert pf.full((2,), 1).dtype == pf.tensor([1]).dtype == pf.arange(2).dtype == pf.int64
    assert pf.full((2,), 1.0).dtype == pf.zeros(2).dtype == pf.arange(2.0).dtype == pf.float32
    with pytest.raises(TypeError):
        pf.arange(3).mean()
    with pytest.raises(ValueError):
        pf.full((2,), 1, requires_grad=True)


def test_integer_division_gives_floats():
    assert (pf.tensor([3]) / 2).tolist() == [1.5] and (pf.tensor([-3]) // 2).tolist() == [-2] and (pf.tensor([-3]) % 2).tolist() == [1]
    for zero in (0, pf.tensor([0]), pf.tensor([1]) - 1):
        with pytest.raises(RuntimeError, match="division by zero"):
            (pf.tensor([3]) // zero).tolist()
    assert (pf.tensor([1.0]) / 0).tolist() == (pf.tensor([1]) / 0).tolist() == [math.inf]


def test_integers_wrap_around():
    x = pf.tensor([200], dtype=pf.uint8)
    assert (x + x).tolist() == [144] and (x + 100).tolist() == [44] and (x.float() + x).tolist() == [400]
    assert pf.ones(300, dtype=pf.int8).sum().item() == 300


def test_large_integers_in_float32():
    n = 2**24
    assert pf.tensor([n, n + 1, n + 2]).float().long().tolist() == [n, n, n + 2]
    assert (pf.tensor([float(n)]) + 1).item() == n


def test_sixteen_bits_stop_counting():
    x = pf.tensor([256.0], dtype=pf.bfloat16)
    assert (x + 1).item() == 256
    for _ in range(20):
        x += 1
    assert x.item() == 256 and pf.ones(1000, dtype=pf.bfloat16).sum().item() == 1000
    assert (pf.tensor([60000.0], dtype=pf.float16) * 2).item() == math.inf and pf.tensor([1e-8]).half().item() == 0


def test_products_in_another_order():
    pf.manual_seed(0)
    x, w = pf.randn(64, 512), pf.randn(512, 512)
    exact = x.double() @ w.double()
    for rows in (1, 3, 17, 64):
        part = x[:rows] @ w
        assert pf.allclose(part, (x @ w)[:rows], rtol=1e-4, atol=1e-4)
        error = (part.double() - exact[:rows]).abs().max().item()
        assert 0 < error < 1e-3  # float32, not exact
    assert pf.get_float32_matmul_precision() == "highest"


def test_nan_and_comparisons():
    x = pf.tensor([1.0, math.nan, 3.0])
    for f in (lambda t: t.max(), lambda t: t.min(), lambda t: t.sum(), lambda t: t.relu()[1], lambda t: t.clamp(0, 1)[1], lambda t: t.sort()[0][2]):
        assert f(x).isnan().item()
    for compared in (x == x, x < 5, x >= 0):
        assert compared.tolist() == [True, False, True]
    assert (x != x).tolist() == x.isnan().tolist() == [False, True, False] and x.argmax().item() == 1


def test_a_row_that_is_masked_entirely():
    assert pf.full((1, 3), -math.inf).softmax(dim=1).isnan().all().item()
    q = pf.randn(1, 1, 2, 4)
    seen = pf.tensor([[False, False], [True, True]])
    out = pf.scaled_dot_product_attention(q, q, q, seen)
    assert out[0, 0, 0].tolist() == [0, 0, 0, 0] and out.isfinite().all().item()


def test_the_logarithm_of_a_softmax():
    x = pf.tensor([0.0, 200.0])
    assert x.softmax(dim=0).log().tolist() == [-math.inf, 0] and x.log_softmax(dim=0).tolist() == [-200, 0]
    assert F.cross_entropy(x[None], pf.tensor([0])).item() == 200


def test_cross_entropy_wants_logits():
    logits, target = pf.tensor([[5.0, 0.0]]), pf.tensor([0])
    assert F.cross_entropy(logits, target).item() == pytest.approx(math.log(1 + math.exp(-5)), rel=1e-4)
    # The best that probabilities can reach is far from 0.
    assert F.cross_entropy(pf.tensor([[1.0, 0.0]]), target).item() == pytest.approx(math.log(1 + math.exp(-1)), rel=1e-5)


def test_broadcasting_in_a_loss():
    prediction, target = pf.randn(4, 1), pf.randn(4)
    assert (prediction - target).shape == (4, 4)
    for loss in (F.mse_loss, F.binary_cross_entropy_with_logits):
        with pytest.raises(ValueError, match="shape"):
            loss(prediction, target)
        loss(prediction.squeeze(1), target.sigmoid())


def test_variance_divides_by_n_minus_1():
    x = pf.tensor([1.0, 3.0])
    assert x.var().item() == 2 and np.var([1.0, 3.0]) == 1 == x.var(unbiased=False).item()
    assert x.std().item() == pytest.approx(math.sqrt(2)) and pf.tensor([1.0]).var().isnan().item()


def test_round_goes_to_even():
    assert pf.round(pf.tensor([0.5, 1.5, 2.5, -0.5])).tolist() == [0, 2, 2, 0]
    assert (pf.tensor([0.5, 1.5, 2.5]) + 0.5).floor().tolist() == [1, 2, 3]


# Comparing and indexing


def test_equality_is_by_element():
    x = pf.ones(2)
    assert (x == x).tolist() == [True, True] and (x == None) is False and (x != None) is True  # noqa: E711
    for wrong in (lambda: bool(x == x), lambda: x in [pf.zeros(2)], lambda: [pf.zeros(2), x].index(x)):
        with pytest.raises(RuntimeError):
            wrong()
    assert pf.equal(x, pf.ones(2)) and x.is_same(x) and not x.is_same(pf.ones(2))


def test_two_names_of_one_tensor_are_two_keys():
    x = pf.ones(2)
    assert len({x, x.view(2)}) == 2 and hash(x) == hash(x) and len({x, x}) == 1


def test_negative_entries_count_from_the_end_in_brackets_only():
    x = pf.arange(4).reshape(2, 2)
    assert x[-1].tolist() == [2, 3] and x[pf.tensor([-1])].tolist() == [[2, 3]]
    wrong = (lambda: x[pf.tensor([-3])], lambda: pf.index_select(x, 0, pf.tensor([-1])), lambda: pf.gather(x, 0, pf.tensor([[-1]])),
             lambda: F.embedding(pf.tensor([-1]), x.float()))
    for f in wrong:
        with pytest.raises(IndexError):
            f().tolist()


# Modules and training


def test_a_plain_list_of_layers():
    class Model(nn.Module):
        def __init__(self, make):
            super().__init__()
            self.layers = make([nn.Linear(2, 2), nn.Linear(2, 2)])

    assert list(Model(list).parameters()) == [] and Model(list).state_dict() == {}
    assert len(list(Model(nn.ModuleList).parameters())) == len(Model(nn.ModuleList).state_dict()) == 4


def test_an_optimizer_made_too_early():
    layer = nn.Linear(1, 1, bias=False)
    optimizer = pf.optim.SGD(layer.parameters(), lr=1.0)

    def step():
        layer(pf.ones(1, 1)).sum().backward()
        optimizer.step()
        return layer.weight.item()

    layer.weight = nn.Parameter(pf.zeros(1, 1))
    assert step() == 0
    optimizer = pf.optim.SGD(layer.parameters(), lr=1.0)
    optimizer.zero_grad()
    with pf.no_grad():
        layer.weight.fill_(5)  # written into, it stays the optimizer's
    assert step() == 4


def test_train_mode_is_the_default():
    dropout, norm, x = nn.Dropout(0.5), nn.BatchNorm1d(2), pf.randn(64, 2) + 3
    assert dropout.training and (dropout(pf.ones(100)) == 0).any().item()
    norm(x)
    learned = norm.running_mean.tolist()
    assert learned != [0, 0]
    model = nn.Sequential(norm, dropout).eval()
    y = model(x)
    assert pf.equal(y, model(x)) and norm.running_mean.tolist() == learned
    assert y.requires_grad  # eval() is not no_grad()
    with pf.no_grad():
        assert not model(x).requires_grad


def test_multihead_masks_are_the_opposite_of_attention_masks():
    q = pf.randn(1, 1, 2, 4)
    seen = pf.tensor([[True, False], [True, True]])
    a = pf.scaled_dot_product_attention(q, q, q, seen)
    assert pf.allclose(a[0, 0, 0], q[0, 0, 0])  # True: may be seen
    mha = nn.MultiheadAttention(4, 1, batch_first=True)
    _, w = mha(q[0], q[0], q[0], attn_mask=~seen)  # True: may not
    assert w[0, 0].tolist() == [1, 0]


def test_a_loader_left_early_starts_the_next_epoch():
    loader = pf.data.DataLoader(pf.data.TensorDataset(pf.arange(6)), 2, shuffle=True, seed=0)
    next(iter(loader))
    next(iter(loader))
    assert loader.state_dict()["epoch"] == 1


# Randomness and processes


def test_one_call_is_one_draw():
    def draw(*sizes):
        pf.manual_seed(0)
        return pf.cat([pf.rand(n) for n in sizes]).tolist()

    assert draw(5) == draw(5) and draw(5)[:2] == draw(2, 3)[:2] and draw(5) != draw(2, 3)
    assert draw(2, 3)[2:] == draw(9, 3)[9:]  # the second call's numbers do not depend on the first one's size
    assert draw(3) != np.random.RandomState(0).rand(3).astype(np.float32).tolist()


def test_the_same_seed_on_another_machine():
    """On one machine: the same bits with any number of threads, also in a gradient."""
    def run(threads):
        pf.set_num_threads(threads)
        pf.manual_seed(0)
        x = pf.randn(300, 200, requires_grad=True)
        (x @ x.T).softmax(dim=1).square().sum().backward()
        return x.grad

    before = pf.get_num_threads()
    try:
        one = run(1)
        assert all(pf.equal(one, run(n)) for n in (2, 3))
    finally:
        pf.set_num_threads(before)


@forks
def test_a_fork_copies_what_is_pending():
    """tests/hard/test_threads_and_exits.py forks while other threads compute."""
    pf.manual_seed(3)
    pending = pf.ones(8) * 2
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, repr((pending.sum().item(), pf.rand(1).item())).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as f:
        told = f.read()
    assert os.waitpid(child, 0)[1] == 0
    assert told == repr((pending.sum().item(), pf.rand(1).item()))
