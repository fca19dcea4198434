"""Which files a path, pattern, folder or list stands for, and their columns."""

from pathlib import Path

import numpy as np
import pytest

import skbayesnn
from skbayesnn import MCDropoutRegressor
from skbayesnn._data.files import is_read
from skbayesnn._data.sources import of_files, source_of

pandas = pytest.importorskip("pandas", reason="needs pandas")
pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
datasets = pytest.importorskip("pyarrow.dataset")
parquet = pytest.importorskip("pyarrow.parquet")


def _write(path, **columns):
    """Write a file with the given columns, by default two rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns or {"a": [1.0, 2.0]}), path)
    return path


def _content(X):
    return source_of(X).read().to_pydict()


# ---- columns in the names of folders


def _partitioned(folder, keys):
    """Files with the columns a and y, one for each text of the column ``key``."""
    for i, key in enumerate(keys):
        _write(folder / f"key={key}" / "x.parquet", a=[i + 0.5], y=[-1.0 * i])
    return folder


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["10", "2"], [10, 2]),
        (["1", "__HIVE_DEFAULT_PARTITION__"], [1, None]),
        (["a%2Fb", "c d"], ["a/b", "c d"]),
    ],
)
def test_columns_of_folders(texts, values, tmp_path):
    """They are those of pyarrow, in any form in which the files are given."""
    folder = _partitioned(tmp_path / "run=3", texts)
    expected = {
        tuple(row.values())
        for row in datasets.dataset(folder, partitioning="hive").to_table().to_pylist()
    }
    assert expected == {(i + 0.5, -i, value) for i, value in enumerate(values)}
    for X in (
        folder,
        folder / "*" / "*.parquet",
        folder / "key=*",
        sorted(folder.glob("*/x.parquet")),
        sorted(folder.iterdir()),
        datasets.dataset(folder, partitioning="hive"),
        datasets.dataset(
            folder,
            partitioning=datasets.HivePartitioning.discover(infer_dictionary=True),
        ),
    ):
        content = _content(X)
        assert list(content) == ["a", "y", "key"]
        assert {*zip(*content.values(), strict=True)} == expected
    # Below the folder that is given there is no such name.
    below = folder / f"key={texts[0]}"
    assert list(_content(below)) == ["a", "y"]
    with pytest.raises(ValueError, match=r"columns 'key'; .*give the folder above"):
        source_of(below).only(["key"])


@pytest.mark.parametrize("values", [[1, 1, 20], ["u", "u", "a/b"]])
def test_columns_that_are_also_in_the_files(values, tmp_path):
    """As polars writes them; the types of both may differ."""
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": [1.0, 2.0, 3.0], "key": values})
    frame.write_parquet(tmp_path, partition_by="key")
    assert {*zip(*_content(tmp_path).values(), strict=True)} == {*frame.iter_rows()}
    # In another file it is only in the name.
    _write(tmp_path / f"key={values[0]}" / "more.parquet", a=[4.0])
    content = _content(tmp_path)
    assert content["key"][content["a"].index(4.0)] == values[0]


def test_a_column_of_folders_is_used(tmp_path):
    """It is an input, or y, or the groups."""
    random = np.random.default_rng(0)
    frames = []
    for region in (1, 2):
        frame = pandas.DataFrame({"a": random.normal(size=60)})
        frame["y"] = 5.0 * region
        (tmp_path / f"region={region}").mkdir()
        frame.to_parquet(tmp_path / f"region={region}" / "x.parquet")
        frames.append(frame.assign(region=region))
    model = MCDropoutRegressor((7,), max_iter=2, random_state=0)
    model.fit(tmp_path, y="y")
    assert model.feature_names_in_.tolist() == ["a", "region"]
    X = pandas.concat(frames)[["a", "region"]]
    np.testing.assert_allclose(model.predict(tmp_path), model.predict(X), rtol=1e-6)
    model.fit(tmp_path, y="y", groups="region")
    assert model.feature_names_in_.tolist() == ["a"]


# ---- files that count


def test_hidden_and_temporary_files_are_skipped(tmp_path):
    for name in (
        "0.parquet",
        "sub/1.PQ",
        "_temporary/0/part.parquet",
        ".ipynb_checkpoints/0-checkpoint.parquet",
        "_part.parquet",
        ".x.parquet",
    ):
        _write(tmp_path / name)
    (tmp_path / "README.md").write_text("no table")
    (tmp_path / "_SUCCESS").write_text("")
    assert source_of(tmp_path).n_rows == 4
    assert source_of(tmp_path / "**" / "*.p*q*").n_rows == 2
    # Named by the user.
    assert source_of(tmp_path / "_temporary").n_rows == 2
    assert source_of(tmp_path / "_part.parquet").n_rows == 2


def test_every_file_is_given_once(tmp_path):
    """Links may lead to other folders, but not to a file again."""
    folder, linked = tmp_path / "rows", tmp_path / "elsewhere"
    path = _write(folder / "0.parquet")
    _write(linked / "1.parquet")
    (folder / "linked").symlink_to(linked)
    assert source_of(folder).n_rows == source_of(folder / "**").n_rows == 4
    (folder / "other name.parquet").symlink_to(path)
    for X in ([path, path], [folder / "*.parquet"], folder):
        with pytest.raises(ValueError, match="every file must be given once"):
            source_of(X)


def test_delta_tables_are_refused(tmp_path):
    _write(tmp_path / "_delta_log" / "00.checkpoint.parquet")
    _write(tmp_path / "0.parquet")
    for X in (tmp_path, tmp_path / "*.parquet"):
        with pytest.raises(ValueError, match=r"DeltaTable\(path\)"):
            source_of(X)


# ---- types and names


def test_types_that_mean_the_same(tmp_path):
    """They may differ between files."""
    moment = pandas.Timestamp("2024-02-03 04:05:06")
    words, text = pyarrow.array(["u", "v"]), pyarrow.array(["v", "w"])
    cases = {
        "categories and text": (words.dictionary_encode(), text),
        "text and categories": (words, text.dictionary_encode()),
        "large text": (words, text.cast(pyarrow.large_string())),
        "views of text": (words, text.cast(pyarrow.string_view())),
        "two kinds of categories": (
            words.dictionary_encode(),
            text.dictionary_encode().cast(
                pyarrow.dictionary(pyarrow.int8(), pyarrow.large_string())
            ),
        ),
        "integers and fractions": (pyarrow.array([1, 2]), pyarrow.array([0.5, 3.0])),
        "without values": (pyarrow.nulls(2), text),
        "units of time": (
            pyarrow.array([moment] * 2, pyarrow.timestamp("ns")),
            pyarrow.array([moment] * 2, pyarrow.timestamp("us")),
        ),
    }
    for name, arrays in cases.items():
        for i, values in enumerate(arrays):
            _write(tmp_path / f"{i}.parquet", a=values)
        expected = [value for values in arrays for value in values.to_pylist()]
        assert _content(tmp_path)["a"] == expected, name


def test_types_that_differ(tmp_path):
    """The error names the column and both files."""
    _write(tmp_path / "0.parquet", a=[1.0], b=[2])
    for values in (["2"], [True], [pandas.Timestamp("2024-02-03")]):
        _write(tmp_path / "1.parquet", b=values, a=[1.0])
        with pytest.raises(
            ValueError,
            match=r"column 'b' must .*int64 in .*0\.parquet.*in .*1\.parquet",
        ):
            source_of(tmp_path)
    _write(tmp_path / "1.parquet", a=[1.0])
    with pytest.raises(ValueError, match=r"1\.parquet must have .*; it lacks 'b'"):
        source_of(tmp_path)
    twice = pyarrow.table([[1.0], [2], [3]], names=["a", "b", "b"])
    parquet.write_table(twice, tmp_path / "1.parquet")
    with pytest.raises(ValueError, match=r"1\.parquet must .*several columns 'b'"):
        source_of(tmp_path)


def test_other_datasets_are_written(tmp_path):
    """Text files, in their order, and rows of Parquet files after a filter."""
    rows = np.arange(900.0)
    _write(tmp_path / "rows" / "0.parquet", a=rows)
    csv = pytest.importorskip("pyarrow.csv")
    csv.write_csv(pyarrow.table({"a": rows[:400]}), tmp_path / "0.csv")
    csv.write_csv(pyarrow.table({"a": rows[400:]}), tmp_path / "1.csv")
    texts = datasets.dataset([tmp_path / "0.csv", tmp_path / "1.csv"], format="csv")
    assert _content(texts)["a"] == rows.tolist()
    dataset = datasets.dataset(tmp_path / "rows")
    large = dataset.filter(datasets.field("a") > 100)
    assert _content(large)["a"] == rows[101:].tolist()


# ---- damage and changes


def test_checksums_of_pages_are_used(tmp_path):
    path = tmp_path / "0.parquet"
    table = pyarrow.table({"a": np.random.default_rng(0).normal(size=900)})
    parquet.write_table(
        table, path, write_page_checksum=True, compression="none", use_dictionary=False
    )
    content = bytearray(path.read_bytes())
    content[4000] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"0\.parquet cannot be read: .*checksum"):
        source_of(path).read()


def test_a_file_that_changes_while_it_is_read(tmp_path):
    """Row groups of the same sizes do not hide it."""
    path, rows = tmp_path / "0.parquet", np.arange(80.0)
    for X in (path, datasets.dataset(_write(path, a=rows))):
        parquet.write_table(pyarrow.table({"a": rows}), path, row_group_size=20)
        source = source_of(X)
        blocks = source.in_order(20)
        next(blocks)
        new = _write(tmp_path / "new", a=rows + 100)
        new.replace(path)
        with pytest.raises(ValueError, match=r"0\.parquet must not change"):
            list(blocks)
        assert source_of(path).fingerprint != source.fingerprint


def test_damaged_arrays_are_named(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "X.h5", "w") as file:
        dataset = file.create_dataset("X", data=np.ones((9, 2)))
    with pytest.raises(ValueError, match="must be open"):
        source_of(dataset)
    zarr = pytest.importorskip("zarr")
    folder = tmp_path / "X.zarr"
    array = zarr.create_array(str(folder), shape=(40, 3), chunks=(10, 3), dtype="f8")
    array[:] = np.arange(120.0).reshape(40, 3)
    chunk = max((p for p in folder.rglob("*") if p.parent.name == "2"), default=None)
    assert chunk is not None
    chunk.write_bytes(b"damaged")
    with pytest.raises(ValueError, match="cannot be read from row 20 on"):
        list(source_of(array).in_order(10))


# ---- results over rows


def test_results_do_not_replace_rows(tmp_path):
    """Neither of the files that are read, nor of other tables."""
    folder = tmp_path / "rows"
    frame = pandas.DataFrame({"a": np.arange(50.0), "b": np.arange(50) % 3})
    path = folder / "0.parquet"
    folder.mkdir()
    frame.to_parquet(path)
    before = path.read_bytes()
    model = MCDropoutRegressor((5,), max_iter=2, random_state=0).fit(frame, frame["a"])
    link = tmp_path / "link.parquet"
    link.symlink_to(path)
    polars = pytest.importorskip("polars")
    for X, output in (
        (path, path),
        (path, link),
        (folder, folder / "new.parquet"),
        (folder / "*.parquet", folder / "new.parquet"),
        ([path], path),
        (tmp_path / "link.parquet", path),
        (frame, path),
        (polars.scan_parquet(path), path),
    ):
        with pytest.raises((FileExistsError, ValueError), match="`output` must"):
            model.predict(X, output=output)
    for name in ("x.csv", "x", "x.parquet.gz"):
        with pytest.raises(ValueError, match="must be a Parquet file"):
            model.predict(path, output=tmp_path / name)
    with pytest.raises(FileExistsError, match="must be a new file, or one of skb"):
        skbayesnn.save(model, path)
    assert path.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"rows", "link.parquet"}
    # Results are replaced, but not while they are read.
    output = tmp_path / "out.parquet"
    for _ in range(2):
        model.predict(path, output=output)
    with pytest.raises(ValueError, match="`output` must not be one of the files"):
        model.predict(output, output=output)


def test_is_read(tmp_path):
    path = _write(tmp_path / "a[1]" / "0.parquet")
    assert is_read(path, path.parent)
    assert is_read(path.parent / "k=1" / "new.parquet", str(path.parent))
    assert is_read(tmp_path / "new.parquet", [path, tmp_path / "n*.parquet"])
    assert not is_read(tmp_path / "out.parquet", [path, tmp_path / "n*.parquet"])
    assert not is_read(tmp_path / "out.parquet", path)
    assert not is_read(path, np.zeros((3, 2)))


def test_paths_below_the_working_folder(tmp_path, monkeypatch):
    _partitioned(tmp_path, ["1", "2"])
    monkeypatch.chdir(tmp_path)
    for X in (".", "*/*.parquet", ["key=1/x.parquet", "key=2/x.parquet"]):
        assert source_of(X).columns == ["a", "y", "key"]
    assert source_of("key=1/x.parquet").columns == ["a", "y"]
    source = of_files("rows", ["key=1/x.parquet"], str(Path.cwd()))
    assert source.columns == ["a", "y", "key"]
