"""Fits to sources of rows that need not fit into memory."""

import copy
import warnings
from functools import partial

import numpy as np
import pytest
import sklearn

from skbayesnn import (
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
    BBBRegressor,
    CalibratedUncertaintyRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    NeighbourRegressor,
    VariationalDropoutClassifier,
    crps,
    log_predictive_density,
)
from skbayesnn._data import files, sources
from skbayesnn._data.sources import source_of
from skbayesnn.estimators import _out_of_core
from skbayesnn.estimators._continuation import Start
from skbayesnn.estimators._out_of_core import PerturbationById, _Plan
from skbayesnn.estimators._survey import TrainingSource, survey
from skbayesnn.inspection import DriftMonitor
from skbayesnn.model_selection import (
    BatchedGridSearchCV,
    cross_val_predict_uncertainty,
)

pandas = pytest.importorskip("pandas", reason="needs pandas")
pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")

NAMES = list("abc")
# Megabytes with which 700 rows are not read at once. Buffers have some 300 rows.
SMALL = 0.07


def _frame(n=700, seed=1):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 3)).astype(np.float32)
    y = X[:, 0] - 0.5 * X[:, 1] ** 2 + 0.2 * random.normal(size=n)
    labels = np.where(y > 0.5, "top", np.where(y < -1, "low", "mid"))
    return pandas.DataFrame(X, columns=NAMES).assign(
        y=y, label=labels, w=random.integers(0, 3, n), group=np.arange(n) // 7
    )


@pytest.fixture(scope="module")
def frame():
    return _frame()


def _path(frame, folder, *columns, rows_of_group=50):
    path = folder / "rows.parquet"
    frame[[*NAMES, *columns]].to_parquet(
        path, row_group_size=rows_of_group, index=False
    )
    return path


@pytest.fixture
def small_memory():
    with sklearn.config_context(working_memory=SMALL):
        yield


def _plan(model, path, **names):
    training = TrainingSource(source_of(path), *_roles(**names))
    found = survey(model, training, 3)
    job, _ = _out_of_core._job(Start(model), model, found)
    return _Plan.of(model, model, training, found, job, 3, False)


def _roles(y="y", sample_weight=None, groups=None):
    return y, sample_weight, groups


def _assert_same_networks(model, other, **tolerance):
    for name, values in model.parameters_.items():
        np.testing.assert_allclose(
            values, other.parameters_[name], err_msg=name, **tolerance
        )


# ---- the same as a fit in memory


def test_small_sources_are_read(frame, tmp_path):
    """A small table is fitted as in memory, with its selection on held-out rows."""
    path = _path(frame, tmp_path, "y", "w")
    model = MCDropoutRegressor((6,), max_iter=4, random_state=0)
    model.fit(path, y="y", sample_weight="w")
    expected = MCDropoutRegressor((6,), max_iter=4, random_state=0)
    expected.fit(frame[NAMES], frame["y"], sample_weight=frame["w"])
    _assert_same_networks(model, expected, rtol=0)
    assert model.feature_names_in_.tolist() == NAMES
    by_name = MCDropoutRegressor((6,), max_iter=4, random_state=0)
    by_name.fit(frame[[*NAMES, "y", "w"]], y="y", sample_weight="w")
    _assert_same_networks(by_name, expected, rtol=0)
    for score in crps, log_predictive_density:
        values = score(expected, frame[NAMES], frame["y"])
        for X in frame, pyarrow.Table.from_pandas(frame), path:
            np.testing.assert_allclose(score(expected, X, "y"), values, rtol=1e-5)
    with pytest.raises(ValueError, match="must have a column 'z'"):
        crps(expected, frame, "z")


@pytest.mark.parametrize(
    "fit",
    [
        NeighbourRegressor().fit,
        CalibratedUncertaintyRegressor(MCDropoutRegressor()).fit,
        DriftMonitor().fit,
        BatchedGridSearchCV(MCDropoutRegressor(), {"tau": [1.0]}).fit,
        partial(cross_val_predict_uncertainty, MCDropoutRegressor()),
        MCDropoutRegressor().partial_fit,
    ],
    ids=lambda fit: getattr(fit, "__qualname__", "cross_val_predict_uncertainty"),
)
def test_names_and_files_are_refused_elsewhere(fit, frame, tmp_path):
    for X in frame, _path(frame, tmp_path, "y"), str(tmp_path / "rows.parquet"):
        with pytest.raises(TypeError, match="as values in memory; got the name y='y'"):
            fit(X, "y")


