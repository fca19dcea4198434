"""Do intervals stay right in groups of rows, and in streams that change?

Streams: a network by evidence is fitted to the first rows and calibrated on the next
ones. Then it predicts 24 rows at a time, whose y arrives before the next ones: fine
dust of Beijing, a made-up load of a grid, and made-up rows whose noise doubles at once
or grows slowly. Groups: coverage overall, in the group where it is smallest, and in the
slab of rows where it is smallest, on random splits of five tables. Next to it intervals
of the model as it is, and of MAPIE and crepes.

``--choose`` prints the choice of window and step, on made-up scores of other seeds.

    python benchmarks/deployment.py
"""

import warnings

import numpy as np
import pandas as pd
from common import command_line, data_folder, environment, table
from crepes import ConformalRegressor as Crepes
from mapie.regression import SplitConformalRegressor, TimeSeriesRegressor
from scipy.signal import lfilter
from sklearn.frozen import FrozenEstimator
from streams import deliveries, uci

from skbayesnn import ConformalRegressor, LaplaceRegressor
from skbayesnn.metrics import interval_coverage, worst_group_coverage

COVERAGE, LENGTH, SETTLED, DAY = 0.9, 500, 300, 24
TRAIN, CALIBRATE = 1000, 500
# Fewest calibration rows of a group that counts as the worst.
LEAST = 100


# ---- streams


def fine_dust():
    """Logarithm of the fine dust by the hour, a day ahead; no single change."""
    raw = pd.read_csv(data_folder("pm25") / "beijing_pm25.csv.gz").iloc[:9000]
    dust = np.log1p(raw["pm2.5"])
    columns = [dust.shift(24), dust.shift(48), *(raw[c] for c in ("DEWP", "PRES"))]
    columns += [np.log1p(raw["Iws"]), raw["TEMP"], raw["hour"]]
    rows = pd.concat([*columns, dust], axis=1).dropna().to_numpy()
    return rows[:, :-1], rows[:, -1], 0


