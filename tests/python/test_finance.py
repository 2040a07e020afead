"""pf.finance: totals against NumPy's own, what is read off them against brute force, inputs, and each error."""
import builtins
import os
import pathlib

import numpy as np
import pytest

import pyflame as pf
from pyflame.finance import VolumeProfile, VolumeProfileAnalyzer, clean_ticks

TICKS = os.environ.get("PYFLAME_TEST_TICKS") or str(pathlib.Path(__file__).resolve().parents[3] / "shared" / "data" / "ticks")
DEVICES = ["cpu"] + [d for d in ("cuda", "rocm") if getattr(pf, f"{d}_is_available", lambda: False)()]


def ticks(n=5000, seed=0, step=0.25):
    rng = np.random.default_rng(seed)
    return (400 / step + np.cumsum(rng.integers(-2, 3, n))) * step, rng.integers(0, 1000, n)


def counted(prices, volumes, precision):
    """The independent computation: a dict of exact Python sums."""
    totals = {}
    for k, v in zip(np.rint(np.asarray(prices, np.float64) / precision).astype(int).tolist(), np.asarray(volumes).tolist()):
        totals[k] = totals.get(k, 0) + v
    first, last = min(totals), max(totals)
    return first, [totals.get(k, 0) for k in range(first, last + 1)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision, chunk", [(0.25, 1 << 20), (0.25, 7), (1, 999), (0.1, 4096), (3.7, 100)])
def test_integer_totals_are_exact(device, precision, chunk):
    prices, volumes = ticks(500 if chunk == 7 else 5000)
    profile = VolumeProfileAnalyzer(precision, device, chunk).profile(prices, volumes)
    first, totals = counted(prices, volumes, precision)
    assert profile.first == first and profile.volumes.dtype == np.int64 and profile.volumes.tolist() == totals
    assert profile.total == int(volumes.sum()) and profile.ticks == len(prices)
    assert np.allclose(profile.prices, (first + np.arange(len(totals))) * precision, rtol=1e-15)


def test_large_integers_stay_exact():
    volumes = np.array([2**60 + 1, 2**53 + 1, 1], np.int64)
    assert VolumeProfileAnalyzer(1).profile(np.array([5.0, 5.0, 6.0]), volumes).volumes.tolist() == [2**60 + 2**53 + 2, 1]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_float_totals(device, dtype):
    prices, _ = ticks()
    volumes = np.random.default_rng(1).lognormal(0, 3, len(prices)).astype(dtype)
    bins = np.rint(prices / 0.25).astype(int)
    expected = np.bincount(bins - bins.min(), weights=volumes)
    for chunk in (1 << 20, 1000, 33):
        profile = VolumeProfileAnalyzer(0.25, device, chunk).profile(prices, volumes)
        assert profile.volumes.dtype == np.float64
        np.testing.assert_allclose(profile.volumes, expected, rtol=1e-13)


def test_float_totals_do_not_depend_on_the_number_of_threads():
    prices, _ = ticks(1 << 20, step=0.01)  # several parts
    volumes = np.random.default_rng(1).lognormal(0, 3, len(prices))
    threads, found = pf.get_num_threads(), []
    try:
        for n in (1, 2, 3):
            pf.set_num_threads(n)
            found.append(VolumeProfileAnalyzer(0.01).profile(prices, volumes).volumes)
    finally:
        pf.set_num_threads(threads)
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])


@pytest.mark.parametrize("device", DEVICES)
def test_prices_outside_of_what_a_sample_shows(device):
    prices, volumes = np.full(100_000, 400.0), np.arange(100_000)
    for at, price in ((33_333, 100.0), (50_001, 500.25), (99_999, 1000.5)):  # a sample has each 24th price
        prices[at] = price
    for chunk in (1 << 20, 7000):
        profile = VolumeProfileAnalyzer(0.25, device, chunk).profile(prices, volumes)
        assert (profile.first, profile.volumes.tolist()) == counted(prices, volumes, 0.25)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("volume", ["int64", "int32", "int16", "float32", "float64"])
