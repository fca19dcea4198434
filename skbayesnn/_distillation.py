"""One small network with the predictive distributions of another model.

The network is trained on distributions, not on samples of them, so that its targets
have no noise. It minimises the CRPS averaged over y of the model, up to the model's own
CRPS the integral of (F - G)^2 of both distribution functions; of classes the cross
entropy. Each of the two ensemble members is a Gaussian mixture. Half the difference of
their means is trained to be the model's epistemic standard deviation; of classes, their
mutual information is trained to be the model's.

A row between two rows has the values of one in some columns, and of the other in the
rest, so that each value is possible. Rows far from all rows have shuffled columns.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from scipy.special import xlogy
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_is_fitted

from skbayesnn._data.columns import is_frame
from skbayesnn._meta.functions import predict_distribution
from skbayesnn._predictive.distribution import ClassDistribution
from skbayesnn._runtime import default_settings, warn
from skbayesnn._sklearn_compat import num_samples, safe_indexing
from skbayesnn._typing import MatrixLike
from skbayesnn._validation import numpy_random_state
from skbayesnn.estimators import _fitted
from skbayesnn.estimators.mc_dropout import MCDropoutClassifier, MCDropoutRegressor

# Levels of the quantiles that represent a distribution.
LEVELS = (np.arange(24) + 0.5) / 24
# Least and most rows of X; most rows that are made of them, and values of X in these.
MIN_ROWS, MAX_ROWS, N_MADE, MAX_VALUES = 50, 10_000, 60_000, 2**24
# Share of the rows that measure the loss, rows that are made of these, and the loss
# that gives a warning.
HELD_OUT, N_MEASURED, MAX_LOSS = 0.1, 3000, 0.02
# Nearest rows of which one is the other parent of a row.
N_NEAR = 10
# Units of each hidden layer, and Gaussians of a member.
HIDDEN, N_COMPONENTS = (128, 64, 64), 5
N_STEPS, BATCH, LEARNING_RATE = 8000, 256, 5e-3
# Weight of the squared error of the epistemic part, relative to the expected score.
EPISTEMIC_WEIGHT = 0.3
# Slope of the steps between two quantiles of a column.
STEEPNESS = 2.0


@default_settings
def distill(model: Any, X: MatrixLike | None = None, *, random_state: Any = 0) -> Any:
    """Train one small network to have the predictive distributions of a fitted model.

    Use it for a stack whose predictions take too long, or whose file is too large. The
    network learns the model's distributions at the rows of X, at rows between them, and
    at rows with shuffled columns. It needs no y. Training takes about a minute.

    Parameters
    ----------
    model : fitted estimator
        A regressor or classifier of this package, alone or inside of a pipeline or
        another meta-estimator.
    X : {frame, array-like} of shape (n_samples, n_features), default=None
        Rows like those to be predicted, as ``model`` takes them: its training rows, or
        later ones. None takes the rows that a network keeps for updates; a stack keeps
        none.
    random_state : int, RandomState instance or None, default=0
        Source of the rows that are made, and of the initial weights.

    Returns
    -------
    student : MCDropoutRegressor or MCDropoutClassifier
        Fitted, without dropout. ``student.distillation_loss_`` is by how much its
        expected CRPS, or log loss for classes, is larger than the model's, as a share.
        It is measured between rows that were held out, a tenth of X, and supposes that
        y has the model's distribution: compare ``crps`` of both on new rows as well.
        ``fit`` would train the network without the model. ``history_`` is NaN: it would
        need y.

    Warns
    -----
    UserWarning
        If the loss is more than 2 % (SKB116).

    Notes
    -----
    The distribution is a mixture of Gaussians: it may exceed bounds of y, and of counts
    it is continuous. Targets are independent given the network.

    References
    ----------
    - Hinton, Vinyals & Dean (2015), "Distilling the knowledge in a neural network",
      arXiv:1503.02531.
    - Malinin, Mlodozeniec & Gales (2020), "Ensemble distribution distillation", ICLR.

    Examples
    --------
    >>> import skbayesnn
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = skbayesnn.BayesianStackingRegressor("fast", random_state=0).fit(X, y)
    >>> student = skbayesnn.distill(model, X)  # doctest: +SKIP
    >>> student.predict_interval(X[:3]).shape  # doctest: +SKIP
    (3, 2)
    """
    check_is_fitted(model)
    rows: Any = _kept_rows(model) if X is None else X
    if not (is_frame(rows) or isinstance(rows, np.ndarray)):
        rows = np.asarray(rows)
    if len(rows.shape) != 2 or num_samples(rows) < MIN_ROWS:
        raise ValueError(
            f"`X` must be a table with at least {MIN_ROWS} rows, like those that the "
            f"model predicts; got shape {rows.shape}."
        )
    random = np.random.default_rng(numpy_random_state(random_state).randint(2**31))
    order = random.permutation(num_samples(rows))[:MAX_ROWS]
    cut = round(HELD_OUT * len(order))
    held_out, rows = (safe_indexing(rows, i) for i in np.split(order, [cut]))
    distribution = predict_distribution(model, rows)
    student = _untrained(distribution, rows, int(random.integers(2**31)))
    inputs = _inputs(student, rows)
    n_made = min(N_MADE, MAX_VALUES // rows.shape[1])
    made = _of_columns(rows, _parents(inputs, rows.shape[1], n_made, random))
    x = torch.as_tensor(np.concatenate([inputs, _inputs(student, made)]))
    of_made = _labels(student, predict_distribution(model, made))
    labels = map(torch.cat, zip(_labels(student, distribution), of_made, strict=True))
    posterior = _fitted.restore_posterior(student, torch.device("cpu"), torch.float32)
    _train(posterior, x, [*labels], inputs, random)
    student.parameters_ = _fitted.to_arrays(posterior)
    student.optimizer_, student.elbo_ = {}, math.nan
    # The likelihood of y, which is not known here.
    unknown = {name: np.full_like(v, math.nan) for name, v in student.history_.items()}
    student.history_, student.loss_curve_ = unknown, [math.nan]
    del student.replay_
    student._protect()
    if isinstance(student, MCDropoutRegressor):
        noise = np.asarray(student.predict_uncertainty(rows, kind="aleatoric"))
        student.row_noise_std_ = np.sqrt(np.square(noise).mean(axis=0))
    of_held_out = _parents(
        _inputs(student, held_out), rows.shape[1], N_MEASURED, random, far=False
    )
    student.distillation_loss_ = _loss(
        posterior, student, model, _of_columns(held_out, of_held_out)
    )
    if not student.distillation_loss_ <= MAX_LOSS:
        what = "CRPS" if isinstance(student, MCDropoutRegressor) else "log loss"
        warn(
            "SKB116",
            f"the network's expected {what} is {student.distillation_loss_:.1%} larger "
            "than the model's, between held-out rows of X. Give more rows, or keep the "
            "model.",
        )
    return student


def _kept_rows(model):
    """Rows that a network keeps for updates, if they are as the user gave them."""
    kept = getattr(model, "replay_", {}).get("X")
    if kept is None or getattr(model, "table_", None) is not None:
        raise ValueError(
            "`X` must be given, such as the training rows: only networks that were "
            f"fitted to an array of numbers keep some; got {type(model).__name__}."
        )
    return np.asarray(kept.toarray() if hasattr(kept, "toarray") else kept)


def _untrained(distribution, X, seed: int):
    """The network with the encoding of X and the scale of y."""
    options: dict[str, Any] = {
        "hidden_layer_sizes": HIDDEN,
        "activation": "tanh",
        "dropout": 0.0,
        "n_estimators": 2,
        "max_iter": 1,
        "device": "cpu",
        "random_state": seed % 2**31,
    }
    student: Any
    if isinstance(distribution, ClassDistribution):
        y = distribution.classes[distribution.proba().argmax(1)]
        # Every class has a row.
        y[: len(distribution.classes)] = distribution.classes
        student = MCDropoutClassifier(**options)
    else:
        y, std = distribution.moments()
        median = np.median(std, axis=0)
        student = MCDropoutRegressor(
            **options,
            likelihood="mixture",
            likelihood_options={"n_components": N_COMPONENTS},
            tau=1 / np.square(median),
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return student.fit(X, y)


def _inputs(student, X) -> np.ndarray:
    """Standardised inputs of the network, (rows, inputs), float32."""
    return student._scaling.x_to_network(student._new_rows(X).X).astype(np.float32)


def _loss(posterior, student, model, X) -> float:
    """Loss of expected score at some rows, relative to the model's."""
    labels = _labels(student, predict_distribution(model, X))
    loss, _ = _terms(posterior, torch.as_tensor(_inputs(student, X)), *labels)
    return float(loss.mean() / labels[-1].mean())


