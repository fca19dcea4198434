"""The command ``python -m skbayesnn.explore``: its page in a browser, its errors."""

import gzip
import re
import shutil
import sys
import threading
import time
import warnings
from queue import Queue

import numpy as np
import pytest
from sklearn.feature_selection import VarianceThreshold
from sklearn.pipeline import make_pipeline

from skbayesnn import MCDropoutClassifier, MCDropoutRegressor, save
from skbayesnn._table_files import read_table
from skbayesnn.inspection._column_values import number_text
from tests.helpers.frames import mixed_frame
from tests.helpers.seed import SEED

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytest.importorskip("dash")

explore = pytest.importorskip("skbayesnn.explore")

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
SMALL = {"hidden_layer_sizes": (7,), "max_iter": 9, "n_draws": 4, "random_state": 0}
# Without the network, and without the sandbox, which root cannot have.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1200,900",
]
OPTION = ".dash-dropdown-option"
HOME = "\ue011"  # moves a slider to its smallest value
BROWSERS = "chromium", "google-chrome", "chromium-browser"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Folder with a model of two targets, a classifier, and their table."""
    folder = tmp_path_factory.mktemp("explore")
    random = np.random.default_rng([SEED, 13])
    frame = mixed_frame(70, random)
    y = np.nan_to_num(frame["size"]) + 0.1 * random.standard_normal(70)
    model = MCDropoutRegressor(**SMALL).fit(frame, np.column_stack([y, 100 + y]))
    save(model, folder / "model.skb")
    labels = np.array(["<low>", "high"])[(y > 0).astype(int)]
    save(MCDropoutClassifier(**SMALL).fit(frame, labels), folder / "classes.skb")
    frame.assign(y=y, z=100 + y).to_parquet(folder / "table.parquet")
    frame.to_csv(folder / "table.csv", index=False)
    numbers = random.standard_normal((40, 3))
    save(MCDropoutRegressor(**SMALL).fit(numbers, numbers[:, 0]), folder / "array.skb")
    np.savetxt(folder / "array.csv", numbers, delimiter=",")
    return folder


@pytest.fixture
def serve(monkeypatch):
    """Start the command in a thread; returns its address."""
    import werkzeug.serving

    make_server, started, running = werkzeug.serving.make_server, Queue(), []

    def noted(*args, **kwargs):
        server = make_server(*args, **kwargs)
        started.put(server)
        return server

    monkeypatch.setattr(werkzeug.serving, "make_server", noted)

    def start(*arguments):
        options = [*map(str, arguments), "--port", "0", "--no-browser"]
        thread = threading.Thread(target=explore.main, args=(options,))
        thread.start()
        server = started.get(timeout=60)
        running.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in running:
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("needs chromium and chromedriver (chromium-driver of Debian)")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(driver)
    browser = webdriver.Chrome(options=options, service=service)
    yield browser
    browser.quit()


class Page:
    """The page in a browser, as a user sees it."""

    def __init__(self, browser, address):
        self.browser = browser
        browser.get(address)
        self.changed(self.reasons, "")

    def find(self, css):
        return self.browser.find_element("css selector", css)

    def script(self, text):
        return self.browser.execute_script(text)

    def reasons(self):
        script = "return document.querySelector('#reasons')?.innerText || ''"
        return self.script(script)

    def band(self):
        """Upper and lower bounds of the widest interval."""
        plot = "document.querySelector('#curve .js-plotly-plot')"
        return self.script(f"return {plot} && Array.from({plot}._fullData[0].y)")

    def changed(self, content, old):
        """New content, when it differs from the old one."""
        wait = time.monotonic() + 30
        while (new := content()) == old or not new:
            assert time.monotonic() < wait, "nothing changes"
            time.sleep(0.05)
        return new

    def choose(self, css, text):
        """Choose an option of a drop-down list."""
        self.find(css).click()
        self.changed(lambda: self.browser.find_elements("css selector", OPTION), None)
        search = self.browser.find_elements("css selector", ".dash-dropdown-search")
        if search:
            search[0].send_keys(text)
        # In the page, because the list may be drawn again at any time.
        script = (
            "const found = Array.from(document.querySelectorAll(arguments[0]))"
            ".find(option => option.innerText.trim() === arguments[1]);"
            "if (found) found.click(); return Boolean(found)"
        )
        self.changed(lambda: self.browser.execute_script(script, OPTION, text), False)


def value(column):
    """Selector of the control of a column."""
    return f'[id=\'{{"column":{column},"type":"value"}}\']'


@pytest.mark.slow
def test_page_in_a_browser(files, serve, browser):
    """A control moves the band, a row sets the controls, and nothing is an error."""
    table = files / "table.parquet"
    arguments = files / "model.skb", table, "--y", "y", "z", "--target", "1"
    address = serve(*arguments)
    page = Page(browser, address)
    band = page.changed(page.band, None)
    assert 90 < np.mean(band) < 110
    # Another value of a category.
    reasons = page.reasons()
    row = pd.read_parquet(table).iloc[0]
    level = next(v for v in ["red", "green", "blue"] if v != row["colour"])
    page.choose(value(2), level)
    band = page.changed(page.band, band)
    reasons = page.changed(page.reasons, reasons)
    # A slider, by the keyboard.
    page.find(f"{value(6)} [role=slider]").send_keys(HOME)
    band = page.changed(page.band, band)
    # Another row.
    reasons = page.reasons()
    assert "measured" not in reasons  # The row is changed.
    page.choose("#row", "17")
    page.changed(lambda: "measured" in page.reasons(), False)
    z = pd.read_parquet(table)["z"][17]
    assert number_text(z) in page.reasons() != reasons
    # Another target.
    band = page.band()
    page.choose("#target", "0")
    band = page.changed(page.band, band)
    assert -10 < np.mean(band) < 10
    # Text that is not a date, and a date far away.
    box = page.find(value(5))
    box.clear()
    box.send_keys("tomorrow?\n")
    error = page.changed(lambda: page.find("#error").text, "")
    assert error == "start must be a date such as 2024-05-31; got 'tomorrow?'."
    box.clear()
    box.send_keys("2051-02-03\n")
    page.changed(lambda: "start = 2051-02-03 (training rows" in page.reasons(), False)
    # Levels as bars.
    page.choose("#column", "shop")
    text = "return document.querySelector('#curve').innerText"
    page.changed(lambda: "main" in page.script(text), False)
    errors = [e for e in browser.get_log("browser") if e["level"] != "INFO"]
    assert errors == []
    loaded = "return performance.getEntriesByType('resource').map(r => r.name)"
    assert [name for name in page.script(loaded) if not name.startswith(address)] == []


def test_classes_and_arrays_in_a_browser(files, serve, browser):
    page = Page(browser, serve(files / "classes.skb", files / "table.csv"))
    assert np.max(page.changed(page.band, None)) <= 1
    assert "probability of high" in page.reasons()
    page = Page(browser, serve(files / "array.skb", files / "array.csv"))
    band = page.changed(page.band, None)
    page.find(f"{value(2)} [role=slider]").send_keys(HOME)
    page.changed(page.band, band)
    assert [e for e in browser.get_log("browser") if e["level"] != "INFO"] == []


def test_page_is_local(files, serve):
    """It loads nothing from elsewhere, and serves no other name of this machine."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    address = serve(files / "model.skb", files / "table.parquet")
    page = urlopen(address).read().decode()
    assert "BayesianStacking" not in page and re.findall("https?://|//cdn", page) == []
    with pytest.raises(HTTPError, match="400"):
        urlopen(Request(address, headers={"Host": "example.org"}))
    # Other addresses that only this machine can use.
    for host in "127.0.0.2", "[::1]":
        options = files / "model.skb", files / "table.parquet", "--host"
        port = serve(*options, host.strip("[]")).rpartition(":")[2]
        address = f"http://{host}:{port}"
        assert urlopen(address).status == 200
        with pytest.raises(HTTPError, match="400"):
            urlopen(Request(address, headers={"Host": "example.org"}))
    assert not explore._is_local("0.0.0.0") and not explore._is_local("example.org")


