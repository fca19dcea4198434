"""Statistics of y by level and by the parts of its text, against exact posteriors."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal
from sklearn.feature_extraction.text import TfidfVectorizer

from skbayesnn import MCDropoutRegressor
from skbayesnn._data.column_encoding import BY_LEVEL, BY_TEXT, N_SUBSTITUTES
from skbayesnn._data.level_statistics import (
    TextVariances,
    _NegativeLogMarginal,
    _spreads,
    _with_text,
    _without_text,
    level_statistics,
    text_variances,
)
from skbayesnn._data.text_parts import TextComponents, fit_parts
from skbayesnn.preprocessing import TableEncoder

N_LEVELS, N_COMPONENTS, N_COLUMNS, N_ROWS = 13, 3, 2, 61
VARIANCES = TextVariances(text=0.7, level=0.4, within=1.3, gain=0.0)


@pytest.fixture
def random(seed):
    return np.random.default_rng([seed, 61])


@pytest.fixture
def rows(random):
    """Level of each row, some without rows; centred values; weights; components."""
    index = random.integers(0, N_LEVELS - 2, N_ROWS)
    weights = random.uniform(0.5, 2, N_ROWS)
    values = random.normal(size=(N_ROWS, N_COLUMNS))
    values -= np.average(values, axis=0, weights=weights)
    return index, values, weights, random.normal(size=(N_LEVELS, N_COMPONENTS))


def sums_of(index, values, weights):
    of_level = np.eye(N_LEVELS)[index].T * weights
    return of_level.sum(1), of_level @ values


# ---- the model of levels


def test_posterior_is_exact(rows):
    """The mean of a level has covariance text Z Z' + level I; rows have noise."""
    index, values, weights, Z = rows
    result = _with_text(*sums_of(index, values, weights), Z, VARIANCES)
    of_text = VARIANCES.text * Z @ Z.T
    prior = of_text + VARIANCES.level * np.eye(N_LEVELS)
    noise = np.diag(VARIANCES.within / weights)
    solved = np.linalg.solve(prior[index][:, index] + noise, values)
    np.testing.assert_allclose(result.means[:-1], prior[:, index] @ solved, atol=1e-10)
    np.testing.assert_array_equal(result.means[-1], 0)
    np.testing.assert_allclose(
        Z @ result.coefficients, of_text[:, index] @ solved, atol=1e-10
    )
    np.testing.assert_allclose(
        result.deviations, result.means[:-1] - Z @ result.coefficients, atol=1e-12
    )


def test_log_marginal_likelihood_is_exact(rows, random):
    means, noise, Z = rows[1][:N_LEVELS], random.uniform(0.1, 3, N_LEVELS), rows[3]
    loss = _NegativeLogMarginal(means, noise, Z)

    def exact(text, level):
        covariance = text * Z @ Z.T + np.diag(level + noise)
        return -multivariate_normal.logpdf(means.T, cov=covariance).sum()

    for other in ((0.3, 2.0), (0.0, 1.1)):
        with np.errstate(divide="ignore"):
            actual = loss(np.log(other)) - loss(np.log((1.5, 0.6)))
        assert actual == pytest.approx(exact(*other) - exact(1.5, 0.6), rel=1e-9)


def test_variances_without_an_effect_of_text_are_shrinkage(rows):
    index, values, weights, Z = rows
    sums = sums_of(index, values, weights)
    variances = VARIANCES._replace(text=0.0)
    with_text = _with_text(*sums, Z, variances)
    without = _without_text(*sums, variances.within / variances.level)
    for name in ("means", "spreads", "deviations"):
        np.testing.assert_allclose(
            getattr(with_text, name), getattr(without, name), atol=1e-12
        )


def test_spread_is_the_excess_of_the_posterior_variance():
    """The share of the variance between levels that n rows leave is k / (n + k).

    The rest is the variance of the posterior means, the unit of the spreads. A level
    without rows is as uncertain as an unseen one.
    """
    counts, pseudo = np.array([100.0, 60.0, 1.0, 0.0]), 4.0
    shares = pseudo / (counts + pseudo)
    average = counts @ shares / counts.sum()
    expected = [0, 0, (shares[2] - average) / (1 - average), 1, 1]
    np.testing.assert_allclose(_spreads(counts, pseudo) ** 2, expected)


