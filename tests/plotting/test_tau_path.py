"""Tests of TauPathDisplay."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import Ridge
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
)
from sklearn.pipeline import make_pipeline

from skbayesnn import MCDropoutRegressor
from skbayesnn.model_selection import TauCV
from skbayesnn.plotting import TauPathDisplay
from skbayesnn.scoring import log_density_scorer

FOLDS = 3


def searched(params, folds, **search):
    """Results of a search; folds : (folds, candidates) scores, or a dict of them."""
    folds = folds if isinstance(folds, dict) else {"score": folds}
    results = {"params": params}
    for name, scores in folds.items():
        results[f"mean_test_{name}"] = np.mean(scores, axis=0)
        for i, fold_scores in enumerate(scores):
            results[f"split{i}_test_{name}"] = np.asarray(fold_scores)
    return SimpleNamespace(cv_results_=results, scoring=None, **search)


def test_search(data, small):
    taus = [0.1, 3.0, 0.5, 1.0]
    search = GridSearchCV(
        make_pipeline(MCDropoutRegressor(**small)),
        {"mcdropoutregressor__tau": taus},
        scoring=log_density_scorer,
        cv=FOLDS,
    ).fit(data.X, data.y)
    display = TauPathDisplay.from_estimator(search)
    [tau], [score], [error] = display.tau, display.score, display.error
    np.testing.assert_array_equal(tau, sorted(taus))
    order = np.argsort(taus)
    results = search.cv_results_
    np.testing.assert_allclose(score, results["mean_test_score"][order])
    # scikit-learn divides by the number of folds, the standard error by one less.
    spread = results["std_test_score"][order] * np.sqrt(FOLDS / (FOLDS - 1))
    np.testing.assert_allclose(error, spread / np.sqrt(FOLDS))
    best = search.best_params_["mcdropoutregressor__tau"]
    np.testing.assert_allclose(display.best_.get_xydata(), [[best, search.best_score_]])
    assert display.ax_.get_xscale() == "log"
    assert display.score_name == "log density"
    assert not display.auto_


def test_estimator_with_a_path(data, small):
    """The picture equals the picture of the equivalent search."""
    taus = [0.1, 3.0, 0.5, 1.0]
    model = TauCV(MCDropoutRegressor(**small), taus, cv=FOLDS).fit(data.X, data.y)
    search = GridSearchCV(
        MCDropoutRegressor(**small),
        {"tau": taus},
        scoring=log_density_scorer,
        cv=FOLDS,
    ).fit(data.X, data.y)
    display, expected = map(TauPathDisplay.from_estimator, (model, search))
    np.testing.assert_array_equal(display.tau, expected.tau)
    for name in ("score", "error"):
        # Sums in another order, enlarged by Adam.
        np.testing.assert_allclose(
            getattr(display, name), getattr(expected, name), rtol=1e-6
        )
    np.testing.assert_allclose(
        display.best_.get_xydata(), [[model.tau_, model.best_score_]]
    )
    assert display.score_name == expected.score_name == "log density"
    model.set_params(scoring="r2")
    assert TauPathDisplay.from_estimator(model).score_name == "r2"
    with pytest.raises(ValueError, match=r"one of \['score'\]"):
        TauPathDisplay.from_estimator(model, metric="r2")
    with pytest.raises(TypeError, match="`taus_` and `scores_`; got TauCV"):
        TauPathDisplay.from_estimator(TauCV(MCDropoutRegressor()))


def test_path_of_several_targets(data, small):
    """The axis shows the tau of the selected target; scores are of all targets."""
    Y = np.stack([data.y, -data.y], axis=1)
    model = TauCV(MCDropoutRegressor(**small), 2, cv=FOLDS).fit(data.X, Y)
    for target, arguments in ((0, {}), (1, {"target": 1})):
        display = TauPathDisplay.from_estimator(model, **arguments)
        np.testing.assert_allclose(display.tau, [np.sort(model.taus_[:, target])])
        order = np.argsort(model.taus_[:, target])
        np.testing.assert_allclose(display.score, [model.scores_.mean(1)[order]])
        assert display.ax_.get_xlabel().startswith(f"tau of target {target} ")
    with pytest.raises(ValueError, match="`target` must be from 0 to 1"):
        TauPathDisplay.from_estimator(model, target=2)


def test_other_parameters():
    """A line for each setting; labels omit parameters that do not vary."""
    params = [
        {"a__dropout": dropout, "a__tau": tau, "a__max_iter": 7}
        for dropout in (0.1, 0.25)
        for tau in (5.0, 1.0, 2.0)
    ]
    scores = np.arange(12.0).reshape(2, 6)
    display = TauPathDisplay.from_estimator(searched(params, scores))
    assert display.settings == [{"dropout": "0.1"}, {"dropout": "0.25"}]
    np.testing.assert_array_equal(display.tau, [[1, 2, 5]] * 2)
    np.testing.assert_array_equal(display.score, [[4, 5, 3], [7, 8, 6]])
    # Two folds that differ by 6: a standard deviation of 6 / sqrt(2).
    np.testing.assert_allclose(display.error, np.full((2, 3), 3.0))
    np.testing.assert_array_equal(display.best_.get_xydata(), [[2, 8]])
    assert len(display.lines_) == 2
    assert display.ax_.get_legend().get_title().get_text() == "dropout"


def test_at_most_eight_lines():
    """The best ones, in the order of the search; the label gives the total number."""
    params = [{"tau": tau, "units": u} for u in range(11) for tau in (1.0, 2.0)]
    scores = np.tile(np.repeat([3, 9, 1, 8, 7, 2, 6, 5, 10, 0, 4.0], 2), (2, 1))
    display = TauPathDisplay.from_estimator(searched(params, scores))
    shown = [setting["units"] for setting in display.settings]
    assert shown == ["0", "1", "3", "4", "6", "7", "8", "10"]
    assert display.n_settings == 11
    assert "8 best of 11" in display.ax_.get_legend().get_title().get_text()


def test_learned_tau_is_a_horizontal_line():
    """It is not a point of the path."""
    params = [{"tau": tau} for tau in (1.0, "auto", 10.0)]
    display = TauPathDisplay.from_estimator(searched(params, [[1, 5, 3.0], [2, 6, 4]]))
    np.testing.assert_array_equal(display.tau, [[1, 10]])
    assert display.auto_score == [5.5]
    [line] = display.auto_
    np.testing.assert_array_equal(line.get_ydata(), 5.5)
    np.testing.assert_array_equal(display.best_.get_xydata(), [[10, 3.5]])


def test_several_metrics():
    params = [{"tau": 1.0}, {"tau": 2.0}]
    search = searched(params, {"r2": [[1, 2.0], [3, 4]], "crps": [[7, 6.0], [5, 4]]})
    display = TauPathDisplay.from_estimator(search, metric="crps")
    np.testing.assert_array_equal(display.score, [[6, 5]])
    assert display.score_name == "crps"
    with pytest.raises(ValueError, match=r"one of \['r2', 'crps'\]"):
        TauPathDisplay.from_estimator(search)


def test_failed_candidates_are_not_the_best():
    params = [{"tau": tau} for tau in (1.0, 2.0, 3.0)]
    display = TauPathDisplay.from_estimator(
        searched(params, [[1, np.nan, 2.0], [1, 5, 3]])
    )
    np.testing.assert_array_equal(display.score, [[1, np.nan, 2.5]])
    np.testing.assert_array_equal(display.best_.get_xydata(), [[3, 2.5]])


def test_candidates_without_tau_are_left_out():
    params = [{"tau": 1.0, "dropout": 0.1}, {"dropout": 0.2}, {"tau": 2.0}]
    display = TauPathDisplay.from_estimator(searched(params, [[1, 2, 3.0], [1, 2, 3]]))
    assert display.settings == [{"dropout": "0.1"}, {"dropout": "default"}]
    np.testing.assert_array_equal(display.tau, [[1], [2]])


@pytest.mark.parametrize("halving", [False, True])
def test_searches_of_other_kinds(data, small, halving):
    network = MCDropoutRegressor(**small)
    taus = [0.1, 1.0, 0.3, 3.0]
    if halving:
        search = HalvingGridSearchCV(
            network, {"tau": taus}, min_resources=20, factor=2, cv=2, random_state=0
        )
    else:
        search = RandomizedSearchCV(
            network, {"tau": taus}, n_iter=3, cv=2, random_state=0
        )
    display = TauPathDisplay.from_estimator(search.fit(data.X, data.y))
    n_candidates = sum(len(tau) for tau in display.tau)
    assert n_candidates == len(search.cv_results_["params"])
    names = {name for setting in display.settings for name in setting}
    assert names == ({"n_resources"} if halving else set())


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ([{"alpha": 1.0}], "got none among"),
        ([{"a__tau": 1.0, "b__tau": 1.0}], "one parameter `tau`"),
        ([{"tau": None}], "numbers or 'auto'"),
        ([{"tau": [[1.0, 2.0]]}], "numbers or 'auto'"),
        ([{"tau": "auto"}], "no number"),
    ],
)
def test_errors(params, message):
    with pytest.raises(ValueError, match=message):
        TauPathDisplay.from_estimator(searched(params, [[1.0], [2.0]]))


def test_other_estimators_are_refused(data):
    with pytest.raises(TypeError, match="fitted search"):
        TauPathDisplay.from_estimator(Ridge().fit(data.X, data.y))


def test_a_single_fold_has_no_error():
    display = TauPathDisplay.from_estimator(searched([{"tau": 1.0}], [[3.0]]))
    np.testing.assert_array_equal(display.score, [[3]])
    assert np.isnan(display.error).all()


def test_every_fit_failed():
    params = [{"tau": 1.0}, {"tau": 2.0}]
    with pytest.raises(ValueError, match="no number"):
        TauPathDisplay.from_estimator(searched(params, np.full((2, 2), np.nan)))
