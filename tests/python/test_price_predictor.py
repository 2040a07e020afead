"""examples/price_predictor.py: finds what is there to find, knows no future, and says what is missing."""
import importlib.util
import pathlib
import re

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("price_predictor", ROOT / "examples" / "price_predictor.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_better_than_naive_on_later_days_of_the_synthetic_series(example, capsys):
    assert example.main(["--days", "80", "--epochs", "6", "--expect", "0.02"]) == 0
    out = capsys.readouterr().out
    assert "sessions: 45 to train (" in out and "The MLP predicts better than that the price stays." in out
    skills = dict(re.findall(r"(MLP|the price stays|least squares): .*skill ([-+.\d]+)", out))
    assert skills["the price stays"] == "+0.0000" and 0.02 < float(skills["MLP"]) < 0.3
    assert example.main(["--days", "8", "--epochs", "1", "--expect", "0.9"]) == 1


def test_features_know_no_future_and_targets_are_the_future(example):
    rng = np.random.default_rng(0)
    price, volume = 100 + np.cumsum(rng.normal(0, 0.1, 100)), rng.integers(1, 9, 100).astype(float)
    profile = example.finance.VolumeProfileAnalyzer(0.5).profile(price, volume)
    x, y = example.session_samples(price, volume, profile, 5)
    assert x.shape == (80, len(example.NAMES)) and y.shape == (80,)
    for t in (15, 40, 94):  # sample t - 15 is that of bar t
        later, more = price.copy(), volume.copy()
        later[t + 1:] *= 1.1
        more[t + 1:] *= 2
        assert np.array_equal(example.session_samples(later, more, profile, 5)[0][: t - 14], x[: t - 14])
        assert y[t - 15] == pytest.approx(1e4 * np.log(price[t + 5] / price[t]))
        assert x[t - 15, 1] == pytest.approx(1e4 * np.log(price[t] / price[t - 5]))
        assert x[t - 15, 3] == pytest.approx(1e4 * np.diff(np.log(price))[t - 15:t].std())


def test_bars(example):
    times = np.datetime64("2024-01-01T00:00:00") + np.array([0, 30, 59, 60, 200]).astype("timedelta64[s]")
    price, volume, _ = example.bars({"price": np.arange(5.0), "volume": np.array([1, 2, 3, 4, 5]), "timestamp": times}, 60)
    assert price.tolist() == [2, 3, 4] and volume.tolist() == [6, 4, 5]


def test_files(example, tmp_path, capsys):
    ticks = example.synthetic_ticks(5, 0.05, 0)
    files = []
    for day in np.unique(ticks["timestamp"].astype("datetime64[D]")):
        of_day = ticks["timestamp"].astype("datetime64[D]") == day
        rows = zip(*(ticks[name][of_day].tolist() for name in ("price", "volume")), ticks["timestamp"][of_day].astype(str).tolist())
        files.append(str(tmp_path / f"{day}.csv"))
        pathlib.Path(files[-1]).write_text("Price,Size,Timestamp\n,5,2024-09-02 09:30:00\n" + "".join(f"{p},{v},{t}\n" for p, v, t in rows))
    assert example.main(["--data", *files, "--epochs", "1"]) == 0
    assert "1 not a number" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="there are not enough sessions; got 2; expected at least 4"):
        example.main(["--data", *files[:2]])
    with pytest.raises(SystemExit, match="there are not enough bars; got 0, 0 and 0 samples; hint: a smaller --bar or --horizon"):
        example.main(["--data", *files, "--horizon", "1000"])


@pytest.mark.parametrize("words, message", [
    (["--days", "0"], "argument --days: got 0; expected an integer of 1 or more"),
    (["--horizon", "x"], "argument --horizon: got x; expected an integer of 1 or more"),
    (["--bar", "-1"], "argument --bar: got -1; expected a number above 0"),
])
def test_numbers_that_do_not_fit(example, capsys, words, message):
    with pytest.raises(SystemExit):
        example.main(words)
    assert message in capsys.readouterr().err


def test_files_and_lengths_that_do_not_fit(example, tmp_path):
    with pytest.raises(SystemExit, match="price_predictor: 'nope.csv' cannot be read: .*no such file"):
        example.main(["--data", "nope.csv"])
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SystemExit, match="price_predictor: '.*other.csv' cannot be read: .*no column is the price"):
        example.main(["--data", str(tmp_path / "other.csv")])
    with pytest.raises(SystemExit, match="price_predictor: .*session_length does not fit; got '1 fortnight'"):
        example.main(["--days", "2", "--session_length", "1 fortnight"])
