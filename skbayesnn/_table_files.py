"""Read tables from files: Parquet, Excel, and CSV as several programs write it."""

import codecs
import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


def read_table(path: str, names: Sequence[str] = ()) -> Any:
    """Read a file as a frame of pandas.

    names : of columns that a table with names has; a first line of numbers then has
        names, too, such as years
    """
    kind = Path(path.lower().removesuffix(".gz")).suffix
    if kind not in (".parquet", ".pq", ".xlsx", ".csv"):
        raise ValueError(
            f"a table must be a .parquet, .csv or .xlsx file; got {path}. Save it as "
            ".csv or .parquet."
        )
    try:
        return _read(path, kind, names)
    except ImportError as error:
        raise ImportError(
            f"{path} cannot be read: {error} Or save the table as .csv or .parquet."
        ) from error
    except Exception as error:  # Broken files raise many kinds of errors.
        if getattr(error, "filename", None):
            raise
        raise ValueError(f"{path} cannot be read: {error}") from error


def _read(path: str, kind: str, names: Sequence[str]) -> Any:
    import pandas

    if kind in (".parquet", ".pq"):
        return pandas.read_parquet(path).reset_index(drop=True)
    if kind == ".xlsx":
        return pandas.read_excel(path, engine="openpyxl")
    options = _csv_options(path)
    # Files that NumPy has written have no names in the first line. pandas writes the
    # positions of columns without names.
    first = pandas.read_csv(path, header=None, nrows=1, **options)
    texts = pandas.read_csv(path, header=None, nrows=1, dtype=str, **options)
    has_names = len(names) and {*names} <= {*texts.iloc[0]}
    if has_names or not all(dtype.kind in "if" for dtype in first.dtypes):
        return pandas.read_csv(path, **options)
    has_positions = first.to_numpy().ravel().tolist() == [*range(first.shape[1])]
    options["skiprows"] = options.get("skiprows", 0) + has_positions
    return pandas.read_csv(path, header=None, **options)


# A number, with a decimal point or a decimal comma.
_NUMBER = re.compile(r"\s*[+-]?(\d+)(?:([.,])(\d+))?(?:[eE][+-]?\d+)?\s*")


def _csv_options(path: str) -> dict[str, Any]:
    """Encoding, separator and decimal point of a CSV file, by its first lines.

    Prints which columns may have a decimal comma or a comma between thousands: they
    stay text.
    """
    encoding = _encoding(path)
    with _opened(path) as binary:
        text = io.TextIOWrapper(binary, encoding, newline="")
        lines = [line for line, _ in zip(text, range(200), strict=False)]
    options: dict[str, Any] = {"encoding": encoding}
    if re.fullmatch(r"sep=.\s*", lines[0] if lines else ""):  # as Excel writes it
        options |= {"skiprows": 1, "sep": lines[0][4]}
        tables = [(lines[0][4], _rows(lines[1:], lines[0][4]))]
    else:
        tables = [(separator, _rows(lines, separator)) for separator in "\t;|,"]
    tables = [table for table in tables if _is_table(*table)]
    if not tables:
        return options
    # Another separator within the values leaves fewer numbers, or fewer columns.
    separator, rows = max(
        tables,
        key=lambda t: (
            _n_values(t[1]) <= len(t[1][0]),
            _share_of_numbers(*t),
            len(t[1][0]),
        ),
    )
    options["sep"] = separator
    n_names, n_values = len(rows[0]), max(map(len, rows[:2]))
    # pandas would take the first value of each row for its label.
    if n_values > n_names:
        if all(not row[-1].strip() for row in rows if len(row) == n_values):
            options["index_col"] = False  # Only the rows end with a separator.
        elif not re.match(r"\s*[\"']", lines[-1]):  # R writes labels in quotes.
            raise ValueError(
                f"the first line has fewer values ({n_names}) than the next one "
                f"({n_values}: {separator.join(rows[1])[:40]!r}). Name each column, "
                "and write numbers with a decimal point."
            )
    if separator == ",":
        return options
    numbers = [
        (j, match)
        for row in rows
        for j, value in enumerate(row)
        if (match := _NUMBER.fullmatch(value)) and match[2]
    ]
    n_points = sum(match[2] == "." for _, match in numbers)
    commas = [(j, match) for j, match in numbers if match[2] == ","]
    # 12,345 can be twelve thousand.
    if len(commas) > n_points and any(
        match[1].startswith("0") or len(match[1]) > 3 or len(match[3]) != 3
        for _, match in commas
    ):
        return options | {"decimal": ","}
    ambiguous = {j: match[0].strip() for j, match in reversed(commas)}
    for j in sorted(ambiguous):
        print(
            f"{path}: column {rows[0][j]!r} is read as text, since the comma in "
            f"{ambiguous[j]} may be a decimal comma, or separate thousands. Write the "
            "numbers with a point, or without separators.",
            flush=True,
        )
    return options


def _opened(path: str) -> Any:
    """A file, if necessary decompressed, for reading bytes."""
    return (gzip.open if path.lower().endswith(".gz") else open)(path, "rb")


def _encoding(path: str) -> str:
    """UTF-8, UTF-16 with its mark, or the encoding of Excel in Windows."""
    with _opened(path) as file:
        start = file.read(3)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for encoding in ("utf-8-sig" if start == codecs.BOM_UTF8 else "utf-8", "cp1252"):
        decoder = codecs.getincrementaldecoder(encoding)()
        with suppress(UnicodeDecodeError), _opened(path) as file:
            while block := file.read(1 << 20):
                decoder.decode(block)
            decoder.decode(b"", final=True)
            return encoding
    raise ValueError("it is not in UTF-8. Save it as CSV with UTF-8, or .parquet.")


def _rows(lines: Sequence[str], separator: str) -> list[list[str]]:
    """Values of the lines that are not blank; none if a value is too long."""
    try:
        rows = list(csv.reader(lines, delimiter=separator))
    except csv.Error:
        return []
    return [row for row in rows if any(value.strip() for value in row)]


def _is_table(separator: str, rows: Sequence[Sequence[str]]) -> bool:
    """Whether there are columns, and most rows have as many values as the first.

    Or one more. A single name and two values are more likely text with a semicolon.
    """
    if not rows:
        return False
    n_names, n_values = len(rows[0]), _n_values(rows)
    if n_names == 1 and separator != ",":
        return False
    n_equal = sum(len(row) == n_values for row in rows[1:])
    return (
        n_values > 1 and 0 <= n_values - n_names <= 1 and 2 * n_equal >= len(rows[1:])
    )


def _n_values(rows: Sequence[Sequence[str]]) -> int:
    """Number of values in most rows after the first."""
    counts = Counter(len(row) for row in rows[1:] or rows)
    return counts.most_common(1)[0][0]


def _share_of_numbers(separator: str, rows: Sequence[Sequence[str]]) -> float:
    """Share of values that are numbers."""
    are_numbers = [bool(_NUMBER.fullmatch(value)) for row in rows[:50] for value in row]
    return sum(are_numbers) / len(are_numbers)