def load_of_grid(n_rows=6000):
    """Hour, weekday, temperature and the load a day before; 15 % more load later."""
    random, hours = np.random.default_rng(1), np.arange(n_rows + 24)
    weather = np.convolve(random.normal(size=n_rows + 71), np.ones(48) / 7, "valid")
    temperature = 12 - 10 * np.cos(2 * np.pi * hours / 8766) + weather
    working = (hours // 24 % 7) < 5
    load = 50 + 12 * np.sin(2 * np.pi * (hours % 24 - 8) / 24) + 8 * working
    load += 0.05 * np.square(temperature - 17) + np.where(hours > 3500, 9, 0)
    load += random.normal(size=len(hours)) * (1 + 0.03 * np.abs(temperature - 12))
    columns = [hours % 24, hours // 24 % 7, temperature, np.roll(load, 24)]
    return np.column_stack(columns)[24:], load[24:], 3500 - TRAIN - CALIBRATE


def noisy(noise, change):
    """Rows of a smooth function with noise of a given size."""
    random = np.random.default_rng(2)
    X = random.normal(size=(len(noise), 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * noise * random.normal(size=len(noise))
    return X, y, change


def streams():
    """X, y, and the row after the calibration rows where a change starts."""
    sudden = np.where(np.arange(4500) < TRAIN + CALIBRATE + 1000, 1.0, 2.0)
    slow = np.exp(np.linspace(-0.5, 1, 4500).clip(0))
    return {
        "fine dust by the hour": fine_dust(),
        "load of a grid": load_of_grid(),
        "noise doubles at once": noisy(sudden, 1000),
        "noise grows slowly": noisy(slow, 0),
    }


class Known:
    """A regressor of predictions that are known; X has their position."""

    def __init__(self, mean):
        self.mean, self.fitted_ = mean, True

    def fit(self, X, y):
        return self

    def predict(self, X):
        return self.mean[np.asarray(X)[:, 0].astype(int)]

    def __sklearn_is_fitted__(self):
        return True


def ours(model, X, y, starts, **options):
    """Intervals of this package, updated after every day."""
    first = slice(TRAIN, TRAIN + CALIBRATE)
    conformal = ConformalRegressor(FrozenEstimator(model), **options)
    conformal.fit(X[first], y[first])
    for start in starts:
        rows = slice(start, start + DAY)
        yield conformal.predict_interval(X[rows], COVERAGE)
        conformal.update(X[rows], y[rows])


def mapie_aci(mean, y, starts):
    """MAPIE's adaptive intervals, with its default step."""
    position = np.arange(len(y), dtype=float)[:, None]
    first = slice(TRAIN, TRAIN + CALIBRATE)
    aci = TimeSeriesRegressor(Known(mean), method="aci", cv="prefit")
    aci.fit(position[first], y[first])
    for start in starts:
        rows = slice(start, start + DAY)
        options = {"confidence_level": COVERAGE, "allow_infinite_bounds": True}
        yield aci.predict(position[rows], **options)[1][..., 0]
        aci.adapt_conformal_inference(
            position[rows], y[rows], gamma=0.02, confidence_level=COVERAGE
        )


def of_stream(X, y, change):
    """Rows of the table: method and its cells."""
    model = LaplaceRegressor((8,), random_state=0).fit(X[:TRAIN], y[:TRAIN])
    mean, std = model.predict(X, return_std=True)
    starts = range(TRAIN + CALIBRATE, len(y) - DAY, DAY)
    later = slice(starts[0], starts[-1] + DAY)
    first = slice(TRAIN, TRAIN + CALIBRATE)
    crepes = Crepes().fit((y - mean)[first], sigmas=std[first])
    known = {"confidence": COVERAGE, "sigmas": std[later]}
    found = {
        "the model as it is": model.predict_interval(X[later], COVERAGE),
        "calibrated once (crepes, MAPIE, ours)": crepes.predict_int(
            mean[later], **known
        ),
        "crepes, online": crepes.predict_int_online(mean[later], y[later], **known),
        "MAPIE, adaptive": np.concatenate([*mapie_aci(mean, y, starts)]),
        "ours, window only": np.concatenate([*ours(model, X, y, starts, step_size=0)]),
        "ours, update": np.concatenate([*ours(model, X, y, starts)]),
    }
    rows = []
    for name, interval in found.items():
        low, high = interval.T
        inside = (low <= y[later]) & (y[later] <= high)
        windows = moving_mean(inside[change + SETTLED :], LENGTH)
        right = (windows >= COVERAGE - 0.02) & (windows <= COVERAGE + 0.02)
        width = high - low
        cells = [inside[change:].mean(), windows.min(), windows.max(), right.mean()]
        cells += [np.median(width[change:]), np.isinf(width[change:]).mean()]
        rows.append([name, *(f"{cell:.3f}" for cell in cells)])
    return rows


def moving_mean(values, length):
    """Means of all runs of this length."""
    total = np.concatenate([[0], np.cumsum(values)])
    return (total[length:] - total[:-length]) / length


# ---- groups


def adult():
    """Age by hours, years of education and sex; groups are kinds of work."""
    raw = pd.read_csv(data_folder("tabular") / "adult.csv.gz").dropna()
    raw = raw.sample(6000, random_state=0)
    X = raw[["hours_per_week", "education_num", "capital_gain"]].assign(
        female=raw["sex"] == "Female", gain=np.log1p(raw["capital_gain"])
    )
    X = X.drop(columns="capital_gain").to_numpy(float)
    return X, raw["age"].to_numpy(float), pd.factorize(raw["marital_status"])[0]


def tables():
    """X, y and the group of each row."""
    X, y, _ = fine_dust()
    dust = X, y, np.digitize(X[:, 4], np.quantile(X[:, 4], [0.2, 0.4, 0.6, 0.8]))
    X, y = uci("power-plant", 6000)
    plant = X, y, np.digitize(X[:, 0], np.quantile(X[:, 0], [0.25, 0.5, 0.75]))
    X, y = uci("wine-quality-red", 6000)
    wine = X, y, np.digitize(X[:, -1], np.quantile(X[:, -1], [1 / 3, 2 / 3]))
    frame, y = deliveries(6000)
    day = frame["day"].cat.codes.to_numpy()
    return {
        "fine dust by wind": dust,
        "age by marital status": adult(),
        "power plant by temperature": plant,
        "wine by alcohol": wine,
        "deliveries by day": (frame.to_numpy(float)[:, :2], y, day),
    }


def worst_slab(X, inside, random, share=0.1, n_directions=300):
    """Coverage of the slab where it is smallest; found on one half of the rows.

    [Cauchois, Gupta & Duchi 2021, section 4], for slabs of this share of the rows.
    """
    half = random.permutation(len(X)) < len(X) // 2
    Z = (X - X.mean(0)) / X.std(0)
    found = []
    for direction in random.normal(size=(n_directions, X.shape[1])):
        z = Z @ direction
        order = np.argsort(z[half], kind="stable")
        length = int(share * half.sum())
        means = moving_mean(inside[half][order], length)
        start = int(means.argmin())
        low, high = z[half][order][[start, start + length - 1]]
        found.append((means[start], low, high, direction))
    _, low, high, direction = min(found, key=lambda slab: slab[0])
    z = Z[~half] @ direction
    return inside[~half][(low <= z) & (z <= high)].mean()


def of_table(X, y, groups, n_splits):
    """Rows of the table: method and means over the splits."""
    found: dict[str, list] = {}
    X = np.column_stack([X, groups])
    n_train = min(400, len(y) // 4)
    n_calibrate = min(1000, len(y) // 3)
    for seed in range(n_splits):
        random = np.random.default_rng(seed)
        order = random.permutation(len(y))
        train, calibrate, test = np.split(order, [n_train, n_train + n_calibrate])
        network = LaplaceRegressor((8,), likelihood="gaussian", random_state=0)
        model = network.fit(X[train], y[train])
        frozen = FrozenEstimator(model)
        mean, std = model.predict(X, return_std=True)
        residuals = (y - mean)[calibrate], std[calibrate], groups[calibrate]
        mondrian = Crepes().fit(*residuals[:1], sigmas=residuals[1], bins=residuals[2])
        position = np.arange(len(y), dtype=float)[:, None]
        split = SplitConformalRegressor(Known(mean), confidence_level=COVERAGE)
        split.conformalize(position[calibrate], y[calibrate])
        intervals = {
            "the model as it is": model.predict_interval(X[test], COVERAGE),
            "MAPIE, split": split.predict_interval(position[test])[1][..., 0],
            "crepes, Mondrian": mondrian.predict_int(
                mean[test], sigmas=std[test], bins=groups[test], confidence=COVERAGE
            ),
            "ours, split": ConformalRegressor(frozen)
            .fit(X[calibrate], y[calibrate])
            .predict_interval(X[test], COVERAGE),
            "ours, groups": ConformalRegressor(frozen, groups=X.shape[1] - 1)
            .fit(X[calibrate], y[calibrate])
            .predict_interval(X[test], COVERAGE),
        }
        names, counts = np.unique(groups[calibrate], return_counts=True)
        large = np.isin(groups[test], names[counts >= LEAST])
        for name, interval in intervals.items():
            inside = (interval[:, 0] <= y[test]) & (y[test] <= interval[:, 1])
            found.setdefault(name, []).append(
                [
                    interval_coverage(y[test], interval),
                    worst_group_coverage(
                        y[test][large], interval[large], groups[test][large]
                    ),
                    worst_slab(X[test], inside, np.random.default_rng(seed)),
                    np.mean(interval[:, 1] - interval[:, 0]),
                    *(inside[groups[test] == g].mean() for g in names[counts >= LEAST]),
                ]
            )
    rows = []
    for name, values in found.items():
        overall, worst, slab, width, *by_group = np.mean(values, axis=0)
        cells = overall, min(by_group), worst, slab, width
        rows.append([name, len(by_group), *(f"{cell:.3f}" for cell in cells)])
    return rows


# ---- choice of the defaults


def scores_of(kind, random, n_rows=4000):
    """Made-up scores whose spread changes."""
    t = np.arange(n_rows)
    spread = {
        "constant": np.ones(n_rows),
        "doubles": np.where(t < 1500, 1.0, 2.0),
        "halves": np.where(t < 1500, 1.0, 0.5),
        "grows": np.exp(np.log(3) * np.clip((t - 500) / 2500, 0, 1)),
        "clusters": np.exp(0.6 * correlated(random, n_rows, 0.97)),
        "cycles": np.exp(0.7 * np.sin(t / 191) + 0.5 * np.sin(2 * np.pi * t / DAY)),
    }
    if kind == "correlated":
        return np.abs(correlated(random, n_rows, 0.9)) * spread["doubles"]
    return np.abs(random.normal(size=n_rows)) * spread[kind]


def correlated(random, n_rows, correlation):
    """Normal values with this correlation between neighbours."""
    noise = np.sqrt(1 - correlation**2) * random.normal(size=n_rows)
    return lfilter([1], [1, -correlation], noise)


def right_windows(scores, n_rows, window, step, largest):
    """Share of windows within two points, and of infinite intervals."""
    inside, infinite, level = [], [], COVERAGE
    for start in range(CALIBRATE, len(scores), n_rows):
        known = np.sort(scores[max(0, start - window) : start])
        new = scores[start : start + n_rows]
        rank = int(np.ceil((level - 1e-12) * (len(known) + 1)))
        radius = np.append(known, np.inf)[min(rank, len(known) + 1) - 1]
        covered = new <= (radius if rank > 0 else 0)
        inside.extend(covered)
        infinite.extend([np.isinf(radius)] * len(new))
        level += min(len(new) * step, largest) * (COVERAGE - covered.mean())
    # After the start and after the change.
    windows = moving_mean(inside, LENGTH)[1500 - CALIBRATE + SETTLED :]
    return np.mean(np.abs(windows - COVERAGE) <= 0.02), np.mean(infinite)


def choose():
    """Print the shares for windows and steps, means over kinds and three seeds."""
    kinds = "constant", "doubles", "halves", "grows", "cycles", "clusters", "correlated"
    rows = []
    for window in (150, 250, 500):
        for step in (0.0, 0.01, 0.02, 0.05):
            cells = []
            for n_rows, largest in ((1, 0.1), (DAY, 0.1), (DAY, 0.5)):
                values = [
                    right_windows(
                        scores_of(kind, np.random.default_rng([seed, 99])),
                        n_rows,
                        window,
                        step,
                        largest,
                    )
                    for kind in kinds
                    for seed in range(3)
                ]
                cells += [f"{v:.3f}" for v in np.mean(values, axis=0)]
            rows.append([f"window {window}, step {step}", *cells])
    head = ["rows of an update, largest step", "1: right windows", "infinite"]
    for largest in (0.1, 0.5):
        head += [f"{DAY}, {largest}: right windows", "infinite"]
    print(table(head, rows))


def main():
    """Print the tables."""
    parser = command_line(__doc__)
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--splits", type=int, default=10)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    if options.choose:
        choose()
        return
    for name, (X, y, change) in streams().items():
        head = [name, "coverage", "least window", "largest", "windows in .88-.92"]
        print(table([*head, "median width", "infinite"], of_stream(X, y, change)))
        print(flush=True)
    for name, data in tables().items():
        head = [name, "groups", "coverage", "worst mean of a group"]
        head += ["mean of the worst group", "worst slab", "mean width"]
        print(table(head, of_table(*data, options.splits)))
        print(flush=True)


if __name__ == "__main__":
    main()
