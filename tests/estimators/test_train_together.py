"""What estimators ask for becomes tasks; a task's members may see rows of their own."""

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
    """X, and y of numbers or of labels."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(ROWS, INPUTS))
    y = X[:, 0] + 0.1 * random.normal(size=ROWS)
    return {"numbers": (X, y), "labels": (X, np.array(["a", "b"])[(y > 0).astype(int)])}


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
            "numbers",
        ),
        (BBBRegressor(kl="sampled", n_estimators=FOLDS, **SMALL), "numbers"),
        (MCDropoutClassifier(length_scale=1, n_estimators=FOLDS, **SMALL), "labels"),
    ],
    ids=["dropout", "sampled KL", "classes"],
)
def test_members_may_each_leave_a_fold_out(data, seed, estimator, kind):
    """Three networks of one estimator, on 25, 25 and 26 of 38 rows.

    Each is the network that is trained alone on its rows, with the same seed; float64,
    what differs is the rounding of products of other shapes.
    """
    X, y = data[kind]
    estimator = estimator.set_params(random_state=seed)
    job = _job.training_job(estimator, training_data(estimator, X, y))
    [share] = job.shares
    fold = np.arange(ROWS) % FOLDS
    shares = tuple(
        replace(
            share,
            n_members=1,
            rows=share.rows[fold != k],
            weights=share.weights[fold != k],
        )
        for k in range(FOLDS)
    )
    assert {len(one.rows) for one in shares} == {25, 26}
    apart = replace(job, shares=shares)
    assert apart.n_members == FOLDS and apart.scaling == job.scaling
    assert apart.total_weight == pytest.approx(ROWS * (FOLDS - 1) / FOLDS)
    [together] = _fit.train_together([estimator], [apart])
    for k, one in enumerate(shares):
        members = job.members
        alone = replace(
            job,
            shares=(one,),
            members=replace(
                members,
                seeds=members.seeds[[k]],
                keep=members.keep[:, [k]],
                prior=[{n: v[[k]] for n, v in of.items()} for of in members.prior],
                tau=members.tau[[k]],
                statistics=members.statistics[[k]],
                n_epochs=members.n_epochs[[k]],
            ),
        )
        [fitted] = _fit.train_together([estimator], [alone])
        found = _parameters(together.trained.select(np.array([k])))
        for ours, theirs in zip(found, _parameters(fitted.trained), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)


def test_a_specification_is_in_the_units_of_the_data(data, seed):
    """tau, N and the scale of y meet in the task alone."""
    X, y = data["numbers"]
    estimator = MCDropoutRegressor(tau=0.5, random_state=seed, **SMALL)
    job = _job.training_job(estimator, training_data(estimator, X, 20 * y))
    np.testing.assert_allclose(job.tau, 0.5)
    variance = np.var(20 * y)
    np.testing.assert_allclose(job.members.tau, [[0.5 * variance]])
    assert job.total_weight == ROWS
