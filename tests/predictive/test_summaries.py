"""Summaries of draws against worked examples, NumPy and scipy; float64."""

import sys

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from skbayesnn._distributions.components import gaussian_log_density
from skbayesnn._predictive.summaries import (
    CLASSIFICATION_KINDS,
    REGRESSION_KINDS,
    LogDensity,
    MeanProbability,
    Moments,
    classification_uncertainty,
    entropy,
    select_kinds,
    to_frame,
)
from skbayesnn._validation import check_levels

DRAWS, ROWS, TARGETS, CLASSES = 50, 5, 2, 3


def _measures(probability, uniform=None):
    """All measures of one row; probability : (draws, classes)."""
    n = len(probability)
    uniform = (np.arange(n) + 0.5) / n if uniform is None else uniform
    draws = np.asarray(probability, dtype=float)[:, None]
    return {kind: value.item() for kind, value in _in_parts(draws, uniform).items()}


def _in_parts(draws, uniform, kinds=CLASSIFICATION_KINDS, n_at_once=7):
    """Measures of draws that arrive in chunks."""

    def parts():
        for start in range(0, len(draws), n_at_once):
            yield draws[start : start + n_at_once]

    return classification_uncertainty(parts, kinds, uniform)


# ------------------------------------------- the three cases of Gal's thesis, 3.3.1


