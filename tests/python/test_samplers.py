"""Samplers, generators of random numbers, and datasets made of datasets."""
import itertools

import numpy as np
import pytest

import pyflame as pf
from pyflame.utils import data
from pyflame.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler
from pyflame.utils.data.dataloader import default_collate  # noqa: F401
from pyflame.utils.data.sampler import Sampler


def seeded(n=5):
    return pf.Generator().manual_seed(n)


def test_generators():
    assert pf.manual_seed(4) is pf.default_generator and pf.initial_seed() == 4
    global_state = pf.get_rng_state()
    g = seeded(7)
    first, second = list(RandomSampler(range(9), generator=g)), list(RandomSampler(range(9), generator=g))
    assert first != second and list(RandomSampler(range(9), generator=seeded(7))) == first and g.initial_seed() == 7
    assert pf.get_rng_state() == global_state
    g.set_state(seeded(7).get_state())
    assert list(RandomSampler(range(9), generator=g)) == first
    assert pf.seed() == pf.initial_seed()
    with pytest.raises(TypeError, match="not a Generator"):
        list(RandomSampler(range(9), generator=3))


def test_random_sampler():
    pf.manual_seed(0)
    first, second = list(RandomSampler(range(20))), list(RandomSampler(range(20)))
    assert sorted(first) == sorted(second) == list(range(20)) and first != second
    pf.manual_seed(0)
    assert list(RandomSampler(range(20))) == first
    more = list(RandomSampler(range(4), num_samples=10))
    assert len(more) == 10 and sorted(more[:4]) == sorted(more[4:8]) == [0, 1, 2, 3] and len(set(more[8:])) == 2
    drawn = list(RandomSampler(range(3), replacement=True, num_samples=10000))
    assert np.allclose(np.bincount(drawn) / 10000, 1 / 3, atol=0.03)
    assert list(SequentialSampler("abc")) == [0, 1, 2] and len(RandomSampler(range(4))) == 4
    for wrong in ({"num_samples": 0}, {"num_samples": 1.5}):
        with pytest.raises(ValueError, match="num_samples"):
            RandomSampler(range(3), **wrong)


@pytest.mark.parametrize("replacement", [False, True])
def test_ten_thousand_million_samples_need_no_list(replacement):
    class Huge:
        def __len__(self):
            return 10**10

        def __getitem__(self, i):
            return i

    got = list(itertools.islice(RandomSampler(Huge(), replacement, generator=seeded()), 2000))
    assert len(set(got)) == 2000 and min(got) >= 0 and max(got) < 10**10
    assert np.mean(got) == pytest.approx(5e9, rel=0.05) and np.std(got) == pytest.approx(10**10 / 12**0.5, rel=0.05)
    first = next(iter(DataLoader(Huge(), 4, sampler=RandomSampler(Huge(), replacement, generator=seeded()))))
    assert first.tolist() == got[:4]


def test_a_computed_permutation_has_each_number_once():
    from pyflame.data.sampler import _Permutation

    for n in (1, 2, 3, 17, 1000, 4097):
        p = _Permutation(n, 12)
        assert sorted(p[i] for i in range(n)) == list(range(n))
    p = _Permutation(1000, 12)
    assert abs(np.corrcoef([p[i] for i in range(1000)], range(1000))[0, 1]) < 0.1


def test_weighted_sampler():
    weights = pf.tensor([1.0, 0.0, 3.0])
    n = np.bincount(list(WeightedRandomSampler(weights, 20000, generator=seeded())), minlength=3) / 20000
    assert n[1] == 0 and np.allclose(n, [0.25, 0, 0.75], atol=0.02)
    firsts = [list(WeightedRandomSampler([1, 0, 3], 2, replacement=False, generator=g)) for g in [seeded()] for _ in range(2000)]
    assert all(sorted(f) == [0, 2] for f in firsts) and np.mean([f[0] == 2 for f in firsts]) == pytest.approx(0.75, abs=0.04)
    for wrong, text in [((weights, 3, False), "too few"), (([-1.0, 2.0], 1), "not negative"), (([0.0], 1), "not all zero"), ((pf.ones(2, 2), 1), "one dimension")]:
        with pytest.raises(ValueError, match=text):
            list(WeightedRandomSampler(*wrong))


def test_subset_and_batch_samplers():
    got = list(SubsetRandomSampler([3, 5, 8], generator=seeded()))
    assert sorted(got) == [3, 5, 8] and len(SubsetRandomSampler([3, 5, 8])) == 3
    assert list(BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]] and len(BatchSampler(range(5), 2, False)) == 3
    assert list(BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]] and len(BatchSampler(range(5), 2, True)) == 2
    loader = DataLoader(range(6), batch_sampler=BatchSampler(SequentialSampler(range(6)), 4, False))
    assert [b.tolist() for b in loader] == [[0, 1, 2, 3], [4, 5]]


def test_a_loader_shows_its_sampler():
    assert isinstance(DataLoader(range(6), 4).sampler, SequentialSampler) and isinstance(DataLoader(range(6), 4, shuffle=True).sampler, RandomSampler)
    loader = DataLoader(range(6), 4)
    assert len(loader.sampler) == 6 and len(loader.batch_sampler) == 2 and DataLoader(range(6), batch_size=None).batch_sampler is None

    class Reversed(Sampler):
        def __iter__(self):
            return iter(range(5, -1, -1))

        def __len__(self):
            return 6

    assert next(iter(DataLoader(range(6), 2, sampler=Reversed()))).tolist() == [5, 4]


def test_the_order_of_a_loader_follows_its_generator():
    orders = [[b.tolist() for b in DataLoader(range(8), 4, shuffle=True, generator=seeded(s))] for s in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]


def test_random_split_follows_the_generator():
    parts = [data.random_split(range(10), [6, 4], seeded(s))[0].indices for s in (1, 1, 2)]
    assert parts[0] == parts[1] != parts[2]
    pf.manual_seed(1)
    one, two = data.random_split(range(10), [6, 4])[0].indices, data.random_split(range(10), [6, 4])[0].indices
    assert one != two
    assert [len(p) for p in data.random_split(range(10), [0.5, 0.25, 0.25])] == [6, 2, 2]


def test_datasets_of_datasets():
    c = data.ConcatDataset([range(3), range(10, 12)])
    assert [c[i] for i in range(5)] == [0, 1, 2, 10, 11] and c[-1] == 11 and c.cumulative_sizes == [3, 5]
    s = data.StackDataset(range(3), "abc")
    assert s[1] == (1, "b") and len(s) == 3 and data.StackDataset(x=range(3), y="abc")[2] == {"x": 2, "y": "c"}

    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter(range(3))

        def __len__(self):
            return 3

    both = Stream() + Stream()
    assert list(both) == [0, 1, 2, 0, 1, 2] and isinstance(both, data.ChainDataset) and len(DataLoader(Stream(), 2)) == 2
    assert data.Dataset[int] is data.Dataset
    for wrong, error in [(lambda: data.ConcatDataset([Stream()]), TypeError), (lambda: data.StackDataset([1], [1, 2]), ValueError), (data.StackDataset, ValueError)]:
        with pytest.raises(error):
            wrong()
