"""The tables: real ones from packages and the data folder, and made-up ones."""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.resources import files

import numpy as np
import pandas as pd
from common import data_folder
from mixed_tables import filled, sales
from repeated_y import cells, rounded
from scipy.special import expit
from sklearn.preprocessing import StandardScaler
from uci import ONLY_BY_NAME, SETS
from uci import load as load_uci

EVERYWHERE, POSITIVE = (-np.inf, np.inf), (0.0, np.inf)
N_BINS = 20


@dataclass(frozen=True)
class Table:
    """A table with its training and test rows.

    lower, upper : observed interval of y, for all rows
    bounds : values that y can have
    cell : how y is scored by its log probability, a name of ``CELLS``
    y : value of y, for the RMSE; NaN if it is unknown
    exposure : column with the exposure of counts, or None
    window : range of the CRPS
    by_time : whether the last rows are the test rows
    """

    X: pd.DataFrame
    lower: np.ndarray
    upper: np.ndarray
    bounds: tuple[float, float] = EVERYWHERE
    cell: str = "value"
    y: np.ndarray | None = None
    exposure: str | None = None
    window: tuple[float, float] = EVERYWHERE
    by_time: bool = False
    kind: str = ""
    train: np.ndarray | None = None
    test: np.ndarray | None = None

    @property
    def X_train(self) -> pd.DataFrame:
        """X of the training rows."""
        return self.X.iloc[self.train]

    @property
    def X_test(self) -> pd.DataFrame:
        """X of the test rows."""
        return self.X.iloc[self.test]

    @property
    def is_censored(self) -> bool:
        """Whether the observed y are intervals."""
        return self.kind in ("survival", "limit")

    @property
    def y_plain(self) -> np.ndarray:
        """Training y without intervals: the time, or half the limit."""
        is_below = np.isinf(self.lower)
        return np.where(is_below, self.upper / 2, self.lower)[self.train]

    @property
    def scale(self) -> float:
        """Standard deviation of the training y."""
        return float(self.y_plain.std())

    @property
    def cells(self) -> tuple[np.ndarray, np.ndarray]:
        """Cells of y, low and high, for all rows."""
        return CELLS[self.cell](self.lower, self.upper, self.train, self.bounds)

    @cached_property
    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """X of training and test rows as standardised numbers, one column a level."""
        frame = pd.get_dummies(filled(self.X), drop_first=True).astype(float)
        frame = frame.fillna(frame.iloc[self.train].median())
        train, test = (frame.iloc[rows].to_numpy() for rows in (self.train, self.test))
        varies = train.std(0) > 0
        scaler = StandardScaler().fit(train[:, varies])
        return scaler.transform(train[:, varies]), scaler.transform(test[:, varies])


def load(name: str, seed: int, n_train: int, n_test: int) -> Table:
    """A table with at most ``n_train`` training and ``n_test`` test rows."""
    kind, make = TABLES[name]
    table = make()
    n = len(table.X)
    order, cut = np.random.default_rng(seed).permutation(n), int(0.7 * n)
    if table.by_time:
        order = np.concatenate([order[order < cut], order[order >= cut]])
    train, test = order[:cut][:n_train], order[cut:][:n_test]
    window, y = table.window, table.y
    if kind == "survival":
        window, y = (0.0, np.quantile(table.lower[train], 0.9)), np.full(n, np.nan)
    elif y is None:
        y = table.lower
    found = {"kind": kind, "train": train, "test": test, "y": y, "window": window}
    return replace(table, X=table.X.reset_index(drop=True), **found)


# Cells


def _cells_at_bounds(lower, upper, train, bounds):
    """A y at a bound is everything up to the bound, and beyond."""
    margin = 1e-9 * lower[train].std()
    low = np.where(lower <= bounds[0], -np.inf, lower)
    low = np.where(upper >= bounds[1], bounds[1] - margin, low)
    return low, np.where(upper >= bounds[1], np.inf, upper)


def _cells_of_integers(lower, upper, train, bounds):
    """The ends are half-integers; none at a bound."""
    low = np.where(lower <= bounds[0], -np.inf, lower - 0.5)
    return low, np.where(upper >= bounds[1], np.inf, upper + 0.5)


def _cells_of_repeated_values(lower, upper, train, bounds):
    """The ends are half-way to neighbours among training rows; none at a bound."""
    low, high = cells(lower, lower[train])
    low = np.where(low < bounds[0], -np.inf, low)
    return low, np.where(high > bounds[1], np.inf, high)


