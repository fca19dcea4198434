"""Properties of tables with any shape, precision, unit and weights."""

import warnings

import numpy as np
import pytest
from scipy import sparse

from skbayesnn import MCDropoutRegressor
from skbayesnn._data.scaling import Scaling, divided, power_of_two_scale
from skbayesnn._data.validation import check_inputs, check_weights

pytest.importorskip("hypothesis")
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

FEW = settings(max_examples=40, deadline=None, database=None, derandomize=True)
SHAPES = st.tuples(st.integers(3, 9), st.integers(1, 4))
TABLES = SHAPES.flatmap(
    lambda shape: hnp.arrays(np.float64, shape, elements=st.integers(-99, 99))
)


@FEW
@given(X=TABLES, exponent=st.integers(-300, 300), as_sparse=st.booleans())
def test_scaling_removes_the_unit_of_x(X, exponent, as_sparse):
    """Standardised tables in any unit are equal, to rounding of the unit."""
    unit = 10.0**exponent
    tables = (X, X * unit)
    y, weights = np.zeros((len(X), 1)), np.ones(len(X))
    scaled = []
    for table in tables:
        rows = sparse.csr_array(table) if as_sparse else table
        scaling = Scaling.of(rows, y, weights, inputs=True, targets=False)
        scaled.append(scaling.x_to_network(table))
    # Constant columns have scale 1 in every unit.
    varies = np.ptp(X, axis=0) > 0
    np.testing.assert_allclose(
        scaled[0][:, varies], scaled[1][:, varies], rtol=1e-9, atol=1e-9
    )


@FEW
@given(X=TABLES, exponent=st.integers(-30, 30), dtype=st.sampled_from(["f4", "f8"]))
def test_magnitude_is_a_power_of_two_next_to_the_largest_value(X, exponent, dtype):
    table = (X * 10.0**exponent).astype(dtype)
    unit = power_of_two_scale(table)
    np.testing.assert_array_equal(np.frexp(unit)[0], 0.5)
    np.testing.assert_array_equal(divided(table, unit) * unit, table)
    squares = np.square(divided(table, unit))
    assert np.isfinite(squares).all()
    assert (squares.max(0) > 0)[np.any(table != 0, axis=0)].all()


@FEW
@given(X=TABLES, share=st.floats(-3, 3))
def test_duplicate_entries_are_summed(X, share):
    """As in SciPy: the result is the dense table."""
    whole = sparse.csr_array(X)
    data = np.stack([share * whole.data, (1 - share) * whole.data], axis=1).ravel()
    parts = sparse.csr_array(
        (data, np.repeat(whole.indices, 2), 2 * whole.indptr), shape=X.shape
    )
    model = MCDropoutRegressor()
    checked = check_inputs(model, parts, reset=True)
    assert parts.nnz == 2 * whole.nnz  # the caller's array is unchanged
    np.testing.assert_allclose(checked.toarray(), X, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        checked.power(2).toarray(), np.square(X), rtol=0, atol=1e-9
    )


@FEW
@given(
    weights=hnp.arrays(np.float64, st.integers(11, 40), elements=st.floats(0.5, 2)),
    unit=st.floats(0.5, 2),
)
def test_weights_that_sum_to_one_warn(weights, unit):
    """The same weights with a mean near one do not warn."""
    X = np.zeros((len(weights), 1))
    with pytest.warns(UserWarning, match="is the number of rows, N.*w / w.mean()"):
        check_weights(weights / weights.sum(), X)
    np.testing.assert_array_equal(check_weights(unit * weights, X), unit * weights)


@pytest.mark.parametrize(("unit", "warns"), [(30.5, True), (1e4, True), (30.0, False)])
def test_weights_with_too_large_a_sum_warn(unit, warns):
    """Fractions, and thousands; integer weights up to thirty are repeated rows."""
    weights = unit * np.array([1.0, 0.0, 2.0, 1.0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_weights(weights, np.zeros((4, 1)))
    assert ["far less influence" in str(warning.message) for warning in caught] == [
        True
    ] * warns


@pytest.mark.parametrize("unit", [1e-300, 1e-40, 1e40, 1e300])
def test_sum_of_weights_must_be_a_possible_number_of_rows(unit):
    with pytest.raises(ValueError, match=r"must sum to N, .* between 1e-30 and 1e\+30"):
        check_weights(np.full(5, unit), np.zeros((5, 1)))
