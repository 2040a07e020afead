"""Worker processes of the DataLoader: the same batches as without, through memory without names; errors, deaths, interrupts, resuming."""
import collections
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import sanitized

import pyflame as pf
from pyflame.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no memfd_create on this system")
FORK = {"multiprocessing_context": sanitized.FORK}
Point = collections.namedtuple("Point", "x y")


class Squares(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i, float(i * i)


class Drawing(Squares):
    def __getitem__(self, i):
        return i, pf.rand(2), random.random(), np.random.rand()


class Odd(Squares):
    """Batches with parts of every kind. Later batches are larger."""

    def __getitem__(self, i):
        return i


def odd_batch(samples):
    k = samples[0]
    x = pf.arange(6 * (k + 1)).view(2, -1)
    return {
        "strided": x.T, "half": x.bfloat16(), "none": pf.zeros(0, 3), "bool": x > 2, "scalar": pf.tensor(k),
        "large": pf.full((k * 5000,), k, dtype=pf.float64), "array": np.asfortranarray(np.full((2, k + 1), k, np.int16)),
        "tuple": Point([k, "text"], None), "twice": (x, x), "leaf": pf.ones(2, requires_grad=True),
    }


class Failing(Squares):
    def __init__(self, n, how, at=5):
        super().__init__(n)
        self.how, self.at = how, at

    def __getitem__(self, i):
        if i == self.at:
            self.how()
        return super().__getitem__(i)


class TwoWords(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)


def raise_key_error():
    raise KeyError("sample 5")


def raise_two_words():
    raise TwoWords("one", "two")


def raise_local():
    class Local(ValueError):
        pass

    raise Local("of here")


def be_killed():
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    os._exit(3)


def hang():
    time.sleep(600)


class Pids(Squares):
    def __getitem__(self, i):
        return os.getpid()


class Stream(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for i in range(first, self.n, step):
            yield i, pf.rand(1)


class Told(Squares):
    def __getitem__(self, i):
        info = get_worker_info()
        assert info.dataset is self and pf.get_num_threads() == 1
        return info.id, info.num_workers, info.seed, int(os.environ["PYFLAME_TEST_INIT"])


def init(number):
    os.environ["PYFLAME_TEST_INIT"] = str(100 + number)


def bad_init(number):
    raise LookupError(f"init of {number}")


class Unreadable(Squares):
    def __setstate__(self, state):
        raise ImportError("not there")


def all_of(loader):
    return [[part.tolist() for part in b] for b in loader]


@pytest.mark.parametrize("context", ["forkserver", "spawn", pytest.param("fork", marks=sanitized.forks)])
def test_same_batches_for_any_number_of_workers(context):
    expected = [all_of(DataLoader(Squares(23), 4, shuffle=True, seed=1, drop_last=d)) for d in (False, True)]
    for n in (1, 3):
        for d in (False, True):
            loader = DataLoader(Squares(23), 4, shuffle=True, seed=1, drop_last=d, num_workers=n, multiprocessing_context=context)
            assert len(loader) == len(expected[d]) and all_of(loader) == expected[d]


def test_tensor_datasets_samplers_and_more_workers_than_batches():
    data = TensorDataset(pf.randn(10, 3, 2), pf.arange(10))
    for x, y in DataLoader(data, 4, num_workers=2, sampler=[9, 2, 5, 7, 1]):
        assert pf.equal(x, data.tensors[0].index_select(0, y))
    assert all_of(DataLoader(Squares(6), batch_sampler=[[5, 0], [1], [2, 3, 4]], num_workers=2, **FORK)) == all_of(DataLoader(Squares(6), batch_sampler=[[5, 0], [1], [2, 3, 4]]))
    assert all_of(DataLoader(Squares(2), 2, num_workers=4, **FORK)) == all_of(DataLoader(Squares(2), 2))
    assert all_of(DataLoader(Squares(0), 2, num_workers=1, **FORK)) == []


def test_random_numbers_are_those_of_the_batch():
    def epochs(n, seed=3):
        loader = DataLoader(Drawing(10), 2, seed=seed, num_workers=n, persistent_workers=n == 2, **({} if n == 1 else FORK))
        return [all_of(loader) for _ in range(2)]

    def states():
        return pf.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()

    before = states()
    one, none = epochs(1), DataLoader(Drawing(10), 2, seed=3, prefetch_factor=0)
    assert one == epochs(2) == epochs(3) == [all_of(none) for _ in range(2)]
    assert states() == before
    assert one[0] != one[1] and epochs(2, seed=4)[0] != one[0]
    drawn = [v for batch in one[0] + one[1] for v in batch[3]]
    assert len(set(drawn)) == len(drawn)


def test_parts_of_any_kind_in_batches_of_any_size():
    got = list(DataLoader(Odd(7), 1, num_workers=2, collate_fn=odd_batch, prefetch_factor=1))
    for k, b in enumerate(got):
        want = odd_batch([k])
        assert list(b) == list(want)
        for name in ("strided", "half", "none", "bool", "scalar", "large", "leaf"):
            assert b[name].dtype == want[name].dtype and pf.equal(b[name], want[name]), name
        assert b["leaf"].requires_grad and not b["large"].requires_grad
        assert b["array"].dtype == np.int16 and np.array_equal(b["array"], want["array"])
        assert b["tuple"] == want["tuple"] and pf.equal(*b["twice"])
    got[0]["large"] = None
    got[1]["large"].add_(1)  # batches are their own memory
    assert got[2]["large"].tolist() == [2.0] * 10000


@pytest.mark.parametrize("persistent", [False, True])
def test_errors_keep_type_and_traceback(persistent):
    loader = DataLoader(Failing(10, raise_key_error), 2, num_workers=2, persistent_workers=persistent, **FORK)
    for _ in range(2):
        got = []
        with pytest.raises(KeyError) as e:
            for b in loader:
                got.append(b[0].tolist())
        text = str(e.value)
        assert "Caught KeyError in DataLoader worker process 0.\nOriginal Traceback" in text and "in raise_key_error" in text and "'sample 5'" in text
        assert got == [[0, 1], [2, 3]]


@pytest.mark.parametrize("how,words", [(raise_two_words, "Caught TwoWords"), (raise_local, "Caught Local")])
def test_errors_that_cannot_be_made_again(how, words):
    with pytest.raises(RuntimeError, match=words):
        list(DataLoader(Failing(10, how), 2, num_workers=1))


@sanitized.forks
def test_errors_at_the_start():
    with pytest.raises(LookupError, match="while it started(.|\n)*init of 0"):
        list(DataLoader(Squares(4), num_workers=2, worker_init_fn=bad_init))
    with pytest.raises(ImportError, match="while it started(.|\n)*not there"):
        list(DataLoader(Unreadable(4), num_workers=2))
    with pytest.raises(Exception, match="DataLoader: cannot be sent to worker processes; .*hint: .*multiprocessing_context='fork'"):
        list(DataLoader(Squares(4), num_workers=2, collate_fn=lambda b: b))
    assert list(DataLoader(Squares(4), 2, num_workers=2, collate_fn=lambda b: len(b), multiprocessing_context="fork")) == [2, 2]


def test_a_dataset_of_a_session_without_a_file():
    """As in a notebook: a new process cannot import it."""
    code = """if True:
        import pyflame as pf
        class Own(pf.data.Dataset):
            def __len__(self): return 4
            def __getitem__(self, i): return pf.ones(2) * i
        print(sum(b.sum().item() for b in pf.data.DataLoader(Own(), 2, num_workers=1{})))"""
    fails, works = (subprocess.run([sys.executable, "-c", code.format(more)], capture_output=True, text=True, timeout=120) for more in ("", ", multiprocessing_context='fork'"))
    assert fails.returncode != 0 and "hint: in a notebook or an interactive session pass multiprocessing_context='fork'" in fails.stderr
    assert works.stdout == "12.0\n", works.stderr


def test_a_script_without_its_guard(tmp_path):
    """A worker imports the program, which would start workers of its own."""
    (tmp_path / "script.py").write_text("import pyflame as pf\nprint(len(list(pf.data.DataLoader(range(4), 2, num_workers=1))))\n")
    run = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert run.returncode == 1 and run.stdout == ""
    assert "a worker process began to run the program again" in run.stderr and "freeze_support" not in run.stderr
    assert "worker process 0" in run.stderr.splitlines()[-1] and "if __name__ == '__main__':" in run.stderr.splitlines()[-1]


@pytest.mark.parametrize("how,words", [(be_killed, "got signal SIGKILL"), (leave, "got exit code 3")])
def test_a_worker_that_dies(how, words):
    loader = DataLoader(Failing(12, how), 2, num_workers=2, persistent_workers=True, **({} if how is leave else FORK))
    for _ in range(2):  # a new pool takes the place of the broken one
        start = time.monotonic()
        with pytest.raises(RuntimeError, match=f"worker process 0 .* ended unexpectedly; {words}; .*hint"):
            list(loader)
        assert time.monotonic() - start < 30
    loader.dataset = Squares(12)
    assert len(list(loader)) == 6


def test_timeout():
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="no batch within the timeout; got nothing from worker process 0 for 1.5 seconds"):
        list(DataLoader(Failing(4, hang, at=0), 2, num_workers=2, timeout=1.5, **FORK))
    assert time.monotonic() - start < 60


def test_persistent_workers():
    loader = DataLoader(Pids(8), 2, num_workers=2, persistent_workers=True, **FORK)
    pids = [{p for b in loader for p in b.tolist()} for _ in range(2)]
    assert pids[0] == pids[1] and len(pids[0]) == 2
    a = iter(loader)
    next(a)
    others = {p for b in loader for p in b.tolist()}
    assert others.isdisjoint(pids[0])  # which are taken
    a.close()
    assert {p for b in loader for p in b.tolist()} == others
    once = DataLoader(Pids(8), 2, num_workers=2, **FORK)
    assert {p for b in once for p in b.tolist()}.isdisjoint({p for b in once for p in b.tolist()})


@pytest.mark.parametrize("persistent", [False, True])
def test_an_epoch_left_early_is_over(persistent):
    loader = DataLoader(Squares(20), 2, shuffle=True, seed=0, num_workers=2, persistent_workers=persistent, **FORK)
    for b in loader:
        break
    reference = DataLoader(Squares(20), 2, shuffle=True, seed=0)
    all_of(reference)
    assert all_of(loader) == all_of(reference)


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("dataset", [Drawing(11), Stream(17)], ids=["indices", "stream"])
def test_resume(dataset, n):
    def make():
        how = {"num_workers": n, "persistent_workers": True, **FORK} if n else {"prefetch_factor": 0}
        return DataLoader(dataset, 3, shuffle=isinstance(dataset, Drawing), seed=5, **how)

    whole = make()
    epochs = [all_of(whole) for _ in range(2)]
    for at in (0, 1, 3, 4):
        first, second = make(), make()
        batches = iter(first)
        assert [[p.tolist() for p in next(batches)] for _ in range(at)] == epochs[0][:at]
        second.load_state_dict(first.state_dict())
        assert all_of(second) == epochs[0][at:] and all_of(second) == epochs[1]


def test_one_worker_draws_for_a_stream_what_none_draws():
    assert all_of(DataLoader(Stream(7), 2, seed=1, num_workers=1, **FORK)) == all_of(DataLoader(Stream(7), 2, seed=1, prefetch_factor=0))


def test_streams_are_told_apart():
    assert [b[0].tolist() for b in DataLoader(Stream(11), 2, num_workers=3, **FORK)] == [[0, 3], [1, 4], [2, 5], [6, 9], [7, 10], [8]]
    assert [b[0].tolist() for b in DataLoader(Stream(11), 2, num_workers=3, drop_last=True, **FORK)] == [[0, 3], [1, 4], [2, 5], [6, 9], [7, 10]]
    assert [b[0].tolist() for b in DataLoader(Stream(3), 2, num_workers=2, **FORK)] == [[0, 2], [1]]
    loader = DataLoader(Stream(11), 2, num_workers=3)
    with pytest.raises(ValueError, match="another number of workers; got 2; expected 3"):
        loader.load_state_dict({"seed": 0, "epoch": 0, "position": 1, "num_workers": 2})


def test_worker_info_and_init():
    assert get_worker_info() is None
    seen = []
    loader = DataLoader(Told(4), 1, num_workers=2, worker_init_fn=init, seed=9, persistent_workers=True)
    for _ in range(2):
        seen.append([[int(p) for p in b] for b in loader])
    ids = [row[0] for row in seen[0]]
    assert ids == [0, 1, 0, 1] and all(row[1] == 2 and row[3] == 100 + row[0] for row in seen[0])
    assert seen[0][1][2] == seen[0][0][2] + 1 and seen[0][0][2] != seen[1][0][2]
    assert "PYFLAME_TEST_INIT" not in os.environ


SCRIPT = """
import os, sys, time
import pyflame as pf
from pyflame.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, i):
        time.sleep(0.05)
        return pf.ones(1000), os.getpid()

if __name__ == "__main__":
    loader = DataLoader(Slow(), 1, num_workers=2, multiprocessing_context=sys.argv[1], persistent_workers=True)
    seen = set()
    for x, pid in loader:
        if len(seen) < 2:
            seen.add(int(pid))
            if len(seen) == 2:
                print(*seen, flush=True)
        if sys.argv[2] == "leave" and len(seen) == 2:
            break
"""


def test_a_script_without_a_guard_is_told(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text("from pyflame.data import DataLoader\nprint(list(DataLoader([1, 2], num_workers=1)))\n")
    p = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    last = p.stderr.strip().splitlines()[-1]
    assert p.returncode == 1 and last.startswith("RuntimeError: DataLoader: worker process 0") and "if __name__ == '__main__':" in last


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("context", ["forkserver", pytest.param("fork", marks=sanitized.forks)])
@pytest.mark.parametrize("how", ["interrupt", "kill", "leave"])
def test_no_process_is_left_behind(tmp_path, how, context):
    script = tmp_path / "slow.py"
    script.write_text(SCRIPT)
    p = subprocess.Popen([sys.executable, str(script), context, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a shell's background job ignores it
    try:
        pids = [int(v) for v in p.stdout.readline().split()]
        assert len(pids) == 2, p.stderr.read()
        if how == "interrupt":
            os.killpg(p.pid, signal.SIGINT)
        elif how == "kill":
            os.kill(p.pid, signal.SIGKILL)
        error = p.stderr.read() if how == "interrupt" else ""
        p.wait(30)
        assert how != "interrupt" or error.count("Traceback") == 1 and "KeyboardInterrupt" in error, error
        deadline = time.monotonic() + 20
        while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(alive(pid) for pid in pids)
        assert how != "leave" or p.returncode == 0
    finally:
        p.kill()
        p.stdout.close()
        p.stderr.close()