def _bins_of_times(lower, upper, train, bounds):
    """Bins with about equal numbers of events; a censored time reaches to infinity."""
    is_event = lower == upper
    of_events = lower[train][is_event[train]]
    edges = np.unique(np.quantile(of_events, np.linspace(0, 1, N_BINS + 1)[1:-1]))
    edges = np.concatenate([[-np.inf], edges, [np.inf]])
    number = np.searchsorted(edges, lower) - 1
    low = np.where(is_event, edges[number], lower)
    return low, np.where(is_event, edges[number + 1], np.inf)


CELLS = {
    "value": lambda lower, upper, train, bounds: (lower, upper),
    "bounds": _cells_at_bounds,
    "integers": _cells_of_integers,
    "repeated": _cells_of_repeated_values,
    "bins": _bins_of_times,
}

# Censored


def _times(X, event, time) -> Table:
    event, time = np.asarray(event, dtype=bool), np.asarray(time, dtype=float)
    time = np.maximum(time, 0.5)  # an event on the first day
    return Table(X, time, np.where(event, time, np.inf), POSITIVE, "bins")


def _scikit_survival(name: str) -> Table:
    from sksurv import datasets

    X, y = getattr(datasets, f"load_{name}")()
    # The cause of death is known only after it.
    X = X.drop(columns="chapter", errors="ignore")
    event, time = y.dtype.names
    return _times(X, y[event], y[time])


def _rossi() -> Table:
    from lifelines.datasets import load_rossi

    frame = load_rossi()
    return _times(frame.drop(columns=["week", "arrest"]), frame.arrest, frame.week)


def _uci(name: str):
    """X and y in the order of the file."""
    X, y, _, _ = load_uci(name, 1)
    return pd.DataFrame(X.astype(float)).add_prefix("x"), np.ravel(y).astype(float)


def _below_limit(name: str, share: float) -> Table:
    """A share of the rows is below the limit of detection."""
    X, y = _uci(name)
    limit = np.quantile(y, share)
    lower, upper = np.where(y < limit, -np.inf, y), np.maximum(y, limit)
    return Table(X, lower, upper, POSITIVE, y=y, window=(limit, np.inf))


# Plain and rounded


def _plain(name: str) -> Table:
    X, y = _uci(name)
    return Table(X, y, y)


def _rounded(name: str, n_values: int, even: bool) -> Table:
    """All values of y are among ``n_values``."""
    X, y = _uci(name)
    if even:
        values = np.linspace(*np.quantile(y, [0.001, 0.999]), n_values)
        y = values[np.abs(y[:, None] - values).argmin(1)]
    else:
        y = rounded(y, n_values, np.random.default_rng(n_values))
    return Table(X, y, y, cell="repeated")


# Made-up


def _columns(seed: int, n: int = 4000):
    """Made-up columns, and the random numbers."""
    random = np.random.default_rng(seed)
    return pd.DataFrame(random.normal(size=(n, 5))).add_prefix("x"), random


def _hurdle() -> Table:
    """About half of y is zero, by one of the columns; the others are log-normal."""
    X, random = _columns(1)
    positive = random.random(len(X)) < expit(1.5 * X.x1)
    amount = np.exp(np.sin(1.5 * X.x0) + 0.4 * X.x2 + 0.5 * random.normal(size=len(X)))
    y = np.where(positive, amount, 0)
    return Table(X, y, y, POSITIVE, "bounds")


def _tobit() -> Table:
    """About half of y would be below zero, and is zero."""
    X, random = _columns(2)
    y = np.sin(1.5 * X.x0) + 0.5 * X.x1 + 0.5 * random.normal(size=len(X))
    y = np.maximum(y, 0).to_numpy()
    return Table(X, y, y, POSITIVE, "bounds")


def _sales() -> Table:
    """Amounts sold by shop and day: a Poisson number of units times the price."""
    X, y = sales()
    random = np.random.default_rng(3)
    y = random.poisson(random.gamma(2, y / 2) / 50) * X.price.to_numpy()
    return Table(X, y, y, POSITIVE, "bounds")


def _with_exposure() -> Table:
    """Negative binomial counts in periods of different length."""
    X, random = _columns(4)
    X["exposure"] = random.lognormal(0, 1, len(X))
    rate = np.exp(0.3 + np.sin(1.5 * X.x0) + 0.4 * X.x1)
    y = random.poisson(X.exposure * rate * random.gamma(3, 1 / 3, len(X))) + 0.0
    return Table(X, y, y, POSITIVE, "integers", exposure="exposure")


