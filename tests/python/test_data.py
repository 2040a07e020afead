"""Datasets and the loader: order, batches, prefetch, resuming."""
import collections
import random
import threading

import numpy as np
import pytest
from sanitized import forks

import pyflame as pf
from pyflame.data import ConcatDataset, DataLoader, Dataset, IterableDataset, StackDataset, Subset, TensorDataset, default_collate, random_split


class Squares(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i >= self.n:
            raise IndexError(i)
        return i, float(i * i)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(7))


def firsts(loader):
    return [b[0].tolist() for b in loader]


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("dataset", [Squares(10), TensorDataset(pf.arange(10), pf.arange(10).float() ** 2)], ids=["plain", "tensors"])
def test_order_and_drop_last(dataset, prefetch):
    loader = DataLoader(dataset, batch_size=4, prefetch_factor=prefetch)
    assert len(loader) == 3 and firsts(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    x, y = next(iter(loader))
    assert x.dtype == pf.int64 and y.dtype == (pf.float64 if isinstance(dataset, Squares) else pf.float32) and y.tolist() == [0, 1, 4, 9]
    loader = DataLoader(dataset, batch_size=4, drop_last=True, prefetch_factor=prefetch)
    assert len(loader) == 2 and len(firsts(loader)) == 2


@pytest.mark.parametrize("prefetch", [0, 3])
def test_shuffle_is_a_function_of_seed_and_epoch(prefetch):
    def epochs(seed):
        loader = DataLoader(Squares(20), batch_size=6, shuffle=True, seed=seed, prefetch_factor=prefetch)
        return [firsts(loader) for _ in range(3)]

    a = epochs(1)
    assert a == epochs(1) and a != epochs(2) and a[0] != a[1]
    for e in a:
        assert sorted(sum(e, [])) == list(range(20))


def test_shuffle_follows_manual_seed_and_leaves_it_alone():
    def order():
        pf.manual_seed(4)
        state = pf.get_rng_state()
        out = firsts(DataLoader(Squares(9), 3, shuffle=True))
        assert pf.get_rng_state() == state
        return out

    assert order() == order()


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("at", [0, 1, 3, 5])
def test_resume(prefetch, at):
    def make():
        return DataLoader(Squares(11), batch_size=4, shuffle=True, seed=3, prefetch_factor=prefetch)

    whole = make()
    stream = [b for _ in range(3) for b in firsts(whole)]  # 3 batches an epoch
    first = make()
    got, state = [], first.state_dict()
    while len(got) < at:
        for b in first:
            got.append(b[0].tolist())
            state = first.state_dict()
            if len(got) == at:
                break
    second = make()
    second.load_state_dict(state)
    rest = []
    while len(got) + len(rest) < len(stream):
        rest += firsts(second)
    assert got + rest == stream


def test_an_epoch_left_early_is_over():
    loader = DataLoader(Squares(8), 2, shuffle=True, seed=0)
    next(iter(loader))
    second = firsts(loader)
    reference = DataLoader(Squares(8), 2, shuffle=True, seed=0)
    firsts(reference)
    assert second == firsts(reference) and len(second) == 4


@pytest.mark.parametrize("prefetch", [0, 2])
def test_iterable(prefetch):
    loader = DataLoader(Stream(), batch_size=3, prefetch_factor=prefetch)
    assert [b.tolist() for b in loader] == [[0, 1, 2], [3, 4, 5], [6]]
    it = DataLoader(Stream(), batch_size=3, prefetch_factor=prefetch)
    it.load_state_dict({"seed": 0, "epoch": 0, "position": 1})
    assert [b.tolist() for b in it] == [[3, 4, 5], [6]]


def test_errors_of_the_dataset_arrive_and_threads_end():
    class Bad(Squares):
        def __getitem__(self, i):
            if i == 5:
                raise KeyError("sample 5")
            return i

    before = threading.active_count()
    got = []
    with pytest.raises(KeyError, match="sample 5"):
        for b in DataLoader(Bad(10), 2):
            got.append(b.tolist())
    assert got == [[0, 1], [2, 3]]
    it = iter(DataLoader(Squares(1000), 2))
    next(it)
    it.close()
    assert threading.active_count() == before


def test_prefetch_runs_ahead():
    made = []

    class Seen(Squares):
        def __getitem__(self, i):
            made.append(i)
            return i

    ready = threading.Event()

    class Waiting(Seen):
        def __getitem__(self, i):
            if i == 2:
                ready.set()
            return super().__getitem__(i)

    it = iter(DataLoader(Waiting(6), 1, prefetch_factor=2))
    next(it)
    assert ready.wait(30)  # sample 2 is made although only sample 0 was asked for
    it.close()


def test_collate():
    P = collections.namedtuple("P", "x y")
    out = default_collate([P(1, "a"), P(2, "b")])
    assert isinstance(out, P) and out.x.tolist() == [1, 2] and out.y == ("a", "b")
    d = default_collate([{"a": np.ones(2, np.float64), "b": (True, pf.zeros(1))}] * 3)
    assert d["a"].shape == (3, 2) and d["a"].dtype == pf.float64 and d["b"][0].dtype == pf.bool and d["b"][1].shape == (3, 1)
    assert default_collate([np.float32(1), np.float32(2)]).tolist() == [1, 2]
    assert list(DataLoader([1, 2, 3], 2, collate_fn=lambda b: b)) == [[1, 2], [3]]


def test_collate_has_the_types_of_pytorch():
    assert default_collate([0.5, 1.5]).dtype == default_collate([np.float64(1)]).dtype == pf.float64
    assert default_collate([1, 2]).dtype == pf.int64 and default_collate([True]).dtype == pf.bool
    assert default_collate(["a", "b"]) == ["a", "b"] and default_collate([{"k": "a"}, {"k": "b"}]) == {"k": ["a", "b"]}
    assert default_collate([(1, "a"), (2, "b")])[1] == default_collate([[1, "a"], [2, "b"]])[1] == ("a", "b")
    ordered = collections.OrderedDict(x=1)
    assert type(default_collate([ordered, ordered])) is collections.OrderedDict


class Augmented(Dataset):
    """Draws from every global generator."""

    def __len__(self):
        return 12

    def __getitem__(self, i):
        return i + pf.rand(()), random.random(), np.random.rand()


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=forks)])
def test_a_dataset_that_draws_is_reproducible_by_default(workers):
    def run():
        pf.manual_seed(3)
        out = []
        for batch in DataLoader(Augmented(), 4, shuffle=True, num_workers=workers, **({"multiprocessing_context": "fork"} if workers else {})):
            out.append([part.tolist() for part in batch] + pf.randn(2).tolist() + [random.Random(0).random()])
        return out

    assert run() == run() == run()
    assert DataLoader(Augmented(), 4).prefetch_factor == 0 and DataLoader(TensorDataset(pf.zeros(4)), 4).prefetch_factor == 2


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=forks)])
def test_samples_without_batches(workers):
    kw = {"batch_size": None, "num_workers": workers, **({"multiprocessing_context": "fork"} if workers else {})}
    loader = DataLoader(Squares(4), shuffle=True, seed=1, **kw)
    order = [i for i, _ in loader]
    assert len(loader) == 4 and sorted(order) == [0, 1, 2, 3] and all(type(i) is int for i in order)
    it = iter(DataLoader([{"x": np.ones(3, np.int16), "y": ("a", np.float32(2))}], **kw))
    sample = next(it)
    assert sample["x"].dtype == pf.int16 and sample["y"][0] == "a" and sample["y"][1].item() == 2
    it.close()
    assert list(DataLoader(Squares(3), collate_fn=lambda s: s[1] + 1, **kw)) == [1.0, 2.0, 5.0]
    stream = DataLoader(Stream(), batch_size=None)
    stream.load_state_dict({"seed": 0, "epoch": 0, "position": 2})
    assert list(stream) == [2, 3, 4, 5, 6]
    assert sorted(DataLoader(Stream(), **kw)) == sorted(list(range(7)) * max(1, workers))