# ---- rows and labels


def _parents(inputs, n_columns: int, n: int, random, far: bool = True) -> np.ndarray:
    """Row from which each value of new rows comes, (n, n_columns).

    A new row has some columns of one row, and the others of another row, one of the
    nearest.

    inputs : (rows, inputs), in which distances are measured
    far : whether every second row has any other row instead, and every fourth some
        values of further rows
    """
    n_near = min(N_NEAR + 1, len(inputs))
    near = NearestNeighbors(n_neighbors=n_near).fit(inputs)
    near = near.kneighbors(inputs, return_distance=False)
    first = random.integers(len(inputs), size=n)
    second = near[first, random.integers(n_near, size=n)]
    number = np.arange(n)[:, None]
    if far:
        any_row = random.integers(len(inputs), size=n)
        second = np.where(number[:, 0] % 2, second, any_row)
    is_second = random.random((n, n_columns)) > random.random((n, 1))
    rows = np.where(is_second, second[:, None], first[:, None])
    if far:
        is_shuffled = random.random((n, n_columns)) < random.uniform(0.05, 0.5, (n, 1))
        any_rows = random.integers(len(inputs), size=(n, n_columns))
        rows = np.where(is_shuffled & (number % 4 == 0), any_rows, rows)
    return rows


def _of_columns(X, rows):
    """A table whose column j has the values of the rows ``rows[:, j]``."""
    if not is_frame(X):
        return X[rows, np.arange(rows.shape[1])]
    import narwhals.stable.v2 as narwhals

    frame = narwhals.from_native(X, eager_only=True)
    columns = [frame[name][rows[:, j]] for j, name in enumerate(frame.columns)]
    return frame[rows[:, 0]].with_columns(*columns).to_native()