@pytest.mark.parametrize("price", ["float64", "float32", "int32"])
def test_tensors_that_are_on_the_device(device, price, volume):
    prices, volumes = ticks(3000, step=1)
    seen = []
    analyzer = VolumeProfileAnalyzer(1, device, 100, progress=lambda done, total: seen.append(done))
    profile = analyzer.profile(pf.tensor(prices.astype(price), device=device), pf.tensor(volumes.astype(volume), device=device))
    assert (profile.first, profile.volumes.tolist()) == counted(prices, volumes, 1) and seen == [3000]  # one chunk
    apart = analyzer.profile(pf.tensor(np.repeat(prices, 3).astype(price), device=device)[1::3], pf.tensor(volumes.astype(volume), device=device))
    assert (apart.first, apart.volumes.tolist()) == (profile.first, profile.volumes.tolist())


def test_arrays_of_any_kind_are_read_where_they_are():
    prices, volumes = ticks(1000)
    expected = counted(prices, volumes, 0.25)
    frozen = prices.copy(), volumes.copy()
    for x in frozen:
        x.flags.writeable = False
    rows = np.zeros(1000, [("odd", "u1"), ("price", "f8"), ("volume", "i8")])
    rows["price"], rows["volume"] = prices, volumes
    for p, v in (frozen, (np.repeat(prices, 2)[::2], np.repeat(volumes, 3)[::3]), (prices[::-1], volumes[::-1]), (prices.astype(">f8"), volumes.astype(">i4")),
                 (rows["price"], rows["volume"]), (prices.astype(np.float32), volumes.astype(np.uint16)), (prices, volumes.astype(np.uint64))):
        profile = VolumeProfileAnalyzer(0.25, chunk_size=300).profile(p, v)
        assert (profile.first, profile.volumes.tolist()) == expected
    assert not frozen[0].flags.writeable and np.array_equal(frozen[0], prices)


def test_prices_that_are_whole_ticks_keep_their_bins():
    cents = np.arange(1, 20000)
    for prices in (cents / 100, cents * 0.01, (cents / 100).astype(np.float32)):
        profile = VolumeProfileAnalyzer(0.01).profile(prices, cents)
        assert profile.first == 1 and profile.volumes.tolist() == cents.tolist()
        assert np.array_equal(profile.prices, cents / 100)


@pytest.mark.parametrize("shift", range(4))
def test_halves_go_to_the_even_bin(shift):
    halves = np.arange(-9, 60) + 0.5 + shift
    for chunk in (1, 7, 1000):
        profile = VolumeProfileAnalyzer(1, "cpu", chunk).profile(halves, np.arange(69))
        assert (profile.first, profile.volumes.tolist()) == counted(halves, np.arange(69), 1)


def test_negative_prices():
    profile = VolumeProfileAnalyzer(0.5).profile(np.array([-1.0, -0.5, 0.5]), np.array([1, 2, 3]))
    assert profile.first == -2 and profile.volumes.tolist() == [1, 2, 0, 3] and profile.prices.tolist() == [-1, -0.5, 0, 0.5]


@pytest.mark.parametrize("totals, vpoc", [([1, 5, 2], 1), ([5, 1, 1, 5, 1], 3), ([5, 1, 1, 5], 0), ([0, 0, 4], 2), ([7], 0), ([5, 1, 5, 1, 5], 2)])
def test_point_of_control(totals, vpoc):
    profile = VolumeProfile(10, np.array(totals), 0.25)
    assert profile.vpoc_bin == vpoc and profile.vpoc == (10 + vpoc) * 0.25


@pytest.mark.parametrize("totals, share, low, high", [
    ([1, 2, 3, 10, 4, 3, 1], 0.7, 3, 5),        # 17 of 24: above 7, below 5
    ([4, 4, 10, 4, 4], 0.6, 2, 4),              # both pairs 8: the upper one
    ([5, 5, 10, 1, 1], 0.7, 0, 2),
    ([9, 0, 0, 10], 0.7, 0, 3),                 # only below; the last pair has one bin
    ([3], 0.7, 0, 0),
    ([1, 1, 1, 9], 0.7, 3, 3),
    ([1, 6, 10, 0, 0, 0], 1, 0, 2),
])
def test_value_area(totals, share, low, high):
    area = VolumeProfile(100, np.array(totals), 1).value_area_of(share)
    assert (area.low, area.high) == (100 + low, 100 + high)
    assert area.volume == sum(totals[low:high + 1]) and area.share == area.volume / sum(totals)