def test_variances_are_estimated(random):
    """2,000 levels of two rows: standard errors below 6 % of each variance."""
    n_levels = 2000
    Z = random.normal(size=(n_levels, 2))
    of_level = Z @ random.normal(size=(2, 1)) + random.normal(0, 0.6, (n_levels, 1))
    index = np.repeat(np.arange(n_levels), 2)
    y = of_level[index] + random.normal(size=(len(index), 1))
    found = text_variances(index, y, np.ones(len(index)), Z)
    assert found.within == pytest.approx(1, rel=0.3)
    assert found.level == pytest.approx(0.36, rel=0.4)
    assert found.gain > 10
    other = text_variances(index, y, np.ones(len(index)), random.permutation(Z))
    assert other.gain < 3


def test_y_of_a_fold_affects_only_the_variances(rows):
    """Text of the other folds encodes a row."""
    index, values, weights, Z = rows
    statistics, by_row = level_statistics(
        index, N_LEVELS, [values], weights, components=Z, needs_text=True
    )
    assert by_row.shape == (N_ROWS, N_COLUMNS)
    assert np.abs(by_row - statistics.means[index]).max() > 1e-3


# ---- parts


def test_parts_are_those_of_scikit_learn(random):
    words = ["red fox", "red dog", "grey fox", "old grey dog", "a fox"]
    parts = fit_parts(words)
    vectorizer = TfidfVectorizer(
        analyzer="char_wb", ngram_range=(1, 4), min_df=2, sublinear_tf=True
    )
    vectorizer.fit(words)
    assert set(vectorizer.get_feature_names_out()) - set(parts.vocabulary) == {" "}
    # Without the space.
    vectorizer = TfidfVectorizer(
        analyzer="char_wb",
        ngram_range=(1, 4),
        sublinear_tf=True,
        vocabulary=parts.vocabulary,
    )
    expected = vectorizer.fit_transform(words)
    np.testing.assert_allclose(parts(words).toarray(), expected.toarray())
    assert not parts(["#"]).getnnz()
    np.testing.assert_allclose(
        parts.similarities(["a fox", "#"], words), [1, 0], atol=1e-12
    )
    components = TextComponents(parts, words)
    # All components: the products of texts are preserved.
    np.testing.assert_allclose(
        components(words) @ components(words).T,
        (expected @ expected.T).toarray(),
        atol=1e-6,
    )
    of_components = random.normal(size=(components(words).shape[1], 2))
    np.testing.assert_allclose(
        expected @ components.coefficients(of_components),
        components(words) @ of_components,
        atol=1e-10,
    )


def test_levels_without_common_parts_have_none():
    assert fit_parts(["", "#"]) is None


# ---- tables

TITLES = [
    f"{grade} {job} {number}".strip()
    for grade in ("senior", "", "junior")
    for job in ("officer", "engineer", "driver", "clerk", "nurse")
    for number in ("I", "II")
]


@pytest.fixture
def table(random):
    """Titles with few rows each; y depends on grade and job."""
    title = random.choice(TITLES, 140)
    y = [
        2.0 * ("senior" in t) + 3.0 * ("engineer" in t) - ("clerk" in t) for t in title
    ]
    frame = pd.DataFrame(
        {
            "title": title,
            "x": random.normal(size=len(title)),
            # No two of them share a part.
            "code": [chr(0x4E00 + i) for i in range(len(title))],
        }
    )
    return frame, np.array(y) + 0.2 * random.normal(size=len(title))


def test_text_predicts_unseen_levels(table):
    frame, y = table
    with pytest.warns(UserWarning, match="'code' .few levels repeat"):
        encoder = TableEncoder().fit(frame, y)
    assert [c.encoding for c in encoder.columns_[:2]] == [BY_TEXT, "number"]
    new = frame.head(3).assign(title=["senior engineer III", "clerk V", "#"])
    high, low, unknown = encoder.transform(new)[:, 0] + y.mean()
    assert high > 3
    assert low < 1
    assert unknown == pytest.approx(y.mean())
    versions, n_versions = encoder.encode(encoder, new, "").versions(slice(0, 3))
    assert n_versions.tolist() == [N_SUBSTITUTES] * 3
    std = versions[:, 0].reshape(3, -1).std(1)
    assert std[2] > 1.5 * std[0]
    similarity = encoder._columns[0].parts.similarities(new["title"][:1], TITLES)
    variance = 1 + encoder._columns[0].text_ratio * np.array(
        [1 - similarity[0] ** 2, 1]
    )
    np.testing.assert_allclose(std[[0, 2]] / std[2], np.sqrt(variance / variance[1]))
    # Blocks of rows, as in a prediction.
    again = encoder.encode(encoder, new, "").versions(slice(1, 3))[0]
    np.testing.assert_array_equal(again, versions[N_SUBSTITUTES:])