def test_requests_with_other_values(files):
    """Rows, columns and levels that do not exist, and too large requests."""
    options = files / "model.skb", files / "table.parquet", "--y", "y", "z"
    app = explore._app_of(explore._parser().parse_args(list(map(str, options))))
    client, columns = app.server.test_client(), pd.read_parquet(options[1]).columns
    state = explore.Exploration(
        explore.load(options[0]), pd.read_parquet(options[1])[columns[:-2]]
    )
    values = list(state.row(0).values())
    wrong = [*values[:2], "no such colour", *values[3:]]

    def status(row=0, column=0, values=values):
        named = {"column": column, "row": row, "target": 0, "missing": []}
        inputs = [
            {"id": name, "property": "value", "value": value}
            for name, value in named.items()
        ]
        levels = [
            {"id": {"type": "value", "column": j}, "property": "value", "value": value}
            for j, value in enumerate(values)
        ]
        content = {
            "output": "..curve.figure...error.children..",
            "outputs": [
                {"id": "curve", "property": "figure"},
                {"id": "error", "property": "children"},
            ],
            "inputs": [*inputs, levels],
            "changedPropIds": ["row.value"],
        }
        return client.post("/_dash-update-component", json=content).status_code

    assert status() == 200
    for wrong_values in ({"row": 10**9}, {"column": 999}, {"values": wrong}):
        assert status(**wrong_values) == 400
    assert status(values=["x" * 2_000_000, *values[1:]]) == 413