@pytest.mark.parametrize("engine", ["compiled", "torch"])
def test_one_buffer_equals_a_fit_in_memory(engine, frame, tmp_path, monkeypatch):
    """With all rows in one buffer and one batch, only the order of sums differs.

    All rows are in the sample, so that the standardisation is the same.
    """
    monkeypatch.setenv("SKBAYESNN_ENGINE", engine)
    monkeypatch.setattr(sources.RowSource, "is_small", False)
    params = {
        "dropout": 0,
        "tau": 3.0,
        "length_scale": 2.0,
        "max_iter": 20,
        "batch_size": len(frame),
        "dtype": "float64",
        "random_state": 0,
    }
    path = _path(frame, tmp_path, "y", "w")
    model = MCDropoutRegressor((6,), **params).fit(path, y="y", sample_weight="w")
    expected = MCDropoutRegressor((6,), **params)
    expected.fit(frame[NAMES], frame["y"], sample_weight=frame["w"])
    # float64, 20 steps of Adam, whose first steps divide by small numbers.
    _assert_same_networks(model, expected, rtol=1e-7, atol=1e-9)
    assert model.total_weight_ == expected.total_weight_ == frame["w"].sum()
    np.testing.assert_allclose(model.weight_decay_, expected.weight_decay_)
    np.testing.assert_allclose(model.loss_curve_, expected.loss_curve_, rtol=1e-7)
    assert model.n_iter_ == 20


