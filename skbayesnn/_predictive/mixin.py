"""Mixtures of a few rows -> the methods of a predictive, block by block of rows."""

import numpy as np
from sklearn.utils.validation import check_consistent_length

from skbayesnn._predictive.mixtures import GaussianMixture, LabelMixture
from skbayesnn._predictive.summaries import checked_coverages, chosen, framed
from skbayesnn._sklearn_compat import num_samples, safe_indexing

# Rows of which all draws are held at once.
BLOCK = 512


class PredictiveMixin:
    """The methods of a predictive, for what gives the mixture of a few rows."""

    def _mixture(self, X) -> GaussianMixture | LabelMixture:
        raise NotImplementedError

    def predict_uncertainty(self, X, kind=None, as_frame=False):
        """How uncertain the predictions are (eq. 6, eq. 7).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        kind : str or list of str, default=None
            A regressor's ``"total"`` (default), ``"epistemic"`` and ``"aleatoric"``;
            a classifier's ``"entropy"`` (default), ``"mutual_information"``,
            ``"variation_ratio"``, ``"expected_entropy"`` and ``"overlap"``; ``"all"``.
        as_frame : bool, default=False
            Whether to return a pandas DataFrame with a column per kind.

        Returns
        -------
        uncertainty : ndarray of shape (n_samples[, n_targets]), or dict of them
            A dict for a list of kinds or ``"all"``.
        """
        mixtures = [mixture for _, mixture in self._blocks(X)]
        kinds = mixtures[0].kinds
        kind = kinds[0] if kind is None else kind

        def compute(wanted):
            parts = [mixture.uncertainty(wanted) for mixture in mixtures]
            return {
                name: np.concatenate([part[name] for part in parts]) for name in wanted
            }

        values = chosen(kind, kinds, compute)
        return framed(values, kind, X) if as_frame else values

    def predict_quantile(self, X, q):
        """Quantiles of y, (n_samples[, n_targets][, n_levels]).

        Behind a target transform they are the transformed quantiles, which is exact
        for a monotone transform of each target.
        """
        levels = np.atleast_1d(q)
        result = np.concatenate(
            [
                np.stack([mixture.quantile(level) for level in levels], axis=-1)
                for _, mixture in self._blocks(X, "quantile")
            ]
        )
        return result if np.ndim(q) else result[..., 0]

    def predict_interval(self, X, coverage=0.9, kind="equal_tailed"):
        """Intervals of y, (n_samples[, n_targets][, n_coverages], 2).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        coverage : float or sequence of float in (0, 1), default=0.9
        kind : {"equal_tailed", "highest_density"}, default="equal_tailed"
        """
        coverages = checked_coverages(coverage)
        blocks = self._blocks(X, "interval")
        result = np.concatenate([one.interval(coverages, kind) for _, one in blocks])
        return result if np.ndim(coverage) else result[..., 0, :]

    def predictive_cdf(self, X, y):
        """Distribution function of the predictive at y, (n_samples[, n_targets])."""
        return self._at(X, y, "cdf")

    def log_predictive_density(self, X, y):
        """Log density (classes: log probability) of y, (n_samples,), nats (eq. 8)."""
        return self._at(X, y, "log_density")

    def crps(self, X, y):
        """Continuous ranked probability score, (n_samples,), y's units.

        Exact for the Gaussian mixture, by quadrature behind a target transform or an
        isotonic recalibration.
        """
        return self._at(X, y, "crps")

    def sample_f(self, X, n_samples=1, random_state=0):
        """Fixed posterior draws taken at random, without noise; see ``sample_y``."""
        return self._sampled(
            X,
            n_samples,
            random_state,
            lambda mixture, draws, _: mixture.sample_f(draws),
        )

    def sample_y(self, X, n_samples=1, random_state=0):
        """Draws of y, (n_samples_X[, n_targets], n_samples).

        A sample takes one of the fixed posterior draws at random, coherent over rows,
        with independent noise.
        """
        return self._sampled(
            X, n_samples, random_state, lambda one, *how: one.sample(*how)
        )

    def _at(self, X, y, name):
        y = np.asarray(y)
        check_consistent_length(X, y)
        blocks = self._blocks(X, name)
        return np.concatenate([getattr(one, name)(y[rows]) for rows, one in blocks])

    def _sampled(self, X, n_samples, random_state, sample):
        picks, noise = np.random.default_rng(stream_of(random_state)).spawn(2)
        parts: list[np.ndarray] = []
        for _, mixture in self._blocks(X):
            if not parts:
                draws = picks.integers(mixture.n_draws, size=n_samples)
            parts.append(sample(mixture, draws, noise))
        return np.concatenate(parts)

    def _blocks(self, X, need=None):
        """The mixture of every block of rows; ``need`` is a method it must have."""
        if num_samples(X) == 0:
            raise ValueError("`X` must have at least one row; got none.")
        for start in range(0, num_samples(X), BLOCK):
            rows = slice(start, min(start + BLOCK, num_samples(X)))
            mixture = self._mixture(safe_indexing(X, rows))
            if need is not None and not hasattr(mixture, need):
                raise TypeError(
                    f"`{need}` needs a regressor; got the predictive of classes. For "
                    "classifiers there are predict_proba, predict_uncertainty and "
                    "log_predictive_density."
                )
            yield rows, mixture


def stream_of(random_state):
    """A seed for NumPy's generators from scikit-learn's random_state."""
    if random_state is None or isinstance(random_state, int | np.integer):
        return random_state
    return random_state.randint(2**31)
