"""pf.Event: timestamps in the order in which work runs."""
import time

import pytest

import pyflame as pf


def test_the_time_between_events_is_that_of_the_work_between_them():
    x = pf.randn(1200, 1200)
    pf.synchronize()
    a, b, c = (pf.Event(enable_timing=True) for _ in range(3))
    begin = time.perf_counter()
    a.record()
    y = x @ x
    b.record()
    c.record()
    c.synchronize()
    wall = 1e3 * (time.perf_counter() - begin)
    assert a.query() and b.query() and c.query()
    # 3.5 GFLOP take 0.2 ms at 17 TFLOP/s, which no CPU reaches; to record them takes microseconds.
    assert 0.2 < a.elapsed_time(b) <= wall
    assert a.elapsed_time(c) == pytest.approx(a.elapsed_time(b) + b.elapsed_time(c), abs=1e-3)
    assert y.shape == (1200, 1200)


def test_events_without_time_have_no_distance():
    timed, plain = pf.Event(enable_timing=True), pf.Event()
    timed.record()
    plain.record()
    timed.synchronize()
    plain.synchronize()
    for first, second in ((timed, plain), (plain, timed)):
        with pytest.raises(ValueError, match=r"Event.elapsed_time: an event keeps no time; expected Event\(enable_timing=True\) for both"):
            first.elapsed_time(second)


def test_an_event_that_was_not_recorded_has_no_distance():
    recorded, other = pf.Event(enable_timing=True), pf.Event(enable_timing=True)
    recorded.record()
    with pytest.raises((RuntimeError, ValueError), match="record"):
        recorded.elapsed_time(other)
