"""The leaderboard: its scores, its resumption and its report."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr, ndtri

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def board():
    """The script as a module; its parts are in the same folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield importlib.import_module("leaderboard")


@pytest.fixture(scope="module")
def predictives(board):
    """The module of the scores."""
    return importlib.import_module("_leaderboard.predictives")


# Scores


def test_quantiles_of_a_gaussian_have_the_scores_of_the_gaussian(predictives):
    """Closed form: Gneiting & Raftery 2007, eq. 21; 399 levels leave 1e-3."""
    levels = np.arange(1, 400) / 400
    y = np.array([-1.3, 0.0, 0.4, 2.1])
    mean, std = np.array([0.3, -2.0, 1.0, 2.0]), np.array([1.0, 2.0, 0.5, 3.0])
    predictive = predictives.Quantiles(
        levels, mean[:, None] + np.outer(std, ndtri(levels))
    )
    z = (y - mean) / std
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    crps = std * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))
    assert predictive.crps(y) == pytest.approx(crps.mean(), abs=1e-3)
    assert predictive.log_density(y) == pytest.approx(
        np.log(density / std).mean(), abs=1e-2
    )
    np.testing.assert_allclose(predictive.mean, mean, atol=1e-3)
    bounds = mean[:, None] + np.outer(std, ndtri([0.05, 0.95]))
    np.testing.assert_allclose(predictive.interval(0.9), bounds, atol=1e-12)


def test_tails_of_quantiles_are_exponential(predictives):
    """The two outer levels of a Laplace distribution determine its whole tail."""
    scale, levels = 1.7, np.array([0.05, 0.1, 0.5, 0.9, 0.95])
    near = np.minimum(levels, 1 - levels)
    quantile = np.sign(levels - 0.5) * -scale * np.log(2 * near)
    predictive = predictives.Quantiles(levels, quantile[None])
    for y in (-9.0, 8.0):
        expected = -abs(y) / scale - np.log(2 * scale)
        assert predictive.log_density(np.array([y])) == pytest.approx(expected)
    bound = -scale * np.log(0.02)
    np.testing.assert_allclose(predictive.interval(0.98), [[-bound, bound]])


@pytest.mark.parametrize("y", [-4.0, 0.3, 1.0, 2.5, 7.0])
def test_crps_of_few_quantiles(predictives, y):
    """E|Y - y| - E|Y - Y'| / 2 by 20,000 quantiles; ties have a probability."""
    levels, quantile = [0.1, 0.3, 0.6, 0.9], [[-1.0, 1.0, 1.0, 3.0]]
    predictive = predictives.Quantiles(levels, quantile)
    n = 20_000
    middle = (np.arange(n) + 0.5) / n
    values = np.concatenate([predictive._at(level) for level in middle])
    spread = 2 * np.mean(values * (2 * middle - 1))
    expected = np.mean(np.abs(values - y)) - 0.5 * spread
    assert predictive.crps(np.array([y])) == pytest.approx(expected, abs=1e-3)
    assert np.isnan(predictive.log_density(np.array([y])))


def test_mixture_of_equal_components_equals_the_component(predictives):
    y, mean, std = np.array([0.2, 1.0]), np.array([[0.0, 1.5]]), np.array([[1.0, 0.3]])
    component = predictives.predictive_of({"mean": mean[0], "std": std[0]})
    mixed = predictives.Normals(np.repeat(mean, 300, 0), np.repeat(std, 300, 0))
    assert mixed.crps(y) == pytest.approx(component.crps(y))
    assert mixed.log_density(y) == pytest.approx(component.log_density(y))
    expected = mean[0, :, None] + std[0, :, None] * ndtri([0.25, 0.75])
    np.testing.assert_allclose(mixed.interval(0.5), expected, rtol=1e-6)


def test_scores_of_classes(predictives):
    probability = np.array([[0.8, 0.2], [0.4, 0.6], [0.5, 0.5], [1.0, 0.0]])
    arrays = {"classes": np.array([0, 1]), "probability": probability}
    y = np.array([0, 1, 1, 0])
    scores = predictives.scores_of("classification", arrays, y)
    assert scores["log_loss"] == pytest.approx(-np.log([0.8, 0.6, 0.5, 1]).mean())
    assert scores["accuracy"] == 0.75
    assert scores["error_auroc"] == 1
    right = predictives.scores_of("classification", arrays, np.array([0, 1, 0, 0]))
    assert right["error_auroc"] is None


# Worker processes


def test_frames_are_restored_after_packing(board):
    child = importlib.import_module("_leaderboard.child")
    frame = pd.DataFrame({"n": [1.5, np.nan, 2.0], "c": ["b", None, "a"]})
    restored = child.unpack(child.pack(frame, "X"), "X")
    assert list(restored.columns) == ["n", "c"]
    assert isinstance(restored["c"].dtype, pd.CategoricalDtype)
    pd.testing.assert_frame_equal(restored.isna(), frame.isna())
    assert (
        restored.astype(object).iloc[[0, 2]].equals(frame.astype(object).iloc[[0, 2]])
    )
    train, test = child.alike(restored[:1], restored[2:])
    assert list(train["c"].cat.categories) == list(test["c"].cat.categories)


def _toy(board, n_splits=3):
    X = np.arange(60.0).reshape(30, 2)
    y = X[:, 0] + np.tile([0.0, 1.0], 15)
    rows = [np.arange(20)] * n_splits, [np.arange(20, 30)] * n_splits
    tasks = sys.modules["_leaderboard.tasks"]
    return tasks.Task("toy", "regression", lambda: (X, y, *rows))


