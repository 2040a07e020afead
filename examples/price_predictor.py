"""From ticks to predictions: volume profiles and momentum become features, an MLP learns the next move, and later sessions say whether it helps.

    python examples/price_predictor.py                                      # a synthetic series
    python examples/price_predictor.py --data ticks/*.csv --session_length '1 m' --bar 1 --profile_sessions 1

The files have the columns Timestamp, Price and Size (or other usual names). Ticks become bars of --bar seconds. At each bar the features are known from
the past alone: returns, volatility and relative volume of this session, and the distances to the VPOC and to the value area of the sessions before. The
target is the return over the next --horizon bars. The model is trained on the first sessions, its epoch is chosen on sessions after these, and the
last sessions are looked at once, at the end. There it is compared with the naive prediction that the price does not move, which is hard to beat: on
real prices, expect a skill close to 0, or below.

In the synthetic series the price is pulled towards the VPOC of the day before, so there is something to find; that says nothing about markets.
"""
# ci: --days 8 --epochs 4
import argparse
import math
import sys
import tempfile

import numpy as np

import pyflame as pf
from pyflame import finance, nn
from pyflame.data import TensorDataset

LAGS = (1, 5, 15)  # bars of the returns
NAMES = [f"return over {n}" for n in LAGS] + ["volatility", "relative volume", "distance to VPOC", "above value area", "below value area"]


def synthetic_ticks(days, precision, seed):
    """Days of 390 minutes with 10 ticks a minute. pull is the share of the distance to yesterday's VPOC that a tick makes up for."""
    rng, analyzer = np.random.default_rng(seed), finance.VolumeProfileAnalyzer(precision, progress=False)
    price, anchor, pull, parts = 418.0, 418.0, 1 / 1000, []
    for day in range(days):
        noise, path = rng.normal(0, 0.02, 3900).tolist(), []
        price += rng.normal(0, 0.6)  # overnight
        for step in noise:
            price += pull * (anchor - price) + step
            path.append(price)
        volumes = rng.integers(1, 1000, len(path))
        anchor = analyzer.profile(np.array(path), volumes).vpoc
        times = np.datetime64("2024-09-02T09:30", "ms") + np.timedelta64(day, "D") + np.arange(len(path)) * np.timedelta64(6000, "ms")
        parts.append((np.round(path, 2), volumes, times))
    prices, volumes, times = (np.concatenate(column) for column in zip(*parts))
    return {"price": prices, "volume": volumes, "timestamp": times}


def read_ticks(files):
    """The ticks of all files, cleaned, in order of time."""
    parts = []
    for file in files:
        try:
            ticks, dropped = finance.clean_ticks(file)
        except (OSError, ValueError) as error:
            raise SystemExit(f"price_predictor: '{file}' cannot be read: {error}") from None
        if "timestamp" not in ticks:
            raise SystemExit(f"price_predictor: '{file}' has no column of times")
        print(f"{file}: {len(ticks['price'])} ticks; dropped: " + ", ".join(f"{n} {reason}" for reason, n in dropped.items()))
        parts.append(ticks)
    whole = {name: np.concatenate([p[name] for p in parts]) for name in ("price", "volume", "timestamp")}
    order = np.argsort(whole["timestamp"], kind="stable")
    return {name: values[order] for name, values in whole.items()}


def bars(ticks, seconds):
    """(last price, volume, begin in seconds) of each span of time with a tick."""
    at = ticks["timestamp"].astype("datetime64[ms]").astype(np.int64) // int(1000 * seconds)
    last = np.append(np.flatnonzero(at[1:] != at[:-1]), len(at) - 1)
    first = np.append(0, last[:-1] + 1)
    return ticks["price"][last], np.add.reduceat(ticks["volume"], first).astype(np.float64), at[last] * seconds


def session_samples(price, volume, profile, horizon):
    """(features, targets) of one session's bars; profile is that of the sessions before. Units of returns and distances: 1/10,000 of the price."""
    log = 1e4 * np.log(price)
    move = np.diff(log, prepend=log[0])
    longest, columns = max(LAGS), []
    at = np.arange(longest, len(price) - horizon)
    if len(at) < 1:
        return np.empty((0, len(NAMES))), np.empty(0)
    for lag in LAGS:
        columns.append(log[at] - log[at - lag])
    window = np.lib.stride_tricks.sliding_window_view
    columns.append(window(move, longest)[at - longest + 1].std(1))
    columns.append(np.log(volume[at] / window(volume, longest)[at - longest + 1].mean(1)))
    area = profile.value_area
    columns += [log[at] - 1e4 * math.log(profile.vpoc), np.maximum(log[at] - 1e4 * math.log(area.high), 0), np.maximum(1e4 * math.log(area.low) - log[at], 0)]
    return np.stack(columns, 1), log[at + horizon] - log[at]


def samples_by_session(ticks, a):
    """A list of (features, targets), one for each session that has enough sessions before it."""
    analyzer = finance.VolumeProfileAnalyzer(a.price_precision, a.device)
    try:
        profiles = analyzer.sessions(ticks, session_length=a.session_length)
    except ValueError as error:
        raise SystemExit(f"price_predictor: {error}") from None
    if len(profiles) < a.profile_sessions + 3:
        raise SystemExit(f"price_predictor: there are not enough sessions; got {len(profiles)}; expected at least {a.profile_sessions + 3}, to train, to choose and to test")
    before = analyzer.rolling(profiles, a.profile_sessions)
    begins = np.cumsum([0] + [p.ticks for p in profiles])
    found = []
    for number in range(a.profile_sessions, len(profiles)):
        part = {name: values[begins[number]:begins[number + 1]] for name, values in ticks.items()}
        price, volume, _ = bars(part, a.bar)
        found.append(session_samples(price, volume, before[number - a.profile_sessions], a.horizon))
    return found