def test_value_area_of_random_profiles_holds_its_share_and_no_pair_too_many():
    rng = np.random.default_rng(5)
    for _ in range(100):
        totals = rng.integers(0, 50, rng.integers(1, 40))
        totals[rng.integers(len(totals))] += 1
        area = VolumeProfile(0, totals, 1, value_area_share=0.7).value_area
        assert area.share >= 0.7 and area.low <= VolumeProfile(0, totals, 1).vpoc <= area.high
        inside = totals[int(area.low):int(area.high) + 1]
        assert len(inside) == 1 or min(inside[2:].sum(), inside[:-2].sum()) < 0.7 * totals.sum()


def by_definition(totals, smoothing, prominence):
    """Nodes, straight from the text of the docstring."""
    half = smoothing // 2
    heights = [sum(totals[max(0, i - half):i + half + 1]) for i in range(len(totals))]
    peaks, n = [], len(heights)
    for i in range(n):
        a = b = i
        while a > 0 and heights[a - 1] == heights[i]:
            a -= 1
        while b < n - 1 and heights[b + 1] == heights[i]:
            b += 1
        if i != (a + b) // 2 or (a > 0 and heights[a - 1] > heights[i]) or (b < n - 1 and heights[b + 1] > heights[i]) or heights[i] == 0:
            continue
        left = next((j for j in range(i, -1, -1) if heights[j] > heights[i]), None)
        right = next((j for j in range(i, n) if heights[j] > heights[i]), None)
        base = max(0 if left is None else min(heights[left:i + 1]), 0 if right is None else min(heights[i:right + 1]))
        if heights[i] - base >= prominence * max(heights):
            peaks.append(i)
    return peaks, [a + heights[a:b].index(min(heights[a:b])) for a, b in zip(peaks, peaks[1:])]


@pytest.mark.parametrize("smoothing, prominence", [(1, 0.0), (1, 0.1), (3, 0.2), (5, 0.5)])
def test_nodes(smoothing, prominence):
    rng = np.random.default_rng(2)
    for size in (1, 2, 7, 60):
        for _ in range(20):
            totals = rng.integers(0, 6 if size < 60 else 100, size)
            high, low = VolumeProfile(0, totals, 1).nodes(smoothing, prominence)
            assert (high.tolist(), low.tolist()) == by_definition(totals.tolist(), smoothing, prominence)
    assert [x.tolist() for x in VolumeProfile(0, np.array([1, 9, 1, 2, 8, 3]), 0.5).nodes()] == [[0.5, 2.0], [1.0]]


def test_sessions_by_key_and_time_need_no_order():
    prices, volumes = ticks(3000)
    days = np.sort(np.random.default_rng(3).integers(0, 5, 3000))
    analyzer = VolumeProfileAnalyzer(0.25, chunk_size=500)
    expected = {int(d): counted(prices[days == d], volumes[days == d], 0.25) for d in np.unique(days)}
    order = np.random.default_rng(4).permutation(3000)
    times = np.datetime64("2024-09-16") + days.astype("timedelta64[D]") + np.arange(3000).astype("timedelta64[s]")
    for key in (days, days.astype(str)):
        for where in (slice(None), order):
            found = analyzer.sessions(prices[where], volumes[where], sessions=key[where])
            assert {int(p.session): (p.first, p.volumes.tolist()) for p in found} == expected
    for time in (times, times.astype(str), (times - np.datetime64(0, "s")).astype(float)):
        found = analyzer.sessions(prices[order], volumes[order], timestamps=time[order])
        assert [str(p.session) for p in found] == [f"2024-09-{16 + d}" for d in expected]
        assert [(p.first, p.volumes.tolist()) for p in found] == list(expected.values())
    assert len(analyzer.sessions(prices[:60], volumes[:60], timestamps=times[:60], session_length="30 s")) == 2
    tensors = analyzer.sessions(pf.tensor(prices[order]), pf.tensor(volumes[order]), sessions=pf.tensor(days[order]))
    assert [(p.first, p.volumes.tolist()) for p in tensors] == list(expected.values())


