"""Training jobs of estimators; the members of a job may have different rows."""

from dataclasses import replace

import numpy as np
import pytest

from skbayesnn import BBBRegressor, MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.estimators import _fit, _job
from skbayesnn.estimators._training_data import training_data

ROWS, INPUTS, FOLDS = 38, 4, 3
SMALL = {
    "hidden_layer_sizes": (5,),
    "max_iter": 7,
    "batch_size": 9,
    "device": "cpu",
    "dtype": "float64",
}


@pytest.fixture
def data(seed):
    """X, and y as values and as labels."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(ROWS, INPUTS))
    y = X[:, 0] + 0.1 * random.normal(size=ROWS)
    return {"values": (X, y), "labels": (X, np.array(["a", "b"])[(y > 0).astype(int)])}


def _parameters(trained):
    layers = trained.posterior.layers
    return [value.numpy() for params in layers for value in params.values()]


@pytest.mark.parametrize(
    "estimator, kind",
    [
        (
            MCDropoutRegressor(
                dropout=0.2, length_scale=1, n_estimators=FOLDS, **SMALL
            ),
            "values",
        ),
        (BBBRegressor(kl="sampled", tau=4, n_estimators=FOLDS, **SMALL), "values"),
        (MCDropoutClassifier(length_scale=1, n_estimators=FOLDS, **SMALL), "labels"),
    ],
    ids=["dropout", "sampled KL", "classes"],
)
def test_members_may_each_leave_a_fold_out(data, seed, estimator, kind):
    """Three networks of one estimator, on 25, 25 and 26 of 38 rows.

    Each equals the network that is trained alone on its rows with the same seed. In
    float64 they differ by the rounding of products of other shapes.
    """
    X, y = data[kind]
    estimator = estimator.set_params(random_state=seed)
    job = _job.training_job(estimator, training_data(estimator, X, y))
    [all_rows] = job.row_subsets
    fold = np.arange(ROWS) % FOLDS
    shares = tuple(
        replace(
            all_rows,
            n_members=1,
            rows=all_rows.rows[fold != k],
            weights=all_rows.weights[fold != k],
        )
        for k in range(FOLDS)
    )
    assert {len(share.rows) for share in shares} == {25, 26}
    folds_job = replace(job, row_subsets=shares)
    assert folds_job.n_members == FOLDS and folds_job.scaling == job.scaling
    assert folds_job.total_weight == pytest.approx(ROWS * (FOLDS - 1) / FOLDS)
    [together] = _fit.train_together([estimator], [folds_job])
    for k, share in enumerate(shares):
        members = job.members
        single_job = replace(
            job,
            row_subsets=(share,),
            members=replace(
                members,
                seeds=members.seeds[[k]],
                keep=members.keep[:, [k]],
                prior=[
                    {n: v[[k]] for n, v in layer.items()} for layer in members.prior
                ],
                tau=members.tau[[k]],
                statistics=members.statistics[[k]],
                n_epochs=members.n_epochs[[k]],
            ),
        )
        [fitted] = _fit.train_together([estimator], [single_job])
        actual = _parameters(together.trained.select(np.array([k])))
        for values, expected in zip(actual, _parameters(fitted.trained), strict=True):
            np.testing.assert_allclose(values, expected, rtol=1e-8, atol=1e-10)


def test_tau_of_a_job_is_in_the_units_of_the_data(data, seed):
    """Members have it in units of the standardised y."""
    X, y = data["values"]
    estimator = MCDropoutRegressor(tau=0.5, random_state=seed, **SMALL)
    job = _job.training_job(estimator, training_data(estimator, X, 20 * y))
    np.testing.assert_allclose(job.tau, 0.5)
    variance = np.var(20 * y)
    np.testing.assert_allclose(job.members.tau, [[0.5 * variance]])
    assert job.total_weight == ROWS
