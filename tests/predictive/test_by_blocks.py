"""Predictions for sources of rows: files, arrays on disk, lazy frames, collections."""

import numpy as np
import pytest
import sklearn
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skbayesnn
from skbayesnn import MCDropoutClassifier, MCDropoutRegressor

# A working memory with which blocks have 32 rows of four columns.
SMALL = 64 * 32 * 4 * 8 / 2**20

parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
pandas = pytest.importorskip("pandas", reason="needs pandas")


def _arrays(n=150):
    random = np.random.default_rng(3)
    X = random.normal(size=(n, 4)).astype(np.float32)
    return X, X[:, 0] - X[:, 1] ** 2 + 0.3 * random.normal(size=n)


@pytest.fixture(scope="module")
def frame():
    X, y = _arrays()
    return pandas.DataFrame(X, columns=list("abcd")).assign(y=y)


@pytest.fixture(scope="module")
def model(frame):
    model = MCDropoutRegressor((7,), max_iter=3, n_draws=9, random_state=0)
    return model.fit(frame[list("abcd")], frame["y"])


@pytest.fixture(scope="module")
def path(frame, tmp_path_factory):
    """Two files with small row groups, and columns that the model does not use."""
    folder = tmp_path_factory.mktemp("rows")
    for i, part in enumerate((frame[:70], frame[70:])):
        part = part[["y", "d", "a", "c", "b"]]
        part.to_parquet(folder / f"{i}.parquet", row_group_size=40, index=False)
    return folder / "*.parquet"


@pytest.fixture(autouse=True)
def small_blocks():
    with sklearn.config_context(working_memory=SMALL):
        yield


def _sources(frame, path):
    """Sources of the same rows, by kind."""
    sources = {
        "pattern": lambda: str(path),
        "folder": lambda: path.parent,
        "list": lambda: sorted(path.parent.glob("*.parquet")),
    }

    def dataset():
        return pytest.importorskip("pyarrow.dataset").dataset(path.parent)

    def table():
        return pytest.importorskip("pyarrow").Table.from_pandas(frame)

    def lazy():
        return pytest.importorskip("polars").scan_parquet(path)

    return sources | {"dataset": dataset, "table": table, "lazy frame": lazy}


@pytest.mark.parametrize(
    "kind", ["pattern", "folder", "list", "dataset", "table", "lazy frame"]
)
def test_same_as_for_a_frame(kind, frame, path, model):
    source, X = _sources(frame, path)[kind](), frame[list("abcd")]
    y = frame["y"].to_numpy()
    # Blocks of other sizes add in another order: float32.
    tolerance = {"rtol": 1e-5, "atol": 1e-5}
    mean, std = model.predict(source, return_std=True)
    expected = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, expected[0], **tolerance)
    np.testing.assert_allclose(std, expected[1], **tolerance)
    np.testing.assert_allclose(
        model.predict_interval(source, [0.5, 0.9]),
        model.predict_interval(X, [0.5, 0.9]),
        **tolerance,
    )
    uncertainty, expected = (model.predict_uncertainty(v, "all") for v in (source, X))
    for name, values in expected.items():
        np.testing.assert_allclose(uncertainty[name], values, **tolerance)
    for target in ("y", y):
        np.testing.assert_allclose(
            model.log_predictive_density(source, target),
            model.log_predictive_density(X, y),
            rtol=1e-4,
            atol=1e-5,
        )


@pytest.mark.parametrize("kind", ["memmap", "h5py", "zarr", "dask"])
def test_arrays_on_disk(kind, tmp_path):
    X, y = _arrays()
    X = np.vstack([X] * 3)
    model = MCDropoutRegressor((7,), max_iter=3, n_draws=9, random_state=0)
    model.fit(X[: len(y)], y)
    if kind == "memmap":
        source = np.memmap(tmp_path / "X", np.float32, "w+", shape=X.shape)
        source[:] = X
    elif kind == "h5py":
        file = pytest.importorskip("h5py").File(tmp_path / "X.h5", "w")
        source = file.create_dataset("X", data=X, chunks=(17, 2))
    elif kind == "zarr":
        zarr = pytest.importorskip("zarr")
        source = zarr.create_array(
            str(tmp_path / "X"), shape=X.shape, chunks=(17, 2), dtype=X.dtype
        )
        source[:] = X
    else:
        source = pytest.importorskip("dask.array").from_array(X, chunks=(100, 2))
    for method in ("predict", "predict_interval", "predict_uncertainty"):
        result = getattr(model, method)(source)
        expected = getattr(model, method)(X)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_output(frame, path, model, tmp_path):
    """Results are written in the order of the rows, with one column each."""
    output = tmp_path / "out.parquet"
    X = frame[list("abcd")]
    assert model.predict_interval(path, [0.5, 0.9], output=output) is None
    written = pandas.read_parquet(output)
    assert list(written.columns) == [
        "interval_0.5_lower",
        "interval_0.5_upper",
        "interval_0.9_lower",
        "interval_0.9_upper",
    ]
    np.testing.assert_allclose(
        written.to_numpy().reshape(-1, 2, 2),
        model.predict_interval(X, [0.5, 0.9]),
        rtol=1e-5,
        atol=1e-5,
    )
    model.predict(X, return_std=True, output=output)
    assert list(pandas.read_parquet(output).columns) == ["mean", "std"]
    model.predict_uncertainty(X.to_numpy()[:2], ["total", "epistemic"], output=output)
    assert list(pandas.read_parquet(output).columns) == ["total", "epistemic"]
    assert [p.name for p in tmp_path.iterdir()] == ["out.parquet"]