# Draws, and the shares of log(2) of the entropy and of its two parts.
CASES = {
    "certain": ([[1, 0]] * DRAWS, 0, 0, 0),
    # The entropy is all noise, not model uncertainty.
    "noisy": ([[0.5, 0.5]] * DRAWS, 1, 1, 0),
    # The entropy is all model uncertainty.
    "contradictory": ([[1, 0], [0, 1]] * (DRAWS // 2), 1, 0, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_cases_of_the_thesis(name):
    draws, total, aleatoric, epistemic = CASES[name]
    actual = _measures(draws)
    expected = {
        "variation_ratio": 0.5 * total,
        "entropy": np.log(2) * total,
        "expected_entropy": np.log(2) * aleatoric,
        "mutual_information": np.log(2) * epistemic,
        "overlap": total,
    }
    for kind, value in expected.items():
        # Without a tolerance for zeros of certain draws.
        atol = 1e-14 if name == "noisy" else 0
        assert actual[kind] == pytest.approx(value, rel=1e-14, abs=atol), kind


# -------------------------------------------------------------------- any draws


@pytest.fixture
def probability(seed):
    random = np.random.default_rng(seed)
    return random.dirichlet(np.ones(CLASSES), size=(DRAWS, ROWS))


def test_entropies_are_eq_7(probability):
    actual = _in_parts(probability, np.zeros(DRAWS))
    mean = probability.mean(0)
    total = -(mean * np.log(mean)).sum(-1)
    expected = -(probability * np.log(probability)).sum(-1).mean(0)
    for kind, value in [
        ("entropy", total),
        ("expected_entropy", expected),
        ("mutual_information", total - expected),
    ]:
        np.testing.assert_allclose(actual[kind], value, rtol=1e-10)


def test_measures_do_not_depend_on_the_chunks(probability, seed):
    """Draws one by one or all at once; one kind alone or several together."""
    uniform = np.random.default_rng(seed + 1).random(DRAWS)
    expected = _in_parts(probability, uniform, n_at_once=DRAWS)
    assert list(expected) == list(CLASSIFICATION_KINDS)
    for kind in CLASSIFICATION_KINDS:
        actual = _in_parts(probability, uniform, [kind], n_at_once=1)
        assert list(actual) == [kind]
        # Sums of 50 numbers in another order.
        np.testing.assert_allclose(actual[kind], expected[kind], rtol=1e-12, atol=1e-14)


def test_entropy_is_between_zero_and_log_classes():
    assert entropy(np.eye(CLASSES)).tolist() == [0, 0, 0]
    uniform = np.full(CLASSES, 1 / CLASSES)
    assert entropy(uniform) == pytest.approx(np.log(CLASSES), rel=1e-14)


def test_variation_ratio_counts_sampled_labels(probability, seed):
    """Labels are sampled, not the likeliest ones; one uniform number per draw."""
    uniform = np.random.default_rng(seed + 1).random(DRAWS)
    expected = []
    for row in range(ROWS):
        labels = [
            np.searchsorted(np.cumsum(p), u, side="right")
            for p, u in zip(probability[:, row], uniform, strict=True)
        ]
        counts = np.bincount(labels, minlength=CLASSES)
        expected.append(1 - counts.max() / DRAWS)
    actual = _in_parts(probability, uniform, ["variation_ratio"])
    np.testing.assert_allclose(actual["variation_ratio"], expected)


def test_variation_ratio_tends_to_one_minus_the_largest_mean(seed):
    """With the same p in all draws: 1 - max p, within 6 standard errors."""
    n = 20_000
    p = np.array([0.6, 0.3, 0.1])
    draws = np.broadcast_to(p, (n, 1, CLASSES))
    uniform = np.random.default_rng(seed).random(n)
    error = np.sqrt(0.6 * 0.4 / n)
    actual = _in_parts(draws, uniform, ["variation_ratio"], n_at_once=n)
    assert abs(actual["variation_ratio"].item() - 0.4) < 6 * error


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sampled_label_has_a_positive_probability(dtype):
    """The largest uniform number selects the last class with a positive probability."""
    probability = np.full((1, 1, 10), 0.1, dtype=dtype)
    actual = _in_parts(probability, np.array([1 - 2**-53]), ["variation_ratio"])
    assert actual["variation_ratio"].item() == 0


def test_overlap_of_the_two_likeliest_classes():
    """1 for equal histograms, 0 for disjoint ones; a third class is ignored."""
    disjoint = [[0.7, 0.28, 0.02]] * DRAWS
    assert _measures(disjoint)["overlap"] == 0
    half = [[0.6, 0.3, 0.1], [0.3, 0.6, 0.1], [0.6, 0.3, 0.1]]
    # two thirds and one third in the two bins, and the reverse
    assert _measures(half)["overlap"] == pytest.approx(2 * np.sqrt(2) / 3, rel=1e-14)


# -------------------------------------------------------------- streaming moments


@pytest.fixture
def gaussians(seed):
    """Means and variances (draws, rows, targets) of a mixture."""
    random = np.random.default_rng(seed)
    mean = 3 * random.normal(size=(DRAWS, ROWS, TARGETS))
    return mean, random.uniform(0.05, 4, size=mean.shape)


def _chunks(*arrays, sizes=(1, 7, 30, 12)):
    ends = np.cumsum(sizes)
    assert ends[-1] == len(arrays[0])
    for start, end in zip(ends - sizes, ends, strict=True):
        yield tuple(values[start:end] for values in arrays)


def test_moments_in_chunks_equal_numpy(gaussians):
    mean, variance = gaussians
    moments = Moments()
    for chunk in _chunks(mean, variance):
        moments.add(*chunk)
    np.testing.assert_allclose(moments.mean, mean.mean(0), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(moments.epistemic, mean.var(0), rtol=1e-12)
    np.testing.assert_allclose(moments.aleatoric, variance.mean(0), rtol=1e-12)


def test_small_spread_on_a_large_mean(gaussians):
    """A spread of 1 on 10^8: squares of the values would lose it."""
    mean, variance = gaussians
    large = mean + 1e8
    moments = Moments()
    for chunk in _chunks(large, variance):
        moments.add(*chunk)
    # 10^8 is accurate to 1.5e-8; nothing more is lost.
    np.testing.assert_allclose(moments.epistemic, large.var(0), rtol=1e-10)
    np.testing.assert_allclose(moments.mean, mean.mean(0) + 1e8, rtol=1e-15)


def test_moments_are_summed_in_float64():
    """More draws in float32 than float32 can add up."""
    mean = np.full((100_000, 1, 1), 0.1, dtype=np.float32)
    moments = Moments()
    moments.add(mean, mean)
    exactly = float(np.float32(0.1))
    assert moments.mean.item() == pytest.approx(exactly, rel=1e-12)
    assert moments.aleatoric.item() == pytest.approx(exactly, rel=1e-12)
    assert moments.epistemic.item() == 0


def test_mean_probability_in_chunks(probability):
    mean = MeanProbability()
    for chunk in _chunks(probability):
        mean.add(*chunk)
    np.testing.assert_allclose(mean.mean, probability.mean(0), rtol=1e-12)
    np.testing.assert_allclose(mean.mean.sum(-1), 1, rtol=1e-14)


def test_log_density_in_chunks_is_eq_8(gaussians, seed):
    mean, variance = gaussians
    y = np.random.default_rng(seed + 1).normal(size=(ROWS, TARGETS))
    density_of_draw = gaussian_log_density(mean, variance, y)
    expected = norm(mean, np.sqrt(variance)).logpdf(y).sum(-1)
    np.testing.assert_allclose(density_of_draw, expected, rtol=1e-12)
    density = LogDensity()
    for (chunk,) in _chunks(density_of_draw):
        density.add(chunk)
    direct = logsumexp(expected, axis=0) - np.log(DRAWS)
    np.testing.assert_allclose(density.value, direct, rtol=1e-12)


def test_log_density_far_below_underflow():
    """Densities of e^-10^6 and of zero have finite or infinite logarithms, not NaN."""
    density = LogDensity()
    density.add(np.array([[-1e6, -np.inf], [-1e6 - np.log(3), -np.inf]]))
    density.add(np.array([[-np.inf, -np.inf], [-np.inf, -np.inf]]))
    np.testing.assert_allclose(density.value, [-1e6 + np.log(1 / 3), -np.inf])


# -------------------------------------------------------------- kinds and coverages


def _computed(kinds):
    return {kind: kind.upper() for kind in (*kinds, "besides")}


def test_one_kind_is_an_array_and_several_are_a_dict():
    assert select_kinds("total", REGRESSION_KINDS, _computed) == "TOTAL"
    several = select_kinds(["total", "aleatoric"], REGRESSION_KINDS, _computed)
    assert several == {"total": "TOTAL", "aleatoric": "ALEATORIC"}
    everything = select_kinds("all", REGRESSION_KINDS, _computed)
    assert tuple(everything) == REGRESSION_KINDS


@pytest.mark.parametrize("kind", ["entropy", ["total", "entropy"], ["all"]], ids=str)
def test_unknown_kind_is_refused(kind):
    with pytest.raises(ValueError, match="`kind` must be 'all' or among 'total'"):
        select_kinds(kind, REGRESSION_KINDS, _computed)


def test_coverages_are_checked():
    assert check_levels("coverage", 0.9) == [0.9]
    assert check_levels("coverage", np.array([0.5, 0.8])) == [0.5, 0.8]
    for coverage in (0, 1, 1.5, -0.1, [0.5, 1.0]):
        with pytest.raises(ValueError, match=r"`coverage` must be in \(0, 1\)"):
            check_levels("coverage", coverage)
    with pytest.raises(ValueError, match=r"got 90\.0\. For 90 % give 0\.9\."):
        check_levels("coverage", [0.5, 90])
    for coverage in ("0.9", True, None, [0.5, "0.9"]):
        with pytest.raises(TypeError, match="`coverage` must be a number"):
            check_levels("coverage", coverage)


# ----------------------------------------------------------------------- frames


def test_frame_has_a_column_per_kind():
    values = {"total": np.arange(5.0), "epistemic": np.arange(5.0) / 2}
    frame = to_frame(values, "all", np.zeros((5, 3)))
    assert list(frame) == ["total", "epistemic"]
    np.testing.assert_array_equal(frame["epistemic"], values["epistemic"])
    assert list(to_frame(values["total"], "total", None)) == ["total"]


def test_frame_has_a_column_per_target():
    frame = to_frame(np.arange(10.0).reshape(5, 2), "total", None)
    assert list(frame) == ["total_0", "total_1"]
    np.testing.assert_array_equal(frame["total_1"], [1, 3, 5, 7, 9])


def test_frame_has_the_index_of_x():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame({"a": [1.0, 2.0, 3.0]}, index=["x", "y", "z"])
    assert list(to_frame(np.arange(3.0), "total", X).index) == ["x", "y", "z"]


def test_frame_without_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="needs pandas"):
        to_frame(np.arange(3.0), "total", None)
