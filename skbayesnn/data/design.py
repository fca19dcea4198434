"""Table -> design: standardised rows on a device, gathered by index.

Folds of unequal size, held-out rows and sample weights are one thing here, a row
weight; rows of weight zero are absent. Several members may see different rows of the
same table, each scaled by its own training rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np
import torch
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from skbayesnn.data.validate import Table

# Inputs that are gathered at once for several batches: they stay in a core's cache.
_NUMBERS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Scaling:
    """Standardisation of inputs and targets, in the units of the data.

    Parameters
    ----------
    x_mean, x_scale : ndarray of shape (inputs,), float64
    y_mean, y_scale : ndarray of shape (targets,), float64
        0 and 1 for classifiers.
    """

    x_mean: np.ndarray
    x_scale: np.ndarray
    y_mean: np.ndarray
    y_scale: np.ndarray

    @classmethod
    def of(cls, table: Table, rows: np.ndarray, weights, standardize: bool, classes):
        """Weighted mean and std of the rows ``rows``; constant columns get scale 1.

        Computed once for the same rows of a table: a search asks for each candidate.

        classes : bool, whether y holds class numbers, which are not scaled
        """
        key = (rows.tobytes(), weights.tobytes(), standardize)
        if key not in table.scalings:
            table.scalings[key] = cls._of(table, rows, weights, standardize, classes)
        return table.scalings[key]

    @classmethod
    def _of(cls, table, rows, weights, standardize, classes):
        n_inputs = table.X.shape[1]
        n_targets = 1 if classes else table.y.shape[1]
        x_mean, x_scale = np.zeros(n_inputs), np.ones(n_inputs)
        y_mean, y_scale = np.zeros(n_targets), np.ones(n_targets)
        if standardize:
            x_mean, x_scale = _mean_and_scale(table.X[rows], weights)
            if not classes:
                y_mean, y_scale = _mean_and_scale(table.y[rows], weights)
        return cls(x_mean, x_scale, y_mean, y_scale)


def _mean_and_scale(values, weights):
    """Weighted mean and std per column, by scikit-learn's StandardScaler."""
    scaler = StandardScaler(with_mean=not sparse.issparse(values))
    scaler.fit(values, sample_weight=weights)
    return scaler.mean_, scaler.scale_


@dataclass(frozen=True)
class Share:
    """What one estimator's members see of the table.

    Parameters
    ----------
    n_members : int
    rows : ndarray of shape (R,), int
        Training rows, all of positive weight.
    weights : ndarray of shape (R,) float64
    validation : ndarray of int
        Rows that score the training; may be empty.
    scaling : Scaling
    """

    n_members: int
    rows: np.ndarray
    weights: np.ndarray
    validation: np.ndarray
    scaling: Scaling

    def shifted(self, start: int) -> "Share":
        """The same rows of a table that begins with ``start`` others."""
        if start == 0:
            return self
        return replace(self, rows=self.rows + start, validation=self.validation + start)


