"""The page about a fitted model: scores, tables, pictures, and its limits."""

import re

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression
from sklearn.metrics import (
    average_precision_score,
    precision_score,
    recall_score,
    roc_auc_score,
)
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skbayesnn
from skbayesnn import (
    BayesianStackingRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    find_estimator,
    interval_target,
    report,
)
from skbayesnn.inspection._columns import parts_of_columns
from skbayesnn.metrics import expected_calibration_error

pytest.importorskip("matplotlib")
pd = pytest.importorskip("pandas")

from skbayesnn._report import _Page, error_of_calibrated  # noqa: E402

SMALL = {"hidden_layer_sizes": (7,), "max_iter": 5, "n_draws": 4, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    """X, a target and classes of 90 rows."""
    random = np.random.default_rng(3)
    X = random.standard_normal((90, 3))
    y = 5 + X[:, 0] + 0.1 * random.standard_normal(90)
    return X, y, np.array(["<low>", "mid", "high & up"])[np.digitize(y, [4.5, 5.5])]


@pytest.fixture(scope="module")
def regressor(rows):
    X, y, _ = rows
    return MCDropoutRegressor(**SMALL).fit(X[:60], y[:60])


def text_of(page):
    """Text of the page, without pictures and tags."""
    body = re.sub(r'src="data:[^"]*"', "", page.html.partition("<body>")[2])
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def test_scores_equal_the_methods(rows, regressor):
    X, y, _ = rows
    X, y = X[60:], y[60:]
    text = text_of(regressor.report(X, y))
    density = regressor.log_predictive_density(X, y).mean()
    lower, upper = regressor.predict_interval(X, 0.9).T
    inside = np.mean((lower <= y) & (y <= upper))
    normal = -0.5 * (1 + np.log(2 * np.pi * y.var()))
    assert f"log density {density:.3f} {normal:.3f}" in text
    assert f"R 2 {regressor.score(X, y):.3f} 0" in text
    # CRPS of the distribution of y, whose values y_j have equal probabilities.
    constant = np.abs(y[:, None] - y).mean() / 2
    assert f"CRPS {regressor.crps(X, y).mean():.4g} {constant:.4g}" in text
    assert f"90 % intervals cover {100 * inside:.1f}" in text


def test_scores_and_a_short_text_without_the_page(rows, regressor):
    """The text of the report has the scores, and not its pictures."""
    X, y, labels = rows
    X, y = X[60:], y[60:]
    page = regressor.report(X, y)
    density = regressor.log_predictive_density(X, y).mean()
    lower, upper = regressor.predict_interval(X, 0.9).T
    expected = {
        "log density": density,
        "R^2": regressor.score(X, y),
        "CRPS": regressor.crps(X, y).mean(),
        "90 % intervals cover": np.mean((lower <= y) & (y <= upper)),
    }
    assert page.scores == pytest.approx(expected)
    assert page.constant_scores["R^2"] == 0
    assert len(repr(page)) < 500 and "R^2" in repr(page) and "base64" not in repr(page)
    model = MCDropoutClassifier(**SMALL).fit(rows[0][:60], labels[:60])
    page = model.report(X, labels[60:])
    assert page.scores["accuracy"] == pytest.approx(model.score(X, labels[60:]))
    share = max(np.mean(labels[60:] == label) for label in labels)
    assert page.constant_scores["accuracy"] == pytest.approx(share)


def test_rows_have_the_labels_of_the_index(rows, regressor):
    X, y, _ = rows
    frame = pd.DataFrame(X[60:], index=[f"<{i}>" for i in range(30)])
    frame.columns = ["a", "b", "c"]
    model = MCDropoutRegressor(**SMALL).fit(frame, y[60:])
    top = model.predict_uncertainty(frame, kind="epistemic").argmax()
    outlier = y[60:].copy()
    outlier[4] = 1e6
    page = report(model, frame, outlier)
    assert f"<tr><td>&lt;{top}&gt;</td>" in page.html
    assert "Row &lt;4&gt; alone" in page.html
    text = text_of(page)
    assert "label in the index" in text and "first is row 0" not in text
    assert "the standard deviation of the mean prediction" in text
    assert "first is row 0" in text_of(report(regressor, X[60:], y[60:]))


def test_page_is_one_file_and_a_function_of_its_arguments(rows, regressor, tmp_path):
    X, y, _ = rows
    page = regressor.report(X[60:], y[60:])
    assert page.html == report(regressor, X[60:], y[60:]).html
    page.save(tmp_path / "page.html")
    content = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert content == page.html and len(content) < 2_000_000
    assert page.html.count("data:image/png;base64,") == 4
    assert not re.findall(r'(?:src|href)="(?!data:)', content)
    assert "srcdoc=" in page._repr_html_()


def test_most_uncertain_rows_and_their_reasons(rows, regressor):
    """A row whose column 1 is far from all others is uncertain because of it."""
    X, y, _ = rows
    X = X[60:].copy()
    X[11, 1] = 40.0
    text = text_of(report(regressor, X, y[60:]))
    uncertainty = regressor.predict_uncertainty(X, kind="epistemic")
    assert uncertainty.argmax() == 11
    table = text.partition("mostly because of")[2]
    prediction = regressor.predict(X)[11]
    numbers = f"{prediction:.4g} {y[71]:.4g} {uncertainty[11]:.4g}"
    start = f" 11 {numbers} column 1 = 40 ("
    assert table.startswith(start)


def test_a_row_that_dominates_the_scores_is_named(rows, regressor):
    X, y, _ = rows
    X, y = X[60:], y[60:].copy()
    assert "alone has a log density" not in regressor.report(X, y).html
    y[7] = 1e6
    text = text_of(regressor.report(X, y))
    density = regressor.log_predictive_density(X, y)
    assert f"Row 7 alone has a log density of {density[7]:,.0f}" in text
    assert f"the mean is {np.delete(density, 7).mean():.3f}" in text


def test_equal_rows_have_equal_reasons(rows, regressor):
    X, y, _ = rows
    page = regressor.report(np.tile(X[60:65], (6, 1)), np.tile(y[60:65], 6))
    table = page.html.partition("mostly because of")[2]
    found = re.findall(r"<tr><td>\d+</td>(.*?)</tr>", table)
    assert len(found) == 5 and len(set(found)) == 1  # six copies of a row


def test_classes_with_special_characters(rows):
    X, _, labels = rows
    model = make_pipeline(StandardScaler(), MCDropoutClassifier(**SMALL))
    page = report(model.fit(X[:60], labels[:60]), X[60:], labels[60:])
    text = text_of(page)
    accuracy = model.score(X[60:], labels[60:])
    assert f"accuracy {100 * accuracy:.1f} %" in text
    log_p = skbayesnn.log_predictive_density(model, X[60:], labels[60:]).mean()
    assert f"log probability {log_p:.3f}" in text
    assert "<low>" not in page.html and "&lt;low&gt;" in page.html
    table = re.findall(r"<td>(\d+)</td>", page.html.partition("true classes</h2>")[2])
    counts = np.array(table[:9], int).reshape(3, 3)
    assert counts.sum() == 30 and np.trace(counts) == round(30 * accuracy)


def test_stack_on_a_frame_with_drift(rows):
    X, y, labels = rows
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(kind=labels)
    pool = [("linear", LinearRegression()), ("network", MCDropoutRegressor(**SMALL))]
    model = BayesianStackingRegressor(pool, random_state=0).fit(frame[:60], y[:60])
    later = frame[60:].assign(b=frame["b"][60:] + 3)
    text = text_of(model.report(later, y[60:], X_train=frame[:60]))
    summary = model.summary_
    assert f"{summary.log_density:.3f}" in text and "out of fold" in text
    for name, weight in model.weights_["weight"].items():
        if weight >= 0.005:
            assert f"{name} {100 * weight:.0f} %" in text
    drifted = text.partition("Columns that have drifted")[2]
    assert " b " in drifted and " a " not in drifted
    text = text_of(model.report(frame[60:], y[60:], X_train=frame[:60]))
    assert "No column differs significantly" in text


def test_columns_that_have_not_drifted_are_not_listed(rows):
    """A new level is no drift of the column's values; it has a separate line."""
    X, y, _ = rows
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["kind"] = pd.Categorical(["x", "y", "z"] * 30)
    frame["text"] = [f"free text {i}" for i in range(90)]
    model = MCDropoutRegressor(**SMALL).fit(frame[["a", "b"]][:60], y[:60])
    later = frame[60:].assign(kind=["x", "y", "z"] * 9 + ["x", "y", "<new>"])
    random = np.random.RandomState(0)
    drift = _Page(model, later, y[60:], frame[:60], None, random, 5)._drift()
    assert "No column differs significantly" in drift and "<table>" not in drift
    line = "<p>Levels of kind that no training row has: &lt;new&gt;.</p>"
    assert line in drift
    later["b"] += 3
    drift = _Page(model, later, y[60:], frame[:60], None, random, 5)._drift()
    table = drift[drift.index("<table>") : drift.index("</table>")]
    assert table.count("<tr>") == 2 and "<td>b</td>" in table
    assert "No column differs" not in drift and line in drift


def test_scores_of_a_transformed_target_are_left_out(rows):
    """Out of fold they are scores of log(y), in other units than the held-out rows."""
    X, y, _ = rows
    pool = [("linear", LinearRegression()), ("network", MCDropoutRegressor(**SMALL))]
    stack = BayesianStackingRegressor(pool, random_state=0)
    log_y = TransformedTargetRegressor(stack, func=np.log, inverse_func=np.exp)
    model = make_pipeline(StandardScaler(), log_y).fit(X[:60], y[:60])
    text = text_of(report(model, X[60:], y[60:]))
    assert "Candidates and their weights" in text
    assert text.startswith(" BayesianStackingRegressor of log(y): predictions of 30")
    assert "The model is fitted to a transformed y" in text
    assert "training rows, out of fold" not in text
    assert "If held-out rows have clearly worse scores" not in text
    inner = find_estimator(model)
    text = text_of(
        report(inner, StandardScaler().fit(X[:60]).transform(X[60:]), y[60:])
    )
    assert "training rows, out of fold" in text


def test_coverage_has_an_error(rows, regressor):
    X, y, _ = rows
    X, y = X[60:], y[60:]
    text = text_of(regressor.report(X, y))
    lower, upper = regressor.predict_interval(X, 0.9).T
    inside = (lower <= y) & (y <= upper)

    def shown(part):
        share, n = part.mean(), len(part)
        outside = np.clip(1 - share, 0.5 / n, 1 - 0.5 / n)
        error = np.sqrt(outside * (1 - outside) / n)
        return f"{100 * share:.1f} \u00b1 {100 * error:.1f} %"

    assert f"90 % intervals cover {shown(inside)}" in text


def test_number_of_uncertain_rows(rows, regressor):
    X, y, _ = rows
    for n_rows in (2, 7):
        page = regressor.report(X[60:], y[60:], n_rows=n_rows)
        table = page.html.partition("mostly because of")[2]
        assert len(re.findall(r"<tr><td>\d+</td>", table)) == n_rows
    text = text_of(report(regressor, X[60:], y[60:], n_rows=0))
    assert "The most uncertain rows" not in text
    with pytest.raises(ValueError, match="`n_rows` must be finite and >= 0; got -1"):
        report(regressor, X[60:], y[60:], n_rows=-1)


def test_calibration_error_of_calibrated_probabilities(rows):
    """Labels that are drawn from the probabilities have about this error."""
    random = np.random.default_rng(8)
    probability = random.dirichlet(np.ones(3), 60)
    expected = error_of_calibrated(probability)
    labels = [
        [random.choice(3, p=row) for row in probability / probability.sum(1)[:, None]]
        for _ in range(60)
    ]
    errors = [
        expected_calibration_error(drawn, probability, np.arange(3)) for drawn in labels
    ]
    assert expected == pytest.approx(np.mean(errors), rel=0.12)
    assert error_of_calibrated(np.repeat(np.eye(3), 20, axis=0)) == 0
    X, _, labels = rows
    model = MCDropoutClassifier(**SMALL).fit(X[:60], labels[:60])
    shown = error_of_calibrated(model.predict_proba(X[60:]))
    text = text_of(model.report(X[60:], labels[60:]))
    assert f"it is {shown:.3f} by chance if the probabilities are true" in text


def test_search_and_several_targets(rows):
    X, y, _ = rows
    Y = np.column_stack([y, -y])
    search = GridSearchCV(MCDropoutRegressor(**SMALL), {"tau": [1.0, 2.0]}, cv=2)
    search.fit(X[:60], Y[:60])
    text = text_of(report(search, X[60:], Y[60:], target=1))
    assert f"R 2 {search.score(X[60:], Y[60:]):.3f}" in text
    with pytest.raises(ValueError, match="target"):
        report(search, X[60:], Y[60:])


def test_bad_arguments(rows, regressor):
    X, y, _ = rows
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[90, 5\]"):
        report(regressor, X, y[:5])
    with pytest.raises(TypeError, match="LinearRegression"):
        report(LinearRegression().fit(X, y), X, y)
    with pytest.raises(TypeError, match=r"requires a dense X.*got csr_array"):
        report(regressor, csr_array(X), y)
    assert report(regressor, X.tolist(), y).scores == report(regressor, X, y).scores


def test_y_of_a_report_is_checked(rows, regressor):
    """A column is y, too, and errors have the places and the way out."""
    X, y, labels = rows
    classifier = MCDropoutClassifier(**SMALL).fit(X, labels)
    for model, target in ((regressor, y), (classifier, labels)):
        column = pd.DataFrame({"y": target})
        assert report(model, X, column).scores == report(model, X, target).scores
    missing = np.where(np.arange(len(y)) == 2, np.nan, y)
    with pytest.raises(ValueError, match=r"at positions 2\. Remove these rows"):
        report(regressor, X, missing)
    with pytest.raises(ValueError, match=r"pandas\.to_numeric\(pandas\.Series\(y\)"):
        report(regressor, X, [f"{value:.2f}".replace(".", ",") for value in y])
    for call in (lambda: report(regressor, X), lambda: classifier.report(X)):
        with pytest.raises(ValueError, match=r"requires y to be passed.*got None"):
            call()


def test_a_constant_y_has_no_share_of_explained_variance(rows, regressor):
    page = report(regressor, rows[0][:1], rows[1][:1])
    assert "R^2" not in page.scores
    assert "not available: y is constant" in text_of(page)


@pytest.fixture(scope="module")
def rare():
    """A classifier, and 400 held-out rows with 3 classes, of which "rare" has 9."""
    random = np.random.default_rng(9)
    X = random.standard_normal((600, 3))
    y = np.where(X[:, 0] > 0, "often", "usual").astype(object)
    y[np.argsort(-X[:, 1] - 0.5 * random.standard_normal(600))[:25]] = "rare"
    rows = np.r_[np.flatnonzero(y == "rare")[:9], np.flatnonzero(y != "rare")[:391]]
    others = np.setdiff1d(np.arange(600), rows)
    model = MCDropoutClassifier(**SMALL | {"max_iter": 30}).fit(X[others], y[others])
    return model, X[rows], y[rows]


def test_ranking_of_classes_equals_scikit_learn(rare):
    model, X, y = rare
    page = model.report(X, y)
    probability = model.predict_proba(X)
    area = roc_auc_score(y, probability, multi_class="ovr", labels=model.classes_)
    precision = average_precision_score(y[:, None] == model.classes_, probability)
    assert page.scores["area under the ROC curve"] == pytest.approx(area)
    assert page.scores["average precision"] == pytest.approx(precision)
    assert page.constant_scores["average precision"] == pytest.approx(1 / 3)
    text = text_of(page)
    assert f"area under the ROC curve {area:.3f} 0.500" in text
    assert f"average precision {precision:.3f} 0.333" in text
    # With two classes, the scores are of the rarer one.
    two = np.where(y == "rare", "rare", "usual")
    model = MCDropoutClassifier(**SMALL).fit(X, two)
    page, probability = model.report(X, two), model.predict_proba(X)[:, 0]
    expected = average_precision_score(two == "rare", probability)
    assert page.scores["average precision"] == pytest.approx(expected)
    assert page.constant_scores["average precision"] == pytest.approx(9 / 400)
    # One class cannot be ranked.
    page = model.report(X[9:], two[9:])
    assert "average precision" not in page.scores
    text = text_of(page)
    assert "not available: one class" in text and "have one class only" in text


def test_parts_and_thresholds_of_the_rarest_class(rare):
    model, X, y = rare
    page = model.report(X, y).html.partition("rarest class</h2>")[2]
    parts, decisions = re.findall(r"<table>(.*?)</table>", page, re.DOTALL)[:2]

    def cells(table):
        found = re.findall(r"<tr><td>(.*?)</td></tr>", table.replace("\u00a0", " "))
        return [row.split("</td><td>") for row in found]

    p = model.predict_proba(X)[:, list(model.classes_).index("rare")]
    is_rare = y == "rare"
    top = np.argsort(-p, kind="stable")
    first, *_, last = rows = cells(parts)
    assert len(rows) == 10
    means = [f"{100 * v[top[:40]].mean():.1f} %" for v in (p, is_rare)]
    found = f"{100 * is_rare[top[:40]].sum() / 9:.1f} %"
    assert first == ["1 to 40", *means, found]
    assert last[0] == "361 to 400" and last[3] == "100.0 %"
    for ratio, *found in cells(decisions):
        accepted = p >= 1 / (1 + int(ratio))
        cost = np.where(is_rare, int(ratio) * ~accepted, accepted).mean()
        precision = precision_score(is_rare, accepted, zero_division=0)
        assert found == [
            f"{100 / (1 + int(ratio)):.1f} %",
            str(accepted.sum()),
            f"{100 * precision:.1f} %" if accepted.any() else "",
            f"{100 * recall_score(is_rare, accepted):.1f} %",
            f"{cost:.3f}",
            f"{min(int(ratio) * 9 / 400, 391 / 400):.3f}",
        ]
    assert [row[0] for row in cells(decisions)] == ["1", "3", "10", "30", "100"]


def test_names_of_y_and_numbers_without_exponents(rows, regressor):
    X, y, _ = rows
    name = "price <b> in $"
    price = pd.Series(1e5 * y[:60], name=name)
    model = TransformedTargetRegressor(regressor, func=np.log, inverse_func=np.exp)
    model.fit(X[:60], price)
    page = report(model, X[60:], pd.Series(1e5 * y[60:], name=name))
    text = text_of(page)
    assert text.startswith(" MCDropoutRegressor of log(price &lt;b&gt; in $): ")
    assert "<b>" not in page.html
    assert not re.search(r"\de[+-]?\d", text)
    table = text.partition("mostly because of")[2]
    row = int(table.split()[0])
    assert table.split()[2] == f"{1e5 * y[60 + row]:,.0f}"


def test_intervals_of_counts_cover_more(rows, regressor):
    """A phrase is shown if y and the bounds are integers."""
    X, y, _ = rows
    counts = np.round(y)
    model = MCDropoutRegressor(likelihood="poisson", **SMALL).fit(X[:60], counts[:60])
    phrase = "intervals of integers cover more"
    assert phrase in text_of(model.report(X[60:], counts[60:]))
    assert phrase not in text_of(regressor.report(X[60:], counts[60:]))


def test_reasons_of_many_columns(rows, monkeypatch):
    """80 columns have reasons; if there are none, the page has a sentence about it."""
    X = np.random.default_rng(2).standard_normal((90, 80))
    model = MCDropoutRegressor(**SMALL).fit(X[:60], rows[1][:60])
    random = np.random.RandomState(0)
    page = _Page(model, X[60:], rows[1][60:], None, None, random, 5)
    assert "mostly because of" in page._uncertain_rows()
    monkeypatch.setattr("skbayesnn._report.MAX_COLUMNS_WITH_REASONS", 79)
    text = page._uncertain_rows()
    assert "mostly because of" not in text
    assert "X has 80 columns. Columns that make a row uncertain are computed" in text


def test_intervals(rows):
    """What needs exact values of y is left out."""
    X, y, _ = rows
    y = interval_target(np.where(y < 4.5, -np.inf, y), np.maximum(y, 4.5))
    model = MCDropoutRegressor(**SMALL).fit(X[:60], y[:60])
    page = report(model, X[60:], y[60:])
    density = model.predict_distribution(X[60:]).logpdf(y[60:]).mean()
    assert page.scores == {"log density": pytest.approx(density)}
    text = text_of(page)
    assert "The other scores need exact values." in text
    assert "errors need exact values; y has intervals" in text
    assert "constant prediction" in text and "is constant" not in text
    # Predictions, calibration and parts of the uncertainty.
    assert page.html.count("<img") == 3
    with pytest.raises(ValueError, match="`lower` and `upper`"):
        report(model, X[:1], np.array([(2.0, 1.0)], dtype=y.dtype))


def test_coverage_by_columns_and_alarms():
    """The site with more noise is first; the monitor names it, too."""
    random = np.random.default_rng(3)

    def rows(n, noise):
        site = random.choice(["north", "south & east"], n)
        frame = pd.DataFrame({"x": random.normal(size=n), "site": site})
        frame["day"] = pd.date_range("2024-01-01", periods=n)
        frame.loc[:39, "x"] = np.nan
        spread = np.where(site == "north", 1.0, noise)
        return frame, (0.3 * spread * random.normal(size=n)).round(6)

    X, y = rows(160, 1.0)
    model = skbayesnn.LaplaceRegressor((3,), n_draws=4, random_state=0)
    X_new, y_new = rows(240, 4.0)
    monitor = skbayesnn.inspection.DriftMonitor(model, cv=2, groups="site")
    monitor.set_params(false_alarm_rate=0.02).fit(X, y).update(X_new, y_new)
    fitted = model.fit(X, y)
    text = text_of(fitted.report(X_new, y_new, monitor=monitor, n_rows=0))
    lower, upper = fitted.predict_interval(X_new, 0.9).T
    part = X_new["site"] == "south & east"
    share = ((lower <= y_new) & (y_new <= upper))[part].mean()
    width = (upper - lower)[part].mean()
    assert (
        "coverage mean width p-value site south &amp; east "
        f"{part.sum()} {100 * share:.1f} \u00b1 " in text
    )
    assert f"{width:.4g}" in text
    # Two levels, four quarters of x and of the days, and the rows without x.
    assert "Of 11 parts" in text and "x missing 40 " in text
    parts = [part for part in parts_of_columns(X_new) if part[0] == "day"]
    assert [rows.sum() for *_, rows in parts] == [60, 60, 60, 60, 0]
    assert parts[0][1] == "2024-01-01 to 2024-02-29"
    alarms = text.partition("Alarms")[2]
    assert "coverage site = south &amp; east" in alarms
    assert alarms.count(" alarm ") >= 2
    assert "log density all rows 240" in alarms
