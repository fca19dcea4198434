"""A page in the browser that shows what a fitted model predicts, and why.

``python -m skbayesnn.explore model.skb table.parquet`` opens it. It needs the extra
``app``: ``pip install "skbayesnn[app]"``.
"""

import argparse
import logging
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from skbayesnn._exploration import Exploration
from skbayesnn._persistence.functions import load
from skbayesnn._report import data_address
from skbayesnn._runtime import required

__all__ = ["main"]

# Most columns with a control.
_MAX_CONTROLS = 100
# Of lists of columns with their contributions, and of values out of range.
_TITLES = (
    "Predicted mostly because of (difference from the mean of other rows)",
    "Uncertain mostly because of (difference from the mean of other rows)",
    "Outside of the training range",
)
_PAGE = """<!DOCTYPE html><html lang="en"><head>{%metas%}<title>{%title%}</title>
{%favicon%}{%css%}<style>
body {font: 15px/1.45 system-ui, sans-serif; color: #222; margin: 0}
main {display: grid; grid-template-columns: 400px 1fr; height: 100vh}
aside, section {overflow-y: auto; padding: 12px 20px}
aside {border-right: 1px solid #ddd}
h1 {font-size: 1.15em; margin: 0} h2 {font-size: 1em; margin: 1em 0 .3em}
.name {margin-top: 10px; overflow-wrap: anywhere} .note {color: #666}
.error {color: #b00020; min-height: 1.4em} td {padding-right: 18px}
img {width: 100%; max-width: 760px}
</style></head><body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer>
</body></html>"""


# ---- page


def _app(state: Exploration) -> Any:
    """The page, an app of Dash."""
    import dash
    from dash import Input, Output, dcc, html

    app = dash.Dash(__name__, title="skbayesnn", update_title=None)
    app.index_string = _PAGE
    computes = Lock()  # One request at a time uses the processors.

    columns, values = state.columns, state.row(0)
    changeable = range(min(len(columns), _MAX_CONTROLS))

    def named(name: str, box, show: bool = True):
        style = {} if show else {"display": "none"}
        return html.Div([html.Div(name, className="name"), box], style=style)

    def choice(id: Any, options: Sequence, value, clearable: bool = False):
        pairs = [{"label": str(label), "value": v} for label, v in options]
        return dcc.Dropdown(
            pairs, value, id=id, clearable=clearable, placeholder="missing"
        )

    def control(j: int):
        column, id = columns[j], {"type": "value", "column": j}
        if column.levels:
            levels = [(level, level) for level in column.levels if level is not None]
            return choice(id, levels, values[j], clearable=None in column.levels)
        kind = "text" if column.kind == "date" else "number"
        return dcc.Input(
            values[j], id=id, type=kind, debounce=True, placeholder="missing"
        )

    names = [(columns[j].name, j) for j in range(len(columns))]
    targets = choice("target", [(k, k) for k in range(state.n_targets)], 0)
    rows = choice("row", [(f"{i:,}", i) for i in state.most_uncertain()], 0)
    aside = [
        html.H1(type(state.estimator).__name__),
        html.Div(str(getattr(state.estimator, "summary_", "")), className="note"),
        named("row, the most uncertain first", rows),
        named("target", targets, state.n_targets > 1),
        *(named(columns[j].name, control(j)) for j in changeable),
    ]
    section = [
        named("predictions along", choice("column", names, 0)),
        html.Div(id="error", className="error", role="alert"),
        html.Img(id="curve", alt="predictions along the column"),
        html.Div(id="reasons"),
    ]
    app.layout = html.Main([html.Aside(aside), html.Section(section)])
    all_values = {"type": "value", "column": dash.ALL}, "value"
    inputs = Input("row", "value"), Input("target", "value"), Input(*all_values)

    def changes_of(values: Sequence) -> dict[int, Any]:
        return {j: None if v == "" else v for j, v in enumerate(values)}

    @app.callback(Output(*all_values), Input("row", "value"), prevent_initial_call=True)
    def set_row(row):
        return list(state.row(row).values())[:_MAX_CONTROLS]

    @app.callback(
        Output("curve", "src"),
        Output("error", "children"),
        Input("column", "value"),
        *inputs,
    )
    def draw(j, row, target, values):
        try:
            with computes:
                display = state.curve(j, row, changes_of(values), target)
                return data_address(display.figure_), ""
        except (TypeError, ValueError) as error:
            return dash.no_update, str(error)

    @app.callback(Output("reasons", "children"), *inputs)
    def explain(row, target, values):
        try:
            with computes:
                facts, *lists = state.reasons(row, changes_of(values), target)
        except (TypeError, ValueError):  # `draw` shows the error.
            return []
        table = [html.Tr([html.Td(k), html.Td(v)]) for k, v in facts.items()]
        parts = [html.H2("This row"), html.Table(table)]
        for title, texts in zip(_TITLES, lists, strict=True):
            items = html.Ul([html.Li(text) for text in texts])
            parts += [html.H2(title), items] if texts else []
        return parts

    return app