def _proportions() -> Table:
    """Logit-normal; a tenth of y is at the ends."""
    X, random = _columns(5)
    share = expit(1.5 * np.sin(1.5 * X.x0) + X.x1 + 0.6 * random.normal(size=len(X)))
    y = np.clip((share - 0.05) / 0.9, 0, 1).to_numpy()
    return Table(X, y, y, (0, 1), "bounds")


# Frames


def _frame(read, target: str, columns=None, drop=(), **options) -> Table:
    """A frame without the rows whose target is missing; y is positive by default."""
    frame = read().dropna(subset=target)
    y = frame[target].to_numpy(dtype=float)
    X = frame[list(columns)] if columns else frame.drop(columns=[target, *drop])
    return Table(X, y, y, **({"bounds": POSITIVE} | options))


def _islp(name: str) -> pd.DataFrame:
    return pd.read_csv(files("ISLP") / "data" / f"{name}.csv")


def _plotnine(name: str) -> pd.DataFrame:
    from plotnine import data

    return getattr(data, name)


def _statsmodels(name: str) -> pd.DataFrame:
    import statsmodels.api as sm

    return getattr(sm.datasets, name).load_pandas().data


def _schools() -> pd.DataFrame:
    """Share of pupils above the median in the districts of California."""
    frame = _statsmodels("star98").iloc[:, :14]
    return frame.assign(share=frame.NABOVE / (frame.NABOVE + frame.NBELOW))


def _rain() -> pd.DataFrame:
    """Hours with rain of each day, and the weather of the day."""
    frame = pd.read_csv(data_folder("pm25") / "beijing_pm25.csv.gz")
    days = frame.groupby(["year", "month", "day"], sort=False)
    X = days[["DEWP", "TEMP", "PRES", "Iws"]].agg(["mean", "min", "max"])
    X.columns = ["_".join(name) for name in X.columns]
    X["wind"] = days["cbwd"].agg(lambda values: values.mode()[0])
    X["month"] = X.index.get_level_values("month")
    return X.assign(hours=days["Ir"].agg(lambda values: float((values > 0).sum())))


# name: (kind, function without parameters)
TABLES = {
    "gbsg2": ("survival", partial(_scikit_survival, "gbsg2")),
    "whas500": ("survival", partial(_scikit_survival, "whas500")),
    "veterans": ("survival", partial(_scikit_survival, "veterans_lung_cancer")),
    "flchain": ("survival", partial(_scikit_survival, "flchain")),
    "rossi": ("survival", _rossi),
    "hurdle": ("zeros", _hurdle),
    "tobit": ("zeros", _tobit),
    "sales": ("zeros", _sales),
    "exposure": ("counts", _with_exposure),
    "made-up shares": ("proportions", _proportions),
}


def _add(kind: str, name: str, read, source: str, target: str, **options) -> None:
    TABLES[name] = kind, partial(_frame, partial(read, source), target, **options)


_add("zeros", "fair", _statsmodels, "fair", "affairs", cell="repeated")
_add("counts", "randhie", _statsmodels, "randhie", "mdvis", cell="integers")
OF_BIKES = {"drop": ("casual", "registered"), "cell": "integers"}
_add("counts", "bikes", _islp, "Bikeshare", "bikers", **OF_BIKES)
_add("skew", "diamonds", _plotnine, "diamonds", "price")
OF_HOUSES = ("city", "year", "month", "inventory")
_add("skew", "txhousing", _plotnine, "txhousing", "volume", columns=OF_HOUSES)
_add("skew", "wages", _islp, "Wage", "wage", drop=["logwage"], cell="repeated")
_add("skew", "salaries", _islp, "Hitters", "Salary", cell="repeated")
OF_SCHOOLS = {"drop": ("NABOVE", "NBELOW"), "bounds": (0, 1), "cell": "bounds"}
TABLES["schools"] = "proportions", partial(_frame, _schools, "share", **OF_SCHOOLS)
OF_RAIN = {"bounds": (0, 24), "cell": "integers", "by_time": True}
TABLES["rain"] = "zeros", partial(_frame, _rain, "hours", **OF_RAIN)
for _name in ("concrete", "kin8nm", "protein-tertiary-structure"):
    for _share in (0.1, 0.3, 0.6):
        _limited = partial(_below_limit, _name, _share)
        TABLES[f"{_name} {_share:.0%} below"] = "limit", _limited
for _name in (*SETS, *ONLY_BY_NAME):
    TABLES[_name] = "plain", partial(_plain, _name)
    for _n in (10, 30, 100):
        for _gaps in ("even", "uneven"):
            _make = partial(_rounded, _name, _n, _gaps == "even")
            TABLES[f"{_name} {_n} {_gaps}"] = "rounded", _make
