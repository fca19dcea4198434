"""The command ``python -m skbayesnn.explore``: its page in a browser, its errors."""

import re
import shutil
import sys
import threading
import time
from queue import Queue

import numpy as np
import pytest
from sklearn.feature_selection import VarianceThreshold
from sklearn.pipeline import make_pipeline

from skbayesnn import MCDropoutClassifier, MCDropoutRegressor, save
from skbayesnn.inspection._columns import shown
from tests.helpers.frames import mixed_frame
from tests.helpers.seed import SEED

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytest.importorskip("dash")

explore = pytest.importorskip("skbayesnn.explore")
read_table = explore._read_table

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
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
    numbers = random.standard_normal((40, 3))
    save(MCDropoutRegressor(**SMALL).fit(numbers, numbers[:, 0]), folder / "array.skb")
    pd.DataFrame(numbers).to_csv(folder / "array.csv", index=False)
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

    def picture(self):
        script = "return document.querySelector('#curve')?.src"
        return self.script(script)

    def mean(self):
        """The mean of the prediction, among the reasons."""
        return float(re.search(r"mean\s+(\S+)", self.reasons())[1])

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
    address = serve(files / "model.skb", table, "--y", "y", "z")
    page = Page(browser, address)
    picture = page.changed(page.picture, None)
    assert picture.startswith("data:image/png;base64,")
    assert -10 < page.mean() < 10
    page.choose("#target", "1")
    picture = page.changed(page.picture, picture)
    page.changed(lambda: 90 < page.mean() < 110, False)
    # Another value of a category.
    reasons = page.reasons()
    row = pd.read_parquet(table).iloc[0]
    level = next(v for v in ["red", "green", "blue"] if v != row["colour"])
    page.choose(value(2), level)
    picture = page.changed(page.picture, picture)
    reasons = page.changed(page.reasons, reasons)
    # A number.
    box = page.find(value(6))
    box.clear()
    box.send_keys("7\n")
    picture = page.changed(page.picture, picture)
    # Another row.
    reasons = page.reasons()
    assert "measured" not in reasons  # The row is changed.
    page.choose("#row", "17")
    page.changed(lambda: "measured" in page.reasons(), False)
    z = pd.read_parquet(table)["z"][17]
    assert shown(z) in page.reasons() != reasons
    # Text that is not a date, and a date far away.
    box = page.find(value(5))
    box.clear()
    box.send_keys("tomorrow?\n")
    error = page.changed(lambda: page.find("#error").text, "")
    assert error.startswith("start must be a date such as 2024-05-31.")
    assert '"tomorrow?"' in error
    box.clear()
    box.send_keys("2051-02-03\n")
    page.changed(lambda: "start = 2051-02-03 (training rows" in page.reasons(), False)
    # Levels.
    picture = page.picture()
    page.choose("#column", "shop")
    page.changed(page.picture, picture)
    # An empty box is a missing number.
    for keys in ("1.25\n", "\n"):
        picture, box = page.picture(), page.find(value(0))
        box.clear()
        box.send_keys(keys)
        page.changed(page.picture, picture)
    assert page.find("#error").text == ""
    errors = [e for e in browser.get_log("browser") if e["level"] != "INFO"]
    assert errors == []
    loaded = "return performance.getEntriesByType('resource').map(r => r.name)"
    assert [name for name in page.script(loaded) if not name.startswith(address)] == []


def test_classes_and_arrays_in_a_browser(files, serve, browser):
    page = Page(browser, serve(files / "classes.skb", files / "table.parquet"))
    assert "probability of high" in page.reasons()
    page = Page(browser, serve(files / "array.skb", files / "array.csv"))
    picture = page.changed(page.picture, None)
    box = page.find(value(2))
    box.clear()
    box.send_keys("-1.5\n")
    page.changed(page.picture, picture)
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


@pytest.mark.parametrize("ending", [".csv", ".CSV", ".parquet"])
def test_tables(tmp_path, ending):
    frame = pd.DataFrame({"size, in m;": [1.5, -2.25, None], "größe": ["x", "y", "z"]})
    path = tmp_path / f"table{ending}"
    if ending == ".parquet":
        frame[1:].to_parquet(path)
        frame = frame[1:].reset_index(drop=True)
    else:
        frame.to_csv(path, index=False)
    pd.testing.assert_frame_equal(read_table(str(path)), frame)


@pytest.mark.parametrize("content", ["a,b\n1,5,2\n2,5,3\n", "a\n1,5\n2,5\n"])
def test_decimal_commas_between_commas(tmp_path, content):
    """The first value of a row would be its label."""
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(ValueError, match=r"each row of .*t\.csv must have one value"):
        read_table(str(tmp_path / "t.csv"))


def test_errors_name_the_way_out(files):
    model, table = files / "model.skb", files / "table.parquet"
    (files / "text.skb").write_text("no model")
    pytest.importorskip("skops")
    numbers = np.eye(9, 2)
    model_of_others = make_pipeline(VarianceThreshold(), MCDropoutRegressor(**SMALL))
    save(model_of_others.fit(numbers, numbers[:, 0]), files / "others.skb")
    pd.DataFrame({"a": [1.0]}).to_csv(files / "short.csv", index=False)
    (files / "cut.parquet").write_bytes(b"PAR1")
    cases = {
        (model, files / "cut.parquet"): "Parquet",
        (files / "missing.skb", table): "missing.skb",
        (model, files / "missing.parquet"): "missing.parquet",
        (model, files / "missing.ods"): "must be a .parquet or .csv file",
        (files / "text.skb", table): "must be a whole file of skbayesnn.save",
        (files / "others.skb", table): "sklearn.feature_selection._variance",
        (model, files / "short.csv"): "it lacks size, flag, colour",
        (model, table, "--y", "price"): "--y must name columns of the table",
        (model, table, "--y", "y"): "--y must name the 2 targets of the model",
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


@pytest.mark.parametrize("package", ["dash", "matplotlib", "pandas"])
def test_missing_extra(files, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit, match=r'pip install "skbayesnn\[app\]"'):
        explore.main([str(files / "model.skb"), str(files / "table.parquet")])
