"""A page in the browser that shows what a fitted model predicts, and why.

``python -m skbayesnn.explore model.skb table.parquet`` opens it. It needs the extra
``app``: ``pip install "skbayesnn[app]"``.
"""

import argparse
import logging
import warnings
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from ipaddress import ip_address
from threading import Lock
from typing import Any

import numpy as np

from skbayesnn._exploration import Exploration, Line, names_in_fit
from skbayesnn._persistence.functions import get_untrusted_types, load
from skbayesnn._report import N_REPLACED
from skbayesnn._table_files import read_table
from skbayesnn.inspection._column_values import ChangeableColumn, shown
from skbayesnn.inspection._importance import short_names

__all__ = ["main"]

# Most columns with a control.
_MAX_CONTROLS = 100
# Most bytes of a request, whose values are those of one row.
_MAX_REQUEST = 1 << 20
_CAUSES = (
    f"The change of the epistemic uncertainty if values of {N_REPLACED} other rows "
    "replace this value."
)
_HOST = (
    "0.0.0.0 lets other machines see the table and compute predictions, without a "
    "password"
)
_COLORS = "0,114,178", "213,94,0", "0,158,115", "204,121,167", "102,102,102"
_PAGE = """<!DOCTYPE html><html lang="en"><head>{%metas%}<title>{%title%}</title>
{%favicon%}{%css%}<style>
body {font: 15px/1.45 system-ui, sans-serif; color: #222; margin: 0}
main {display: grid; grid-template-columns: 400px 1fr; height: 100vh}
aside, section {overflow-y: auto; padding: 12px 20px}
aside {border-right: 1px solid #ddd}
h1 {font-size: 1.15em; margin: 0} h2 {font-size: 1em; margin: 1em 0 .3em}
.name {margin-top: 10px; overflow-wrap: anywhere} .note {color: #666}
.error {color: #b00020; min-height: 1.4em} td {padding-right: 18px}
.dash-slider-container input {min-width: 9ch}
</style></head><body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer>
</body></html>"""


# ---- page


