"""The order in which requests that wait are begun: by priority, in turn over clients, and by their coming."""
import itertools
import random
from types import SimpleNamespace

import pytest

pytest.importorskip("regex", reason="the package regex is not installed")
import pyflame as pf  # noqa: E402
from pyflame.llm import Engine, Finished, Sampling  # noqa: E402
from pyflame.llm import _queue  # noqa: E402
from pyflame.llm._queue import Queue  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402


class Waits(SimpleNamespace):
    """A request, as far as the queue knows it."""

    __hash__ = object.__hash__

    def __init__(self, name, client=None, priority=0):
        super().__init__(name=name, client=client, priority=priority, _turn=None)

    def __eq__(self, other):
        return self is other

    def __lt__(self, other):
        return (self.priority, self._turn) < (other.priority, other._turn)


def filled(*requests):
    queue = Queue()
    for r in requests:
        queue.add(r)
    return queue


def begun(queue, count=None):
    """The names of the next requests, in the order in which they are begun, which is the order that was announced."""
    announced, found = [r.name for r in itertools.islice(queue, count)], []
    while len(queue) and len(found) != count:
        request = queue.first()
        queue.begin(request)
        found.append(request.name)
    assert found == announced
    return found


def of(client, count, **options):
    return [Waits(f"{client}{i}", client, **options) for i in range(count)]


def test_one_client_is_served_in_the_order_of_coming():
    assert begun(filled(*of("a", 4))) == ["a0", "a1", "a2", "a3"] and begun(Queue()) == []


def test_clients_take_turns():
    queue = filled(*of("a", 1000))
    assert begun(queue, 3) == ["a0", "a1", "a2"]
    for r in [*of("b", 1), *of("c", 2)]:
        queue.add(r)
    assert begun(queue, 6) == ["a3", "b0", "c0", "a4", "c1", "a5"] and len(queue) == 994


def test_a_client_that_comes_back_does_not_overtake():
    """Neither one that asks again as soon as it was served, nor one that has cancelled what it waited for, gets more or less than its turn."""
    queue = filled(*of("a", 10))
    order = []
    for i in range(4):
        queue.add(Waits(f"b{i}", "b"))
        order += begun(queue, 2)
    assert order == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3"]
    many = of("c", 100)
    for r in many:
        queue.add(r)
    for r in many:
        queue.remove(r)
    queue.add(Waits("c", "c"))
    assert begun(queue, 2) == ["a4", "c"]


def test_priorities_go_before_turns():
    queue = filled(*of("a", 2), *of("b", 2, priority=-1), *of("a", 1, priority=-1), Waits("late", "c", 5))
    assert begun(queue) == ["b0", "a0", "b1", "a0", "a1", "late"]


def test_requests_that_ran_before_go_first_in_the_order_in_which_they_were_begun():
    a, b = of("a", 3), of("b", 3)
    queue = filled(*a, *b)
    assert begun(queue, 4) == ["a0", "b0", "a1", "b1"]
    for r in (b[1], a[0], b[0]):
        queue.add(r)
    assert begun(queue) == ["a0", "b0", "b1", "a2", "b2"]  # and nobody's turn has changed


def test_what_is_left_of_requests_that_come_and_go():
    """Against a plain model: a list of requests, of which each turn searches all."""
    rs, queue, model, turn = random.Random(0), Queue(), [], {}
    for i in range(2000):
        kind = rs.random()
        if kind < 0.5 or not model:
            r = Waits(i, rs.randrange(5), rs.randrange(2))
            if not any(m.client == r.client and m.priority == r.priority for m in model):
                turn[r.priority, r.client] = i  # it takes its place behind the others
            queue.add(r)
            model.append(r)
        elif kind < 0.6:
            r = rs.choice(model)
            queue.remove(r)
            model.remove(r)
        else:
            r = min(model, key=lambda m: (m.priority, turn[m.priority, m.client], m.name))
            assert queue.first() is r
            queue.begin(r)
            model.remove(r)
            turn[r.priority, r.client] = i
        assert len(queue) == len(model)
    begun(queue)
    assert not queue._turns and not queue._priorities


def test_the_first_of_many_is_found_without_looking_at_them(monkeypatch):
    """Nothing but the two sorted lists is searched: the queue's own iteration is not used, however many requests and clients there are."""
    for cls in (Queue, _queue._Turns):
        monkeypatch.setattr(cls, "__iter__", None)
    queue = filled(*[Waits(i, i % 500) for i in range(5000)])
    names = []
    while len(queue):
        queue.begin(request := queue.first())
        names.append(request.name)
    assert names == list(range(5000))


@pytest.mark.parametrize("beams", [False, True])
def test_an_engine_begins_requests_in_turn(tmp_path, beams):
    """A client with 20 requests and one with 2, of which one runs at a time: the ends are in the order of admission."""
    lm, ends = pf.llm.load(small.write_random_model(tmp_path, "llama", seed=3)), []
    with Engine(lm, max_num_seqs=2 if beams else 1, max_model_len=64) as engine:
        with engine._wake:  # it begins when all are there
            for client, count in (("many", 20), ("few", 2), (None, 1)):
                for i in range(count):
                    def receive(event, name=(client, i)):
                        if isinstance(event, Finished):
                            ends.append(name)

                    if beams:
                        engine.submit_beams([5, 6, i + 7], pf.llm.BeamSearchParams(2, 2), client=client, receive=receive)
                    else:
                        engine.submit([5, 6, i + 7], Sampling(temperature=0), 2, stop_ids=(), client=client, receive=receive)
    if beams:
        assert ends.index(("few", 0)) < ends.index(("many", 3)) and ends.index(("few", 1)) < ends.index(("many", 5))
    else:
        assert ends == [("many", 0), ("few", 0), (None, 0), ("many", 1), ("few", 1), *[("many", i) for i in range(2, 20)]]


def test_wrong_clients(tmp_path):
    with Engine(pf.llm.load(small.write_random_model(tmp_path, "llama", seed=3)), max_model_len=64) as engine:
        with pytest.raises(TypeError, match="generate: client is of the wrong type; got list; expected what can be a key of a dict, such as a text, or None"):
            engine.submit([5], client=["a"], receive=print)
        with pytest.raises(TypeError, match="beam_search: client is of the wrong type"):
            engine.submit_beams([5], pf.llm.BeamSearchParams(2, 2), client={}, receive=print)
