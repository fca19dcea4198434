"""Row perturbations of a member: equal in all epochs, determined by its seed."""

import numpy as np
import pytest
import torch

from skbayesnn._engine.config import Batch
from skbayesnn._engine.random import ROWS, philox
from skbayesnn._engine.step import Batches, RowPerturbation
from skbayesnn._engine.training_random import TrainingRandom

SEEDS = np.array([4, 0, 4])
N_ROWS, N_BATCHES, TARGETS = 12, 3, 2


@pytest.fixture(params=["gaussian", "heteroscedastic", "categorical"])
def config(request, engine):
    return engine.config(request.param, n_batches=N_BATCHES, perturbed=True)


def _by_row(config, seeds, rows, seed, epoch):
    """Noise on y, or factors of the weights, in the order of the rows: (members, ...).

    Rows are identified by their first input.
    """
    perturbation = RowPerturbation(config, seeds, rows)
    source = TrainingRandom(seeds, torch.device("cpu"), torch.float64)
    source.start_epoch(epoch, N_BATCHES)
    batches = list(Batches(rows, config, perturbation).epoch_batches(source))
    assert len(batches) == N_BATCHES
    x, _, weights, on_y = (
        None if parts[0] is None else torch.cat(parts, dim=1)
        for parts in zip(*batches, strict=True)
    )
    values = weights if on_y is None else on_y
    x = x[..., 0].expand(len(seeds), -1)
    order = x.argsort(1)
    if on_y is not None:
        order = order.unsqueeze(-1).expand_as(values)
    return values.gather(1, order)


@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
def test_perturbation_belongs_to_the_row(config, engine, seed, weighted):
    """It does not depend on the batch, nor on other members."""
    seeds = SEEDS + seed
    rows = engine.rows(config, len(seeds), seed, n_rows=N_ROWS, weighted=weighted)
    first = _by_row(config, seeds, rows, seed, epoch=0)
    assert torch.equal(first, _by_row(config, seeds, rows, seed, epoch=5))
    assert torch.equal(
        first[1:2], _by_row(config, seeds[1:2], rows.of_member(1), seed, 0)
    )
    if not weighted:
        assert torch.equal(first[0], first[2])  # the same seed
    assert (first[0] != first[1]).all()


def test_perturbation_of_y_scales_with_the_weight(engine, seed):
    """A row of weight w is perturbed as the mean of w rows."""
    config = engine.config("gaussian", perturbed=True)
    weights = np.array([[1.0, 4.0, 0.25]])
    rows = engine.Rows(np.zeros((1, 3, 4)), np.zeros((1, 3, TARGETS)), weights, 1)
    perturbation = RowPerturbation(config, np.array([seed]), rows)
    normal = np.random.Generator(philox(seed, ROWS)).standard_normal((3, TARGETS))
    order = torch.tensor([[2, 0, 1]])
    [actual] = perturbation.batches([Batch(*rows.take(order))], order, 3)
    expected = normal[[2, 0, 1]] / np.sqrt([[0.25], [1.0], [4.0]])
    np.testing.assert_allclose(actual.y_perturbation[0], expected)
    np.testing.assert_array_equal(actual.weights, weights[:, [2, 0, 1]])


def test_random_weights_have_the_moments_of_summed_rows(engine, seed):
    """Exp(1) for a row of weight one; for weight w the sum over w rows."""
    config = engine.config("categorical", perturbed=True)
    n_members = 4000
    weights = np.tile([1.0, 4.0, 0.25], (n_members, 1))
    y = np.zeros((1, 3), dtype=int)
    rows = engine.Rows(np.zeros((1, 3, 4)), y, weights, n_members)
    perturbation = RowPerturbation(config, seed + np.arange(n_members), rows)
    order = torch.arange(3).unsqueeze(0)
    [actual] = perturbation.batches([Batch(*rows.take(order))], order, 3)
    assert actual.y_perturbation is None
    expected = torch.tensor([1.0, 4.0, 0.25], dtype=torch.float64)
    # Six standard errors; a gamma variable's variance is its shape, its fourth moment
    # 3 w^2 + 6 w.
    error = 6 / n_members**0.5
    assert (abs(actual.weights.mean(0) - expected) < error * expected.sqrt()).all()
    error_of_variance = (2 * expected.square() + 6 * expected).sqrt()
    assert (abs(actual.weights.var(0) - expected) < error * error_of_variance).all()


def test_slope_equals_the_effect_of_perturbed_targets(config, engine, seed):
    """The change of the gradient with respect to the outputs, at fixed tau."""
    likelihood = config.likelihood
    if not likelihood.gaussian_targets:
        with pytest.raises(NotImplementedError, match="no Gaussian noise"):
            likelihood.perturbation_slope({}, torch.zeros(1), torch.zeros(1))
        return
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    tau = normal(3, TARGETS).exp()
    params = likelihood.init(tau)
    likelihood.schedule(params, 1.0)
    y, perturbation = normal(3, 5, TARGETS), normal(3, 5, TARGETS)
    outputs = normal(3, 5, likelihood.n_outputs).requires_grad_()
    *_, variance = likelihood.components(params, outputs)
    noisy = y + variance.sqrt().detach() * perturbation

    def slope(targets):
        return torch.autograd.grad(
            likelihood.nll(params, outputs, targets).sum(), outputs
        )[0]

    difference = (slope(noisy) - slope(y))[..., :TARGETS]
    actual = likelihood.perturbation_slope(params, outputs, perturbation).detach()
    torch.testing.assert_close(actual[..., :TARGETS], difference)
    assert not actual[..., TARGETS:].any()