def _app(state: Exploration, target: int) -> Any:
    """The page, an app of Dash."""
    import dash
    from dash import Input, Output, dcc, html

    app = dash.Dash(__name__, title="skbayesnn", update_title=None)
    app.index_string = _PAGE
    app.server.config["MAX_CONTENT_LENGTH"] = _MAX_REQUEST
    computes = Lock()  # One request at a time uses the processors.

    @app.server.errorhandler(LookupError)
    def refuse(error):
        return "unknown row, column, target or level", 400

    columns = state.columns
    changeable = range(min(len(columns), _MAX_CONTROLS))
    # Levels and dates can be cleared; numbers are missing if a list contains them.
    optional = [j for j in changeable if columns[j].optional and columns[j].has_slider]
    values, summary = state.row(0), getattr(state.estimator, "summary_", "")

    def sorted_rows(target: int) -> list[dict]:
        rows = state.most_uncertain(target)
        return [{"label": f"{i:,}", "value": i} for i in rows]

    def named(name: str, box, show: Any = True):
        style = {} if show else {"display": "none"}
        return html.Div([html.Div(name, className="name"), box], style=style)

    def choice(id: Any, options: Sequence, value, **kwargs):
        pairs = [{"label": str(label), "value": v} for label, v in options]
        kwargs = {"clearable": False, "placeholder": "missing"} | kwargs
        return dcc.Dropdown(pairs, value, id=id, **kwargs)

    def control(j: int):
        column, value, id = columns[j], values[j], {"type": "value", "column": j}
        if column.levels:
            levels = [(level, level) for level in column.levels if level is not None]
            return choice(id, levels, value, clearable=column.optional)
        if not column.has_slider:
            return dcc.Input(value, id=id, debounce=True, placeholder="missing")
        low, high, step = column.slider()
        value = low if value is None else value
        still = {"disabled": low == high, "marks": None}
        return dcc.Slider(low, high, step, value=value, id=id, **still)

    names = [(columns[j].name, j) for j in range(len(columns))]
    missing = [j for j in optional if values[j] is None]
    missing = choice(
        "missing", [names[j] for j in optional], missing, multi=True, placeholder="none"
    )
    targets = choice("target", [(k, k) for k in range(state.n_targets)], target)
    row = dcc.Dropdown(sorted_rows(target), 0, id="row", clearable=False)
    aside = [
        html.H1(type(state.estimator).__name__),
        html.Div(str(summary), className="note"),
        named("row, the most uncertain first", row),
        named("target", targets, state.n_targets > 1),
        named("missing numbers", missing, optional),
        *(named(columns[j].name, control(j)) for j in changeable),
    ]
    section = [
        named("predictions along", choice("column", names, 0)),
        html.Div(id="error", className="error", role="alert"),
        dcc.Graph(id="curve", config={"displayModeBar": False}),
        html.Div(id="reasons"),
    ]
    app.layout = html.Main([html.Aside(aside), html.Section(section)])
    result = "probability" if state.is_classifier else "prediction"
    all_values = {"type": "value", "column": dash.ALL}, "value"
    inputs = [
        Input("row", "value"),
        Input("target", "value"),
        Input("missing", "value"),
        Input(*all_values),
    ]

    def changes_of(missing: Sequence[int], values: Sequence) -> dict[int, Any]:
        changes = {j: None if v == "" else v for j, v in enumerate(values)}
        return changes | dict.fromkeys(missing or ())

    @app.callback(
        Output("missing", "value"),
        Output(*all_values),
        Input("row", "value"),
        prevent_initial_call=True,
    )
    def set_row(row):
        values = state.row(row)
        missing = [j for j in optional if values[j] is None]
        no_update = dict.fromkeys(missing, dash.no_update)
        return missing, [(values | no_update)[j] for j in changeable]

    @app.callback(
        Output("row", "options"), Input("target", "value"), prevent_initial_call=True
    )
    def sort_rows(target):
        return sorted_rows(target)

    @app.callback(
        Output("curve", "figure"),
        Output("error", "children"),
        Input("column", "value"),
        *inputs,
    )
    def draw(j, row, target, missing, values):
        changes = changes_of(missing, values)
        try:
            with computes:
                x, lines = state.curve(j, row, changes, target)
        except (TypeError, ValueError) as error:
            return dash.no_update, str(error)
        value = changes.get(j, columns[j].at(row))
        return _figure(columns[j], x, lines, value, result), ""

    @app.callback(Output("reasons", "children"), *inputs)
    def explain(row, target, missing, values):
        try:
            with computes:
                found = state.reasons(row, changes_of(missing, values), target)
        except (TypeError, ValueError):  # `draw` shows the error.
            return []
        facts, outside, causes = found
        table = [html.Tr([html.Td(k), html.Td(v)]) for k, v in facts.items()]
        parts = [html.H2("This row"), html.Table(table)]
        titles = "Outside of the training range", "Uncertain mostly because of"
        notes = "", _CAUSES
        for title, note, texts in zip(titles, notes, (outside, causes), strict=True):
            items = html.Ul([html.Li(text) for text in texts])
            note = html.Div(note, className="note")
            parts += [html.H2(title), note, items] if texts else []
        return parts

    return app


def _figure(
    column: ChangeableColumn, x: list, lines: Sequence[Line], value, result: str
) -> dict[str, Any]:
    """Curves with bands; for levels bars, the first level on top."""
    traces: list[dict[str, Any]] = []
    has_levels, trace = bool(column.levels), dict[str, Any]()
    names = _labels([line.name for line in lines], 40)
    for i, (line, color) in enumerate(zip(lines, _COLORS, strict=False)):
        at = np.arange(len(x)) + 0.12 * (i - (len(lines) - 1) / 2)
        for k, (band, low, high) in enumerate(line.bands):
            shade = f"rgba({color},{0.2 + 0.15 * k})"
            if has_levels:
                ends = np.column_stack([low, high, np.full(len(x), np.nan)]).ravel()
                trace = {"x": ends, "y": np.repeat(at, 3)}
                trace["line"] = {"width": 5 + 3 * k, "color": shade}
            else:
                trace = {"x": [*x, *x[::-1]], "y": [*low, *high[::-1]]}
                trace |= {"fill": "toself", "fillcolor": shade, "line": {"width": 0}}
            about = {"name": band, "mode": "lines", "showlegend": i == 0}
            traces.append({**about, "hoverinfo": "skip", **trace})
        positions, middle = (line.middle, at) if has_levels else (x, line.middle)
        trace = {"x": positions, "y": middle}
        paint = {key: {"color": f"rgb({color})"} for key in ("line", "marker")}
        mode = "markers" if has_levels else "lines"
        traces.append({"name": names[i], "mode": mode, **trace, **paint})
    plain: dict[str, Any] = {"zeroline": False, "automargin": True}
    other = plain | {"title": {"text": result}}
    axis = plain | {"title": {"text": _labels([column.name], 60)[0]}}
    layout: dict[str, Any] = {
        "margin": {"t": 10, "r": 10, "b": 50},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "height": 440,
    }
    if column.levels:
        pairs = zip(_labels([shown(level) for level in x], 40), x, strict=True)
        ticks = [f"<b>{name}</b>" if v == value else name for name, v in pairs]
        axis |= {"tickvals": [*range(len(x))], "ticktext": ticks}
        layout["height"] = max(440, 26 * len(x) + 120)
        axis["range"] = [len(x) - 0.5, -0.5]
        return {"data": traces, "layout": {**layout, "xaxis": other, "yaxis": axis}}
    if value is not None:
        here = {"x0": value, "x1": value, "y0": 0, "y1": 1, "yref": "paper"}
        layout["shapes"] = [{"type": "line", "line": {"dash": "dot"}, **here}]
    if column.has_slider:
        shown_range = {*column.usual_range, *[value] * (value is not None)}
        axis["range"] = [min(shown_range), max(shown_range)]
    return {"data": traces, "layout": {**layout, "xaxis": axis, "yaxis": other}}