def test_columns_without_names(files):
    """Targets of a file without names, and training rows with or without them."""
    numbers = np.loadtxt(files / "array.csv", delimiter=",")
    with_target = np.column_stack([numbers, 100 + numbers[:, 0]])
    np.savetxt(files / "y.csv", with_target, delimiter=",")
    pd.DataFrame(with_target).to_csv(files / "positions.csv", index=False)
    for table, train in (
        ("y.csv", "y.csv"),
        ("y.csv", "array.csv"),
        ("positions.csv", "positions.csv"),
    ):
        assert read_table(str(files / table)).shape == with_target.shape
        options = files / "array.skb", files / table, "--train", files / train
        arguments = [*map(str, options), "--y", "3"]
        explore._app_of(explore._parser().parse_args(arguments))


def test_the_page_is_short():
    """One file, which can be read at once."""
    with open(explore.__file__, encoding="utf-8") as file:
        assert len(file.readlines()) < 400


def test_rows_are_sorted_by_the_target_shown(files):
    state = explore.Exploration(
        explore.load(files / "model.skb"), pd.read_parquet(files / "table.parquet")
    )
    app = explore._app(state, 0)
    [sort_rows] = [
        callback["callback"].__wrapped__
        for output, callback in app.callback_map.items()
        if output == "row.options"
    ]
    for target in (0, 1):
        rows = [option["value"] for option in sort_rows(target)]
        assert rows == state.most_uncertain(target)


@pytest.mark.parametrize("compressed", ["", ".gz"])
@pytest.mark.parametrize(
    ("sep", "decimal"), [(",", "."), (";", "."), (";", ","), ("\t", ",")]
)
def test_separators_of_csv_files(tmp_path, sep, decimal, compressed):
    """With names that have other separators, dates with dots, and without names."""
    frame = pd.DataFrame(
        {
            "size, in m;": [1.5, -2.25, None],
            "day": ["31.12.2024", "1,2;3", None],
            "n": [1, 2, 3],
        }
    )
    path = tmp_path / f"table.csv{compressed}"
    frame.to_csv(path, index=False, sep=sep, decimal=decimal)
    pd.testing.assert_frame_equal(read_table(str(path)), frame)
    numbers = frame[["size, in m;", "n"]][:2]
    numbers.to_csv(path, index=False, header=False, sep=sep, decimal=decimal)
    assert read_table(str(path)).to_numpy().tolist() == numbers.to_numpy().tolist()