def report(name, predicted, actual, horizon):
    """Skill against the naive prediction 0, and how often the sign is right. Targets overlap, so the errors count one sample in `horizon`."""
    squares, naive = (predicted - actual) ** 2, actual**2
    skill = 1 - squares.mean() / naive.mean()
    independent = np.sqrt(max(1, len(actual) / horizon))
    error = (naive - squares).std() / independent / naive.mean()
    moved = actual != 0
    right = np.mean(np.sign(predicted[moved]) == np.sign(actual[moved]))
    sign = f", sign right {100 * right:.1f} % ± {50 / independent:.1f} %" if np.any(predicted) else ""
    print(f"{name:>24}: mean squared error {squares.mean():8.3f}, skill {skill:+.4f} ± {error:.4f}{sign}")
    return skill


def positive(text):
    number = float(text)
    if not number > 0 or math.isinf(number):
        raise argparse.ArgumentTypeError(f"got {text}; expected a number above 0")
    return number


def count(text):
    number = int(text) if text.lstrip("-").isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"got {text}; expected an integer of 1 or more")
    return number


def main(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", nargs="*", default=[], help="CSV or Parquet files of ticks; a synthetic series without")
    p.add_argument("--days", type=count, default=120, help="days of the synthetic series")
    p.add_argument("--session_length", default="1 D", help="such as '1 D', '1 h' or '1 m'")
    p.add_argument("--profile_sessions", type=count, default=1, help="how many sessions before make the profile")
    p.add_argument("--price_precision", type=positive, default=0.05)
    p.add_argument("--bar", type=positive, default=60, help="seconds of a bar")
    p.add_argument("--horizon", type=count, default=15, help="bars to predict ahead")
    p.add_argument("--epochs", type=count, default=15)
    p.add_argument("--batch_size", type=count, default=128)
    p.add_argument("--lr", type=positive, default=1e-3)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--device", default="cpu")
    p.add_argument("--expect", type=float, default=-math.inf, help="exit with 1 when the skill is less")
    p.add_argument("--smoke", action="store_true", help="a short run that tests the long one")
    a = p.parse_args(argv)

    ticks = read_ticks(a.data) if a.data else synthetic_ticks(a.days, a.price_precision, a.seed)
    sessions = samples_by_session(ticks, a)
    tests = max(1, len(sessions) // 4)
    chosen = max(1, (len(sessions) - tests) // 4)
    parts = [sessions[:-tests - chosen], sessions[-tests - chosen:-tests], sessions[-tests:]]
    (x, y), (x_held, y_held), (x_test, y_test) = [(np.concatenate([f for f, _ in part]), np.concatenate([t for _, t in part])) for part in parts]
    if min(len(y), len(y_held), len(y_test)) == 0:
        raise SystemExit(f"price_predictor: there are not enough bars; got {len(y)}, {len(y_held)} and {len(y_test)} samples; hint: a smaller --bar or --horizon")
    print(f"{len(ticks['price'])} ticks, sessions: {len(parts[0])} to train ({len(y)} samples), {chosen} to choose the epoch ({len(y_held)}), {tests} to test ({len(y_test)})")

    # Means and deviations of the training sessions alone; a deviation of 0 leaves the feature at 0.
    mean, deviation, scale = x.mean(0), np.where(x.std(0) > 0, x.std(0), 1), max(y.std(), 1e-12)

    def inputs(features):
        return pf.tensor(((features - mean) / deviation).astype(np.float32))

    pf.manual_seed(a.seed)
    model = pf.models.MLP(len(NAMES), [32, 16])
    with pf.no_grad():
        model.layers[-1].weight.mul_(0.1)  # begins close to the naive prediction
        model.layers[-1].bias.zero_()
    with tempfile.TemporaryDirectory() as out:
        trainer = pf.train.Trainer(model, TensorDataset(inputs(x), pf.tensor((y / scale).astype(np.float32))), TensorDataset(inputs(x_held), pf.tensor((y_held / scale).astype(np.float32))),
                                   loss=nn.functional.mse_loss, epochs=a.epochs, batch_size=a.batch_size, lr=a.lr, device=a.device, clip=1.0, out=out, seed=a.seed, smoke=a.smoke,
                                   log_interval=10**9)
        trainer.fit()
        if a.smoke:
            return 0
        model.load_state_dict(pf.load(f"{out}/best.safetensors"))
    model.eval()
    with pf.no_grad():
        predicted = scale * model(inputs(x_test).to(a.device)).cpu().numpy().astype(np.float64)

    print(f"\non the {tests} last sessions, in 1/10,000 of the price over {a.horizon} bars:")
    report("the price stays", np.zeros(len(y_test)), y_test, a.horizon)
    report("the mean of training", np.full(len(y_test), y.mean()), y_test, a.horizon)
    design = np.column_stack([(x - mean) / deviation, np.ones(len(y))])
    line = np.linalg.lstsq(design, y, rcond=None)[0]
    report("least squares", np.column_stack([(x_test - mean) / deviation, np.ones(len(y_test))]) @ line, y_test, a.horizon)
    skill = report("MLP", predicted, y_test, a.horizon)
    print("The MLP predicts better than that the price stays." if skill > 0 else "The MLP predicts no better than that the price stays.")
    return 0 if skill >= a.expect else 1


if __name__ == "__main__":
    sys.exit(main())