def _labels(names: Sequence[str], longest: int) -> list[str]:
    """Names as Plotly shows them: it would read tags."""
    return [escape(name) for name in short_names(names, longest)]


# ---- command


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m skbayesnn.explore",
        description="Show in a browser what a model predicts for a table, and why.",
    )
    add = parser.add_argument
    add("model", help="file of skbayesnn.save")
    add("table", help=".parquet, .csv or .xlsx file with the columns of the model")
    add("--y", nargs="+", help="columns with the measured targets")
    add("--train", metavar="TABLE", help="training rows, if the table has other rows")
    add("--target", type=int, default=0, help="index of the target; default 0")
    add(
        "--trusted", nargs="+", metavar="TYPE", help="types to load; see skbayesnn.load"
    )
    add("--host", default="127.0.0.1", help=_HOST)
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

    host = f"[{options.host}]" if ":" in options.host else options.host
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server(options.host, options.port, app.server, threaded=True)
    port = f":{server.server_port}"
    if _is_local(options.host):  # not for a web page under another name

        @app.server.before_request
        def check_host():
            names = {"127.0.0.1", "localhost", host}
            if flask.request.host.removesuffix(port) not in names:
                return "the page has another name", 400

    address = f"http://{host}{port}"
    print(f"{address} shows the model. Ctrl-C ends it.", flush=True)
    if not options.no_browser:
        webbrowser.open(address)
    with suppress(KeyboardInterrupt):
        server.serve_forever()


def _is_local(host: str) -> bool:
    """Whether only this machine can use an address."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _app_of(options: argparse.Namespace) -> Any:
    """Load the files, and create the page."""
    try:
        import dash  # noqa: F401
        import pandas  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"{error.name} is not installed. The page needs the extra `app`: "
            'pip install "skbayesnn[app]"'
        ) from error
    trusted = options.trusted or []
    if others := set(get_untrusted_types(options.model)) - {*trusted}:
        raise ValueError(
            f"{options.model} has objects of other packages. If you trust them and the "
            f"file, name their types: --trusted {' '.join(sorted(others))}"
        )
    model = load(options.model, trusted)
    columns = names_in_fit(model)
    table = read_table(options.table, columns)
    names = {str(name): name for name in table.columns}
    if missing := [name for name in options.y or () if name not in names]:
        raise ValueError(f"--y must name columns of the table; it lacks {missing}.")
    targets = [names[name] for name in options.y or ()]
    y = table[targets] if targets else None
    train = read_table(options.train, columns) if options.train else None
    if train is not None and train.shape[1] == table.shape[1]:
        train = train.drop(columns=targets, errors="ignore")
    state = Exploration(model, table.drop(columns=targets), y, train)
    if targets and len(targets) != state.n_targets:
        raise ValueError(
            f"--y must name the {state.n_targets} targets of the model; got "
            f"{options.y}."
        )
    if not 0 <= options.target < state.n_targets:
        raise ValueError(
            f"--target must be from 0 to {state.n_targets - 1}, the index of a target "
            f"of the model; got {options.target}."
        )
    return _app(state, options.target)


def _print_warnings_once() -> None:
    """Print each warning once, not at each change of a control.

    The action "once" prints a warning again after a change of the filters.
    """
    show, shown_texts = warnings.showwarning, set[str]()

    def show_once(message, *args, **kwargs):
        if str(message) not in shown_texts:
            shown_texts.add(str(message))
            show(message, *args, **kwargs)

    warnings.showwarning = show_once


if __name__ == "__main__":
    _print_warnings_once()
    main()
