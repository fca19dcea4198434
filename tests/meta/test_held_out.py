"""Held-out rows: forms of `cv`, folds that overlap, groups, and fitted models."""

import numpy as np
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from skbayesnn import (
    Abstainer,
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    CalibratedUncertaintyRegressor,
    ConformalClassifier,
    ConformalRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    from_torch,
)
from skbayesnn._batch.cross_fit import held_out_folds
from skbayesnn.inspection import DriftMonitor
from skbayesnn.model_selection import (
    BatchedGridSearchCV,
    cross_val_predict_uncertainty,
)
from tests.helpers.linear_gaussian import LinearGaussian

ROWS = 41
SMALL = {"hidden_layer_sizes": (3,), "max_iter": 2, "n_draws": 3, "random_state": 0}
INNER = LinearGaussian(deviation=0.5, uneven=0.5)


@pytest.fixture
def table(seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(ROWS, 3))
    return X, X[:, 0] + 0.3 * random.normal(size=ROWS)


# ---- forms of `cv`


def calibrated(cv, X, y):
    return CalibratedUncertaintyRegressor(INNER, cv=cv).fit(X, y).scale_


def conformal(cv, X, y):
    model = ConformalRegressor(INNER, method="cv+", cv=cv).fit(X, y)
    return model.predict_interval(X)


def abstaining(cv, X, y):
    model = Abstainer(INNER, target_error=0.5, confidence=None, cv=cv)
    return model.fit(X, y).threshold_


def monitored(cv, X, y):
    monitor = DriftMonitor(INNER, cv=cv, false_alarm_rate=0.1).fit(X, y)
    return np.append(monitor.uncertainty_, monitor.held_out_[0])


def out_of_fold(cv, X, y):
    return cross_val_predict_uncertainty(INNER, X, y, cv=cv)


def stacked(cv, X, y):
    pool = [("net", MCDropoutRegressor(**SMALL))]
    return BayesianStackingRegressor(pool, cv=cv, random_state=0).fit(X, y).predict(X)


def searched(cv, X, y):
    grid = {"dropout": [0.1, 0.2]}
    search = BatchedGridSearchCV(MCDropoutRegressor(**SMALL), grid, cv=cv)
    return search.fit(X, y).best_score_


OUT_OF_FOLD = calibrated, conformal, abstaining, monitored, out_of_fold, stacked


def test_folds_may_be_lists_or_masks(table):
    """For all estimators with `cv`; a generator can be read only once."""
    X, y = table
    splits = list(KFold(3, shuffle=True, random_state=0).split(X))

    def masks(rows):
        return np.isin(np.arange(ROWS), rows)

    forms = {
        "lists": [(a.tolist(), b.tolist()) for a, b in splits],
        "masks": [(masks(a), masks(b)) for a, b in splits],
        "lists of bools": [(masks(a).tolist(), masks(b).tolist()) for a, b in splits],
    }
    offenders = []
    for function in (*OUT_OF_FOLD, searched):
        expected = function(splits, X, y)
        actual = {name: function(cv, X, y) for name, cv in forms.items()}
        actual["generator"] = function(iter(splits), X, y)
        offenders += [
            (function.__name__, name)
            for name, values in actual.items()
            if not np.array_equal(values, expected)
        ]
    assert not offenders


# ---- folds must not train on their held-out rows


def abstaining_from_classes(cv, X, y):
    network = MCDropoutClassifier(**SMALL)
    Abstainer(network, target_error=0.9, confidence=None, cv=cv).fit(X, y > 0)


def stacked_classes(cv, X, y):
    pool = [("one", MCDropoutClassifier(**SMALL))]
    BayesianStackingClassifier(pool, cv=cv, random_state=0).fit(X, y > 0)


OF_ANY_Y = *OUT_OF_FOLD, abstaining_from_classes, stacked_classes