def test_text_without_an_effect_is_not_used(random):
    """The mean over each digit is zero."""
    digits = np.array([(a, b) for a in range(6) for b in range(6)] * 8)
    shops = [f"shop {a}{b}" for a, b in digits]
    y = (-1.0) ** digits.sum(1) + 0.01 * random.normal(size=len(digits))
    encoder = TableEncoder().fit(pd.DataFrame({"shop": shops}), y)
    assert encoder.columns_[0].encoding == BY_LEVEL


def test_identifiers_whose_text_matters_are_kept(random):
    """ZIP codes hardly repeat, but y depends on their first two digits."""
    codes = random.permutation(np.arange(10_000, 99_999, 300))
    frame = pd.DataFrame({"zip": [str(code) for code in codes]})
    y = (codes // 10_000 % 4) + 0.1 * random.normal(size=len(codes))
    encoder = TableEncoder().fit(frame, y)
    assert encoder.columns_[0].encoding == BY_TEXT
    new = pd.DataFrame({"zip": [str(code + 7) for code in codes]})
    correlation = np.corrcoef(encoder.transform(new)[:, 0], y)[0, 1]
    assert correlation > 0.9


def test_epistemic_uncertainty_of_a_rare_level_is_larger(random):
    """Effects with a standard deviation of 2, of which one row shows half."""
    shop = np.append(random.integers(0, 20, 400), [20, 21])
    effect = random.permutation(np.linspace(-3.5, 3.5, 22))
    frame = pd.DataFrame(
        {"shop": [f"shop {i}" for i in shop], "x": random.normal(size=len(shop))}
    )
    y = effect[shop] + 2 * random.normal(size=len(shop))
    model = MCDropoutRegressor(random_state=0, device="cpu").fit(frame, y)
    epistemic = model.predict_uncertainty(frame, "epistemic")
    assert epistemic[-2:].min() > 2 * np.median(epistemic[:-2])


def test_columns_of_frames_with_text_in_stack_folds(table):
    frame, y = table
    encoder = TableEncoder().fit(frame[["title"]], y)
    ones = np.ones(len(y))
    first = ones * (np.arange(len(y)) % 3 > 0)
    (whole, _), (part, features) = encoder.with_statistics_of(
        frame[["title"]], y, [ones, first]
    )
    expected = encoder.transform(frame[["title"]])
    np.testing.assert_allclose(whole.transform(frame[["title"]]), expected)
    held_out = first == 0
    other_y = np.where(held_out, 7.0, y)
    [(again, _)] = encoder.with_statistics_of(frame[["title"]], other_y, [first])
    np.testing.assert_array_equal(
        again.transform(frame[["title"]]), part.transform(frame[["title"]])
    )
    np.testing.assert_array_equal(
        features[held_out], part.transform(frame[["title"]][held_out])
    )


@pytest.mark.parametrize("exponent", [600, -700])
def test_y_may_be_very_large_or_small(table, exponent):
    """Squares of y are out of range. A power of two does not change the rounding."""
    frame, y = table
    frame = frame[["title"]]
    expected = TableEncoder().fit(frame, y).transform(frame)
    scaled = TableEncoder(target_type="continuous").fit(frame, np.ldexp(y, exponent))
    expected[:, 0] = np.ldexp(expected[:, 0], exponent)  # not the number of rows
    np.testing.assert_array_equal(scaled.transform(frame), expected)


def test_features_do_not_depend_on_the_container(table):
    """Levels of a pandas category are sorted, those of polars are in their order."""
    polars = pytest.importorskip("polars")
    frame, y = table
    expected = TableEncoder().fit_transform(frame[["title"]], y)
    for other in (
        frame[["title"]].astype("category"),
        polars.from_pandas(frame[["title"]]),
    ):
        np.testing.assert_array_equal(TableEncoder().fit_transform(other, y), expected)