def read_csv(path, content, encoding="utf-8"):
    """The table of a file with some content."""
    path.write_bytes(content.encode(encoding))
    return read_table(str(path))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("12,345 101,000 9,876", None),
        ("12,345 101,000 9,8", [12.345, 101, 9.8]),
        ("0,345 101,000 9,876", [0.345, 101, 9.876]),
        ("12345,678 1,000 1,000", [12345.678, 1, 1]),
        ("12,345 1.5 2.5", None),
    ],
)
def test_a_comma_in_numbers_can_separate_thousands(tmp_path, capsys, values, expected):
    """Then the column stays text, and a sentence is printed."""
    values = values.split()
    rows = [f"A\t{value}\t1\n" for value in values]
    frame = read_csv(tmp_path / "t.csv", "city\tpop\tx\n" + "".join(rows))
    assert frame["pop"].tolist() == (expected or values)
    assert frame["x"].tolist() == [1, 1, 1]
    printed = capsys.readouterr().out
    assert ("column 'pop' is read as text" in printed) == (expected is None)


@pytest.mark.parametrize(
    ("content", "columns", "first"),
    [
        ("sep=;\na;b\n1,5;2\n", ["a", "b"], [1.5, 2]),
        ("sep=,\n1.5,2\n2.5,3\n", [0, 1], [1.5, 2]),
        ("name,tag,x\nanna,a;b,1.5\n", ["name", "tag", "x"], ["anna", "a;b", 1.5]),
        ("name,u;v,x\nanna,a;b,1.5\n", ["name", "u;v", "x"], ["anna", "a;b", 1.5]),
        ("who;town\nA, B;C\nD, E;F\n", ["who", "town"], ["A, B", "C"]),
        ("a;b;c\n1,5;2;3\n1;2\n2;3;4\n", ["a", "b", "c"], [1.5, 2, 3]),
        ("a;b\n1,5;2\n   \n2;3\n", ["a", "b"], [1.5, 2]),
        ("1,5;2,5\n3,5;4,5\n", [0, 1], [1.5, 2.5]),
        ("a\n1\n2\n", ["a"], [1]),
        ("größe;x\n1,5;2\n", ["größe", "x"], [1.5, 2]),
    ],
)
def test_forms_of_csv_files(tmp_path, content, columns, first):
    """As Excel and others write them, in each supported encoding."""
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "cp1252"):
        frame = read_csv(tmp_path / "T.CSV", content, encoding)
        assert frame.columns.tolist() == columns
        assert frame.iloc[0].tolist() == first


def test_wide_csv_files_and_other_encodings(tmp_path):
    """A line can be longer than the values that the csv module reads."""
    rows = "\n".join([",".join([f"0.{10**16 + i}" for i in range(8000)])] * 2)
    assert read_csv(tmp_path / "wide.csv", rows).shape == (2, 8000)
    with pytest.raises(ValueError, match=r"is not in UTF-8. Save it as CSV with UTF-8"):
        read_csv(tmp_path / "other.csv", "ーx,y\n1,2\n", "shift_jis")


@pytest.mark.parametrize(
    ("content", "columns", "first"),
    [
        # Only the rows end with a separator.
        ("a,b\n1,2,\n3,4,\n", ["a", "b"], [1, 2]),
        ("a;b\n1,5;2;\n3,25;4;\n", ["a", "b"], [1.5, 2]),
        # Labels of R without a name are no column.
        ('"a","b"\n"x",1,2\n"y",3,4\n', ["a", "b"], [1, 2]),
        ("a|b\n1|2\n3|4\n", ["a", "b"], [1, 2]),
    ],
)
def test_rows_with_more_values_than_names(tmp_path, content, columns, first):
    frame = read_csv(tmp_path / "t.csv", content)
    assert (frame.columns.tolist(), frame.iloc[0].tolist()) == (columns, first)


