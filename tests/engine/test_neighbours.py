"""The training step of soft nearest neighbours against torch, and its predictions."""

import math

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import norm

from skbayesnn._engine.optimizer import BETA_1, BETA_2, EPSILON

neighbours = pytest.importorskip("skbayesnn._engine.compiled.neighbours")

N_ROWS, N_CLASSES = 30, 3
SIZES = neighbours.Sizes(
    n_inputs=5, n_hidden=7, n_embedding=4, n_queries=11, n_subset=23
)
SHAPES = neighbours.part_shapes(*SIZES[:3])
TASKS = pytest.mark.parametrize("classifies", [False, True])


def _rows(random, classifies, n_rows=N_ROWS, n_groups=None):
    """Random training rows; weights have a mean near 1."""
    x, weights = random.standard_normal((n_rows, 5)), random.uniform(0.5, 1.5, n_rows)
    y, labels = np.empty(0), np.empty(0, np.int64)
    if classifies:
        labels = random.integers(0, N_CLASSES, n_rows)
    else:
        y = random.standard_normal(n_rows)
    groups = np.empty(0, np.int64)
    if n_groups:
        groups = random.permutation(np.arange(n_rows) % n_groups)
    return neighbours.Rows(x, y, labels, weights, groups, N_CLASSES * classifies)


def _parameters(random):
    return 0.4 * random.standard_normal(sum(map(math.prod, SHAPES.values())))


def _split(values):
    """Parameters by name, from a vector."""
    parts, end = {}, 0
    for name, shape in SHAPES.items():
        start, end = end, end + math.prod(shape)
        parts[name] = values[start:end].reshape(shape)
    return parts


def _embedding(parts, x, masks):
    a1 = torch.relu(x @ parts["w1"] + parts["b1"]) * masks[0]
    a2 = torch.relu(a1 @ parts["w2"] + parts["b2"]) * masks[1]
    return a2 @ parts["w3"] + x @ parts["linear"]


def _kernel(kernel, y, labels, rows):
    """k of every pair of a query and another row, (queries, rows)."""
    n, share = SIZES.n_queries, torch.sigmoid(kernel[2])
    if rows.n_classes:
        equal = (labels[:n, None] == labels).double()
        return (1 - share) * equal + share / rows.n_classes
    wide, small = (
        torch.distributions.Normal(y, torch.exp(h)).log_prob(y[:n, None]).exp()
        for h in kernel[:2]
    )
    return share * wide + (1 - share) * small


def _loss(values, rows, masks, positions):
    """The loss of a step, by torch."""
    at = {
        name: torch.as_tensor(field[positions] if len(field) else field)
        for name, field in zip(rows._fields[:5], rows[:5], strict=True)
    }
    parts, n = _split(values), SIZES.n_queries
    z = _embedding(parts, at["x"], masks)
    exponents = at["weights"].log() - (z[:n, None] - z).square().sum(-1)
    groups = at["groups"] if len(rows.groups) else torch.arange(len(z))
    same_group = groups[:n, None] == groups
    exponents = exponents.masked_fill(same_group, -math.inf)
    k = _kernel(parts["kernel"], at["y"], at["labels"], rows)
    density = (exponents.softmax(1) * k).sum(1) + neighbours.MIN_DENSITY
    return -(at["weights"][:n] * density.log()).mean()


def _autograd(values, rows, masks, positions):
    leaf = torch.tensor(values, requires_grad=True)
    loss = _loss(leaf, rows, torch.as_tensor(masks), positions)
    loss.backward()
    return loss.item(), leaf.grad.numpy()


@TASKS
@pytest.mark.parametrize("n_groups", [None, 5])
def test_gradient(classifies, n_groups, seed):
    """It equals autograd's up to rounding of float64."""
    random = np.random.default_rng(seed)
    rows, values = _rows(random, classifies, N_ROWS, n_groups), _parameters(random)
    masks = (random.random((2, SIZES.n_hidden)) < 0.8).astype(float)
    positions = random.permutation(N_ROWS)[: SIZES.n_subset]
    gradient = np.empty_like(values)
    loss = neighbours.loss_and_gradient(rows, SIZES, values, masks, positions, gradient)
    expected_loss, expected = _autograd(values, rows, masks, positions)
    assert loss == pytest.approx(expected_loss, rel=1e-12)
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-12)