def test_rolling():
    prices, volumes = ticks(3000)
    days = np.repeat(np.arange(6), 500)
    analyzer = VolumeProfileAnalyzer(0.25)
    rolling = analyzer.rolling(analyzer.sessions(prices, volumes, sessions=days), 3)
    assert [p.session for p in rolling] == [2, 3, 4, 5]
    for p in rolling:
        inside = (days > p.session - 3) & (days <= p.session)
        assert (p.first, p.volumes.tolist()) == counted(prices[inside], volumes[inside], 0.25) and p.ticks == 1500


class Frame:
    """What a DataFrame has in common with others: columns by name, whose arrays NumPy asks for."""

    def __init__(self, **columns):
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name):
        values = self._columns[name]

        class Column:
            def __array__(self, dtype=None, copy=None):
                return np.asarray(values, dtype)

        return Column()


def test_tables_and_files(tmp_path):
    prices, volumes = ticks(300)
    days = np.repeat([19, 20, 21], 100)
    analyzer = VolumeProfileAnalyzer(0.25)
    expected = counted(prices, volumes, 0.25)
    (tmp_path / "t.csv").write_text("Timestamp,Price,Size\n" + "".join(f"2024-09-{d} 09:35:00.5,{p},{v}\n" for d, p, v in zip(days, prices, volumes)))
    (tmp_path / "float.csv").write_text("\ufeffClose,Qty\n" + "".join(f"{p},{v}.5\n" for p, v in zip(prices, volumes)), encoding="utf-8")
    tables = [{"close": prices, "volume": volumes}, Frame(Close=prices, Volume=volumes), Frame(open=prices * 2, Close=prices, SIZE=volumes.astype(object)), tmp_path / "t.csv"]
    for table in tables:
        profile = analyzer.profile(table)
        assert (profile.first, profile.volumes.tolist()) == expected
    assert analyzer.profile({"bid": prices, "close": prices + 50, "n": volumes}, columns={"price": "bid", "volume": "n"}).volumes.tolist() == expected[1]
    assert analyzer.profile(str(tmp_path / "float.csv")).volumes.dtype == np.float64
    found = analyzer.sessions(tmp_path / "t.csv")
    assert [str(p.session) for p in found] == ["2024-09-19", "2024-09-20", "2024-09-21"]
    assert [p.ticks for p in found] == [100] * 3 and sum(p.total for p in found) == volumes.sum()
    assert len(analyzer.sessions(Frame(price=prices, volume=volumes, session=days))) == 3


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="PyArrow is not installed")
    import pyarrow.parquet

    prices, volumes = ticks(300)
    table = pyarrow.table({"price": prices, "volume": volumes, "date": np.repeat(["2024-09-19", "2024-09-20"], 150)})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    analyzer = VolumeProfileAnalyzer(0.25)
    for data in (tmp_path / "t.parquet", table):
        assert analyzer.profile(data).volumes.tolist() == counted(prices, volumes, 0.25)[1]
        assert [p.ticks for p in analyzer.sessions(data)] == [150, 150]


def test_real_ticks():
    if not os.path.isdir(TICKS):
        pytest.skip(f"no data in {TICKS}; PYFLAME_TEST_TICKS names the folder")
    seconds = {}
    for file in sorted(pathlib.Path(TICKS).glob("*.csv")):
        rows = [line.split(",") for line in file.read_text().splitlines()[1:]]
        good = [r for r in rows if r[1] and float(r[1]) > 300]  # of these files; the others are empty, negative or a tenth
        ticks, dropped = clean_ticks(file)
        assert len(ticks["price"]) == len(good) and sum(dropped.values()) == len(rows) - len(good) > 0
        profile = VolumeProfileAnalyzer(0.01).profile(ticks)
        assert (profile.first, profile.volumes.tolist()) == counted([float(r[1]) for r in good], [int(r[2]) for r in good], 0.01)
        for r in good:
            seconds[r[0][:18]] = seconds.get(r[0][:18], 0) + int(r[2])
        spans = VolumeProfileAnalyzer(0.01).sessions(ticks, session_length="10 s")
        assert [p.total for p in spans] == [seconds[str(p.session)[:18].replace("T", " ")] for p in spans]