def test_folds_that_overlap_are_refused(table):
    """By all estimators, whether rows are given as integers, lists or masks."""
    first, second = np.arange(20), np.arange(20, ROWS)
    several = np.append(second, first[:3])
    folds = {
        "all": [(np.arange(ROWS), np.arange(ROWS))],
        "some": [(first, second), (several, first)],
        "lists": [
            (first.tolist(), second.tolist()),
            (several.tolist(), first.tolist()),
        ],
        "masks": [(np.ones(ROWS, bool), np.arange(ROWS) < 5)],
    }
    accepted = []
    for kind, cv in folds.items():
        for function in OF_ANY_Y:
            try:
                function(cv, *table)
            except ValueError as error:
                if "the training and the test rows of fold" in str(error):
                    continue
            accepted.append((kind, function.__name__))
    assert not accepted


def test_folds_may_train_on_a_row_twice(table):
    first, second = np.arange(20), np.arange(20, ROWS)
    for function in OF_ANY_Y:
        function([(np.repeat(second, 2), first), (first, second)], *table)


def test_message_names_the_fold_and_its_common_rows():
    cv = [([0, 1, 2], [3, 4]), ([3, 4, 0], [1, 0, 3])]
    with pytest.raises(ValueError, match=r"got 2 rows in both .* of fold 1"):
        held_out_folds(cv, np.zeros((5, 1)), np.zeros(5), is_classification=False)


def test_masks_and_lists_become_row_indices():
    mask = np.array([True, False, True, False, False])
    expected = [0, 2], [1, 3, 4]
    for cv in ([(mask, ~mask)], [(mask.tolist(), (~mask).tolist())], [expected]):
        [actual] = held_out_folds(
            cv, np.zeros((5, 1)), np.zeros(5), is_classification=False
        )
        assert [part.tolist() for part in actual] == list(expected)


# ---- groups


def test_groups_are_not_split(table):
    """Without metadata routing, as in the stack."""
    X, y = table
    groups, cv = np.arange(ROWS) % 6, GroupKFold(3)
    splits = list(cv.split(X, y, groups))
    offenders = []
    for model in (
        CalibratedUncertaintyRegressor(INNER),
        ConformalRegressor(INNER, method="cv+"),
        Abstainer(INNER, target_error=0.5, confidence=None),
    ):
        by_group = clone(model).set_params(cv=cv).fit(X, y, groups=groups)
        by_split = clone(model).set_params(cv=splits).fit(X, y)
        for name in ("scale_", "threshold_", "conformal_"):
            values, expected = (
                _flat(getattr(m, name, 0)) for m in (by_group, by_split)
            )
            if not np.array_equal(values, expected):
                offenders.append((type(model).__name__, name))
    assert not offenders


def _flat(value):
    return np.ravel(getattr(value, "scores", value))