def test_datasets():
    t = TensorDataset(pf.arange(5), pf.arange(5) * 2)
    assert [v.item() for v in t[3]] == [3, 6] and len(t) == 5
    s = Subset(t, [4, 0])
    assert s[0][0].item() == 4 and firsts(DataLoader(s, 2)) == [[4, 0]]
    c = ConcatDataset([Squares(2), Squares(3)])
    assert len(c) == 5 and c[2] == (0, 0.0) and c[-1] == (2, 4.0) and len(Squares(2) + Squares(1)) == 3
    a, b = random_split(range(10), [0.7, 0.3], seed=1)
    assert len(a) == 7 and sorted([a[i] for i in range(7)] + [b[i] for i in range(3)]) == list(range(10))
    assert random_split(range(10), [4, 6], seed=1)[0].indices == random_split(range(10), [4, 6], seed=1)[0].indices


def test_sampler():
    assert firsts(DataLoader(Squares(5), 2, sampler=[4, 3, 0])) == [[4, 3], [0]]


def test_names_of_pytorch():
    import pyflame.utils.data as u

    assert u.DataLoader is DataLoader and pf.utils.data.TensorDataset is TensorDataset


class AtOnce(Squares):
    def __getitems__(self, indices):
        return [(i, -1.0) for i in indices]


