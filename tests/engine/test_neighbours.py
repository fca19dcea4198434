"""The training step of soft nearest neighbours against torch, and its predictions."""

import math

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, softmax
from scipy.stats import norm

from skbayesnn._engine.optimizer import BETA_1, BETA_2, EPSILON
from skbayesnn.estimators._embedding import Draw

neighbours = pytest.importorskip("skbayesnn._engine.compiled.neighbours")

N_ROWS, N_CLASSES = 30, 3
SIZES = neighbours.Sizes(
    n_inputs=5, n_hidden=7, n_embedding=4, n_queries=11, n_subset=23
)
# Number of targets; 0 for classes.
TASKS = pytest.mark.parametrize("n_targets", [1, 2, 0])


def _rows(random, n_targets, n_rows=N_ROWS, n_groups=None):
    """Random training rows; weights have a mean near 1."""
    x, weights = random.standard_normal((n_rows, 5)), random.uniform(0.5, 1.5, n_rows)
    y, labels = np.empty((1, 0)), random.integers(0, N_CLASSES, n_rows)
    if n_targets:
        y = random.standard_normal((n_targets, n_rows))
        labels = labels[:0]
    groups = np.empty(0, np.int64)
    if n_groups:
        groups = random.permutation(np.arange(n_rows) % n_groups)
    n_classes = 0 if n_targets else N_CLASSES
    return neighbours.Rows(x, y, labels, weights, groups, n_classes)


def _shapes(rows):
    return neighbours.part_shapes(*SIZES[:3], len(rows.y))


def _parameters(random, rows):
    return 0.4 * random.standard_normal(sum(map(math.prod, _shapes(rows).values())))


def _split(values, rows):
    """Parameters by name, from a vector."""
    parts, end = {}, 0
    for name, shape in _shapes(rows).items():
        start, end = end, end + math.prod(shape)
        parts[name] = values[start:end].reshape(shape)
    return parts


def _embedding(parts, x, masks):
    a1 = torch.relu(x @ parts["w1"] + parts["b1"]) * masks[0]
    a2 = torch.relu(a1 @ parts["w2"] + parts["b2"]) * masks[1]
    return a2 @ parts["w3"] + x @ parts["linear"]


def _kernel(kernel, y, labels, rows):
    """k of every pair of a query and another row, (queries, rows)."""
    n, share = SIZES.n_queries, torch.sigmoid(kernel[-1])
    if rows.n_classes:
        equal = (labels[:n, None] == labels).double()
        return (1 - share) * equal + share / rows.n_classes
    wide, small = (
        torch.distributions.Normal(y[:, None], h[:, None, None].exp())
        .log_prob(y[:, :n, None])
        .exp()
        for h in kernel[:-1].reshape(2, -1)
    )
    return (share * wide + (1 - share) * small).prod(0)


def _loss(values, rows, masks, positions):
    """The loss of a step, by torch."""
    at = {
        name: torch.as_tensor(field[..., positions] if field.size else field)
        for name, field in zip(rows._fields[1:5], rows[1:5], strict=True)
    }
    parts, n = _split(values, rows), SIZES.n_queries
    z = _embedding(parts, torch.as_tensor(rows.x[positions]), masks)
    exponents = at["weights"].log() - (z[:n, None] - z).square().sum(-1)
    groups = at["groups"] if len(rows.groups) else torch.arange(len(z))
    same_group = groups[:n, None] == groups
    exponents = exponents.masked_fill(same_group, -math.inf)
    k = _kernel(parts["kernel"], at["y"], at["labels"], rows)
    density = (exponents.softmax(1) * k).sum(1) + neighbours.MIN_DENSITY ** len(rows.y)
    return -(at["weights"][:n] * density.log()).mean()


def _autograd(values, rows, masks, positions):
    leaf = torch.tensor(values, requires_grad=True)
    loss = _loss(leaf, rows, torch.as_tensor(masks), positions)
    loss.backward()
    return loss.item(), leaf.grad.numpy()


@TASKS
@pytest.mark.parametrize("n_groups", [None, 5])
def test_gradient(n_targets, n_groups, seed):
    """It equals autograd's up to rounding of float64."""
    random = np.random.default_rng(seed)
    rows = _rows(random, n_targets, N_ROWS, n_groups)
    values = _parameters(random, rows)
    masks = (random.random((2, SIZES.n_hidden)) < 0.8).astype(float)
    positions = random.permutation(N_ROWS)[: SIZES.n_subset]
    gradient = np.empty_like(values)
    loss = neighbours.loss_and_gradient(rows, SIZES, values, masks, positions, gradient)
    expected_loss, expected = _autograd(values, rows, masks, positions)
    assert loss == pytest.approx(expected_loss, rel=1e-12)
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-12)


def test_step_with_a_single_group_has_no_gradient(seed):
    random = np.random.default_rng(seed)
    rows = _rows(random, 1, N_ROWS, 1)
    values = _parameters(random, rows)
    masks, gradient = np.ones((2, SIZES.n_hidden)), np.full_like(values, np.nan)
    positions = np.arange(SIZES.n_subset)
    loss = neighbours.loss_and_gradient(rows, SIZES, values, masks, positions, gradient)
    assert loss == 0
    np.testing.assert_array_equal(gradient, 0)