def test_step_with_a_single_group_has_no_gradient(seed):
    random = np.random.default_rng(seed)
    rows, values = _rows(random, False, N_ROWS, 1), _parameters(random)
    masks, gradient = np.ones((2, SIZES.n_hidden)), np.full_like(values, np.nan)
    positions = np.arange(SIZES.n_subset)
    loss = neighbours.loss_and_gradient(rows, SIZES, values, masks, positions, gradient)
    assert loss == 0
    np.testing.assert_array_equal(gradient, 0)


def test_row_without_neighbours(seed):
    """An outlier has the smallest density, and hardly any gradient."""
    random = np.random.default_rng(seed)
    rows, values = _rows(random, classifies=False), _parameters(random)
    rows.y[0] = 1e3
    masks, gradient = np.ones((2, SIZES.n_hidden)), np.empty_like(values)
    sizes = SIZES._replace(n_queries=1)
    positions = np.arange(SIZES.n_subset)
    loss = neighbours.loss_and_gradient(rows, sizes, values, masks, positions, gradient)
    expected = -rows.weights[0] * math.log(neighbours.MIN_DENSITY)
    assert loss == pytest.approx(expected)
    assert np.isfinite(gradient).all()


@TASKS
def test_training_equals_torch(classifies, seed):
    """Two steps of Adam with weight decay, each with all rows as its subset.

    With as many queries as rows, the order of the rows is irrelevant.
    """
    random = np.random.default_rng(seed)
    rows, values = _rows(random, classifies, n_rows=SIZES.n_queries), None
    sizes = SIZES._replace(n_subset=SIZES.n_queries)
    values, curvature = _parameters(random), random.random(len(_parameters(random)))
    n_steps, rate = 2, 0.01
    step_sizes, least = np.full(n_steps, -rate), np.full(3, -np.inf)
    actual = values.copy()
    losses = neighbours.train_steps(
        rows,
        sizes,
        actual,
        np.zeros_like(values),
        np.zeros_like(values),
        curvature,
        True,
        least,
        np.ones(2),
        random.integers(0, 2**63, (n_steps, 2), dtype=np.uint64),
        step_sizes,
        np.full(n_steps, EPSILON),
    )
    masks, mean, square = np.ones((2, SIZES.n_hidden)), 0.0, 0.0
    for k in range(n_steps):
        loss, gradient = _autograd(values, rows, masks, np.arange(SIZES.n_queries))
        assert losses[k] == pytest.approx(loss, rel=1e-9)
        gradient = gradient + curvature * values
        mean = mean + (1 - BETA_1) * (gradient - mean)
        square = square + (1 - BETA_2) * (gradient**2 - square)
        values = values - rate * mean / (np.sqrt(square) + EPSILON)
    np.testing.assert_allclose(actual, values, rtol=1e-7, atol=1e-10)


def test_kernel_is_bounded_or_given(seed):
    random = np.random.default_rng(seed)
    rows, start = _rows(random, classifies=False), _parameters(random)
    start[-3:] = 0.3, -0.4, 0.1
    for learns, least in ((True, 9.0), (False, -9.0)):
        values = start.copy()
        neighbours.train_steps(
            rows,
            SIZES,
            values,
            np.zeros_like(values),
            np.zeros_like(values),
            np.zeros_like(values),
            learns,
            np.full(3, least),
            np.full(2, 0.7),
            random.integers(0, 2**63, (3, 2), dtype=np.uint64),
            np.full(3, -1e-3),
            np.full(3, EPSILON),
        )
        assert not np.array_equal(values[:-3], start[:-3])
        if learns:
            assert (values[-3:] >= least).all()
        else:
            np.testing.assert_array_equal(values[-3:], start[-3:])


# ---- predictions


def test_embedding_of_a_row_depends_on_this_row_only(seed):
    random = np.random.default_rng(seed)
    rows, values = _rows(random, classifies=False), _parameters(random)
    masks = (random.random((2, SIZES.n_hidden)) < 0.6).astype(float)
    parts = {name: torch.as_tensor(v) for name, v in _split(values).items()}
    z = np.empty((N_ROWS, SIZES.n_embedding))
    neighbours.embed(SIZES, values, masks, rows.x, z)
    expected = _embedding(parts, torch.as_tensor(rows.x), torch.as_tensor(masks))
    np.testing.assert_allclose(z, expected.numpy(), rtol=1e-10, atol=1e-12)
    some = np.empty((9, SIZES.n_embedding))
    neighbours.embed(SIZES, values, masks, rows.x[5:14], some)
    np.testing.assert_array_equal(some, z[5:14])