def test_output_of_classes(frame, path, tmp_path):
    X, y = frame[list("abcd")], np.where(frame["y"] > 0, "up", "down")
    model = MCDropoutClassifier((5,), max_iter=2, n_draws=4, random_state=0).fit(X, y)
    output = tmp_path / "out.parquet"
    model.predict_proba(path, output=output)
    written = pandas.read_parquet(output)
    assert list(written.columns) == ["proba_down", "proba_up"]
    np.testing.assert_allclose(written, model.predict_proba(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(model.predict(path), model.predict(X))


def test_samples_of_blocks(frame, path, model):
    """Functions are the same in all blocks; the noise of y is not."""
    X = frame[list("abcd")]
    np.testing.assert_allclose(
        model.sample_f(path, 3, random_state=5),
        model.sample_f(X, 3, random_state=5),
        rtol=1e-5,
        atol=1e-5,
    )
    y = model.sample_y(path, 3, random_state=5)
    noise = y - model.sample_f(path, 3, random_state=5)
    assert len(np.unique(noise[:, 0].round(6))) > 0.9 * len(noise)


def test_through_a_pipeline(frame, path, tmp_path):
    X, y = frame[list("abcd")], frame["y"]
    network = MCDropoutRegressor((7,), max_iter=2, n_draws=5, random_state=0)
    model = make_pipeline(StandardScaler(), network).fit(X, y)
    np.testing.assert_allclose(
        skbayesnn.predict_interval(model, path),
        skbayesnn.predict_interval(model, X),
        rtol=1e-5,
        atol=1e-5,
    )


# ---- bad input


def test_the_index_of_pandas_is_no_column(frame, tmp_path):
    shuffled = frame.sample(frac=1.0, random_state=0)
    shuffled.to_parquet(tmp_path / "rows.parquet")
    model = MCDropoutRegressor((3,), max_iter=1, random_state=0)
    model.fit(tmp_path / "rows.parquet", y="y")
    assert model.feature_names_in_.tolist() == list("abcd")


def test_missing_column(path, model, tmp_path):
    part = pandas.read_parquet(path.parent / "0.parquet").drop(columns="c")
    part.to_parquet(tmp_path / "part.parquet")
    with pytest.raises(ValueError, match=r"part\.parquet must have the columns 'c'"):
        model.predict(tmp_path / "part.parquet")


def test_another_type_in_a_later_file(path, frame, model, tmp_path):
    frame.to_parquet(tmp_path / "0.parquet")
    frame.assign(b="text").to_parquet(tmp_path / "1.parquet")
    with pytest.raises(ValueError, match=r"column 'b'.*float in .*0\.parquet.*1\.par"):
        model.predict(tmp_path)


def test_numbers_of_other_types_in_a_later_file(frame, model, tmp_path):
    """Integers in one file and fractions in another are the same kind."""
    whole = frame.assign(a=np.arange(len(frame)) % 3)
    whole[:60].to_parquet(tmp_path / "0.parquet")
    fractions = whole[60:].assign(a=whole["a"][60:].astype(float))
    fractions.to_parquet(tmp_path / "1.parquet")
    np.testing.assert_allclose(
        model.predict(tmp_path), model.predict(whole[list("abcd")]), rtol=1e-5
    )


@pytest.mark.parametrize("part", ["end", "middle"])
def test_corrupt_file(part, frame, model, tmp_path):
    """The file is named; an earlier output stays, and no part of a new one."""
    path, output = tmp_path / "rows.parquet", tmp_path / "out.parquet"
    frame.to_parquet(path, row_group_size=40)
    content = bytearray(path.read_bytes())
    if part == "end":
        content = content[:-5]
    else:
        content[len(content) // 2 : len(content) // 2 + 900] = bytes(900)
    path.write_bytes(content)
    model.predict(frame[:3], output=output)
    before = output.read_bytes()
    with pytest.raises(ValueError, match=r"rows\.parquet cannot be read"):
        model.predict(path, output=output)
    assert output.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"rows.parquet", "out.parquet"}


def test_full_disk(path, model, tmp_path, monkeypatch):
    output = tmp_path / "out.parquet"
    model.predict(path, output=output)
    before = output.read_bytes()

    def write_table(self, table):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet.ParquetWriter, "write_table", write_table)
    with pytest.raises(OSError, match=r"out\.parquet could not be written.*No space"):
        model.predict(path, output=output)
    assert output.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["out.parquet"]


def test_empty_parts(frame, model, tmp_path):
    """A file without rows is skipped; a source without rows is an error."""
    frame[:0].to_parquet(tmp_path / "0.parquet")
    with pytest.raises(ValueError, match="at least one row"):
        model.predict(tmp_path / "0.parquet")
    frame[:5].to_parquet(tmp_path / "1.parquet")
    assert len(model.predict(tmp_path)) == 5


def test_no_such_file(model, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\*\.parquet"):
        model.predict(tmp_path / "nothing*.parquet")
    (tmp_path / "a.csv").write_text("a\n1\n")
    with pytest.raises(ValueError, match=r"Parquet files; got .*scan_csv"):
        model.predict(tmp_path / "a.csv")


def test_a_bad_value_is_located(frame, path, model, tmp_path):
    bad = frame.assign(a=np.where(np.arange(len(frame)) == 60, np.inf, frame["a"]))
    bad.to_parquet(tmp_path / "bad.parquet", row_group_size=40)
    with pytest.raises(ValueError, match=r"in .*bad\.parquet, row group 1: .*infinity"):
        model.predict(tmp_path / "bad.parquet")