@pytest.mark.parametrize(
    "content", ["a\n1,5\n2,5\n", "a,b\n1,5,2\n2,5,3\n", "a,b\n1,5,2\n3,4\n5,6\n"]
)
def test_decimal_commas_between_commas(tmp_path, content):
    """The first value of a row would be its label."""
    with pytest.raises(ValueError, match=r"t\.csv cannot be read: the first line"):
        read_csv(tmp_path / "t.csv", content)


def test_names_of_years(tmp_path):
    """A model knows that its columns have names that are numbers."""
    (tmp_path / "years.csv").write_text("2019,2020\n1,2\n4,5\n")
    frame = read_table(str(tmp_path / "years.csv"), ["2020", "2019"])
    assert frame["2019"].tolist() == [1, 4]
    assert read_table(str(tmp_path / "years.csv")).shape == (3, 2)


def test_excel_files(tmp_path, monkeypatch):
    """They are read with openpyxl; without it the error has the way out."""
    path = str(tmp_path / "table.xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ImportError, match=r"(?s)openpyxl.*save the table as .csv or"):
        read_table(path)
    monkeypatch.undo()
    pytest.importorskip("openpyxl")
    frame = pd.DataFrame({"a": [1.5, 2.0], "b": ["x", "y"]})
    frame.to_excel(path, index=False)
    pd.testing.assert_frame_equal(read_table(path), frame)


def test_warnings_are_printed_once(monkeypatch):
    """Also if a prediction has changed the filters in between."""
    printed = []
    monkeypatch.setattr(warnings, "showwarning", lambda *args: printed.append(args[0]))
    explore._print_warnings_once()
    for i in range(3):
        warnings.simplefilter("always")
        warnings.warn("some rows are far", UserWarning, stacklevel=1)
        warnings.warn(f"row {i}", UserWarning, stacklevel=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
    texts = sorted(map(str, printed))
    assert texts == ["row 0", "row 1", "row 2", "some rows are far"]


def test_errors_name_the_way_out(files, capsys):
    model, table = files / "model.skb", files / "table.parquet"
    (files / "text.skb").write_text("no model")
    pytest.importorskip("skops")
    numbers = np.eye(9, 2)
    model_of_others = make_pipeline(VarianceThreshold(), MCDropoutRegressor(**SMALL))
    save(model_of_others.fit(numbers, numbers[:, 0]), files / "others.skb")
    pd.DataFrame({"a": [1.0]}).to_csv(files / "other.csv", index=False)
    (files / "cut.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n")[:-9])
    (files / "cut.parquet").write_bytes(b"PAR1")
    cases = {
        (model, files / "cut.csv.gz"): "cut.csv.gz cannot be read: ",
        (model, files / "cut.parquet"): "cut.parquet cannot be read: ",
        (files / "missing.skb", table): "missing.skb",
        (model, files / "missing.parquet"): "missing.parquet",
        (model, files / "missing.ods"): "must be a .parquet, .csv or .xlsx file",
        (files / "text.skb", table): "must be a whole file of skbayesnn.save",
        (files / "others.skb", table): "--trusted sklearn.feature_selection._variance",
        (model, files / "other.csv"): "it lacks size, flag, colour",
        (model, table, "--y", "price"): "--y must name columns of the table",
        (model, table, "--y", "y"): "--y must name the 2 targets of the model",
        (model, table, "--target", "2"): "--target must be from 0 to 1",
    }
    offenders = []
    for arguments, message in cases.items():
        with pytest.raises(SystemExit) as stopped:
            explore.main([*map(str, arguments)])
        if not str(stopped.value).startswith("error: ") or message not in str(
            stopped.value
        ):
            offenders.append(f"{arguments}: {stopped.value}")
    assert not offenders, "\n".join(offenders)


@pytest.mark.parametrize("package", ["dash", "pandas"])
def test_missing_extra(files, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit, match=r'pip install "skbayesnn\[app\]"'):
        explore.main([str(files / "model.skb"), str(files / "table.parquet")])