def _run(board, monkeypatch, path, *more):
    arguments = ["--tasks", "toy", "--contestants", "bayesian_ridge"]
    arguments += ["--results", str(path), *more]
    monkeypatch.setattr(board, "TASKS", [_toy(board)])
    monkeypatch.setattr(sys, "argv", ["leaderboard.py", *arguments])
    threads = board.torch.get_num_threads()
    board.main()
    board.torch.set_num_threads(threads)
    return board.read(path)


def test_worker_fits_and_scores(board, monkeypatch, tmp_path):
    actual = _run(board, monkeypatch, tmp_path / "of.jsonl", "--splits", "1")
    record = actual["toy", "bayesian_ridge", 0]
    assert "error" not in record
    assert record["scores"]["rmse"] < 1
    assert (record["n_train"], record["n_test"]) == (20, 10)
    assert "scikit-learn" in record["versions"]


def test_finished_splits_are_not_run_again(board, monkeypatch, tmp_path):
    done = []

    def run_one(task, contestant, split, options):
        done.append(split)
        results = {"error": "no luck"} if split == 1 else {"scores": {}}
        about = {"fit_seconds": [0, 0], "predict_seconds": [0, 0]}
        return {
            "task": "toy",
            "contestant": contestant.name,
            "split": split,
            **results,
            **about,
        }

    path = tmp_path / "of.jsonl"
    monkeypatch.setattr(board, "run_one", run_one)
    _run(board, monkeypatch, path, "--splits", "2")
    # An interrupted run leaves a line that is cut off.
    path.write_bytes(path.read_bytes() + b'{"task": "toy", "contes')
    results = _run(board, monkeypatch, path)
    assert done == [0, 1, 2]
    assert sorted(split for *_, split in results) == [0, 1, 2]
    _run(board, monkeypatch, path, "--retry")
    assert done == [0, 1, 2, 1]


# The report


def _record(task, contestant, split, crps, density=0.0, **more):
    covers = dict.fromkeys(("cover_50", "cover_90", "cover_95"), 0.9)
    return {
        "task": task,
        "contestant": contestant,
        "split": split,
        "kind": "regression",
        "n_train": 277,
        "n_test": 31,
        "threads": 1,
        "machine": "a machine",
        "scores": {"rmse": crps, "log_density": density, "crps": crps, **covers},
        "fit_seconds": [2.0, 1.0],
        "predict_seconds": [0.5, 0.5],
        "versions": {"scikit-learn": "1.9"},
        **more,
    }


def test_report(board, tmp_path):
    pytest.importorskip("matplotlib")
    records = [
        *(_record("yacht", "mc_dropout", split, 1.0 + split) for split in range(4)),
        *(_record("yacht", "ngboost", split, 0.5 + split) for split in range(2)),
        *(_record("yacht", "boosting_quantiles", s, 2.0 + s, None) for s in range(2)),
        _record("energy", "mc_dropout", 0, 1.0),
        _record("energy", "ngboost", 0, 2.0),
    ]
    failed = _record("energy", "bde", 0, 0.0) | {"error": "no memory"}
    del failed["scores"]
    text = " ".join(board.report.text_of([*records, failed], "of.png", "wall").split())
    # On the splits that both contestants have: 0.5 lower on each, with no error.
    assert "| ngboost | 2 | 1.00 +- 0.50" in text
    assert "-0.5 (2)" in text
    assert "2 contestants on 2 sets that all have: yacht, energy." in text
    assert "3 contestants on 1 sets that all have: yacht." in text
    # CRPS, log density (missing for one of them), RMSE, seconds.
    assert "| boosting_quantiles | 3.00 | - | 3.00 | 2.5 |" in text
    assert "| ngboost | 1.50 | 1.50 | 1.50 | 2.5 |" in text
    assert "| bde | energy 0 | no memory |" in text
    picture = tmp_path / "of.png"
    assert board.picture.draw(records, picture, "wall")
    assert picture.stat().st_size > 1_000


def test_published_scores_are_last_and_have_no_ranks(board):
    records = [
        _record("power-plant", "mc_dropout", 0, 2.0),
        _record("power-plant", "ngboost", 0, 1.0),
    ]
    text = board.report.text_of(records, None, "wall")
    lines = [line for line in text.splitlines() if "(published)" in line]
    assert [line.split("(")[0].strip("| ") for line in lines] == [
        "TabPFN v2",
        "XGBoost",
    ]
    assert "2 contestants on 1 sets" in text


def test_pareto_front(board):
    """Of equally good contestants the faster one, of equally fast ones the better."""
    ranks = {"a": 4.0, "b": 2.0, "c": 3.0, "d": 2.0, "e": 1.0, "f": 5.0}
    times = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "e": 5.0, "f": 1.0}
    assert board.picture.pareto_front(ranks, times) == ["a", "b", "e"]


def test_draws_of_trees_have_the_moments_of_their_leaves(board, monkeypatch, seed):
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "_leaderboard")
    regressors = importlib.import_module("regressors")
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(60, 2)), random.normal(size=60)
    arrays = regressors.extra_trees(0, 1)(X, y)(X)
    mean, std = arrays["mean"], arrays["std"]
    assert mean.shape == std.shape == (regressors.N_TREES, 60)
    # Without a bootstrap, the rows of a leaf are those with its mean.
    for tree_mean, tree_std in zip(mean[:5], std[:5], strict=True):
        for value in np.unique(tree_mean):
            rows = tree_mean == value
            np.testing.assert_allclose(y[rows].mean(), value)
            np.testing.assert_allclose(y[rows].std(), tree_std[rows], rtol=1e-6)