def _labels(student, distribution) -> list[torch.Tensor]:
    """What the network learns of a distribution: tensors of float32.

    returns : class probabilities, (rows, classes), the mutual information, (rows,), and
        the entropy, (rows,); or quantiles, (rows, targets, levels), standard deviations
        of the epistemic part and expected CRPS, (rows, targets), in units of the
        network's y
    """
    classifies = isinstance(distribution, ClassDistribution)

    def of_block(block):
        kind = "mutual_information" if classifies else "epistemic"
        epistemic = block.uncertainty([kind])[kind]
        if classifies:
            return block.mean(), epistemic
        block = block.in_units_of_target()
        if block.transform is None and block.maps is None:
            quantiles = np.moveaxis(block.components.fast_quantiles(LEVELS), 0, -1)
        else:
            quantiles = np.stack([block.quantile(level) for level in LEVELS], axis=-1)
        shape = len(quantiles), -1, len(LEVELS)
        return quantiles.reshape(shape), epistemic.reshape(shape[:2])

    values, epistemic = map(
        np.concatenate, zip(*distribution._each(of_block), strict=True)
    )
    if not (np.isfinite(values).all() and np.isfinite(epistemic).all()):
        raise ValueError(
            "the distributions of the model must have finite quantiles and standard "
            "deviations at all rows that are made of `X`; some are infinite."
        )
    if classifies:
        own = -xlogy(values, values).sum(-1)
    else:
        mean, scale = student._scaling.y_mean, student._scaling.y_scale
        values, epistemic = (values - mean[:, None]) / scale[:, None], epistemic / scale
        n = len(LEVELS)
        rank = 2 * np.arange(1, n + 1) - n - 1
        own = (np.sort(values, axis=-1) * rank).sum(-1) / n**2
    return [torch.as_tensor(v, dtype=torch.float32) for v in (values, epistemic, own)]