class Doubled(TensorDataset):
    def __getitem__(self, index):
        return (super().__getitem__(index)[0] * 2,)


def test_samples_of_a_batch_are_asked_for_at_once():
    for data in (AtOnce(4), Subset(AtOnce(9), [0, 1, 2, 3]), Subset(Subset(AtOnce(9), range(4)), range(4))):
        assert [b[1].tolist() for b in DataLoader(data, 2)] == [[-1, -1], [-1, -1]]
    assert Subset(AtOnce(9), [5, 3]).__getitems__([1, 0]) == [(3, -1.0), (5, -1.0)]
    assert Subset(Squares(9), [5, 3]).__getitems__([1]) == [(3, 9.0)]
    stack = StackDataset(AtOnce(4), Squares(4))
    assert stack.__getitems__([2]) == [((2, -1.0), (2, 4.0))]
    assert StackDataset(a=AtOnce(4), b=Squares(4)).__getitems__([2]) == [{"a": (2, -1.0), "b": (2, 4.0)}]
    assert DataLoader(AtOnce(4), None, collate_fn=lambda sample: sample).dataset[1] == (1, 1.0)


def test_a_class_with_samples_of_its_own_is_asked_for_them():
    data = Doubled(pf.arange(4))
    assert firsts(DataLoader(data, 2)) == firsts(DataLoader(Subset(data, range(4)), 2)) == [[0, 2], [4, 6]]


def test_sequences_of_other_types_become_parts_of_batches():
    import collections

    from pyflame.data import default_collate, default_convert

    assert [p.tolist() for p in default_collate([range(2), range(5, 7)])] == [[0, 5], [1, 6]]
    batch = default_collate([collections.deque([1, 2.5]), collections.deque([3, 4.5])])
    assert type(batch) is collections.deque and [p.tolist() for p in batch] == [[1, 3], [2.5, 4.5]]
    kept = default_convert(data=collections.UserList([np.ones(1), "a"]))
    assert type(kept) is collections.UserList and type(kept[0]) is pf.Tensor and kept[1] == "a" and default_convert(range(2)) == [0, 1]
    assert default_convert(np.array([1j])).dtype == pf.complex128


class Padded(Dataset):
    """Words of several lengths, padded op by op, as programs that are written for one sample at a time do it."""

    def __len__(self):
        return 256

    def __getitem__(self, i):
        word = pf.arange(2 + (i * 7919 + i // 13) % 11)
        sample = pf.zeros(16, dtype=pf.int64)
        sample[1 : 1 + len(word)] = word
        sample[1 + len(word) :] = -1
        return sample.float()


@pytest.mark.parametrize("stream", [False, True])
def test_samples_of_several_shapes_need_no_new_programs_in_each_step(stream):
    """The ops of a sample are a window of their own, so neither they nor the model's ops are planned again for each batch."""
    data, weight = Padded(), pf.randn(16, 16)

    class Stream(IterableDataset):
        def __iter__(self):
            return (data[i] for i in range(len(data)))

    counts = []
    for batch in DataLoader(Stream() if stream else data, 16):
        (batch @ weight).relu().sum().item()
        counts.append(pf.program_cache_stats()["misses"])
    assert counts[-1] == counts[len(counts) // 2]


@pytest.mark.parametrize("replacement", [False, True])
def test_a_random_order_leaves_the_global_generator_to_the_program(replacement):
    """A sampler without a generator takes one seed from the global one. So what the program draws between two batches is the same however many batches are prepared ahead."""
    from pyflame.data import RandomSampler

    found = []
    for ahead in (1, 3000):
        pf.manual_seed(5)
        order, seen = iter(RandomSampler(range(4), replacement, 10_000)), []
        seen += [next(order) for _ in range(ahead)]
        drawn = pf.rand(3).tolist()
        seen += [next(order) for _ in range(6000 - ahead)]
        found.append((drawn, seen))
    assert found[0] == found[1]
    assert sorted(set(found[0][1])) == [0, 1, 2, 3]
    pf.manual_seed(6)
    assert [next(iter(RandomSampler(range(1000)))) for _ in range(3)] != [next(iter(RandomSampler(range(1000)))) for _ in range(3)]
