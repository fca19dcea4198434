"""Conformal intervals and sets for groups, after a shift, and with later y."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skbayesnn import (
    ConformalClassifier,
    ConformalRegressor,
    LaplaceClassifier,
    LaplaceRegressor,
    dumps,
    loads,
    predict_interval,
)
from skbayesnn._meta.conformal_scores import FULL_GROUP, LARGEST_STEP
from tests.helpers.linear_gaussian import LinearGaussian
from tests.helpers.seed import SEED

COVERAGE = np.array([0.5, 0.8, 0.9])
# Rows of each group; the last one has too few rows for its own quantiles.
SIZES = np.array([80, 60, 12])
FEW, UNKNOWN = 2, 9
KINDS = pytest.mark.parametrize("kind", ["split", "cv+", "sets"])


def rows(random, group):
    """Three features and the group; the noise of group 0 is larger."""
    X = np.column_stack([random.normal(size=(len(group), 3)), group])
    noise = np.where(group == 0, 3.0, 1.0) * random.normal(size=len(group))
    return X, X[:, :3] @ [1.0, -2.0, 0.5] + noise


def case_of(kind, **options):
    """An unfitted conformal model, its calibration rows, and new rows."""
    random = np.random.default_rng([SEED, 7])
    X, y = rows(random, np.repeat(range(3), 25))
    group = random.permutation(np.repeat(range(3), SIZES))
    case = SimpleNamespace(group=group, random=random)
    (case.X, case.y), (case.X_new, case.y_new) = (
        rows(random, values) for values in (group, np.repeat(range(3), 14))
    )
    if kind == "sets":
        inner = LogisticRegression().fit(X, y > 0)
        case.model = ConformalClassifier(FrozenEstimator(inner), **options)
        case.y, case.y_new = case.y > 0, case.y_new > 0
    else:
        inner = LinearGaussian(uneven=0.3).fit(X, y)
        # The models of all folds are equal, and so are "split" and "cv+" up to
        # rounding.
        case.model = ConformalRegressor(
            FrozenEstimator(inner), method=kind, cv=3, **options
        )
    return case


def predicted(model, X, coverage=COVERAGE):
    is_classifier = isinstance(model, ConformalClassifier)
    return (model.predict_set if is_classifier else model.predict_interval)(X, coverage)


def contains(model, X, y, coverage=COVERAGE):
    """Whether an interval or set contains y, (rows[, coverages])."""
    result = predicted(model, X, coverage)
    if isinstance(model, ConformalClassifier):
        columns = np.searchsorted(model.classes_, y)
        return result[np.arange(len(y)), ..., columns]
    y = y.reshape(-1, *[1] * (result.ndim - 2))
    return (result[..., 0] <= y) & (y <= result[..., 1])


def assert_equal_predictions(one, other, X):
    np.testing.assert_allclose(predicted(one, X), predicted(other, X), rtol=1e-12)


def in_group(X, group):
    return np.column_stack([X[:, :3], np.full(len(X), group)])


# ---- groups


@KINDS
def test_complete_groups_use_their_own_rows_and_unknown_ones_all(kind):
    case = case_of(kind, groups=3)
    model = clone(case.model).fit(case.X, case.y)
    for group in (0, 1, UNKNOWN, np.nan):
        of_group = case.group == group
        if not of_group.any():
            of_group[:] = True
        assert of_group.sum() >= FULL_GROUP
        alone = clone(case.model).set_params(groups=None)
        alone.fit(case.X[of_group], case.y[of_group])
        X_new = in_group(case.X_new, group)
        if not np.isnan(group):
            assert_equal_predictions(model, alone, X_new)
        else:
            shapes = model.conformal_.weights("missing"), np.ones(len(case.X))
            np.testing.assert_array_equal(*shapes)


@KINDS
def test_few_rows_are_completed_by_the_other_groups(kind):
    """Other rows together count as the rows that are missing: by a loop over scores."""
    case = case_of(kind, groups=3)
    model = case.model.fit(case.X, case.y)
    scores = model.conformal_.scores
    n_others = (case.group != FEW).sum()
    weight = np.where(case.group == FEW, 1.0, (FULL_GROUP - SIZES[FEW]) / n_others)
    X_new = in_group(case.X_new, FEW)
    for coverage in COVERAGE:
        order = np.argsort(scores)
        reached, rank = 0.0, -1
        # The weights sum to FULL_GROUP, and the new row counts as one.
        while reached < coverage * (FULL_GROUP + 1) - 1e-9:
            rank += 1
            reached += weight[order[rank]]
        radius = scores[order[rank]]
        if kind == "sets":
            expected = 1 - model.predict_proba(X_new) <= radius
        else:
            mean, std = model.predict(X_new, return_std=True)
            expected = np.stack([mean - radius * std, mean + radius * std], -1)
        np.testing.assert_allclose(
            predicted(model, X_new, coverage), expected, rtol=1e-9
        )


@KINDS
def test_groups_by_name_row_by_row_in_files_and_around_pipelines(kind):
    case = case_of(kind, groups=3)
    of_array = clone(case.model).fit(case.X, case.y)

    def frame(X):
        names = pd.Series(X[:, 3]).map({0: "low", 1: "high", 2: "few"})
        return pd.DataFrame(X[:, :3], columns=list("xyz")).assign(site=names)

    def numbers(X):
        codes = X["site"].map({"low": 0, "high": 1, "few": 2})
        return np.column_stack([X[list("xyz")], codes])

    # The inner model is after a step of the pipeline; groups are in the X before it.
    pipeline = make_pipeline(FunctionTransformer(numbers), case.model.estimator)
    of_frame = clone(case.model).set_params(
        estimator=FrozenEstimator(pipeline), groups="site"
    )
    X_new = frame(case.X_new)
    of_frame.fit(frame(case.X), case.y)
    expected = predicted(of_array, case.X_new)
    np.testing.assert_allclose(predicted(of_frame, X_new), expected, rtol=1e-12)
    for model, X in ((of_array, case.X_new), (of_frame, X_new)):
        whole = predicted(model, X)
        alone = [predicted(model, X[i : i + 1]) for i in range(len(X))]
        # The products of the linear model round differently for one row.
        np.testing.assert_allclose(np.concatenate(alone), whole, atol=1e-12)


@pytest.mark.parametrize("groups", [7, "site"])
def test_groups_must_be_a_column(groups):
    case = case_of("split", groups=groups)
    with pytest.raises(ValueError, match=f"position in .* got {groups!r}, and col"):
        case.model.fit(case.X, case.y)


def test_too_few_rows_of_a_group_are_named():
    case = case_of("split", groups=3)
    model = case.model.fit(case.X, case.y)
    with pytest.warns(
        UserWarning, match=r"99 calibration rows; got 50 in the group '2"
    ):
        assert np.isinf(model.predict_interval(in_group(case.X_new, FEW), 0.99)).all()


# ---- density ratios


@KINDS
def test_integer_ratios_equal_repeated_rows(kind):
    """A ratio of k counts as k rows; the new rows have a ratio of one."""

    def ratio(X):
        return np.where(X[:, 3] == UNKNOWN, 1.0, 1 + X[:, 3])

    case = case_of(kind)
    X_new = in_group(case.X_new, UNKNOWN)
    weighted = clone(case.model).set_params(weights=ratio).fit(case.X, case.y)
    times = ratio(case.X).astype(int)
    assert times.max() == 3
    repeated = clone(case.model).fit(case.X.repeat(times, 0), case.y.repeat(times))
    assert_equal_predictions(weighted, repeated, X_new)
    # A new row of large weight has all y in its interval.
    weighted.set_params(weights=lambda X: 1 + 1e6 * (X[:, 3] == UNKNOWN))
    with pytest.warns(UserWarning, match="at least 9 .* got 0.0002.* of the d"):
        assert contains(weighted, X_new, case.y_new).all()


def shifted(random, n, mean):
    """Noise that grows with x; a model with constant noise, and a shift to large x."""
    X = random.normal(mean, 1.0, size=(n, 1))
    return X, X[:, 0] + np.exp(0.7 * X[:, 0]) * random.normal(size=n)


@pytest.mark.filterwarnings("ignore:A coverage of 0.9 needs at least 9:UserWarning")
@pytest.mark.parametrize("ratio", ["given", "estimated"])
def test_coverage_after_covariate_shift(ratio):
    """The mean over calibration sets; without ratios it is below 80 %."""
    random = np.random.default_rng([SEED, 51])
    model = FrozenEstimator(LinearGaussian().fit(*shifted(random, 100, 0.0)))
    n_sets = 100 if ratio == "given" else 6
    shares = {"without": [], "with": []}
    for _ in range(n_sets):
        X, y = shifted(random, 300, 0.0)
        X_new, y_new = shifted(random, 300, 1.0)
        for name in shares:
            conformal, new = ConformalRegressor(model), {}
            if name == "with" and ratio == "given":
                conformal.set_params(weights=lambda X: np.exp(X[:, 0] - 0.5))
            elif name == "with":
                new = {"X_new": X_new}
            conformal.fit(X, y, **new)
            shares[name].append(contains(conformal, X_new, y_new, 0.9).mean())
    assert np.mean(shares["without"]) < 0.8
    # The guarantee of a given ratio, less five standard errors of this mean; an
    # estimated ratio has none, and here at most a quarter of the loss remains.
    error = np.std(shares["with"]) / np.sqrt(n_sets)
    least = 0.9 - 5 * error if ratio == "given" else 0.87
    assert np.mean(shares["with"]) > least


def test_few_effective_rows_warn():
    case = case_of("split", weights=lambda X: np.exp(3 * X[:, 0]))
    with pytest.warns(UserWarning, match=r"leave \d+\.\d effective of 152 "):
        case.model.fit(case.X, case.y)


@pytest.mark.parametrize(
    ("weights", "new", "message"),
    [
        (lambda X: X[:, 0], {}, "density ratio > 0 for each row"),
        (lambda X: np.ones(3), {}, "density ratio > 0 for each row, shape"),
        (lambda X: np.ones(len(X)), {"X_new": np.zeros((5, 4))}, "got both"),
    ],
)
def test_wrong_ratios(weights, new, message):
    case = case_of("split", weights=weights)
    with pytest.raises(ValueError, match=message):
        case.model.fit(case.X, case.y, **new)


def test_updates_need_rows_without_ratios():
    case = case_of("sets", weights=lambda X: np.ones(len(X))).__dict__
    model = case["model"].fit(case["X"], case["y"])
    with pytest.raises(ValueError, match="without density ratios"):
        model.update(case["X_new"], case["y_new"])


# ---- y that arrives later


@KINDS
@pytest.mark.parametrize("groups", [None, 3])
def test_updates_keep_the_latest_rows_of_each_group(kind, groups):
    """Without steps the intervals equal the intervals of a fit to the latest rows."""
    case = case_of(kind, groups=groups, window=70, step_size=0.0)
    model = clone(case.model).fit(case.X, case.y)
    model.update(case.X_new, case.y_new)
    X, y = np.concatenate([case.X, case.X_new]), np.append(case.y, case.y_new)
    names = X[:, 3] if groups else np.zeros(len(X))
    latest = np.sort(
        np.concatenate([np.flatnonzero(names == g)[-70:] for g in np.unique(names)])
    )
    fresh = clone(case.model).fit(X[latest], y[latest])
    assert model.n_calibration_ == fresh.n_calibration_ == len(latest)
    assert_equal_predictions(model, fresh, case.X_new)


@KINDS
@pytest.mark.parametrize("n_rows", [1, 7, 30])
@pytest.mark.parametrize("adversary", ["out", "in and out", "grows"])
def test_long_run_coverage_of_any_stream(kind, n_rows, adversary):
    """Gibbs & Candes 2021, proposition 4.1: an inequality for every stream.

    The adversary sees the model; the real intervals are counted, group by group.
    """
    step = 0.05
    case = case_of(kind, groups=3, step_size=step, window=60)
    model = case.model.fit(case.X, case.y)
    inside, coverage = {0.0: [], 1.0: []}, 0.8
    for t in range(100 if n_rows == 1 else 40):
        X = in_group(case.random.normal(size=(n_rows, 3)), t % 2)
        if kind == "sets":
            probability = model.predict_proba(X)
            worst = probability.argmin(1) if adversary != "in and out" or t % 3 else 0
            y = model.classes_[np.broadcast_to(worst, n_rows)]
        else:
            far = {"out": 1e3, "in and out": 1e3 * (t % 3 > 0), "grows": 1.02**t}
            y = model.predict(X) + far[adversary] * (1 + case.random.random(n_rows))
        inside[t % 2].extend(contains(model, X, y, coverage))
        model.update(X, y)
    for covered in inside.values():
        of_call = min(n_rows * step, LARGEST_STEP)
        n_calls = len(covered) / n_rows
        bound = (max(coverage, 1 - coverage) + of_call) / (of_call * n_calls)
        assert abs(np.mean(covered) - coverage) <= bound + 1e-9


@KINDS
def test_predictions_between_updates_change_nothing(kind):
    """Levels continue from those that were computed before."""
    case = case_of(kind, groups=3, step_size=0.013)
    models = [clone(case.model).fit(case.X, case.y) for _ in range(2)]
    order = case.random.permutation(len(case.X_new))
    for rows in np.array_split(order, 6):
        predicted(models[0], case.X_new)
        for model in models:
            model.update(case.X_new[rows], case.y_new[rows])
    one, other = (
        [
            model.conformal_.level(coverage, group, 0.013)
            for coverage in COVERAGE
            for group in np.unique(model.conformal_.groups)
        ]
        for model in models
    )
    assert one == other and len(set(one)) > len(COVERAGE)
    for model in models:
        model.set_params(step_size=0.0)
    assert_equal_predictions(*models, case.X_new)


def test_levels_beyond_one_and_zero():
    case = case_of("split", step_size=0.5)
    model = clone(case.model).fit(case.X, case.y)
    for far in (1e6, 1e12):
        model.update(case.X_new[:2], np.full(2, far))
    assert np.isinf(model.predict_interval(case.X_new, 0.9)).all()
    model = clone(case.model).fit(case.X, case.y)
    for _ in range(2):
        model.update(case.X_new[:20], model.predict(case.X_new[:20]))
    # Of each ten rows nine should be outside; all were inside.
    assert np.ptp(model.predict_interval(case.X_new, 0.1), axis=1).max() == 0


@KINDS
def test_a_failed_update_changes_nothing(kind):
    case = case_of(kind, groups=3)
    model = case.model.fit(case.X, case.y).update(case.X_new, case.y_new)
    before = predicted(model, case.X_new)
    bad = np.full(len(case.y_new), np.nan) if kind != "sets" else ["other"] * 42
    with pytest.raises(ValueError, match=r"NaN|labels of the training rows"):
        model.update(case.X_new, bad)
    np.testing.assert_array_equal(predicted(model, case.X_new), before)


@KINDS
@pytest.mark.parametrize("change", ["updates", "ratios"])
def test_files(kind, change):
    """The new model predicts and is updated as the saved one."""
    case = case_of(kind, groups=3)
    small = {"hidden_layer_sizes": (3,), "n_draws": 4, "random_state": 0}
    if kind == "sets":
        model = case.model.set_params(estimator=LaplaceClassifier(**small))
    else:
        model = case.model.set_params(estimator=LaplaceRegressor(**small))
    new = {"X_new": case.X_new} if change == "ratios" else {}
    model.fit(case.X, case.y, **new)
    for _ in range(2):
        if change == "updates":
            model.update(case.X_new, case.y_new)
        again = loads(dumps(model))
        expected, actual = (predicted(m, case.X_new) for m in (model, again))
        np.testing.assert_array_equal(actual, expected)
        model = again
    with pytest.raises(ValueError, match="weights"):
        dumps(model.set_params(weights=lambda X: np.ones(len(X))))


@pytest.mark.parametrize("kind", ["split", "cv+"])
def test_in_a_pipeline(kind):
    case = case_of(kind, groups=3, step_size=0.0)
    model = clone(case.model).set_params(estimator=LinearGaussian())
    pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), model)
    pipeline[-1].set_params(groups="x3")
    pipeline.fit(case.X, case.y)
    pipeline[-1].update(pipeline[:-1].transform(case.X_new), case.y_new)
    interval = predict_interval(pipeline, case.X_new, COVERAGE)
    assert np.isfinite(interval).all() and interval.shape == (42, 3, 2)
