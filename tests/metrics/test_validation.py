"""Common properties of all metrics: rows, weights, order and errors."""

from types import SimpleNamespace

import numpy as np
import pytest

from skbayesnn import metrics

ROWS, TARGETS, LEVELS, DRAWS, CLASSES = 13, 2, 5, 7, 3
COVERAGE = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
NAMES = np.array(["ant", "bee", "cow"])

# Functions of data, indices of rows, and weights; curves are joined to one array.
CASES = {
    "mixture_log_density": lambda d, i, w: metrics.mixture_log_density(
        d.y[i, 0], d.mean[:, i], d.variance[:, i], w
    ),
    "mixture_crps": lambda d, i, w: metrics.mixture_crps(
        d.y[i, 0], d.mean[:, i], d.variance[:, i], w
    ),
    "pinball_loss": lambda d, i, w: metrics.pinball_loss(
        d.y[i], d.quantile[i], COVERAGE, w
    ),
    "interval_score": lambda d, i, w: metrics.interval_score(
        d.y[i], d.interval[i], COVERAGE, w
    ),
    "coverage_error": lambda d, i, w: metrics.coverage_error(
        d.y[i], d.interval[i], COVERAGE, w
    ),
    "interval_coverage": lambda d, i, w: metrics.interval_coverage(
        d.y[i], d.interval[i, :, 0], w
    ),
    "worst_group_coverage": lambda d, i, w: metrics.worst_group_coverage(
        d.y[i], d.interval[i, :, 0], d.labels[i], w
    ),
    "interval_width": lambda d, i, w: metrics.interval_width(d.interval[i, :, 0], w),
    "quantile_calibration_error": lambda d, i, w: metrics.quantile_calibration_error(
        d.cdf[i], sample_weight=w
    ),
    "top_label": lambda d, i, w: metrics.expected_calibration_error(
        d.labels[i], d.probability[i], NAMES, n_bins=4, sample_weight=w
    ),
    "classwise": lambda d, i, w: metrics.expected_calibration_error(
        d.labels[i], d.probability[i], None, "classwise", 4, w
    ),
    "brier_score": lambda d, i, w: metrics.brier_score(
        d.labels[i], d.probability[i], sample_weight=w
    ),
    "risk_coverage_curve": lambda d, i, w: np.concatenate(
        metrics.risk_coverage_curve(d.error[i], d.uncertainty[i], w)
    ),
    "area_under_risk_coverage": lambda d, i, w: metrics.area_under_risk_coverage(
        d.error[i], d.uncertainty[i], w
    ),
    "ood_auroc_inside": lambda d, i, w: metrics.ood_auroc(
        d.uncertainty[i], [0.1, 0.6, 0.6], w, [1, 2, 1]
    ),
    "ood_auroc_outside": lambda d, i, w: metrics.ood_auroc(
        [0.1, 0.6, 0.6], d.uncertainty[i], sample_weight_outside=w
    ),
}
EVERY_METRIC = pytest.mark.parametrize("score", CASES.values(), ids=CASES)


@pytest.fixture
def data(seed):
    """Arrays for all metrics; probabilities and uncertainties have ties."""
    random = np.random.default_rng(seed)
    y = random.standard_normal((ROWS, TARGETS))
    quantile = np.sort(random.standard_normal((ROWS, TARGETS, LEVELS)))
    half = np.abs(quantile)
    uncertainty = np.round(3 * random.random(ROWS)) / 3
    shares = random.multinomial(6, np.full(CLASSES, 1 / CLASSES), ROWS)
    codes = np.r_[0, 1, 2, random.integers(CLASSES, size=ROWS - 3)]
    return SimpleNamespace(
        y=y,
        mean=random.standard_normal((DRAWS, ROWS)),
        variance=random.uniform(0.5, 2, (DRAWS, ROWS)),
        quantile=quantile,
        interval=np.stack([quantile - half, quantile + half], -1),
        cdf=np.round(random.random((ROWS, TARGETS)), 1),
        labels=NAMES[codes],
        probability=shares / 6,
        error=random.random(ROWS),
        uncertainty=uncertainty,
        counts=np.r_[2, 1, 3, random.permutation(np.arange(ROWS - 3) % 4)],
        random=random,
    )


ALL = np.arange(ROWS)


def test_every_metric_is_in_the_table():
    named = {name for name in metrics.__all__ if any(name in case for case in CASES)}
    others = {"expected_calibration_error"}
    # scikit-survival's scores, which take no weights.
    others |= {"concordance_index", "survival_brier_score"}
    assert set(metrics.__all__) - named == others


@EVERY_METRIC
def test_integer_weights_are_repeated_rows(data, score):
    repeated = np.repeat(ALL, data.counts)
    np.testing.assert_allclose(
        score(data, ALL, data.counts),
        score(data, repeated, None),
        rtol=1e-12,  # sums in another order
    )


@EVERY_METRIC
def test_rows_of_weight_zero_do_not_count(data, score):
    """For every value of the row."""
    weights = data.counts * data.random.uniform(0.5, 1.5, ROWS)
    (present,) = np.nonzero(weights)
    expected = score(data, present, weights[present])
    for name in ("y", "quantile", "interval", "cdf", "error", "uncertainty"):
        getattr(data, name)[weights == 0] = np.nan
    data.probability[weights == 0] = 7.0
    data.mean[:, weights == 0] = np.nan
    data.variance[:, weights == 0] = -1.0
    data.labels[weights == 0] = "eel"
    np.testing.assert_array_equal(score(data, ALL, weights), expected)


@EVERY_METRIC
def test_only_the_ratio_of_weights_counts(data, score):
    np.testing.assert_allclose(
        score(data, ALL, 3 * data.counts), score(data, ALL, data.counts), rtol=1e-12
    )
    np.testing.assert_allclose(
        score(data, ALL, np.full(ROWS, 5)), score(data, ALL, None), rtol=1e-12
    )


@EVERY_METRIC
def test_order_of_rows_does_not_matter(data, score):
    order = data.random.permutation(ROWS)
    np.testing.assert_allclose(
        score(data, order, data.counts[order]),
        score(data, ALL, data.counts),
        rtol=1e-12,
    )


@EVERY_METRIC
def test_result_is_a_float(data, score):
    value = score(data, ALL, None)
    assert isinstance(value, float) or value.ndim == 1
    assert np.isfinite(value).all()


@EVERY_METRIC
def test_bad_weights(data, score):
    with pytest.raises(ValueError, match=r"at least one (row|non-zero)"):
        score(data, ALL, np.zeros(ROWS))
    wrong = {-1.0: "Negative values", np.nan: "contains NaN", np.inf: "infinity"}
    for value, words in wrong.items():
        weights = np.where(ALL == 4, value, 1)
        with pytest.raises(ValueError, match=f"{words}.*|.*sample_weight.*{words}"):
            score(data, ALL, weights)
    for weights in (np.ones(ROWS - 1), np.ones((ROWS, 1))):
        with pytest.raises(ValueError, match=r"[Ss]ample[ _]weight"):
            score(data, ALL, weights)
