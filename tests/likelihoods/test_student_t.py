"""Student's t likelihood against scipy's, in float64."""

import numpy as np
import pytest
import torch
from scipy.stats import t

from skbayesnn._likelihoods import Gaussian, StudentT
from skbayesnn._likelihoods.student_t import START_DF, StudentTs

DRAWS, MEMBERS, ROWS, TARGETS = 7, 3, 5, 2


@pytest.fixture
def problem(seed):
    """tau (members, targets), outputs of draws, and y shared by the members."""
    random = np.random.default_rng(seed)
    tau = torch.as_tensor(random.uniform(0.1, 30, size=(MEMBERS, TARGETS)))
    outputs = torch.as_tensor(random.normal(size=(DRAWS, MEMBERS, ROWS, TARGETS)))
    return tau, outputs, torch.as_tensor(random.normal(size=(1, ROWS, TARGETS)))


def _scale(tau, df):
    """The scale of noise with the variance 1 / tau, (members, 1, targets)."""
    return np.sqrt((df - 2) / (df * tau.numpy()[:, None]))


@pytest.mark.parametrize("df", [2.2, 4, 50.0])
def test_log_density_equals_scipy(problem, df):
    tau, outputs, y = problem
    likelihood = StudentT(TARGETS, False, df)
    expected = t(df, outputs, _scale(tau, df)).logpdf(y).sum(-1)
    result = likelihood.log_density(likelihood.init(tau), outputs, y)
    np.testing.assert_allclose(result, expected, rtol=1e-11)


@pytest.mark.parametrize("df", [None, 2.2, 4])
def test_variance_of_the_noise_is_one_over_tau(problem, df):
    tau, outputs, _ = problem
    likelihood = StudentT(TARGETS, learned=True, df=df)
    params = likelihood.init(tau)
    values = likelihood.components(params, outputs)
    components = StudentTs(*(value.flatten(0, 1).numpy() for value in values))
    expected = np.broadcast_to(1 / tau.numpy()[:, None], outputs.shape)
    np.testing.assert_allclose(
        components.variance, expected.reshape(components.mean.shape), rtol=1e-12
    )
    torch.testing.assert_close(likelihood.noise_level(params), 1 / tau)


def test_many_degrees_of_freedom_give_a_gaussian(problem):
    """Also in float32, where the log Gamma function has no digits left."""
    tau, outputs, y = (values.float() for values in problem)
    student, gaussian = StudentT(TARGETS, False, 1e6), Gaussian(TARGETS, False)
    expected = gaussian.log_density(gaussian.init(tau), outputs, y)
    result = student.log_density(student.init(tau), outputs, y)
    # The exponents z^2 / 2 differ by the factor z^2 / (2 df), z up to some tens.
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-4)


def test_gradient_of_an_outlier_is_bounded(problem):
    tau, _, _ = problem
    likelihood = StudentT(TARGETS, False, 4.0)
    outputs = torch.zeros(MEMBERS, 2, TARGETS, dtype=torch.float64)
    y = (
        torch.tensor([1e2, 1e6], dtype=torch.float64)
        .view(1, 2, 1)
        .expand(1, 2, TARGETS)
    )
    _, pullback = likelihood.nll_vjp(likelihood.init(tau), outputs, y)
    near, far = pullback(torch.ones(MEMBERS, 1))[0].abs().unbind(1)
    assert (far < near).all()


def test_degrees_of_freedom_are_learned_within_bounds(problem):
    tau, outputs, y = problem
    likelihood = StudentT(TARGETS, learned=False)
    params = likelihood.init(tau)
    assert likelihood.trainable == ("log_df",)
    start = likelihood.degrees_of_freedom(params)
    torch.testing.assert_close(start, torch.full_like(start, START_DF))
    for log_df, bound in ((-50.0, 2.1), (50.0, 200.0)):
        params["log_df"].fill_(log_df)
        assert likelihood.degrees_of_freedom(params).numpy() == pytest.approx(bound)
        assert likelihood.log_density(params, outputs, y).isfinite().all()


@pytest.mark.parametrize("level", [1e-300, 1e-20, 0.3, 1 - 2**-53])
def test_quantiles_are_ordered_at_any_level(level):
    """SciPy's has the wrong sign at very low levels."""
    df = np.array([2.1, 5.0, 200.0]).reshape(3, 1, 1)
    components = StudentTs(np.zeros_like(df), np.ones_like(df), df)
    quantile = components.quantile(np.full((1, 1), level))
    assert np.isfinite(quantile).all()
    assert (np.sign(quantile) == np.sign(level - 0.5)).all()


@pytest.mark.parametrize("df", [2, 1.5, -1, 1e15, float("inf"), float("nan")])
def test_df_without_a_finite_variance_is_refused(df):
    with pytest.raises(ValueError, match=r"`df` must be in \[2.001, 1e\+06\].*got"):
        StudentT(TARGETS, True, df)


@pytest.mark.parametrize("df", ["3", True, [3]])
def test_invalid_df_is_refused(df):
    with pytest.raises(TypeError, match="`df` must be a float or None; got"):
        StudentT(TARGETS, True, df)


def test_df_of_a_grid_becomes_a_float():
    likelihood = StudentT(TARGETS, True, np.int64(4))
    assert type(likelihood.describe()["df"]) is float
    assert likelihood == StudentT(TARGETS, True, 4)