def test_row_without_neighbours(seed):
    """An outlier has the smallest density, and hardly any gradient."""
    random = np.random.default_rng(seed)
    rows = _rows(random, 1)
    values = _parameters(random, rows)
    rows.y[0, 0] = 1e3
    masks, gradient = np.ones((2, SIZES.n_hidden)), np.empty_like(values)
    sizes = SIZES._replace(n_queries=1)
    positions = np.arange(SIZES.n_subset)
    loss = neighbours.loss_and_gradient(rows, sizes, values, masks, positions, gradient)
    expected = -rows.weights[0] * math.log(neighbours.MIN_DENSITY)
    assert loss == pytest.approx(expected)
    assert np.isfinite(gradient).all()


@TASKS
@pytest.mark.parametrize("learns", [True, False])
def test_training(n_targets, learns, seed):
    """Three steps of Adam with groups, a bounded kernel and weight decay.

    Each step has all rows, and as many queries, so that their order is irrelevant.
    """
    random = np.random.default_rng(seed)
    rows = _rows(random, n_targets, SIZES.n_queries, n_groups=5)
    values = _parameters(random, rows)
    least = np.full(2 * len(rows.y) + 1, -0.1)
    curvature, rate, n_steps = random.random(len(values)), 0.01, 3
    mean, square = np.zeros((2, len(values)))
    trained = [values.copy(), mean.copy(), square.copy()]
    losses = neighbours.train_steps(
        rows,
        SIZES._replace(n_subset=SIZES.n_queries),
        *trained,
        curvature,
        learns,
        least,
        np.ones(2),
        random.integers(0, 2**63, (n_steps, 2), dtype=np.uint64),
        np.full(n_steps, -rate),
        np.full(n_steps, EPSILON),
    )
    masks, kernel = np.ones((2, SIZES.n_hidden)), slice(-len(least), None)
    for k in range(n_steps):
        loss, gradient = _autograd(values, rows, masks, np.arange(SIZES.n_queries))
        assert losses[k] == pytest.approx(loss, rel=1e-9)
        if not learns:
            gradient[kernel] = 0
        gradient += curvature * values
        mean += (1 - BETA_1) * (gradient - mean)
        square += (1 - BETA_2) * (gradient**2 - square)
        values = values - rate * mean / (np.sqrt(square) + EPSILON)
        values[kernel] = np.maximum(values[kernel], least)
    for actual, expected in zip(trained, (values, mean, square), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=1e-9)


# ---- predictions


def test_embedding_of_a_row_depends_on_this_row_only(seed):
    random = np.random.default_rng(seed)
    rows = _rows(random, 1)
    values = _parameters(random, rows)
    masks = (random.random((2, SIZES.n_hidden)) < 0.6).astype(float)
    parts = {name: torch.as_tensor(v) for name, v in _split(values, rows).items()}
    z = np.empty((N_ROWS, SIZES.n_embedding))
    neighbours.embed(SIZES, values, masks, rows.x, z)
    expected = _embedding(parts, torch.as_tensor(rows.x), torch.as_tensor(masks))
    np.testing.assert_allclose(z, expected.numpy(), rtol=1e-10, atol=1e-12)
    some = np.empty((9, SIZES.n_embedding))
    neighbours.embed(SIZES, values, masks, rows.x[5:14], some)
    np.testing.assert_array_equal(some, z[5:14])


def _stored(random, n_rows, n_clusters=1):
    """Queries, embeddings and weights of some rows, and their log weights."""
    centres = 3 * random.standard_normal((n_clusters, 3))
    z = np.resize(centres, (n_rows, 3)) + random.standard_normal((n_rows, 3))
    weights = random.uniform(0.5, 2, n_rows)
    queries = np.resize(centres, (6, 3)) + random.standard_normal((6, 3))
    exponents = np.log(weights) - np.square(queries[:, None] - z).sum(-1)
    return queries, z, weights, exponents


@TASKS
def test_log_densities(n_targets, seed):
    random = np.random.default_rng(seed)
    z_queries, z, weights, exponents = _stored(random, 40)
    rows, queries = (_rows(random, n_targets, n_rows) for n_rows in (40, 6))
    kernel, actual = np.linspace(-0.9, 0.4, 2 * len(rows.y) + 1), np.empty(6)
    draw = Draw.of(0, None, z, weights)
    neighbours.log_densities(
        z_queries,
        draw.columns,
        draw.offsets,
        rows,
        queries.y,
        queries.labels,
        kernel,
        actual,
    )
    share = 1 / (1 + math.exp(-kernel[-1]))
    if n_targets:
        wide, small = (
            norm.pdf(queries.y[..., None], rows.y[:, None], h[:, None, None])
            for h in np.exp(kernel[:-1]).reshape(2, -1)
        )
        k = (share * wide + (1 - share) * small).prod(0)
    else:
        equal = queries.labels[:, None] == rows.labels
        k = (1 - share) * equal + share / N_CLASSES
    expected = np.log((softmax(exponents, axis=1) * k).sum(1))
    np.testing.assert_allclose(actual, expected, rtol=1e-10)


