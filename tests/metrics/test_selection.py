"""Risk-coverage curves and AUROC, against their definitions by brute force."""

import numpy as np
import pytest

from skbayesnn.metrics import area_under_risk_coverage, ood_auroc, risk_coverage_curve

ROWS = 11


@pytest.fixture(params=["different", "tied"])
def data(request, seed):
    """error and uncertainty (11,), with and without ties, and weights."""
    random = np.random.default_rng(seed)
    error = random.random(ROWS)
    uncertainty = random.permutation(ROWS) / 10
    if request.param == "tied":
        uncertainty = np.floor(4 * uncertainty)
    return error, uncertainty, random.uniform(0.5, 2, ROWS)


# ---- risk and coverage


def test_curve_equals_its_definition(data):
    error, uncertainty, weights = data
    coverage, risk, threshold = risk_coverage_curve(error, uncertainty, weights)
    np.testing.assert_array_equal(threshold, np.unique(uncertainty))
    for i, limit in enumerate(threshold):
        accepted = uncertainty <= limit
        share = weights[accepted].sum() / weights.sum()
        mean = np.average(error[accepted], weights=weights[accepted])
        assert coverage[i] == pytest.approx(share)
        assert risk[i] == pytest.approx(mean)
    assert coverage[-1] == 1
    assert risk[-1] == pytest.approx(np.average(error, weights=weights))


def test_area_equals_its_definition(data):
    """The mean over rows of the risk when rows up to theirs are accepted."""
    error, uncertainty, weights = data
    risks = [
        np.average(error[accepted], weights=weights[accepted])
        for accepted in (uncertainty <= u for u in uncertainty)
    ]
    assert area_under_risk_coverage(error, uncertainty, weights) == pytest.approx(
        np.average(risks, weights=weights)
    )


def test_area_without_ties(seed):
    """Geifman et al. (2019): the mean of the n cumulative means."""
    random = np.random.default_rng(seed)
    error = random.random(ROWS)
    expected = (error.cumsum() / np.arange(1, ROWS + 1)).mean()
    order = random.permutation(ROWS)
    area = area_under_risk_coverage(error[order], order)
    assert area == pytest.approx(expected)


def test_area_of_right_and_wrong():
    """One error among four rows, refused first, second, last, or with all others."""
    wrong = np.array([True, False, False, False])
    for uncertainty, expected in (
        ([4, 1, 2, 3], (0 + 0 + 0 + 1 / 4) / 4),
        ([3, 1, 2, 4], (0 + 0 + 1 / 3 + 1 / 4) / 4),
        ([1, 2, 3, 4], (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4),
        ([7, 7, 7, 7], 1 / 4),
    ):
        area = area_under_risk_coverage(wrong, uncertainty)
        assert area == pytest.approx(expected)
        assert type(area) is float


def test_area_depends_on_the_order_only(data):
    error, uncertainty, weights = data
    assert area_under_risk_coverage(
        error, np.exp(3 * uncertainty), weights
    ) == pytest.approx(area_under_risk_coverage(error, uncertainty, weights))


@pytest.mark.parametrize("score", [risk_coverage_curve, area_under_risk_coverage])
def test_bad_uncertainty(score):
    with pytest.raises(ValueError, match="must have one value for each row; got"):
        score(np.zeros(3), np.zeros(2))
    with pytest.raises(ValueError, match=r"`error` must be of shape \(n_samples,\)"):
        score(np.zeros((3, 2)), np.zeros(3))
    with pytest.raises(ValueError, match="`uncertainty` must not contain NaN; got 1"):
        score(np.zeros(3), [0, np.nan, 1])
    with pytest.raises(ValueError, match="`error` must not contain NaN; got 1"):
        score([0, np.nan, 1], np.zeros(3))


# ---- AUROC


def test_auroc_is_a_share_of_all_pairs(data):
    _, uncertainty, weights = data
    inside, outside = uncertainty[:4], uncertainty[4:]
    larger = (outside > inside[:, None]) + 0.5 * (outside == inside[:, None])
    assert ood_auroc(inside, outside) == pytest.approx(larger.mean())
    pairs = np.outer(weights[:4], weights[4:])
    assert ood_auroc(inside, outside, weights[:4], weights[4:]) == pytest.approx(
        np.average(larger, weights=pairs)
    )
    assert ood_auroc(outside, inside) == pytest.approx(1 - larger.mean())


def test_auroc_of_clear_cases():
    assert ood_auroc([0, 1, 2], [3, 4]) == 1
    assert ood_auroc([3, 4], [0, 1, 2]) == 0
    assert ood_auroc([5, 5], [5, 5, 5]) == 0.5
    assert type(ood_auroc([0, 1, 2], [3, 4])) is float


def test_bad_sets():
    with pytest.raises(ValueError, match=r"`outside` must be of shape \(n_samples,\)"):
        ood_auroc([1, 2], [[1, 2]])
    with pytest.raises(ValueError, match="at least one row"):
        ood_auroc([1, 2], [])
    with pytest.raises(ValueError, match="`inside` must not contain NaN; got 1"):
        ood_auroc([1, np.nan], [3])