# ---- command


def _read_table(path: str) -> Any:
    """Read a file as a frame of pandas."""
    import pandas

    kind = Path(path.lower()).suffix
    if kind == ".parquet":
        return pandas.read_parquet(path).reset_index(drop=True)
    if kind != ".csv":
        raise ValueError(
            f"a table must be a .parquet or .csv file; got {path}. Read others with "
            "pandas, and save them by `to_parquet`."
        )
    table = pandas.read_csv(path)
    if not table.index.equals(pandas.RangeIndex(len(table))):
        raise ValueError(
            f"each row of {path} must have one value for each name of the first line; "
            "got more. Read it with other options of pandas, and save it by "
            "`to_parquet`."
        )
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m skbayesnn.explore",
        description="Show in a browser what a model predicts for a table, and why.",
    )
    add = parser.add_argument
    add("model", help="file of skbayesnn.save")
    add("table", help=".parquet or .csv file with the columns of the model")
    add("--y", nargs="+", help="columns with the measured targets")
    add(
        "--trusted", nargs="+", metavar="TYPE", help="types to load; see skbayesnn.load"
    )
    add("--port", type=int, default=8050, help="0 finds a free port")
    add("--no-browser", action="store_true", help="only print the address")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Show a saved model and a table in a browser, until Ctrl-C.

    Parameters
    ----------
    arguments : sequence of str, default=None
        Arguments of the command; None takes the command line. ``["--help"]`` prints
        a list.

    Returns
    -------
    None
    """
    options = _parser().parse_args(arguments)
    try:
        app = _app_of(options)
    except (ImportError, OSError, TypeError, ValueError) as error:
        raise SystemExit(f"error: {error}") from error
    import flask
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", options.port, app.server, threaded=True)
    address = f"127.0.0.1:{server.server_port}"

    @app.server.before_request
    def check_host():  # The page has no other name, such as one of a web page.
        if flask.request.host not in (address, f"localhost:{server.server_port}"):
            return "the page has another name", 400

    print(f"http://{address} shows the model. Ctrl-C ends it.", flush=True)
    if not options.no_browser:
        webbrowser.open(f"http://{address}")
    with suppress(KeyboardInterrupt):
        server.serve_forever()


def _app_of(options: argparse.Namespace) -> Any:
    """Load the files, and create the page."""
    for name in ("dash", "matplotlib", "pandas"):
        required(name, "the page needs", 'pip install "skbayesnn[app]"')
    model = load(options.model, options.trusted or [])
    table, names = _read_table(options.table), options.y or []
    if missing := [name for name in names if name not in table]:
        raise ValueError(f"--y must name columns of the table; it lacks {missing}.")
    y = table[names] if names else None
    state = Exploration(model, table.drop(columns=names), y)
    if names and len(names) != state.n_targets:
        raise ValueError(
            f"--y must name the {state.n_targets} targets of the model; got {names}."
        )
    return _app(state)


if __name__ == "__main__":
    main()