def test_class_weights_count_all_rows(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(sources.RowSource, "is_small", False)
    params = {
        "dropout": 0,
        "length_scale": 2.0,
        "max_iter": 15,
        "batch_size": len(frame),
        "dtype": "float64",
        "class_weight": "balanced",
        "random_state": 0,
    }
    path = _path(frame, tmp_path, "label")
    model = MCDropoutClassifier((6,), **params).fit(path, y="label")
    expected = MCDropoutClassifier((6,), **params).fit(frame[NAMES], frame["label"])
    assert model.classes_.tolist() == ["low", "mid", "top"]
    _assert_same_networks(model, expected, rtol=1e-7, atol=1e-9)


def test_partial_fit_over_chunks_equals_fit():
    """Chunks with the same rows have the gradients of the whole table.

    So `partial_fit` with `n_total` takes the same steps as `fit`, to rounding.
    """
    part, n_chunks, n_passes = _frame(60), 4, 5
    whole = pandas.concat([part] * n_chunks)
    params = {
        "dropout": 0,
        "tau": 3.0,
        "length_scale": 2.0,
        "learning_rate": "constant",
        "dtype": "float64",
        "random_state": 0,
    }
    chunked = MCDropoutRegressor((6,), batch_size=60, **params)
    for _ in range(n_chunks * n_passes):
        chunked.partial_fit(part[NAMES], part["y"], n_total=len(whole))
    model = MCDropoutRegressor((6,), batch_size=len(whole), **params)
    model.set_params(max_iter=n_chunks * n_passes).fit(whole[NAMES], whole["y"])
    _assert_same_networks(chunked, model, rtol=1e-9, atol=1e-11)
    assert chunked.total_weight_ == model.total_weight_ == len(whole)
    np.testing.assert_allclose(chunked.weight_decay_, model.weight_decay_)


def test_n_total_is_at_least_the_rows():
    part = _frame(60)
    with pytest.raises(ValueError, match="n_total"):
        MCDropoutRegressor().partial_fit(part[NAMES], part["y"], n_total=59)


# ---- sources


def _same_rows(kind, frame, folder):
    """A source of the same rows in blocks of 50, with names where it has any."""
    X, y = frame[NAMES].to_numpy(), frame["y"].to_numpy()
    if kind == "parquet":
        return _path(frame, folder, "y"), "y"
    if kind == "dataset":
        dataset = pytest.importorskip("pyarrow.dataset")
        return dataset.dataset(_path(frame, folder, "y")), "y"
    if kind == "lazy frame":
        polars = pytest.importorskip("polars")
        lazy = polars.scan_parquet(_path(frame, folder, "y"))
        return lazy, "y"
    if kind == "dask frame":
        dask = pytest.importorskip("dask.dataframe")
        return dask.from_pandas(frame[[*NAMES, "y"]], npartitions=14, sort=False), "y"
    if kind == "dask array":
        array = pytest.importorskip("dask.array")
        return array.from_array(X, chunks=(50, 3)), array.from_array(y, chunks=30)
    if kind == "memmap":
        source = np.memmap(folder / "X", np.float32, "w+", shape=X.shape)
        source[:] = X
        return source, y
    h5py = pytest.importorskip("h5py")
    file = h5py.File(folder / "X.h5", "w")
    return file.create_dataset("X", data=X), file.create_dataset("y", data=y)


@pytest.mark.parametrize(
    "kind", ["dataset", "dask frame", "dask array", "memmap", "h5py", "lazy frame"]
)
def test_same_model_from_any_source(kind, frame, tmp_path, monkeypatch, small_memory):
    monkeypatch.setattr(sources, "_BLOCK_BYTES", 50 * 3 * 4)
    # Else as many blocks as the reader of the source has memory for.
    monkeypatch.setattr(sources.RowSource, "n_open", lambda self, n_bytes: 3)
    models = []
    for source in ("parquet", kind):
        folder = tmp_path / source
        folder.mkdir()
        X, y = _same_rows(source, frame, folder)
        if kind == "lazy frame":
            # polars chooses the blocks: one row group.
            if source == "parquet":
                X = _path(frame, folder, "y", rows_of_group=len(frame))
        model = MCDropoutRegressor((6,), max_iter=2, random_state=0)
        models.append(model.fit(X, y))
    _assert_same_networks(*models, rtol=0)
    assert models[0].total_weight_ == len(frame)


# ---- passes, buffers and held-out rows


def test_every_pass_has_all_rows(frame, tmp_path, small_memory):
    path = _path(frame, tmp_path, "y", "w")
    model = MCDropoutRegressor(max_iter=2, batch_size=32, random_state=0)
    plan = _plan(model, path, sample_weight="w")
    passes, used = plan.passes, np.flatnonzero(frame["w"])
    assert passes.n_passes == 2
    assert passes.n_buffers > 1
    buffers = [
        (buffer.ids.copy(), buffer.x.copy(), buffer.weights.copy())
        for buffer in plan.buffers.from_number(0)
    ]
    assert len(buffers) == passes.n_epochs
    orders = []
    for n_pass in range(2):
        of_pass = buffers[n_pass * passes.n_buffers :][: passes.n_buffers]
        ids = np.concatenate([b[0] for b in of_pass])
        # The last buffer is filled up from its start.
        orders.append(ids[: len(used)])
        np.testing.assert_array_equal(np.sort(orders[-1]), used)
    assert not np.array_equal(*orders)
    ids, x, weights = buffers[-1]
    scaling = plan.job.scaling
    np.testing.assert_allclose(
        x, scaling.x_to_network(frame[NAMES].to_numpy()[ids]), rtol=1e-5, atol=1e-6
    )
    mean = frame["w"].sum() / len(used)
    np.testing.assert_allclose(weights, frame["w"].to_numpy()[ids] / mean)
    [later] = [b for _, b in zip(range(1), plan.buffers.from_number(3), strict=False)]
    np.testing.assert_array_equal(later.ids, buffers[3][0])


def test_groups_are_held_out_as_a_whole(frame, tmp_path, small_memory):
    path = _path(frame, tmp_path, "y", "group")
    model = AnchoredEnsembleRegressor(max_iter=1, random_state=0)
    plan = _plan(model, path, groups="group")
    out = frame["group"].to_numpy()[plan.held_out.ids]
    assert len(out)
    trained = np.concatenate([b.ids for b in plan.buffers.from_number(0)])
    assert not np.isin(frame["group"].to_numpy()[trained], out).any()
    model.fit(path, y="y", groups="group")
    assert np.isfinite(model.noise_std_)


def test_perturbation_follows_the_row(frame, tmp_path, small_memory):
    """A row has the same perturbation in every pass; weights scale its variance."""
    path = _path(frame, tmp_path, "y")
    model = AnchoredEnsembleRegressor(max_iter=1, random_state=0)
    plan = _plan(model, path)
    n = 20_000
    buffer = _out_of_core.Buffer(
        np.empty((n, 3)), np.empty((n, 1)), np.full(n, 4.0), np.arange(n)
    )
    rows = type("Rows", (), {"mean_weight": __import__("torch").ones(2)})
    seeds = np.array([5, 6])
    perturbation = PerturbationById(plan.job.config, seeds, rows, buffer)
    values = perturbation.values.numpy()[..., 0].copy()
    # Standard errors of mean, variance and correlation of 20,000 normal values.
    error = 5 / np.sqrt(n)
    assert abs(values.mean()) < error / 2
    assert abs(values.std() - 0.5) < error
    assert abs(np.corrcoef(values)[0, 1]) < error
    assert abs(np.corrcoef(values[0, 1:], values[0, :-1])[0, 1]) < error
    order = np.random.default_rng(0).permutation(n)
    perturbation.renew(order, buffer.weights)
    np.testing.assert_array_equal(perturbation.values[..., 0], values[:, order])


def test_weight_perturbation_is_gamma():
    weights = np.repeat([1.0, 3.0], 20_000)
    uniform = _out_of_core._uniform(1, np.arange(len(weights)), 0)
    values = _out_of_core._gamma_quantile(weights, uniform).reshape(2, -1)
    error = 5 * np.sqrt(np.array([1.0, 3.0]) / 20_000)
    assert (abs(values.mean(1) - [1.0, 3.0]) < error).all()
    np.testing.assert_allclose(values.var(1), [1.0, 3.0], rtol=0.1)


@pytest.mark.parametrize(
    "model",
    [
        BBBRegressor((6,), max_iter=3, random_state=0),
        AnchoredEnsembleRegressor((6,), max_iter=3, random_state=0, n_estimators=2),
        AnchoredEnsembleClassifier((6,), max_iter=3, random_state=0, n_estimators=2),
        VariationalDropoutClassifier(
            (6,), max_iter=3, early_stopping=True, random_state=0
        ),
        MCDropoutRegressor(
            (6,), likelihood="heteroscedastic", max_iter=3, random_state=0
        ),
    ],
    ids=lambda model: type(model).__name__,
)
def test_all_methods(model, frame, tmp_path, small_memory):
    target = "label" if hasattr(model, "predict_proba") else "y"
    path = _path(frame, tmp_path, target)
    model.fit(path, y=target)
    assert model.predict(frame[NAMES]).shape == (len(frame),)
    assert 2 <= model.n_iter_ <= 3
    assert model.total_weight_ <= len(frame)


def test_columns_of_categories(frame, tmp_path, small_memory):
    """Categories, missing values and statistics of y come from the sample."""
    level = frame.index.to_series().mod(40).map("level {}".format)
    mixed = frame.assign(a=level, b=frame["b"].where(frame["b"] > -1))
    path = _path(mixed, tmp_path, "y")
    model = MCDropoutRegressor((6,), max_iter=5, random_state=0).fit(path, y="y")
    kinds = [c.kind for c in model.table_.columns_]
    assert kinds == ["category", "number", "number", "count"]
    np.testing.assert_allclose(
        model.predict(path), model.predict(mixed[NAMES]), rtol=1e-5, atol=1e-5
    )


def test_automatic_number_of_passes():
    """At most `MAX_STEPS` steps, and at least one pass."""
    model = MCDropoutRegressor()
    passes = _out_of_core.Passes.of(model, 10_000_000, 200)
    assert passes.n_rows * passes.n_buffers >= 10_000_000
    steps = passes.n_epochs * passes.n_batches
    per_pass = passes.n_buffers * passes.n_batches
    assert _out_of_core.MAX_STEPS <= steps < _out_of_core.MAX_STEPS + per_pass
    assert _out_of_core.Passes.of(model, 10**9, 200).n_passes == 1


def _survey(frame, n_sample, y="y", model=MCDropoutRegressor, **roles):
    source = sources.in_memory(frame)
    return survey(model(), TrainingSource(source, y, **roles), 3, n_sample)


def test_the_sample_is_of_rows_with_weight():
    """As many as are wanted, wherever the few rows of positive weight are."""
    n = 4000
    frame = pandas.DataFrame({"a": np.arange(n), "y": np.sin(np.arange(n)), "w": 0.0})
    used = np.unique(np.arange(500) ** 2 % n)
    frame.loc[used, "w"] = 2.0
    for n_sample in (20, len(used), 1000):
        found = _survey(frame, n_sample, sample_weight="w")
        ids = found.sample.ids
        assert len(ids) == min(n_sample, len(used))
        assert np.isin(ids, used).all()
        assert (np.diff(ids) > 0).all()
        np.testing.assert_array_equal(found.sample.weights, 2.0)
        np.testing.assert_array_equal(found.sample.y, np.sin(ids))
        assert (found.n_rows, found.weight) == (len(used), 2 * len(used))


def test_the_sample_is_uniform():
    """Its positions, and its classes. Each class has at least 20 rows."""
    n, n_sample = 40_000, 4000
    labels = np.where(np.arange(n) % 2, "odd", "even").astype(object)
    labels[5:50] = "rare"
    frame = pandas.DataFrame({"a": np.arange(n), "label": labels})
    found = _survey(frame, n_sample, "label", MCDropoutClassifier)
    ids, of_sample = found.sample.ids, found.sample.y
    assert found.n_of_class == {"even": 19_978, "odd": 19_977, "rare": 45}
    assert (of_sample == "rare").sum() == 20
    assert n_sample <= len(ids) <= n_sample + 20
    # Five standard errors of a mean of uniform numbers, and of a share.
    assert abs(ids.mean() / n - 0.5) < 5 / np.sqrt(12 * n_sample)
    assert abs((of_sample == "odd").mean() - 0.5) < 2.5 / np.sqrt(n_sample)
    # Independent of the rows that are read at once.
    with sklearn.config_context(working_memory=1):
        again = _survey(frame, n_sample, "label", MCDropoutClassifier)
    np.testing.assert_array_equal(again.sample.ids, ids)


def test_rare_classes_are_found(tmp_path, small_memory):
    frame = _frame(3000)
    frame.loc[[17, 2950], "label"] = "rare"
    path = _path(frame, tmp_path, "label")
    model = MCDropoutClassifier((6,), max_iter=1, random_state=0).fit(path, y="label")
    assert "rare" in model.classes_


# ---- sorted rows, interruptions, errors


@pytest.mark.parametrize("target", ["y", "label"])
def test_sorted_rows_are_noticed(target, frame, tmp_path, small_memory, recwarn):
    model = MCDropoutRegressor if target == "y" else MCDropoutClassifier
    model = model((6,), max_iter=1, random_state=0)
    model.fit(_path(frame, tmp_path, target), y=target)
    assert not [w for w in recwarn if "sorted" in str(w.message)]
    path = _path(frame.sort_values("y"), tmp_path, target)
    with pytest.warns(UserWarning, match=r"rows of .*rows\.parquet are sorted by y"):
        model.fit(path, y=target)


@pytest.mark.parametrize("mean", [0.0, 1e8, -1e12])
def test_sorted_rows_are_noticed_at_any_mean(mean):
    """Deviations of one from a large mean do not cancel."""
    y = np.random.default_rng(0).normal(size=4000)
    frame = pandas.DataFrame({"a": y, "y": y + mean})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _survey(frame, 800)
        _survey(frame.assign(y=mean + 0.1), 800)
    with pytest.warns(UserWarning, match=r"explain 98% .*SKB211"):
        _survey(frame.sort_values("y"), 800)


class _Interrupts:
    """Raises an error the first time that a given number of buffers are loaded."""

    def __init__(self, monkeypatch, after, error):
        load = _out_of_core.BufferedRows.load
        self.n = 0

        def interrupted(rows, *args):
            self.n += 1
            if self.n == after:
                raise error
            load(rows, *args)

        monkeypatch.setattr(_out_of_core.BufferedRows, "load", interrupted)


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("warm_start", [False, True])
def test_an_interrupted_fit_resumes(
    engine, warm_start, frame, tmp_path, monkeypatch, small_memory
):
    """The result is the same as without the interruption."""
    monkeypatch.setenv("SKBAYESNN_ENGINE", engine)
    path = _path(frame, tmp_path, "y")
    params = {"max_iter": 4, "batch_size": 32, "random_state": 0}
    expected = MCDropoutRegressor((6,), **params).fit(path, y="y")
    model = MCDropoutRegressor((6,), warm_start=warm_start, **params)
    _Interrupts(monkeypatch, 5, KeyboardInterrupt())
    if warm_start:
        with pytest.warns(UserWarning, match="interrupted"):
            model.fit(path, y="y")
        assert 1 <= model.n_iter_ < 4
    else:
        with pytest.raises(KeyboardInterrupt):
            model.fit(path, y="y")
        assert not hasattr(model, "parameters_")
    model.fit(path, y="y")
    # Sums of buffers are in the same order.
    _assert_same_networks(model, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(model.loss_curve_, expected.loss_curve_, rtol=1e-5)
    assert model.n_iter_ == 4
    assert "_unfinished" not in vars(model)


def test_an_interrupted_warm_start_resumes(frame, tmp_path, monkeypatch, small_memory):
    """From the weights of the fit before, and with the epochs that were left."""
    path = _path(frame, tmp_path, "y")
    params = {"max_iter": 3, "batch_size": 32, "random_state": 0, "warm_start": True}
    model = MCDropoutRegressor((6,), **params).fit(path, y="y")
    expected = copy.deepcopy(model).fit(path, y="y")
    _Interrupts(monkeypatch, 4, KeyboardInterrupt())
    with pytest.warns(UserWarning, match="interrupted"):
        model.fit(path, y="y")
    assert 3 < model.n_epochs_seen_ < 6
    model.fit(path, y="y")
    _assert_same_networks(model, expected, rtol=1e-6, atol=1e-7)
    assert (model.n_iter_, model.n_epochs_seen_) == (3, 6)


def test_a_second_interruption_loses_nothing(
    frame, tmp_path, monkeypatch, small_memory
):
    """Neither one that keeps the networks, nor one before the training starts."""
    path = _path(frame, tmp_path, "y")
    params = {"max_iter": 4, "batch_size": 32, "random_state": 0}
    expected = MCDropoutRegressor((6,), **params).fit(path, y="y")
    model = MCDropoutRegressor((6,), warm_start=True, **params)
    epochs = []
    for after in (3, 2):
        with monkeypatch.context() as patch:
            _Interrupts(patch, after, KeyboardInterrupt())
            with pytest.warns(UserWarning, match="interrupted"):
                model.fit(path, y="y")
        epochs.append(len(model._unfinished.unfinished_["nll"]))
    assert epochs == [3, 5]

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_Plan, "of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(path, y="y")
    model.fit(path, y="y")
    _assert_same_networks(model, expected, rtol=1e-6, atol=1e-7)
    assert model.n_iter_ == 4
    assert "_unfinished" not in vars(model)


def test_other_parameters_do_not_resume(frame, tmp_path, monkeypatch, small_memory):
    path = _path(frame, tmp_path, "y")
    model = MCDropoutRegressor((6,), max_iter=3, random_state=0)
    _Interrupts(monkeypatch, 2, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        model.fit(path, y="y")
    model.set_params(dropout=0.2).fit(path, y="y")
    expected = MCDropoutRegressor((6,), max_iter=3, dropout=0.2, random_state=0)
    _assert_same_networks(model, expected.fit(path, y="y"), rtol=0)


def test_other_working_memory_does_not_resume(frame, tmp_path, monkeypatch):
    """It changes the rows of a buffer, which the number of buffers counts."""
    path = _path(frame, tmp_path, "y")
    model = MCDropoutRegressor((6,), max_iter=3, random_state=0)
    expected = MCDropoutRegressor((6,), max_iter=3, random_state=0)
    with sklearn.config_context(working_memory=SMALL / 2):
        expected.fit(path, y="y")
    with sklearn.config_context(working_memory=SMALL):
        _Interrupts(monkeypatch, 4, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            model.fit(path, y="y")
    with sklearn.config_context(working_memory=SMALL / 2):
        model.fit(path, y="y")
    _assert_same_networks(model, expected, rtol=0)


def test_an_error_of_reading_loses_nothing(frame, tmp_path, monkeypatch, small_memory):
    """The error is raised, and the next fit continues with the finished part."""
    path = _path(frame, tmp_path, "y")
    params = {"max_iter": 3, "batch_size": 32, "random_state": 0}
    expected = MCDropoutRegressor((6,), **params).fit(path, y="y")
    model = MCDropoutRegressor((6,), **params).fit(path, y="y")
    before = model.parameters_
    read, n = files.ParquetFile.read, []

    def broken(self, group, *args):
        n.append(group)
        if len(n) == 45:
            raise ValueError(f"{path} cannot be read")
        return read(self, group, *args)

    monkeypatch.setattr(files.ParquetFile, "read", broken)
    with pytest.raises(ValueError, match=r"rows\.parquet cannot be read"):
        model.fit(path, y="y")
    assert model.parameters_ is before
    model.fit(path, y="y")
    assert len(n) < 100  # The rows are not surveyed again.
    _assert_same_networks(model, expected, rtol=1e-6, atol=1e-7)


def test_bad_rows_are_located(frame, tmp_path, small_memory):
    bad = frame.assign(y=frame["y"].where(frame.index != 333, np.nan))
    with pytest.raises(ValueError, match=r"rows\.parquet, row group 6"):
        MCDropoutRegressor().fit(_path(bad, tmp_path, "y"), y="y")


def test_a_missing_y_is_located_in_the_source(frame, tmp_path, small_memory):
    """Its position counts all rows, also those of weight zero."""
    odd = frame.assign(y=frame["y"].where(frame.index != 333))
    path = _path(odd.assign(w=np.arange(700) % 2), tmp_path, "y", "w")
    with pytest.raises(ValueError, match=r"Positions in the whole source: 333\. Rem"):
        MCDropoutRegressor().fit(path, y="y", sample_weight="w")


@pytest.mark.parametrize("role", ["X", "y", "sample_weight", "groups"])
@pytest.mark.parametrize("kind", ["array", "frame", "pyarrow"])
def test_other_rows_have_another_fingerprint(frame, kind, role):
    """Any value counts, not only those of some rows."""
    convert = {
        "array": lambda X: sources.in_memory(X.to_numpy()),
        "frame": sources.in_memory,
        "pyarrow": lambda X: sources.of_arrow_table(pyarrow.Table.from_pandas(X)),
    }[kind]

    def fingerprint(changed=None):
        values = {
            "X": frame[NAMES].copy(),
            "y": frame["label"].to_numpy(dtype=object),
            "sample_weight": frame["w"].to_numpy().copy(),
            "groups": frame["group"].to_numpy().copy(),
        }
        if changed == "X":
            values["X"].iloc[123, 1] = 9.0
        elif changed is not None:
            values[changed][123] = "new" if changed == "y" else 99
        X = convert(values.pop("X"))
        return TrainingSource(X, **values).fingerprint

    assert fingerprint() == fingerprint()
    assert fingerprint() != fingerprint(role)


def test_bad_names(frame, tmp_path, small_memory):
    path = _path(frame, tmp_path, "y")
    model = MCDropoutRegressor()
    with pytest.raises(ValueError, match=r"rows\.parquet must have the columns 'z'"):
        model.fit(path, y="z")
    with pytest.raises(ValueError, match="X must have a column 'z'"):
        model.fit(frame[NAMES], y="z")
    with pytest.raises(ValueError, match="no named columns"):
        model.fit(frame[NAMES].to_numpy(), y="z")
    with pytest.raises(ValueError, match="`y` must have one value for each of the 700"):
        model.fit(path, y=frame["y"][:5])
    with pytest.raises(ValueError, match="`X_val` and `y_val` must be left out"):
        model.fit(path, "y", X_val=frame[NAMES], y_val=frame["y"])


def test_progress_in_rows(frame, tmp_path, small_memory, capsys):
    pytest.importorskip("tqdm")
    path = _path(frame, tmp_path, "y")
    MCDropoutRegressor((6,), max_iter=2, random_state=0, verbose=1).fit(path, y="y")
    assert "1.40k/1.40k" in capsys.readouterr().err