def test_groups_are_refused_if_the_folds_split_them(table):
    X, y = table
    groups, labels = np.arange(ROWS) % 6, y > 0
    need_cv = "`groups` need a `cv` that keeps them together; got cv="
    at_random = "`groups` cannot be kept together by a random split"
    for model, target, message in (
        (CalibratedUncertaintyRegressor(INNER), y, need_cv),
        (ConformalRegressor(INNER, method="cv+", cv=3), y, need_cv),
        (Abstainer(INNER, target_error=0.5, confidence=None), y, need_cv),
        (ConformalRegressor(INNER), y, at_random),
        (ConformalRegressor(INNER, cv=GroupKFold(3)), y, at_random),
        (ConformalClassifier(MCDropoutClassifier(**SMALL)), labels, at_random),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(X, target, groups=groups)


@pytest.mark.parametrize("routing", [False, True])
def test_networks_get_the_groups_of_their_rows(table, routing):
    """Early stopping holds out groups in every fold, and in the fit to all rows."""
    X, y = table
    groups, cv = np.arange(ROWS) % 9, GroupKFold(3)
    network = MCDropoutRegressor(**SMALL, early_stopping=True, validation_fraction=0.4)
    network.set_params(max_iter=30, n_iter_no_change=1)
    model = CalibratedUncertaintyRegressor(network, cv=cv)
    with sklearn.config_context(enable_metadata_routing=routing):
        model.fit(X, y, groups=groups)
        for default in (None, 3):
            with pytest.raises(ValueError, match="`groups` need a `cv`"):
                clone(model).set_params(cv=default).fit(X, y, groups=groups)
        with pytest.raises(ValueError, match="cannot be kept together by a random"):
            ConformalRegressor(network).fit(X, y, groups=groups)
    expected = clone(network).fit(X, y, groups=groups)
    np.testing.assert_array_equal(model.estimator_.predict(X), expected.predict(X))
    scores = np.empty(ROWS)
    for train, test in cv.split(X, groups=groups):
        fitted = clone(network).fit(X[train], y[train], groups=groups[train])
        mean, std = fitted.predict(X[test], return_std=True)
        scores[test] = np.abs(y[test] - mean) / std
    fold_models = ConformalRegressor(network, method="cv+", cv=cv)
    with sklearn.config_context(enable_metadata_routing=routing):
        fold_models.fit(X, y, groups=groups)
    np.testing.assert_allclose(fold_models.conformal_.scores, scores, rtol=1e-5)


def test_groups_are_passed_to_an_inner_search(table):
    """A splitter that the user chose may split them; a number of folds may not."""
    X, y = table
    search = GridSearchCV(INNER, {"deviation": [0.1, 0.2]}, cv=GroupKFold(2))
    model = CalibratedUncertaintyRegressor(search, cv=KFold(3))
    assert model.fit(X, y, groups=np.arange(ROWS) % 6).estimator_.n_splits_ == 2


def test_unknown_fit_parameters_name_the_estimator(table):
    X, y = table
    model = ConformalRegressor(MCDropoutRegressor(**SMALL))
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        model.fit(X, y, colour=1)
    model = ConformalRegressor(make_pipeline(StandardScaler(), INNER))
    with pytest.raises(ValueError, match=r"Pipeline.fit does not accept the sample_we"):
        model.fit(X, y, sample_weight=np.ones(ROWS))
    model.fit(X, y, lineargaussian__sample_weight=np.ones(ROWS))


# ---- models that are fitted already


def test_fitted_models_are_refused_out_of_fold(table):
    """Frozen at any depth, or trained elsewhere; frozen transformers are accepted."""
    X, y = table
    frozen = FrozenEstimator(clone(INNER).fit(X, y))
    with torch.random.fork_rng():
        net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    fitted = [
        frozen,
        FrozenEstimator(frozen),
        make_pipeline(StandardScaler(), frozen),
        TransformedTargetRegressor(make_pipeline(StandardScaler(), frozen)),
        BaggingRegressor(frozen, random_state=0),
        CalibratedUncertaintyRegressor(frozen),
        GridSearchCV(make_pipeline(frozen), {}),
        from_torch(net, noise_std=0.1),
    ]
    scaler = FrozenEstimator(StandardScaler().fit(X))
    unfitted = [
        INNER,
        clone(INNER).fit(X, y),
        make_pipeline(scaler, INNER),
        CalibratedUncertaintyRegressor(INNER, cv=2),
    ]
    accepted = []
    for estimator in fitted:
        for call in (monitored_by, out_of_fold_of):
            try:
                call(estimator, X, y)
            except ValueError as error:
                assert "which is already fitted" in str(error)
            else:
                accepted.append((call.__name__, estimator))
    assert not accepted
    for estimator in unfitted:
        monitored_by(estimator, X, y)
        out_of_fold_of(estimator, X, y)


def monitored_by(estimator, X, y):
    return DriftMonitor(estimator, cv=2, false_alarm_rate=0.1).fit(X, y)


def out_of_fold_of(estimator, X, y):
    return cross_val_predict_uncertainty(estimator, X, y, cv=2, method="crps")