def test_cleaning():
    times = np.datetime64("2024-09-16T09:30") + np.array([0, 2, 1, 3, 4, 5, 6, 7]).astype("timedelta64[s]")
    prices = np.array([100.0, 101, 102, np.nan, -100, 10.1, 103, 104])
    volumes = np.array([1.0, 2, 3, 4, 5, 6, 0, 8])
    ticks, dropped = clean_ticks(prices, volumes, times)
    assert ticks["price"].tolist() == [100, 102, 101, 104] and ticks["volume"].tolist() == [1, 3, 2, 8] and ticks["volume"].dtype == np.int64
    assert np.array_equal(ticks["timestamp"], times[[0, 2, 1, 7]])
    assert dropped == {"not a number": 1, "price of 0 or less": 1, "volume of 0 or less": 1, "far from its neighbours": 1}
    assert list(clean_ticks([1.0], [1.5])[0]) == ["price", "volume"] and len(clean_ticks([], [])[0]["price"]) == 0
    assert [len(p) for p in clean_ticks([1.0, 1.0], [1, 1], [0.0, np.nan])[0].values()] == [1, 1, 1]
    long = 100 + np.cumsum(np.random.default_rng(0).normal(0, 0.01, 70000))
    long[[5, 300, 66000, 69999]] *= 10
    assert clean_ticks(long, np.ones(70000, int))[1]["far from its neighbours"] == 4
    for arguments, message in ((dict(max_deviation=0), "clean_ticks: max_deviation is out of range; got 0"), (dict(neighbours=0), "clean_ticks: neighbours does not fit; got 0"),
                               (dict(timestamps=["soon"] * 8), "clean_ticks: a timestamp cannot be read")):
        with pytest.raises(ValueError, match=message):
            clean_ticks(prices, volumes, **arguments)


def test_text_and_picture(tmp_path):
    profile = VolumeProfile(1600, np.array([0, 4, 8, 2]), 0.25, session="Monday")
    assert profile.text(width=4).splitlines() == [
        "        400.75              2   #", "        400.50              8 * ####", "        400.25              4 | ##", "        400.00              0 |"]
    assert [line.split()[:2] for line in profile.text(rows=2).splitlines()] == [["400.625", "10"], ["400.125", "4"]]
    assert repr(profile) == "VolumeProfile(4 bins of 0.25 of Monday, volume 14, VPOC 400.5)"
    with pytest.raises(ValueError, match=r"save_picture: unknown format; got .*x\.gif'; expected a name that ends in \.svg or \.png"):
        profile.save_picture(tmp_path / "x.gif")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    profile.save_picture(tmp_path / "x.svg")
    profile.save_picture(tmp_path / "x.png")
    assert "Volume profile of Monday" in (tmp_path / "x.svg").read_text() or "<svg" in (tmp_path / "x.svg").read_text()
    assert (tmp_path / "x.png").read_bytes()[:4] == b"\x89PNG"


def test_packages_that_are_missing_are_named(monkeypatch, tmp_path):
    def without(name, *args):
        if name.split(".")[0] in ("matplotlib", "pyarrow"):
            raise ImportError(name)
        return imported(name, *args)

    imported = builtins.__import__
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="save_picture: the package matplotlib is not installed; hint: pip install matplotlib"):
        VolumeProfile(0, np.array([1]), 1).save_picture(tmp_path / "x.svg")
    with pytest.raises(ImportError, match="the package pyarrow, which reads Parquet, is not installed"):
        VolumeProfileAnalyzer().profile(tmp_path / "t.parquet")