class Design:
    """The rows of all members of one program (`inference.training.Rows`).

    Parameters
    ----------
    table : Table
    shares : sequence of Share
        In the order of the members; all with equally many rows.
    seen : float
        Weight of the rows that earlier designs held (streaming).
    device, dtype : where and in what precision to compute
    """

    def __init__(
        self,
        table: Table,
        shares: Sequence[Share],
        device: torch.device,
        dtype: torch.dtype,
        seen: float = 0.0,
    ):
        self._device, self._dtype = device, dtype
        members = np.repeat(np.arange(len(shares)), [s.n_members for s in shares])
        weights = np.stack([share.weights for share in shares])
        self.n_rows = weights.shape[1]
        self.mean_weight = self._tensor(weights.mean(1)[members])
        self.total_weight = self._tensor(seen + weights.sum(1)[members])
        self._weights = None if (weights == 1).all() else self._of(members, weights)
        self._train: torch.Tensor | None = None
        if any(not np.array_equal(s.rows, np.arange(self.n_rows)) for s in shares):
            self._train = self._index(members, [share.rows for share in shares])
        self._validation = self._index(members, [s.validation for s in shares])
        self._validation_weights = self._tensor(
            table.sample_weight[self._validation.cpu().numpy()]
        )
        self._scalings = [share.scaling for share in shares]
        self._hold(table, members)
        # Members that see inputs of their own, or 1, and how many columns.
        self._lead = max(
            1 if part is None else len(part)
            for part in (self._train, *(self._x_affine or [None]))
        )
        self._n_inputs = table.X.shape[1]

    def batches(self, order: torch.Tensor, size: int):
        """Inputs, targets and weights, batch by batch; see `inference.training.Rows`.

        Rows of several small batches are gathered at once.
        """
        per_batch = max(len(order), self._lead) * size * self._n_inputs
        at_once = max(1, _NUMBERS_AT_ONCE // per_batch)
        for span in order.split(size * at_once, dim=1):
            x, y, weights = self.take(span)
            yield from zip(
                x.split(size, dim=1),
                y.split(size, dim=1),
                repeat(None) if weights is None else weights.split(size, dim=1),
                strict=False,
            )

    def take(self, positions: torch.Tensor):
        """Inputs, targets and weights of the rows at ``positions``."""
        index = positions
        if self._train is not None:
            members = max(len(positions), len(self._train))
            index = self._train.expand(members, -1).gather(
                1, positions.expand(members, -1)
            )
        weights = self._weights
        if weights is not None:
            members = max(len(positions), len(weights))
            weights = weights.expand(members, -1).gather(
                1, positions.expand(members, -1)
            )
        return *self._gather(index), weights

    def validation(self):
        """Inputs, targets and weights of the held-out rows."""
        return *self._gather(self._validation), self._validation_weights

    def _hold(self, table: Table, members: np.ndarray) -> None:
        """Bring the table to the device, in the finest scale of the shares.

        Each share's own scale is reached from there at each gather. In the finest
        one no share's rows are rounded away by the outliers of another.
        """
        base = _finest(self._scalings)
        self._sparse = table.X if sparse.issparse(table.X) else None
        if self._sparse is None:
            self._x = self._tensor((table.X - base.x_mean) / base.x_scale)
            self._x_affine = self._affine(members, "x", base.x_mean, base.x_scale)
        else:
            zeros, ones = np.zeros_like(base.x_mean), np.ones_like(base.x_scale)
            self._x_affine = self._affine(members, "x", zeros, ones)
        if table.y.ndim == 1:
            self._y = torch.as_tensor(table.y, dtype=torch.int64).to(self._device)
            self._y_affine = None
        else:
            self._y = self._tensor((table.y - base.y_mean) / base.y_scale)
            self._y_affine = self._affine(members, "y", base.y_mean, base.y_scale)

    def _affine(self, members, axis, mean, scale):
        """(shift, factor), (members or 1, 1, columns): held -> each member's scale."""
        means = np.stack([getattr(s, f"{axis}_mean") for s in self._scalings])
        scales = np.stack([getattr(s, f"{axis}_scale") for s in self._scalings])
        shift, factor = (means - mean) / scale, scale / scales
        if not shift.any() and (factor == 1).all():
            return None
        return (
            self._of(members, shift).unsqueeze(1),
            self._of(members, factor).unsqueeze(1),
        )

    def _gather(self, index: torch.Tensor):
        """index (members or 1, rows) -> inputs and targets with the same lead."""
        flat = index.flatten()
        if self._sparse is None:
            x = self._x.index_select(0, flat)
        else:
            x = self._tensor(self._sparse[flat.cpu().numpy()].toarray())
        x = _rescale(x.view(*index.shape, -1), self._x_affine)
        y = self._y.index_select(0, flat)
        y = _rescale(y.view(*index.shape, *y.shape[1:]), self._y_affine)
        return x, y

    def _index(self, members, rows):
        """Row numbers (members, n), or (1, n) where all see the same rows."""
        if all(np.array_equal(r, rows[0]) for r in rows[1:]):
            return torch.as_tensor(rows[0]).to(self._device).unsqueeze(0)
        return torch.as_tensor(np.stack(rows)[members]).to(self._device)

    def _of(self, members, per_share):
        """(shares, ...) -> (members, ...), or (1, ...) where all are equal."""
        if (per_share == per_share[0]).all():
            return self._tensor(per_share[:1])
        return self._tensor(per_share[members])

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(np.asarray(values)).to(self._device, self._dtype)


def _finest(scalings: Sequence[Scaling]) -> Scaling:
    """Per column the mean and scale of the share with the smallest scale."""

    def of(axis):
        means = np.stack([getattr(s, f"{axis}_mean") for s in scalings])
        scales = np.stack([getattr(s, f"{axis}_scale") for s in scalings])
        chosen = scales.argmin(0), np.arange(scales.shape[1])
        return means[chosen], scales[chosen]

    return Scaling(*of("x"), *of("y"))


def _rescale(values, affine):
    """The gathered values in each member's scale; they are the caller's own."""
    if affine is None:
        return values
    shift, factor = affine
    if len(shift) > len(values) or len(factor) > len(values):
        return (values - shift) * factor
    return values.sub_(shift).mul_(factor)