# ---- training


def _terms(posterior, x, values, epistemic, own):
    """Loss of the score beyond the model's, and the error of the epistemic part.

    The score is the expected log loss of classes, or else the expected CRPS.

    values, epistemic, own : of ``_labels``
    returns : (rows,) or (rows, targets), each
    """
    outputs = posterior.components(posterior.outputs(x[None], range(1)))
    if len(outputs) == 1:
        of_members = outputs[0][0].clamp(min=1e-9)
        mean = of_members.mean(0)
        loss = -(values * mean.log()).sum(-1) - own
        within = -(of_members * of_members.log()).sum(-1).mean(0)
        mutual = -(mean * mean.log()).sum(-1) - within
        return loss, (mutual - epistemic).square()
    weight, mean, scale = (v[0] for v in outputs)
    of_members = (weight * mean).sum(-1)
    spread = (of_members[0] - of_members[1]).abs() / 2
    weight, mean, scale = (
        v.permute(1, 2, 0, 3).flatten(2) for v in (weight / len(weight), mean, scale)
    )
    distance = values.unsqueeze(-1) - mean.unsqueeze(-2)
    to_y = (weight.unsqueeze(-2) * _mean_abs(distance, scale.unsqueeze(-2))).sum(-1)
    both = (scale.unsqueeze(-1).square() + scale.unsqueeze(-2).square()).sqrt()
    within = _mean_abs(mean.unsqueeze(-1) - mean.unsqueeze(-2), both)
    within = (weight.unsqueeze(-1) * weight.unsqueeze(-2) * within).sum((-1, -2))
    loss = to_y.mean(-1) - within / 2 - own
    least = own.clamp(min=1e-6 * float(own.mean()))
    return loss, (spread - epistemic).square() / least


def _mean_abs(mean, scale):
    """E |Z| of Z ~ N(mean, scale^2)."""
    z = mean / scale
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    return mean * (2 * torch.special.ndtr(z) - 1) + 2 * scale * density


def _train(posterior, x, labels, real, random) -> None:
    """Train the weights by Adam; the learning rate falls to zero.

    x, labels : inputs, and tensors of ``_labels``
    real : inputs of the rows of X
    """
    _start_with_steps(posterior.layers[0], real)
    weights = [group[name] for group in posterior.layers for name in ("mean", "bias")]
    for values in weights:
        values.requires_grad_()
    optimizer = torch.optim.Adam(weights, LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, N_STEPS)
    unit, order = float(labels[-1].mean()) + 1e-9, np.empty(0, int)
    with torch.enable_grad():
        for _ in range(N_STEPS):
            if len(order) < BATCH:
                order = random.permutation(len(x))
            batch, order = torch.as_tensor(order[:BATCH]), order[BATCH:]
            loss, error = _terms(posterior, x[batch], *(v[batch] for v in labels))
            optimizer.zero_grad()
            ((loss + EPISTEMIC_WEIGHT * error).mean() / unit).backward()
            optimizer.step()
            schedule.step()
    for values in weights:
        values.requires_grad_(False)


def _start_with_steps(layer, inputs) -> None:
    """Let units of the first layer be steps between quantiles of single columns.

    Functions with jumps, as of trees, need these, and gradients find them slowly. The
    first unit of a column is nearly linear; units that remain keep their random start.
    """
    n_inputs, n_units = layer["mean"].shape[1:]
    n_of_column, unit = n_units // n_inputs, 0
    if n_of_column < 3:
        return
    for j in range(n_inputs):
        edges = np.unique(np.quantile(inputs[:, j], np.linspace(0, 1, n_of_column)))
        width, centre = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
        slope = np.r_[1 / 3, STEEPNESS / width]
        bias = np.r_[0.0, -STEEPNESS * centre / width]
        units = slice(unit, unit + len(slope))
        layer["mean"][:, :, units] = 0.0
        layer["mean"][:, j, units] = torch.as_tensor(slope, dtype=torch.float32)
        layer["bias"][:, units] = torch.as_tensor(bias, dtype=torch.float32)
        unit += len(slope)