def _arguments(random, n_rows=40):
    """Queries, embeddings and log weights of training rows, and their exponents."""
    queries, z = random.standard_normal((6, 3)), random.standard_normal((n_rows, 3))
    log_weights = np.log(random.uniform(0.5, 2, n_rows))
    distances = np.square(queries[:, None] - z).sum(-1)
    columns, offsets = np.ascontiguousarray(z.T), log_weights - np.square(z).sum(1)
    return queries, columns, offsets, log_weights - distances


@TASKS
def test_log_densities(classifies, seed):
    random = np.random.default_rng(seed)
    *arguments, exponents = _arguments(random)
    rows, queries = (_rows(random, classifies, n_rows) for n_rows in (40, 6))
    kernel, actual = np.array([-0.2, -0.9, 0.4]), np.empty(6)
    neighbours.log_densities(
        *arguments, rows, queries.y, queries.labels, kernel, actual
    )
    share = 1 / (1 + math.exp(-kernel[2]))
    if classifies:
        equal = queries.labels[:, None] == rows.labels
        k = (1 - share) * equal + share / N_CLASSES
    else:
        wide, small = (
            norm.pdf(queries.y[:, None], rows.y, math.exp(h)) for h in kernel[:2]
        )
        k = share * wide + (1 - share) * small
    expected = np.log((softmax(exponents, axis=1) * k).sum(1))
    np.testing.assert_allclose(actual, expected, rtol=1e-10)


def test_shares_of_the_classes(seed):
    random = np.random.default_rng(seed)
    queries, columns, offsets, exponents = _arguments(random)
    labels = random.integers(0, N_CLASSES, 40)
    actual = np.empty((6, N_CLASSES))
    neighbours.neighbour_labels(queries, columns, offsets, labels, actual)
    expected = softmax(exponents, axis=1) @ np.eye(N_CLASSES)[labels]
    np.testing.assert_allclose(actual, expected, rtol=1e-10)


def _groups(arguments, y, width, merged, n_groups):
    groups = np.empty((3, 6, n_groups))
    neighbours.neighbour_values(*arguments, y, width, merged, *groups)
    return groups


def test_few_neighbours_are_not_merged(seed):
    """With room for all rows and a bound of zero, groups are the distinct y."""
    random = np.random.default_rng(seed)
    *arguments, exponents = _arguments(random)
    y = np.sort(random.standard_normal(40))
    y[7] = y[8]  # one group
    weight, location, variance = _groups(arguments, y, 0.3, 0.0, 64)
    expected = softmax(exponents, axis=1)
    for row in range(6):
        n = np.count_nonzero(weight[row])
        weights = dict(zip(location[row, :n], weight[row, :n], strict=True))
        for value in np.unique(y):
            # Neighbours with a relative weight below 1e-10 are left out.
            total = expected[row, y == value].sum()
            assert weights.get(value, 0.0) == pytest.approx(total, rel=1e-8, abs=1e-9)
    np.testing.assert_allclose(variance, 0, atol=1e-15)


@pytest.mark.parametrize("n_groups", [5, 24])
def test_groups_keep_mean_and_variance(n_groups, seed):
    random = np.random.default_rng(seed)
    *arguments, exponents = _arguments(random)
    y = np.sort(random.standard_normal(40))
    weight, location, variance = _groups(arguments, y, 0.02, 0.25, n_groups)
    expected = softmax(exponents, axis=1)
    mean = (weight * location).sum(1)
    np.testing.assert_allclose(weight.sum(1), 1, rtol=1e-10)
    np.testing.assert_allclose(mean, expected @ y, atol=1e-8)
    second = (weight * (variance + np.square(location))).sum(1)
    np.testing.assert_allclose(second, expected @ np.square(y), rtol=1e-7)


def test_density_of_groups_is_near_the_density_of_the_rows(seed):
    """The error is of the order of a group's third moment, 0.1 w d^3 < 0.002 h^3.

    A density changes by a sixth of this, times the third derivative of the kernel, at
    most 0.55 / h^4, for each of about 20 groups: less than 0.005 / h. The largest
    density is about 0.4 / h.
    """
    random = np.random.default_rng(seed)
    *arguments, exponents = _arguments(random, n_rows=400)
    y = np.sort(random.standard_normal(400))
    width, points = 0.3, np.linspace(-3, 3, 31)
    weight, location, variance = _groups(arguments, y, width, 0.25, 64)
    assert np.count_nonzero(weight, axis=1).max() < 40
    for row in range(6):
        std = np.sqrt(variance[row] + width**2)
        actual = norm.pdf(points[:, None], location[row], std) @ weight[row]
        expected = norm.pdf(points[:, None], y, width) @ softmax(exponents[row])
        np.testing.assert_allclose(actual, expected, atol=0.005 / width)
