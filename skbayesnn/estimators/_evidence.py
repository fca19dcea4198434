"""Training by Gauss-Newton steps, with precisions by evidence [Mac92, FH97].

A network with weights w minimises, for standardised rows,

    sum_k tau_k E_k(w) + 1/2 sum_g alpha_g |w_g|^2,

where E_k is the data term of output k and alpha_g the prior precision of a group of
weights. With H the Gauss-Newton Hessian, log evidence is, up to constants,

    -sum_k tau_k E_k + log Z(tau) - 1/2 sum_g alpha_g |w_g|^2
        + 1/2 sum_g n_g log alpha_g - 1/2 log |H|.

Its fixed-point equations set the precisions between steps:

    gamma_g = n_g - alpha_g tr_g H^-1,   alpha_g = gamma_g / |w_g|^2,
    tau_k = (N - gamma_k) / (2 E_k),     gamma_k = tau_k tr(H^-1 A_k),

with A_k the curvature of E_k. Further steps increase the evidence first and reduce it
later, when the network adapts to noise: training stops there, and returns the weights
of the largest evidence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh, lapack
from scipy.special import expit, gammaln, log_softmax

from skbayesnn._likelihoods.poisson import LOG_RATE_BOUNDS
from skbayesnn.estimators._dense_network import DenseNetwork

# Most steps, and steps without a larger evidence after which training stops. The
# evidence is computed after every EVERY steps; an increase below LEAST_INCREASE nats a
# row does not count.
MAX_STEPS, PATIENCE, EVERY, LEAST_INCREASE = 300, 20, 2, 1e-3
# With more than twice these rows, the first steps use a sample of them.
FIRST_ROWS = 2000
# Bounds of prior precisions. Separated classes have logits without bounds, and then the
# curvature of their data terms vanishes, and with it the estimate of a precision.
PRECISIONS, LEAST_OF_LOGITS = (1e-4, 1e6), 0.3
# Least share of the rows that estimates the noise, and the largest tau.
LEAST_FREEDOM, MOST_TAU = 0.05, 1e12
# Damping of a step relative to the mean curvature: first value, least value, and
# factors after a step that is taken or refused.
DAMPING, LEAST_DAMPING, AFTER_STEP, AFTER_REFUSAL = 1e-2, 1e-12, 0.25, 4.0
MAX_REFUSALS = 12
# Largest number of entries of a block of the Jacobian.
BLOCK_ENTRIES = 1 << 22


# ---- data terms


class DataTerm(ABC):
    """Data terms E_k(f) = sum_i s_i loss_k(f_i, y_i) of outputs f, with weights s.

    Parameters
    ----------
    weights : ndarray of shape (rows,)
    """

    # Whether each output has its own data term and tau; otherwise there is one.
    by_output = False
    least_precision = PRECISIONS[0]

    def __init__(self, y: np.ndarray, weights: np.ndarray):
        self.y, self.weights = y, weights

    def of_rows(self, rows: slice | np.ndarray):
        """Data term of some rows."""
        return type(self)(self.y[rows], self.weights[rows])

    @abstractmethod
    def losses(self, f) -> np.ndarray:
        """Loss of each row and output, (rows, outputs)."""

    @abstractmethod
    def slopes(self, f) -> np.ndarray:
        """Gradient of the loss, (rows, outputs)."""

    @abstractmethod
    def rooted(self, f, gradients) -> np.ndarray:
        """Product of a root of the curvature of the loss and the gradients of f.

        gradients : (rows, outputs, n_weights), also the shape of the result
        """


class Squares(DataTerm):
    """Half the squared error, times a precision; y : (rows, outputs).

    Parameters
    ----------
    precision : ndarray of shape (rows, outputs)
        Of the noise of each row, relative to tau.
    """

    by_output = True

    def __init__(self, y, weights, precision=None):
        super().__init__(y, weights)
        self.precision = np.ones(y.shape) if precision is None else precision

    def of_rows(self, rows):
        return Squares(self.y[rows], self.weights[rows], self.precision[rows])

    def losses(self, f):
        return 0.5 * self.precision * np.square(f - self.y)

    def slopes(self, f):
        return self.precision * (f - self.y)

    def rooted(self, f, gradients):
        return gradients * np.sqrt(self.precision)[..., None]


class LogVariances(DataTerm):
    """Normal errors whose log variance is f; y : squared errors, (rows, outputs).

    The curvature is the expected one, 1/2 (Fisher scoring).
    """

    def losses(self, f):
        return 0.5 * (f + self.y * np.exp(-f))

    def slopes(self, f):
        return 0.5 * (1 - self.y * np.exp(-f))

    def rooted(self, f, gradients):
        return gradients * np.sqrt(0.5)


class LogRates(DataTerm):
    """Poisson distribution of counts y with log rate f + offset, (rows, outputs).

    Parameters
    ----------
    offset : ndarray of shape (outputs,)
    """

    def __init__(self, y, weights, offset):
        super().__init__(y, weights)
        self.offset = offset

    def of_rows(self, rows):
        return LogRates(self.y[rows], self.weights[rows], self.offset)

    def losses(self, f):
        log_density = self.y * (f + self.offset) - gammaln(self.y + 1)
        return self._rate(f) - log_density

    def slopes(self, f):
        return self._rate(f) - self.y

    def rooted(self, f, gradients):
        return gradients * np.sqrt(self._rate(f))[..., None]

    def _rate(self, f):
        return np.exp(np.clip(f + self.offset, *LOG_RATE_BOUNDS))


class Logits(DataTerm):
    """Cross-entropy of logits f, one for two classes; y : classes, (rows, outputs).

    y is 1 for the class of the row, 0 for others.
    """

    least_precision = LEAST_OF_LOGITS

    def losses(self, f):
        if f.shape[1] == 1:
            return np.logaddexp(0, f) - self.y * f
        return -self.y * log_softmax(f, axis=1)

    def slopes(self, f):
        return self._probability(f) - self.y

    def rooted(self, f, gradients):
        p = self._probability(f)
        if f.shape[1] == 1:
            return gradients * np.sqrt(p * (1 - p))[..., None]
        # diag(p) - p p' = R'R with R = (I - r r') diag(r), r = sqrt(p).
        mean = p[:, None] @ gradients
        return np.sqrt(p)[..., None] * (gradients - mean)

    def _probability(self, f):
        return expit(f) if f.shape[1] == 1 else np.exp(log_softmax(f, axis=1))


# ---- training


@dataclass(frozen=True)
class Quadratic:
    """Data terms of some rows about some weights, to second order.

    Parameters
    ----------
    weights : ndarray of shape (n_weights,)
    value : ndarray of shape (terms,)
    gradient : ndarray of shape (terms, n_weights)
    curvature : ndarray of shape (terms, n_weights, n_weights)
    n_rows : float
        Sum of the weights of the rows.
    """

    weights: np.ndarray
    value: np.ndarray
    gradient: np.ndarray
    curvature: np.ndarray
    n_rows: float

    @classmethod
    def of(cls, network: DenseNetwork, weights, X, term: DataTerm) -> Quadratic:
        """Evaluate by blocks of rows."""
        n, terms = network.n_weights, n_terms(network, term)
        value, gradient = np.zeros(terms), np.zeros((terms, n))
        curvature = np.zeros((terms, n, n))
        size = max(1, BLOCK_ENTRIES // (n * network.sizes[-1]))
        for start in range(0, len(X), size):
            rows = slice(start, start + size)
            part, share = term.of_rows(rows), term.weights[rows]
            f, gradients = network.jacobian(weights, X[rows])
            losses = share[:, None] * part.losses(f)
            slopes = share[:, None] * part.slopes(f)
            rooted = part.rooted(f, gradients)
            rooted *= np.sqrt(share)[:, None, None]
            if term.by_output:
                value += losses.sum(0)
                for k in range(terms):
                    gradient[k] += slopes[:, k] @ gradients[:, k]
                    root = np.ascontiguousarray(rooted[:, k])
                    curvature[k] += root.T @ root
            else:
                value += losses.sum()
                flat = rooted.reshape(-1, n)
                gradient[0] += slopes.ravel() @ gradients.reshape(-1, n)
                curvature[0] += flat.T @ flat
        return cls(weights, value, gradient, curvature, float(term.weights.sum()))

    def about(self, weights) -> Quadratic:
        """The same function about other weights."""
        change = weights - self.weights
        bend = self.curvature @ change
        value = self.value + (self.gradient + bend / 2) @ change
        return replace(
            self, weights=weights, value=value, gradient=self.gradient + bend
        )

    def __add__(self, other: Quadratic) -> Quadratic:
        return Quadratic(
            self.weights,
            self.value + other.value,
            self.gradient + other.gradient,
            self.curvature + other.curvature,
            self.n_rows + other.n_rows,
        )


@dataclass(frozen=True)
class TrainingRows:
    """Data terms of a network as functions of its weights.

    Parameters
    ----------
    network : DenseNetwork
    X : ndarray of shape (rows, inputs)
    term : DataTerm
    earlier : Quadratic, optional
        Of earlier rows, which are not kept.
    """

    network: DenseNetwork
    X: np.ndarray
    term: DataTerm
    earlier: Quadratic | None = None

    def quadratic(self, weights) -> Quadratic:
        """Data terms about some weights."""
        new = Quadratic.of(self.network, weights, self.X, self.term)
        return new if self.earlier is None else new + self.earlier.about(weights)

    def values(self, weights) -> np.ndarray:
        """Data terms at some weights, (terms,)."""
        values = self._values(self.network.outputs(weights, self.X))
        if self.earlier is not None:
            values = values + self.earlier.about(weights).value
        return values

    def _values(self, f) -> np.ndarray:
        values = self.term.weights @ self.term.losses(f)
        return values if self.term.by_output else values.sum(keepdims=True)

    def loss_and_gradient(self, weights, alpha, tau) -> tuple[float, np.ndarray]:
        """Loss of the training without earlier rows, and its gradient."""
        f = self.network.outputs(weights, self.X)
        slopes = tau * self.term.weights[:, None] * self.term.slopes(f)
        gradient = self.network.gradient(weights, self.X, slopes) + alpha * weights
        return _loss(self._values(f), weights, alpha, tau), gradient


@dataclass(frozen=True)
class Mode:
    """Weights of the largest evidence, with their precisions.

    Parameters
    ----------
    weights : ndarray of shape (n_weights,)
    alpha : ndarray of shape (n_weights,)
        Prior precision of each weight.
    tau : ndarray of shape (terms,)
    quadratic : Quadratic or None
        The data terms about the weights; None before a training.
    log_evidence : float
        For the standardised rows.
    n_steps : int
    """

    weights: np.ndarray
    alpha: np.ndarray
    tau: np.ndarray
    quadratic: Quadratic | None = None
    log_evidence: float = -np.inf
    n_steps: int = 0

    @property
    def curvature(self) -> np.ndarray:
        """Of the data terms, times tau, (n_weights, n_weights)."""
        assert self.quadratic is not None
        return np.tensordot(self.tau, self.quadratic.curvature, 1)

    @property
    def hessian(self) -> np.ndarray:
        """Precision of the posterior, (n_weights, n_weights)."""
        hessian = self.curvature
        hessian[np.diag_indices_from(hessian)] += self.alpha
        return hessian

    def effective_parameters(self) -> float:
        """Number of weights that the rows determine, the sum of gamma."""
        inverse = np.linalg.inv(self.hessian)
        return float(len(self.alpha) - self.alpha @ np.diagonal(inverse))

    def deviations(self, n_pairs: int, random: np.random.Generator) -> np.ndarray:
        """Draws of N(0, H^-1), (n_pairs, n_weights); with their negatives, a sample.

        In the directions that the rows determine best, as many as there are pairs, the
        sample covariance is exact. So is the variance of linearised outputs near the
        rows, nearly.
        """
        scale = 1 / np.sqrt(self.alpha)
        values, vectors = eigh(scale[:, None] * self.curvature * scale)
        order = np.argsort(values)[::-1]
        spread = 1 / np.sqrt(1 + np.maximum(values[order], 0))
        n_weights, n_exact = len(order), min(n_pairs, len(order))
        normal = random.normal(size=(n_pairs, n_weights))
        exact, triangular = np.linalg.qr(normal[:, :n_exact])
        exact *= np.sign(np.diagonal(triangular))
        normal[:, :n_exact] = np.sqrt(n_pairs) * exact
        return (normal * spread) @ vectors[:, order].T * scale


def largest_evidence(
    network: DenseNetwork,
    X: np.ndarray,
    term: DataTerm,
    start: np.ndarray | Mode,
    *,
    prior: str,
    alpha: np.ndarray | None = None,
    tau: np.ndarray | None = None,
    max_steps: int | None = None,
    earlier: Quadratic | None = None,
) -> Mode:
    """Train from some weights, and return the mode of the largest evidence.

    start : weights, or an earlier mode with its precisions
    prior : argument of ``DenseNetwork.groups``
    alpha : (n_weights,), prior precisions that are held; NaN is estimated
    tau : (terms,), precisions that are held; None estimates them
    max_steps : number of steps that are taken if the evidence does not stop them; with
        None, up to ``MAX_STEPS``
    earlier : argument of ``TrainingRows``
    """
    rows, groups = TrainingRows(network, X, term, earlier), network.groups(prior)
    is_new = not isinstance(start, Mode) and earlier is None and max_steps is None
    if is_new and len(X) > 2 * FIRST_ROWS:
        some = np.random.default_rng(0).permutation(len(X))[:FIRST_ROWS]
        part = X[some], term.of_rows(some)
        start = largest_evidence(
            network, *part, start, prior=prior, alpha=alpha, tau=tau
        )
    if not isinstance(start, Mode):
        start = Mode(start, np.ones(network.n_weights), np.ones(n_terms(network, term)))
    held, learns_tau = alpha, tau is None and term.by_output
    alpha = _held(start.alpha, held)
    tau = start.tau if tau is None else tau
    damping, best, since = DAMPING, None, 0
    quadratic = rows.quadratic(start.weights)
    last = max_steps or MAX_STEPS
    for step in range(last + 1):
        if step and (step % EVERY == 0 or step == last):
            found = _evidence(quadratic, alpha, tau, term.by_output)
            if found is not None:
                log_evidence, inverse = found
                least = LEAST_INCREASE * quadratic.n_rows
                since += EVERY
                if best is None or log_evidence > best.log_evidence + least:
                    since = 0
                if best is None or log_evidence > best.log_evidence:
                    weights = quadratic.weights
                    best = Mode(weights, alpha, tau, quadratic, log_evidence, step)
                if since >= PATIENCE:
                    break
                if learns_tau:
                    tau = _tau(quadratic, tau, inverse)
                alpha = _alpha(groups, quadratic.weights, alpha, inverse)
                alpha = _held(np.maximum(alpha, term.least_precision), held)
        stepped = _step(rows, quadratic, alpha, tau, damping)
        if stepped is None:
            break
        weights, damping = stepped
        quadratic = rows.quadratic(weights)
    if best is None:  # no Hessian was positive definite
        best = Mode(quadratic.weights, alpha, tau, quadratic)
    return best


def n_terms(network: DenseNetwork, term: DataTerm) -> int:
    """Number of data terms, each with its tau."""
    return network.sizes[-1] if term.by_output else 1


def _held(alpha, held) -> np.ndarray:
    """Prior precisions, with those that are held."""
    return alpha if held is None else np.where(np.isfinite(held), held, alpha)


def _evidence(quadratic, alpha, tau, is_normal):
    """Log evidence, and the inverse of the Hessian; None if this is singular."""
    hessian = np.tensordot(tau, quadratic.curvature, 1)
    hessian[np.diag_indices_from(hessian)] += alpha
    factor, info = lapack.dpotrf(hessian, lower=1, clean=0, overwrite_a=1)
    if info:
        return None
    log_evidence = -_loss(quadratic.value, quadratic.weights, alpha, tau)
    if is_normal:
        log_evidence += 0.5 * quadratic.n_rows * np.log(tau / (2 * np.pi)).sum()
    log_evidence += 0.5 * np.log(alpha).sum() - np.log(np.diagonal(factor)).sum()
    inverse, info = lapack.dpotri(factor, lower=1, overwrite_c=1)
    if info:
        return None
    inverse = np.tril(inverse)
    inverse += np.tril(inverse, -1).T
    return float(log_evidence), inverse


def _tau(quadratic, tau, inverse) -> np.ndarray:
    """Precisions of the noise by evidence, (terms,)."""
    effective = tau * np.einsum("kpq,pq->k", quadratic.curvature, inverse)
    n_rows = quadratic.n_rows
    freedom = np.maximum(n_rows - effective, LEAST_FREEDOM * n_rows)
    return freedom / np.maximum(2 * quadratic.value, freedom / MOST_TAU)


def _alpha(groups, weights, alpha, inverse) -> np.ndarray:
    """Prior precisions by evidence, one value per group; (n_weights,)."""
    sizes = np.bincount(groups)
    effective = sizes - np.bincount(groups, alpha * np.diagonal(inverse))
    effective = np.clip(effective, 1e-3, sizes)
    squares = np.maximum(np.bincount(groups, np.square(weights)), 1e-12)
    return np.clip(effective / squares, *PRECISIONS)[groups]


def _loss(values, weights, alpha, tau) -> float:
    """Loss of the training.

    values : data terms, (terms,)
    """
    return tau @ values + 0.5 * (alpha @ np.square(weights))


def _step(rows: TrainingRows, quadratic: Quadratic, alpha, tau, damping):
    """Weights after a Levenberg-Marquardt step, and the damping of the next one.

    None if no step decreases the loss.
    """
    weights = quadratic.weights
    curvature = np.tensordot(tau, quadratic.curvature, 1)
    gradient = tau @ quadratic.gradient + alpha * weights
    loss = _loss(quadratic.value, weights, alpha, tau)
    unit = np.trace(curvature) / len(weights)
    for _ in range(MAX_REFUSALS):
        damped = curvature.copy()
        damped[np.diag_indices_from(damped)] += alpha + damping * unit
        factor, info = lapack.dpotrf(damped, lower=1, clean=0, overwrite_a=1)
        if info == 0:
            change, _ = lapack.dpotrs(factor, gradient, lower=1)
            new = weights - change
            if _loss(rows.values(new), new, alpha, tau) <= loss:
                return new, max(damping * AFTER_STEP, LEAST_DAMPING)
        damping = max(damping * AFTER_REFUSAL, LEAST_DAMPING)
    return None