def test_progress(capsys):
    seen = []
    prices, volumes = ticks(1000)
    VolumeProfileAnalyzer(chunk_size=300, progress=lambda done, total: seen.append((done, total))).profile(prices, volumes)
    assert seen == [(300, 1000), (600, 1000), (900, 1000), (1000, 1000)]
    assert capsys.readouterr().err == ""
    VolumeProfileAnalyzer(chunk_size=300, progress=True).profile(prices, volumes)
    assert "100.0 % of 1000 ticks" in capsys.readouterr().err


def test_device_ids():
    prices, volumes = ticks(10)
    assert VolumeProfileAnalyzer(device="cpu", device_ids=[0], chunk_size=3500).profile(prices, volumes).ticks == 10
    with pytest.raises(ValueError, match=r"device_ids does not fit; got \[0, 1\]; expected one number"):
        VolumeProfileAnalyzer(device="cpu", device_ids=[0, 1])


P, V = np.array([1.0, 2.0, 3.0]), np.array([1, 2, 3])
TOO_LARGE = np.array([2**62, 2**62, 1])


@pytest.mark.parametrize("kind, arguments, message", [
    (ValueError, dict(price_precision=0), "VolumeProfileAnalyzer: price_precision is not the width of a bin; got 0; expected a number above 0"),
    (ValueError, dict(price_precision=float("nan")), "price_precision is not the width of a bin; got nan"),
    (ValueError, dict(price_precision="fine"), "price_precision is not the width of a bin; got 'fine'"),
    (ValueError, dict(chunk_size=0), "chunk_size is not a number of ticks; got 0; expected an integer of 1 or more"),
    (ValueError, dict(value_area=1.5), "value_area is out of range; got 1.5"),
    (TypeError, dict(progress="yes"), "progress does not fit; got str"),
])
def test_settings_that_do_not_fit(kind, arguments, message):
    with pytest.raises(kind, match=message.replace("(", r"\(")):
        VolumeProfileAnalyzer(**arguments)


@pytest.mark.parametrize("kind, data, message", [
    (ValueError, ([], []), "VolumeProfileAnalyzer.profile: there are no ticks; got 0; expected at least one"),
    (ValueError, (P, V[:2]), "the lengths differ; got 3 prices and 2 volumes; expected as many"),
    (ValueError, ([1, np.nan, 2], V), "a price is not finite; got nan at tick 1; expected finite prices"),
    (ValueError, ([1, 2, np.inf], V), "a price is not finite; got inf at tick 2"),
    (ValueError, (P, [1, 2, -3]), "a volume cannot be used; got -3 at tick 2; expected finite volumes that are not negative"),
    (ValueError, (P, [np.nan, 2, 3]), "a volume cannot be used; got nan at tick 0"),
    (ValueError, (P, [1, np.inf, 3]), "a volume cannot be used; got inf at tick 1"),
    (ValueError, ([[1.0]], [1]), r"the prices are not a vector; got shape \(1, 1\); expected one dim"),
    (TypeError, (["a"], [1]), "the prices are not real numbers; got"),
    (TypeError, (pf.ones(1) > 0, [1]), "the prices are not real numbers; got"),
    (ValueError, (P, None), "there are no volumes; got ndarray alone"),
    (ValueError, ({"price": P}, None), "no column is the volume; got the columns price; expected one of volume, size, quantity, qty; hint"),
    (ValueError, ({"price": P}, V), "the volumes come twice"),
    (ValueError, ([0.0, 1e9], [1, 1]), r"price_precision is too small for the prices; got 0.25 for prices from 0 to 1e\+09, which are 4000000001 bins"),
    (ValueError, ([1e300], [1]), r"price_precision is too small for the prices; got 0.25 for a price of 1e\+300"),
    (OverflowError, (P, TOO_LARGE), "integer totals may not fit into int64; got volumes up to 4611686018427387904"),
    (OverflowError, (P, np.array([2**63, 1, 1], np.uint64)), "a volume is too large; got 9223372036854775808"),
    (FileNotFoundError, ("nothing.csv", None), "no such file; got 'nothing.csv'; expected a CSV or Parquet file"),
])
def test_ticks_that_cannot_be_used(kind, data, message):
    analyzer = VolumeProfileAnalyzer(0.25, chunk_size=2)
    with pytest.raises(kind, match=message):
        analyzer.profile(*data)
    assert analyzer.profile(P, V).total == 6  # it works on