def test_joint_density_of_many_targets_is_positive(seed):
    """Forty densities of about exp(-8), whose product is zero in float32."""
    random = np.random.default_rng(seed)
    y = random.uniform(-1, 1, (40, 9)).astype(np.float32)
    rows = neighbours.Rows(
        np.empty((9, 1), np.float32),
        y,
        np.empty(0, np.int64),
        np.ones(9, np.float32),
        np.empty(0, np.int64),
        0,
    )
    kernel = np.zeros(81, np.float32)
    queries, columns = np.zeros((1, 2), np.float32), np.zeros((2, 9), np.float32)
    offsets, actual = np.zeros(9, np.float32), np.empty(1)
    none = np.empty(0, np.int64)
    at = y[:, :1] + np.float32(4)
    neighbours.log_densities(queries, columns, offsets, rows, at, none, kernel, actual)
    logs = norm.logpdf(at, y).sum(0)
    assert actual[0] == pytest.approx(logsumexp(logs) - math.log(9), rel=1e-5)


# ---- neighbours of new rows


def test_shares_of_the_classes(seed):
    random = np.random.default_rng(seed)
    queries, z, weights, exponents = _stored(random, 500)
    labels, actual = random.integers(0, N_CLASSES, 500), np.empty((6, N_CLASSES))
    draw = Draw.of(0, None, z, weights)
    neighbours.neighbour_labels(queries, draw.columns, draw.offsets, labels, actual)
    expected = softmax(exponents, axis=1) @ np.eye(N_CLASSES)[labels]
    np.testing.assert_allclose(actual, expected, rtol=1e-10)


def _groups(arguments, y, width, merged, n_groups):
    """Groups of two targets; the second is the first in the opposite order."""
    queries, z, weights = arguments
    order = np.stack([np.arange(len(y)), np.arange(len(y))[::-1]])
    groups, widths = np.empty((3, 6, 2, n_groups)), np.full(2, width)
    draw, y = Draw.of(0, None, z, weights), np.stack([y, y])
    arguments = queries, draw.columns, draw.offsets, y, order, widths, merged
    neighbours.neighbour_values(*arguments, *groups)
    return groups


def test_few_neighbours_are_not_merged(seed):
    """With room for all rows and a bound of zero, groups are the distinct y."""
    random = np.random.default_rng(seed)
    *arguments, exponents = _stored(random, 40)
    y = np.sort(random.standard_normal(40))
    y[7] = y[8]  # one group
    groups = _groups(arguments, y, 0.3, 0.0, 64)
    expected = softmax(exponents, axis=1)
    for row, target in np.ndindex(6, 2):
        weight, location, variance = groups[:, :, target]
        n = np.count_nonzero(weight[row])
        weights = dict(zip(location[row, :n], weight[row, :n], strict=True))
        for value in np.unique(y):
            # Neighbours with a relative weight below 1e-10 are left out.
            total = expected[row, [y, y[::-1]][target] == value].sum()
            assert weights.get(value, 0.0) == pytest.approx(total, rel=1e-8, abs=1e-9)
        np.testing.assert_allclose(variance, 0, atol=1e-15)


@pytest.mark.parametrize("n_groups", [5, 24])
def test_groups_keep_mean_and_variance(n_groups, seed):
    random = np.random.default_rng(seed)
    *arguments, exponents = _stored(random, 40)
    y = np.sort(random.standard_normal(40))
    weight, location, variance = _groups(arguments, y, 0.02, 0.25, n_groups)
    expected, y = softmax(exponents, axis=1), np.stack([y, y[::-1]], axis=1)
    mean = (weight * location).sum(-1)
    np.testing.assert_allclose(weight.sum(-1), 1, rtol=1e-10)
    np.testing.assert_allclose(mean, expected @ y, atol=1e-8)
    second = (weight * (variance + np.square(location))).sum(-1)
    np.testing.assert_allclose(second, expected @ np.square(y), rtol=1e-7, atol=1e-8)


def test_density_of_groups_is_near_the_density_of_the_rows(seed):
    """The error is of the order of a group's third moment, 0.1 w d^3 < 0.002 h^3.

    A density changes by a sixth of this, times the third derivative of the kernel, at
    most 0.55 / h^4, for each of about 20 groups: less than 0.005 / h. The largest
    density is about 0.4 / h.
    """
    random = np.random.default_rng(seed)
    *arguments, exponents = _stored(random, 400)
    y = np.sort(random.standard_normal(400))
    width, points = 0.3, np.linspace(-3, 3, 31)
    weight, location, variance = _groups(arguments, y, width, 0.25, 64)[:, :, 0]
    assert np.count_nonzero(weight, axis=1).max() < 40
    for row in range(6):
        std = np.sqrt(variance[row] + width**2)
        actual = norm.pdf(points[:, None], location[row], std) @ weight[row]
        expected = norm.pdf(points[:, None], y, width) @ softmax(exponents[row])
        np.testing.assert_allclose(actual, expected, atol=0.005 / width)
