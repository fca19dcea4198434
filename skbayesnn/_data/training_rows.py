"""Standardised training rows on a device, gathered by index.

Ensemble members may have different rows of the same table, and different numbers of
rows. Each is scaled by its own training rows. Rows of weight zero are left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import NamedTuple
from weakref import ref

import numpy as np
import torch
from scipy import sparse

from skbayesnn._data.scaling import Scaling, of_intervals
from skbayesnn._data.validation import Table
from skbayesnn._engine.config import Batch, MemberTable
from skbayesnn._engine.members import on_device, select
from skbayesnn._engine.resources import as_tensor

# Number of input values that are gathered at once for several batches; fits into cache.
_VALUES_AT_ONCE = 1 << 19


@dataclass(frozen=True)
class RowSubset:
    """Rows of the table that one estimator's members are trained on.

    Parameters
    ----------
    n_members : int
    rows : ndarray of shape (R,), int
        Training rows, all of positive weight.
    weights : ndarray of shape (R,) float64
    held_out_rows : ndarray of int
        Rows that score the training; may be empty.
    scaling : Scaling
    """

    n_members: int
    rows: np.ndarray
    weights: np.ndarray
    held_out_rows: np.ndarray
    scaling: Scaling

    def shifted(self, start: int) -> "RowSubset":
        """The same rows, after ``start`` other rows are put before the table."""
        if start == 0:
            return self
        rows, held_out_rows = self.rows + start, self.held_out_rows + start
        return replace(self, rows=rows, held_out_rows=held_out_rows)


class _DeviceRows(NamedTuple):
    """Indices, weights and scales of subsets, with a first axis of 1 if all are equal.

    Parameters
    ----------
    train : (subsets or 1, R) row indices, or None for all rows in order; subsets with
        fewer rows than R are padded with rows that are never used
    weights : (subsets or 1, R), or None if all are one
    validation, validation_weights : (subsets or 1, rows); padded with weight 0
    x_affine, y_affine : shift and factor from the table's scale to the subset's scale,
        each (subsets or 1, 1, columns), or None if both scales are the same
    """

    train: torch.Tensor | None
    weights: torch.Tensor | None
    validation: torch.Tensor
    validation_weights: torch.Tensor
    x_affine: tuple[torch.Tensor, torch.Tensor] | None
    y_affine: tuple[torch.Tensor, torch.Tensor] | None

    def shortened(self, n_rows: int) -> "_DeviceRows":
        """The same subsets without padding after ``n_rows`` training rows."""
        train, weights = (
            part if part is None else part[:, :n_rows].contiguous()
            for part in (self.train, self.weights)
        )
        return self._replace(train=train, weights=weights)


class TrainingRows:
    """Training rows of all members of one program (see `_engine.config.MemberRows`).

    Members with the same rows in the same scale and order share one gather, such as the
    candidates of a search in one fold.

    Parameters
    ----------
    table : Table
    row_subsets : sequence of RowSubset
        In the order of the members.
    device, dtype : device and precision of the computation
    seen : float
        Total weight of the rows of earlier calls (streaming).
    """

    def __init__(
        self,
        table: Table,
        row_subsets: Sequence[RowSubset],
        device: torch.device,
        dtype: torch.dtype,
        seen: float = 0.0,
    ):
        self._device, self._dtype = device, dtype
        n_members = [s.n_members for s in row_subsets]
        self.n_rows = np.repeat([len(s.rows) for s in row_subsets], n_members)
        weights = np.repeat([s.weights.sum() for s in row_subsets], n_members)
        self.mean_weight = self._tensor(weights / self.n_rows)
        self.total_weight = self._tensor(seen + weights)
        self._n_inputs = table.X.shape[1]
        distinct, index = _distinct(row_subsets)
        member_index = self._subset_of_member = index.repeat(n_members)
        # None if every member has its own subset, or all members have the same.
        self._member_index: torch.Tensor | None = None
        if len(distinct) > 1 and not np.array_equal(
            member_index, np.arange(len(weights))
        ):
            self._member_index = torch.as_tensor(member_index).to(device)
        self._subsets = self._to_device(table, distinct)

    @property
    def weights(self) -> torch.Tensor | None:
        """Weights of every member's rows, in order; see `_engine.config.MemberRows`."""
        return self._to_members(self._subsets.weights)

    def to(self, device: torch.device) -> "TrainingRows":
        """The same rows on another device."""
        rows = self._copy()
        rows._device = device
        rows._subsets = on_device(self._subsets, device)
        for name in ("_x", "_y", "mean_weight", "total_weight", "_member_index"):
            value = getattr(self, name, None)
            if value is not None:
                setattr(rows, name, value.to(device))
        return rows

    def _copy(self) -> "TrainingRows":
        """A shallow copy without the values that are computed when needed."""
        rows = object.__new__(type(self))
        vars(rows).update(vars(self))
        for name in ("_subset_per_member", "_table_x"):
            vars(rows).pop(name, None)
        return rows

    def select(self, members: np.ndarray) -> "TrainingRows":
        """The rows of some members, by index; see `_engine.config.TableRows`."""
        rows = self._copy()
        index = torch.as_tensor(members).to(self._device)
        rows.n_rows = self.n_rows[members]
        rows.mean_weight = self.mean_weight[index]
        rows.total_weight = self.total_weight[index]
        used, subset_of_member = np.unique(
            self._subset_of_member[members], return_inverse=True
        )
        rows._subset_of_member = subset_of_member
        rows._member_index = torch.as_tensor(subset_of_member).to(self._device)
        subsets = select(self._subsets, used, shared=True)
        rows._subsets = subsets.shortened(int(rows.n_rows.max()))
        return rows

    def member_table(
        self,
        member: int,
        weight_factor: np.ndarray | None = None,
        y_shift: np.ndarray | None = None,
    ) -> MemberTable:
        """The rows of one member, on the CPU; see `_engine.config.TableRows`."""
        subsets, n = self._subset_per_member, int(self.n_rows[member])
        x, indptr, indices, data, x_of_zero = self._table_x

        def own(part):
            return part[member if len(part) > 1 else 0]

        def affine(pair):
            if pair is None:
                return np.empty((2, 0), x.dtype)
            return np.stack([own(values)[0].numpy() for values in pair])

        weights = weight_factor
        if subsets.weights is not None:
            weights = own(subsets.weights)[:n].numpy()
            if weight_factor is not None:
                weights = weights * weight_factor
        if weights is None:
            weights = np.empty(0, x.dtype)
        else:
            weights = weights / float(self.mean_weight[member])
        if y_shift is None:
            y_shift = np.empty((0, 1))
        y, train = self._y.contiguous().numpy(), subsets.train
        is_class = y.ndim == 1
        return MemberTable(
            x=x,
            indptr=indptr,
            indices=indices,
            data=data,
            x_of_zero=x_of_zero,
            y=np.empty((0, 1), x.dtype) if is_class else y,
            labels=y if is_class else np.empty(0, np.int64),
            rows=np.arange(n) if train is None else own(train)[:n].contiguous().numpy(),
            weights=np.ascontiguousarray(weights, x.dtype),
            y_shift=np.ascontiguousarray(y_shift, x.dtype),
            x_affine=affine(subsets.x_affine),
            y_affine=affine(subsets.y_affine),
        )

    def batches(self, order: torch.Tensor, size: int) -> Iterator[Batch]:
        """Iterate over batches; see `_engine.config.MemberRows`.

        Rows of several small batches are gathered at once.
        """
        if order.shape[1] == size:
            yield Batch(*self.take(order))
            return
        per_batch = len(self.mean_weight) * size * self._n_inputs
        at_once = max(1, _VALUES_AT_ONCE // per_batch)
        for span in order.split(size * at_once, dim=1):
            x, y, weights = self.take(span)
            yield from map(
                Batch,
                x.split(size, dim=1),
                y.split(size, dim=1),
                repeat(None) if weights is None else weights.split(size, dim=1),
            )

    def take(self, positions: torch.Tensor):
        """Gather inputs, targets and weights of the rows at ``positions``.

        positions : (members or 1, rows), in range of each member's rows
        returns : with a members axis, of length 1 if all members get the same
        """
        if len(positions) > 1:
            return self._take(positions, self._subset_per_member)
        return tuple(map(self._to_members, self._take(positions, self._subsets)))

    def validation(self):
        """Gather inputs, targets and weights of the held-out rows."""
        subsets = self._subsets
        x, y = self._gather(subsets.validation, subsets)
        return tuple(map(self._to_members, (x, y, subsets.validation_weights)))

    @cached_property
    def _table_x(self) -> tuple[np.ndarray, ...]:
        """The inputs of a ``MemberTable``: dense; CSR format and standardised zeros."""
        if self._sparse is None:
            x = self._x.contiguous().numpy()
            nothing = np.empty(0, x.dtype)
            return x, np.empty(0, np.int64), np.empty(0, np.int32), nothing, nothing
        base, X = self._base, sparse.csr_array(self._sparse)
        mean, scale = base.x_mean[X.indices], base.x_scale[X.indices]
        data = self._tensor((X.data - mean) / scale).numpy()
        of_zero = self._tensor(base.x_to_network(np.zeros((1, X.shape[1]))))
        # Loops are compiled for arrays that can be written.
        return (
            np.empty((0, X.shape[1]), data.dtype),
            np.require(X.indptr, np.int64, ["C", "W"]),
            np.require(X.indices, np.int32, ["C", "W"]),
            np.require(data, data.dtype, ["C", "W"]),
            of_zero[0].numpy(),
        )

    @cached_property
    def _subset_per_member(self) -> _DeviceRows:
        if self._member_index is None:
            return self._subsets
        return select(self._subsets, self._member_index, shared=True)

    def _to_members(self, values: torch.Tensor | None) -> torch.Tensor | None:
        """Repeat values of distinct subsets for members; a shared value stays one."""
        if values is None or len(values) == 1 or self._member_index is None:
            return values
        return values.index_select(0, self._member_index)

    def _take(self, positions: torch.Tensor, subsets: _DeviceRows):
        """Like ``take``, with a first axis as long as positions or subsets."""

        def at_positions(per_subset):
            lead = max(len(positions), len(per_subset))
            return per_subset.expand(lead, -1).gather(1, positions.expand(lead, -1))

        index = positions if subsets.train is None else at_positions(subsets.train)
        weights = None if subsets.weights is None else at_positions(subsets.weights)
        return *self._gather(index, subsets), weights

    def _gather(self, index: torch.Tensor, subsets: _DeviceRows):
        """Gather inputs and targets of the rows at index (subsets, members or 1, rows).

        Both have the leading axes of ``index``.
        """
        flat = index.flatten()
        if self._sparse is None:
            x = self._x.index_select(0, flat)
        else:
            dense = self._sparse[flat.cpu().numpy()].toarray()
            x = self._tensor(self._base.x_to_network(dense))
        x = _rescale(x.view(*index.shape, -1), subsets.x_affine)
        y = self._y.index_select(0, flat)
        y = _rescale(y.view(*index.shape, *y.shape[1:]), subsets.y_affine)
        return x, y

    def _to_device(self, table: Table, subsets: Sequence[RowSubset]) -> _DeviceRows:
        """Move the table to the device, in the finest scale of the subsets.

        Each gather converts from there to the subset's own scale. In the finest scale,
        outliers of one subset do not round away the rows of another.
        """
        scalings = [subset.scaling for subset in subsets]
        self._base = base = Scaling.finest(scalings)
        # Scale in the table's precision first, then convert to the training's.
        self._sparse = table.X if sparse.issparse(table.X) else None
        if self._sparse is None:
            self._x = self._tensor(base.x_to_network(table.X))
        x_affine = self._affine([base.x_affine_to(scaling) for scaling in scalings])
        y_affine = None
        if table.y.ndim == 1:
            self._y = as_tensor(table.codes).to(self._device, torch.int64)
        elif table.intervals is None:
            self._y = self._tensor(base.y_to_network(table.y))
            y_affine = self._affine([base.y_affine_to(scaling) for scaling in scalings])
        else:
            self._y = self._tensor(base.intervals_to_network(table.intervals))
            pairs = [base.y_affine_to(scaling) for scaling in scalings]
            y_affine = self._affine([of_intervals(*pair) for pair in pairs])
        train = _padded([subset.rows for subset in subsets])
        weights = _padded([subset.weights for subset in subsets], 1.0)
        validation = _padded([subset.held_out_rows for subset in subsets])
        is_row = _padded([np.ones(len(subset.held_out_rows)) for subset in subsets])
        in_order = all(
            np.array_equal(subset.rows, np.arange(train.shape[1])) for subset in subsets
        )
        return _DeviceRows(
            train=None if in_order else torch.as_tensor(train).to(self._device),
            weights=None if (weights == 1).all() else self._tensor(weights),
            validation=torch.as_tensor(validation).to(self._device),
            validation_weights=self._tensor(table.sample_weight[validation] * is_row),
            x_affine=x_affine,
            y_affine=y_affine,
        )

    def _affine(self, per_subset):
        """Shift and factor from the base scale, (subsets or 1, 1, columns) each."""
        shift, factor = map(np.stack, zip(*per_subset, strict=True))
        if not shift.any() and (factor == 1).all():
            return None
        return self._tensor(shift[:, None]), self._tensor(factor[:, None])

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        return as_tensor(values).to(self._device, self._dtype)


class BufferedRows(TrainingRows):
    """Rows of a buffer that is filled with other rows between the epochs.

    All members have the same rows. The arrays stay the same, so that a loop that holds
    them trains on the rows of the last ``load``.

    Parameters
    ----------
    table : Table
        Standardised rows of the buffer, followed by held-out rows. The weights of the
        rows of the buffer are divided by the mean weight of all rows.
    n_members, n_rows : int
        Number of networks, and of rows of the buffer.
    device, dtype : device and precision of the computation
    total_weight : float
        N, the total weight of all rows.
    is_weighted : bool
        Whether rows have other weights than one.
    """

    def __init__(
        self,
        table: Table,
        n_members: int,
        n_rows: int,
        device: torch.device,
        dtype: torch.dtype,
        total_weight: float,
        is_weighted: bool,
    ):
        n_targets = 1 if table.y.ndim == 1 else table.y.shape[1]
        subset = RowSubset(
            n_members=n_members,
            rows=np.arange(n_rows),
            weights=table.sample_weight[:n_rows],
            held_out_rows=np.arange(n_rows, table.n_rows),
            scaling=Scaling.none(table.X.shape[1], n_targets),
        )
        super().__init__(table, [subset], device, dtype)
        self.mean_weight.fill_(1.0)
        self.total_weight.fill_(total_weight)
        weights = self._tensor(subset.weights[None]) if is_weighted else None
        self._subsets = self._subsets._replace(weights=weights)
        # Arrays of weights that loops hold, with their factors.
        self._held: list[tuple[ref[np.ndarray], np.ndarray | None]] = []

    def load(self, x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> None:
        """Replace the rows of the buffer; arguments as in the table."""
        n = len(weights)
        self._x[:n] = self._tensor(x)
        self._y[:n] = torch.as_tensor(y).to(self._y)
        if self._subsets.weights is not None:
            self._subsets.weights[:] = self._tensor(weights)
        for held, factor in self._held:
            values = held()
            if values is not None:
                values[:] = weights if factor is None else weights * factor

    def member_table(self, member, weight_factor=None, y_shift=None):
        """The rows of one member; see `TrainingRows`."""
        table = super().member_table(member, weight_factor, y_shift)
        if len(table.weights):
            self._held = [held for held in self._held if held[0]() is not None]
            self._held.append((ref(table.weights), weight_factor))
        return table


def _distinct(subsets: Sequence[RowSubset]) -> tuple[list[RowSubset], np.ndarray]:
    """Return the distinct subsets, and the index of each given subset among them."""
    indices: dict[tuple, int] = {}
    distinct: list[RowSubset] = []
    index: list[int] = []
    for subset in subsets:
        scaling = subset.scaling
        parts = (subset.rows, subset.weights, subset.held_out_rows, *astuple(scaling))
        key = tuple(part.tobytes() for part in parts)
        if key not in indices:
            indices[key] = len(distinct)
            distinct.append(subset)
        index.append(indices[key])
    return distinct, np.array(index)


def _padded(parts: Sequence[np.ndarray], value=0) -> np.ndarray:
    """Stack arrays to (parts, longest), each padded at its end."""
    longest = max(map(len, parts))
    missing = [(0, longest - len(part)) for part in parts]
    return np.stack(
        [
            np.pad(p, m, constant_values=value)
            for p, m in zip(parts, missing, strict=True)
        ]
    )


def _rescale(values, affine):
    """Convert gathered values to each subset's scale, in place if possible."""
    if affine is None:
        return values
    shift, factor = affine
    if len(shift) > len(values):
        return (values - shift) * factor
    return values.sub_(shift).mul_(factor)
