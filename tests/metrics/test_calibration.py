"""Calibration errors and the Brier score, against definitions and scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss

from skbayesnn.metrics import (
    brier_score,
    expected_calibration_error,
    quantile_calibration_error,
)

ROWS, CLASSES = 60, 4
KINDS = pytest.mark.parametrize("kind", ["top_label", "classwise"])


@pytest.fixture
def data(seed):
    """Labels (60,) of the classes, and probabilities (60, 4)."""
    random = np.random.default_rng(seed)
    probability = random.dirichlet(np.ones(CLASSES), ROWS)
    classes = np.array(["ant", "bee", "cow", "dog"])
    codes = np.r_[np.arange(CLASSES), random.integers(CLASSES, size=ROWS - CLASSES)]
    return classes[codes], probability, classes


# ---- quantile levels


def test_uniform_cdf_is_calibrated():
    """2 k of 40 values lie below the level k / 20."""
    cdf = (np.arange(40) + 0.5) / 40
    assert quantile_calibration_error(cdf) == pytest.approx(0, abs=1e-15)
    assert quantile_calibration_error(cdf, 0.3) == pytest.approx(0, abs=1e-15)


def test_cdf_of_one_value():
    """The share below p is 0 for p < value, then 1; a value at its level counts."""
    levels = np.arange(1, 20) / 20
    for value in (0.0, 0.5, 0.77, 1.0):
        expected = np.where(levels < value, levels, 1 - levels).mean()
        error = quantile_calibration_error(np.full(3, value))
        assert error == pytest.approx(expected)
    assert quantile_calibration_error([0.2, 0.6], [0.5, 0.9]) == pytest.approx(0.05)


def test_targets_do_not_cancel(seed):
    cdf = np.random.default_rng(seed).random((7, 2)) ** [0.2, 5]
    per_target = [quantile_calibration_error(cdf[:, t]) for t in range(2)]
    assert quantile_calibration_error(cdf) == pytest.approx(np.mean(per_target))


def test_values_with_a_probability():
    """A share of each jump is below a level: 0.4, 0.5 and 0 of three rows."""
    below, upto = [0.1, 0.2, 0.7], [0.6, 0.4, 0.7]
    error = quantile_calibration_error(upto, 0.3, cdf_below=below)
    assert error == pytest.approx((0.4 + 0.5) / 3 - 0.3)
    # Zeros of probability 0.8, and a continuous rest: calibrated.
    rest = 0.8 + 0.2 * (np.arange(20) + 0.5) / 20
    upto, below = np.r_[np.full(80, 0.8), rest], np.r_[np.zeros(80), rest]
    # One of 100 rows is the largest step of the share.
    assert quantile_calibration_error(upto, cdf_below=below) < 0.01
    assert quantile_calibration_error(upto) > 0.2
    with pytest.raises(ValueError, match=r"`cdf_below` must be in \[0, 1\]; got -0.5"):
        quantile_calibration_error([0.1], cdf_below=[-0.5])


def test_overconfidence_and_underconfidence():
    """If the predictive is too narrow F(y) is near 0 or 1, if too wide near 1/2."""
    even = (np.arange(400) + 0.5) / 400
    narrow = 0.5 + 0.5 * np.sign(even - 0.5) * np.abs(2 * even - 1) ** 0.5
    wide = 0.5 + 0.5 * np.sign(even - 0.5) * np.abs(2 * even - 1) ** 2
    for cdf in (narrow, wide):
        assert quantile_calibration_error(cdf) > 0.05


def test_bad_cdf():
    with pytest.raises(ValueError, match=r"`cdf` must be in \[0, 1\]; got 1\.2"):
        quantile_calibration_error([0.1, 1.2])
    with pytest.raises(ValueError, match="`cdf` must not contain NaN; got 1"):
        quantile_calibration_error([0.1, np.nan])
    with pytest.raises(ValueError, match=r"`levels` must be in \(0, 1\); got 1\.0"):
        quantile_calibration_error([0.1, 0.2], [0.5, 1])
    with pytest.raises(ValueError, match="`cdf` must be of shape"):
        quantile_calibration_error(0.3)
    with pytest.raises(ValueError, match="at least one row"):
        quantile_calibration_error([])


# ---- binned errors


def binned_error(probability, occurred, n_bins):
    """Equal-mass bins of sorted rows, with equal numbers of rows."""
    order = np.argsort(probability)
    return np.mean(
        [
            abs(probability[rows].mean() - occurred[rows].mean())
            for rows in np.split(order, n_bins)
        ]
    )


@pytest.mark.parametrize("n_bins", [1, 5, 15, ROWS])
def test_equal_mass_bins(data, n_bins):
    """Without ties, and with equal numbers of rows in each bin: sort and split."""
    y, probability, classes = data
    right = classes[probability.argmax(1)] == y
    assert expected_calibration_error(y, probability, n_bins=n_bins) == pytest.approx(
        binned_error(probability.max(1), right, n_bins)
    )
    classwise = [
        binned_error(probability[:, c], y == classes[c], n_bins) for c in range(CLASSES)
    ]
    assert expected_calibration_error(
        y, probability, kind="classwise", n_bins=n_bins
    ) == pytest.approx(np.mean(classwise))


def test_default_is_the_top_label_in_15_bins(data):
    y, probability, classes = data
    assert expected_calibration_error(y, probability) == expected_calibration_error(
        y, probability, classes, kind="top_label", n_bins=15
    )


@KINDS
def test_fewer_rows_than_bins(data, kind):
    """One bin for each distinct probability."""
    y, probability, classes = data
    few, all_bins = (
        expected_calibration_error(y[:7], probability[:7], classes, kind, n_bins)
        for n_bins in (100, 7)
    )
    assert few == pytest.approx(all_bins)


def test_equal_probabilities_share_a_bin():
    """Three of four right at 0.75, one of two at 0.5: no error."""
    y = np.array([0, 0, 0, 1, 0, 1])
    probability = np.array([[0.75, 0.25]] * 4 + [[0.5, 0.5]] * 2)
    for kind in ("top_label", "classwise"):
        for n_bins in (2, 3, 15):
            assert expected_calibration_error(
                y, probability, kind=kind, n_bins=n_bins
            ) == pytest.approx(0, abs=1e-15)
    # A single bin for equal rows.
    assert expected_calibration_error(y, np.tile([0.9, 0.1], (6, 1))) == pytest.approx(
        0.9 - 4 / 6
    )


@KINDS
def test_order_of_rows_with_ties_does_not_matter(data, kind, seed):
    y, probability, _ = data
    probability = np.round(4 * probability[:, :2]) / 8
    probability = np.c_[probability, 1 - probability.sum(1)]
    y = np.where(y == "dog", "ant", y)
    order = np.random.default_rng(seed).permutation(ROWS)
    assert expected_calibration_error(
        y[order], probability[order], kind=kind
    ) == pytest.approx(expected_calibration_error(y, probability, kind=kind))


@KINDS
def test_order_of_classes_does_not_matter(data, kind):
    y, probability, classes = data
    order = [2, 0, 3, 1]
    expected = expected_calibration_error(y, probability, kind=kind)
    assert expected_calibration_error(
        y, probability[:, order], classes[order], kind
    ) == pytest.approx(expected)


def test_zero_bins():
    y, probability = [0, 1], [[0.5, 0.5], [0.1, 0.9]]
    with pytest.raises(ValueError, match="`n_bins` must be finite and >= 1; got 0"):
        expected_calibration_error(y, probability, n_bins=0)
    with pytest.raises(TypeError, match=r"`n_bins` must be an integer; got 2\.5"):
        expected_calibration_error(y, probability, n_bins=2.5)
    with pytest.raises(ValueError, match="`kind` must be one of 'top_label'"):
        expected_calibration_error(y, probability, kind="marginal")


# ---- Brier score


def test_brier_score_equals_its_definition(data):
    y, probability, classes = data
    expected = [
        sum((p - (label == c)) ** 2 for p, c in zip(row, classes, strict=True))
        for row, label in zip(probability, y, strict=True)
    ]
    assert brier_score(y, probability) == pytest.approx(np.mean(expected))
    order = [3, 1, 0, 2]
    assert brier_score(y, probability[:, order], classes[order]) == pytest.approx(
        np.mean(expected)
    )


def test_brier_score_of_two_classes_is_twice_the_score_of_scikit_learn(data, seed):
    y, probability, _ = data
    y = np.where(y == "dog", "yes", "no")
    probability = np.c_[1 - probability[:, 0], probability[:, 0]]
    weights = np.random.default_rng(seed).random(ROWS)
    half = brier_score_loss(
        y, probability[:, 1], sample_weight=weights, pos_label="yes"
    )
    score = brier_score(y, probability, ["no", "yes"], weights)
    assert score == pytest.approx(2 * half)


def test_brier_score_of_certainty():
    certain = np.eye(3)
    assert brier_score([0, 1, 2], certain) == 0
    assert brier_score([1, 2, 0], certain) == 2
    assert brier_score([0, 1, 2], np.full((3, 3), 1 / 3)) == pytest.approx(1 - 1 / 3)


# ---- errors


@pytest.mark.parametrize("score", [brier_score, expected_calibration_error])
def test_bad_probabilities(data, score):
    y, probability, classes = data
    shape = r"`probability` must be of shape \(n_samples, n_classes\)"
    for wrong in (
        (y, probability[:, 0]),
        (y[:7], probability),
        (y[:, None], probability),
        (y, probability[..., None]),
    ):
        with pytest.raises(ValueError, match=shape):
            score(*wrong)
    with pytest.raises(ValueError, match=r"rows of `probability` must sum to one"):
        score(y, probability / 2)
    with pytest.raises(ValueError, match=r"`probability` must be in \[0, 1\]; got"):
        score(y, probability - 1)
    with pytest.raises(ValueError, match="`probability` must not contain NaN"):
        score(y, probability * np.nan)
    with pytest.raises(ValueError, match=r"3 different labels\. Give `classes`"):
        score(np.where(y == "dog", "cow", y), probability)
    with pytest.raises(ValueError, match=r"must name the 4 columns .* shape \(2,\)"):
        score(y, probability, classes[:2])
    with pytest.raises(ValueError, match=r"y must be among `classes`; got .*bee"):
        score(y, probability, ["ant", "cow", "dog", "eel"])
    with pytest.raises(ValueError, match="must name each class once"):
        score(y, probability, ["ant", "bee", "dog", "ant"])
