"""Table -> design: standardised rows on a device, gathered by index.

Several members may see different rows of the same table, and differently many, each
scaled by its own training rows. Rows of weight zero are absent.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse

from skbayesnn._data.scaling import Scaling
from skbayesnn._data.validation import Table
from skbayesnn._engine.resources import tensor_of

# Inputs that are gathered at once for several batches: they stay in a core's cache.
_NUMBERS_AT_ONCE = 1 << 19


@dataclass(frozen=True)
class RowSubset:
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

    def shifted(self, start: int) -> "RowSubset":
        """The same rows of a table that begins with ``start`` others."""
        if start == 0:
            return self
        return replace(self, rows=self.rows + start, validation=self.validation + start)


class _Held(NamedTuple):
    """What shares see of the table: tensors with a shares axis, 1 where all are equal.

    Parameters
    ----------
    train : (shares or 1, R) row numbers, or None for all rows in their order; shares
        with fewer rows than R are filled up with rows that nobody asks for
    weights : (shares or 1, R), or None where all are one
    validation, validation_weights : (shares or 1, rows); weight 0 where filled up
    x_affine, y_affine : shift and factor from the table's scale to the share's, each
        (shares or 1, 1, columns), or None where there is nothing to do
    """

    train: torch.Tensor | None
    weights: torch.Tensor | None
    validation: torch.Tensor
    validation_weights: torch.Tensor
    x_affine: tuple[torch.Tensor, torch.Tensor] | None
    y_affine: tuple[torch.Tensor, torch.Tensor] | None

    def select(self, index: torch.Tensor) -> "_Held":
        """Some of the shares, by index."""

        def chosen(part):
            if isinstance(part, tuple):
                return tuple(chosen(each) for each in part)
            return part if part is None or len(part) == 1 else part[index]

        return _Held(*(chosen(part) for part in self))


class TrainingRows:
    """The rows of all members of one program (`_inference.plan.Rows`).

    Members that see the same rows in the same scale and order are served by one
    gather: the candidates of a search in one fold.

    Parameters
    ----------
    table : Table
    shares : sequence of Share
        In the order of the members.
    seen : float
        Weight of the rows that earlier designs held (streaming).
    device, dtype : where and in what precision to compute
    """

    def __init__(
        self,
        table: Table,
        shares: Sequence[RowSubset],
        device: torch.device,
        dtype: torch.dtype,
        seen: float = 0.0,
    ):
        self._device, self._dtype = device, dtype
        n_members = [s.n_members for s in shares]
        self.n_rows = np.repeat([len(s.rows) for s in shares], n_members)
        weights = np.repeat([s.weights.sum() for s in shares], n_members)
        self.mean_weight = self._tensor(weights / self.n_rows)
        self.total_weight = self._tensor(seen + weights)
        self._n_inputs = table.X.shape[1]
        distinct, of_share = _distinct(shares)
        of_member = of_share.repeat(n_members)
        self._of_member: torch.Tensor | None = None
        if len(distinct) > 1 and not np.array_equal(of_member, np.arange(len(weights))):
            self._of_member = torch.as_tensor(of_member).to(device)
        self._held = self._hold(table, distinct)

    @property
    def weights(self) -> torch.Tensor | None:
        """Of every member's rows in their order; see `_inference.plan.Rows`."""
        return self._spread(self._held.weights)

    def batches(self, order: torch.Tensor, size: int):
        """Inputs, targets and weights, batch by batch; see `_inference.plan.Rows`.

        Rows of several small batches are gathered at once.
        """
        if order.shape[1] == size:
            yield self.take(order)
            return
        per_batch = len(self.mean_weight) * size * self._n_inputs
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
        """Inputs, targets and weights of the rows at ``positions``.

        positions : (members or 1, rows), in range of each member's rows
        returns : with a members axis, of length 1 where all members get the same
        """
        if len(positions) > 1:
            return self._take(positions, self._held_of_members)
        return tuple(map(self._spread, self._take(positions, self._held)))

    def validation(self):
        """Inputs, targets and weights of the held-out rows."""
        held = self._held
        x, y = self._gather(held.validation, held)
        return tuple(map(self._spread, (x, y, held.validation_weights)))

    @cached_property
    def _held_of_members(self) -> _Held:
        if self._of_member is None:
            return self._held
        return self._held.select(self._of_member)

    def _spread(self, values: torch.Tensor | None) -> torch.Tensor | None:
        """From distinct shares to members; what all have in common stays one."""
        if values is None or len(values) == 1 or self._of_member is None:
            return values
        return values.index_select(0, self._of_member)

    def _take(self, positions: torch.Tensor, held: _Held):
        """As ``take``, with as many leading rows as positions or shares."""

        def at_positions(per_share):
            lead = max(len(positions), len(per_share))
            return per_share.expand(lead, -1).gather(1, positions.expand(lead, -1))

        index = positions if held.train is None else at_positions(held.train)
        weights = None if held.weights is None else at_positions(held.weights)
        return *self._gather(index, held), weights

    def _gather(self, index: torch.Tensor, held: _Held):
        """index (shares, members or 1, rows) -> inputs and targets with that lead."""
        flat = index.flatten()
        if self._sparse is None:
            x = self._x.index_select(0, flat)
        else:
            dense = self._sparse[flat.cpu().numpy()].toarray()
            x = self._tensor(self._base.x_to_network(dense))
        x = _rescale(x.view(*index.shape, -1), held.x_affine)
        y = self._y.index_select(0, flat)
        y = _rescale(y.view(*index.shape, *y.shape[1:]), held.y_affine)
        return x, y

    def _hold(self, table: Table, shares: Sequence[RowSubset]) -> _Held:
        """Bring the table to the device, in the finest scale of the shares.

        Each share's own scale is reached from there at each gather. In the finest
        one no share's rows are rounded away by the outliers of another.
        """
        scalings = [share.scaling for share in shares]
        self._base = base = Scaling.finest(scalings)
        # Scaled in the table's own precision, before the training's.
        self._sparse = table.X if sparse.issparse(table.X) else None
        if self._sparse is None:
            self._x = self._tensor(base.x_to_network(table.X))
        x_affine = self._affine([base.x_affine_to(one) for one in scalings])
        y_affine = None
        if table.y.ndim == 1:
            self._y = tensor_of(table.codes).to(self._device, torch.int64)
        else:
            self._y = self._tensor(base.y_to_network(table.y))
            y_affine = self._affine([base.y_affine_to(one) for one in scalings])
        train = _filled([share.rows for share in shares])
        weights = _filled([share.weights for share in shares], 1.0)
        validation = _filled([share.validation for share in shares])
        scored = [np.ones(len(share.validation)) for share in shares]
        in_order = all(
            np.array_equal(share.rows, np.arange(train.shape[1])) for share in shares
        )
        return _Held(
            train=None if in_order else torch.as_tensor(train).to(self._device),
            weights=None if (weights == 1).all() else self._tensor(weights),
            validation=torch.as_tensor(validation).to(self._device),
            validation_weights=self._tensor(
                table.sample_weight[validation] * _filled(scored)
            ),
            x_affine=x_affine,
            y_affine=y_affine,
        )

    def _affine(self, of_shares):
        """(shift, factor), (shares or 1, 1, columns): held -> each share's scale."""
        shift, factor = map(np.stack, zip(*of_shares, strict=True))
        if not shift.any() and (factor == 1).all():
            return None
        return self._tensor(shift[:, None]), self._tensor(factor[:, None])

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return tensor_of(values).to(self._device, self._dtype)


def _distinct(shares: Sequence[RowSubset]) -> tuple[list[RowSubset], np.ndarray]:
    """Shares that differ in what they see, and the number among them of each one."""
    numbers: dict[tuple, int] = {}
    distinct: list[RowSubset] = []
    of_share: list[int] = []
    for share in shares:
        scaling = share.scaling
        parts = (share.rows, share.weights, share.validation, *astuple(scaling))
        key = tuple(part.tobytes() for part in parts)
        if key not in numbers:
            numbers[key] = len(distinct)
            distinct.append(share)
        of_share.append(numbers[key])
    return distinct, np.array(of_share)


def _filled(parts: Sequence[np.ndarray], value=0) -> np.ndarray:
    """(parts, longest), each filled up at its end."""
    longest = max(map(len, parts))
    missing = [(0, longest - len(part)) for part in parts]
    return np.stack(
        [
            np.pad(p, m, constant_values=value)
            for p, m in zip(parts, missing, strict=True)
        ]
    )


def _rescale(values, affine):
    """The gathered values in each member's scale; they are the caller's own."""
    if affine is None:
        return values
    shift, factor = affine
    if len(shift) > len(values):
        return (values - shift) * factor
    return values.sub_(shift).mul_(factor)