def test_files_that_cannot_be_used(tmp_path):
    def csv(text, name="t.csv"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    analyzer = VolumeProfileAnalyzer()
    for text, message in (("price,volume\n1,2\nx,3\n", "cannot be read: .*x.*; expected rows of numbers under the names price, volume"),
                          ("price,volume\n", "there are no ticks"), ("price,volume\n1,\n", "a volume cannot be used; got nan at tick 0; .*; hint: pf.finance.clean_ticks"), ("price,n\n1,2\n", "no column is the volume; got the columns price, n"),
                          ("price,volume\n1\n", "cannot be read")):
        with pytest.raises(ValueError, match=message):
            analyzer.profile(csv(text))
    with pytest.raises(ValueError, match="unknown format; got .*t.xls'; expected a name that ends in .csv"):
        analyzer.profile(csv("", "t.xls"))
    with pytest.raises(ValueError, match="there is no column 'bid'; got the columns price, volume"):
        analyzer.profile(csv("price,volume\n1,2\n"), columns={"price": "bid"})
    with pytest.raises(ValueError, match="columns does not fit; got .*; expected a dict with some of the keys price, volume, session, time"):
        analyzer.profile(P, V, columns={"cost": "bid"})


@pytest.mark.parametrize("arguments, message", [
    (dict(), "it is not known which session a tick belongs to; got no sessions and no timestamps"),
    (dict(sessions=V, timestamps=V), "sessions and timestamps exclude each other; got both"),
    (dict(sessions=V[:2]), "the lengths differ; got 3 prices and 2 sessions"),
    (dict(timestamps=["2024-01-01", "soon", "2024-01-02"]), "a timestamp cannot be read: .*soon"),
    (dict(timestamps=["2024-01-01", "NaT", "2024-01-02"]), "a timestamp is missing; got NaT at tick 1"),
    (dict(timestamps=[1.0, np.nan, 2.0]), "a timestamp is missing; got NaT at tick 1"),
    (dict(timestamps=V, session_length="a day"), "session_length does not fit; got 'a day'; expected text such as '1 D'"),
    (dict(timestamps=V, session_length="1 fortnight"), "session_length does not fit; got '1 fortnight'"),
    (dict(timestamps=V, session_length=np.timedelta64(-1, "s")), "session_length does not fit; got "),
])
def test_sessions_that_cannot_be_told_apart(arguments, message):
    with pytest.raises(ValueError, match="VolumeProfileAnalyzer.sessions: " + message):
        VolumeProfileAnalyzer().sessions(P, V, **arguments)


def test_errors_of_profiles():
    profile, analyzer = VolumeProfile(0, np.array([1, 2]), 0.25), VolumeProfileAnalyzer(0.25)
    for call, message in ((lambda: profile.value_area_of(0), "value_area: the share is out of range; got 0"),
                          (lambda: profile.nodes(smoothing=2), "nodes: smoothing does not fit; got 2; expected an odd number of bins"),
                          (lambda: profile.nodes(prominence=2), "nodes: prominence is out of range; got 2"),
                          (lambda: profile.text(rows=0), "text: the size is out of range; got rows=0 and width=48"),
                          (lambda: analyzer.rolling([profile], 2), "rolling: window does not fit; got 2 for 1 profiles"),
                          (lambda: VolumeProfileAnalyzer(1).rolling([profile], 1), "rolling: a profile has other bins; got price_precision 0.25; expected 1"),
                          (lambda: VolumeProfile(0, np.array([1]), -0.25), "VolumeProfile: price_precision is not the width of a bin; got -0.25"),
                          (lambda: VolumeProfile(0, np.array([1]), 1, value_area_share=2), "VolumeProfile: value_area_share is out of range; got 2"),
                          (lambda: VolumeProfile(0, np.array([]), 1), r"VolumeProfile: the totals do not fit; got shape \(0,\)")):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(OverflowError, match="rolling: the totals are too large"):
        analyzer.rolling([VolumeProfile(0, np.array([2**62]), 0.25)] * 2, 2)
