"""What to do about values of another kind: sentences of errors and warnings.

``{}`` is the column, as Python code.
"""

import datetime
import re
from collections import Counter
from collections.abc import Sequence

# Start of the way out if y is missing. Without it, rows are counted over all blocks.
REMOVE_ROWS = "Remove these rows from X and y"
WITH_MASK = (
    ", for instance with keep = np.isfinite(np.asarray(y, dtype=float)), X[keep] and "
    "y[keep]; for a table of polars X.filter(keep)"
)
DAYS = "Convert them to numbers, for instance to days with y / np.timedelta64(1, 'D')."
DAYS_OF_DATES = (
    "Convert them to a duration, for instance with dates = pandas.Series("
    "pandas.to_datetime(y)), then y = (dates - dates.min()) / pandas.Timedelta('1D')."
)
CODE_FOR_MISSING = (
    "If it is a code, give NaN in its place in this column, in `fit` and in "
    "predictions, but keep equal values of other columns."
)
ENCODE_TEXT = (
    "Encode it in a pipeline:\n"
    "    from skrub import TableVectorizer\n"
    "    make_pipeline(TableVectorizer(), estimator)"
)
ENCODE_COLUMNS = (
    "Encode them first, for instance with sklearn.compose.ColumnTransformer or "
    "skrub.TableVectorizer in a pipeline."
)
# What a column must contain and contains, and the conversion.
DURATIONS = ("durations", "numbers"), "pandas.to_timedelta(column, 's')"
NO_DURATIONS = ("numbers", "durations"), "column / pandas.Timedelta('1s')"
NUMBERS = (
    "Write yes as 1, no as 0, and numbers in one format, such as 1234.5, without units "
    "and without marks between thousands; then pandas.to_numeric({}, errors='coerce') "
    "reads them, and makes other text missing."
)
DATES = (
    "Convert it with pandas.to_datetime(column, format='%d.%m.%Y'), with the format of "
    "the text, or with unit='s' and the unit of numbers. Give None for missing values."
)
_ISO_DATES = "Convert it with pandas.to_datetime(column, format='ISO8601', {})."

# With this share of values that represent numbers or dates, text should be converted.
_SHARE = 0.9
# With fewer distinct values, text is not compared with other formats.
_MIN_FORMATTED = 10
# A date in ISO 8601, as in CSV files that pandas writes. A time zone may follow.
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?")
# Other dates, such as 31.12.2024, 12/31/24, 2024/12/31, 1 May 2024 and Dec. 31, 2024,
# and a time.
_DATE = re.compile(
    r"(\d{1,2}[./-]\d{1,2}[./-]\d{4}|\d{1,2}/\d{1,2}/\d{2}"
    r"|\d{4}[./-]\d{1,2}[./-]\d{1,2}|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4}"
    r"|[A-Za-z]{3,9}\.? \d{1,2}, \d{4})([T ,]+\d{1,2}:\d{2}.*)?"
)
_PLAIN_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
# A number with what is before and after it, such as "$", or a unit. Letters or # before
# it are part of a name, such as room 5; < and > are a bound. Minus signs may be those
# of typography. Thousands have a mark.
_NUMBER = re.compile(
    r"([^\w#<>]*?)\s*[-+\u2212\u2013]?"
    r"(?:(?:[0-9]+|[1-9][0-9]{0,2}(?:[.,\s'\u2019_][0-9]{3})+)(?:[.,][0-9]*)?"
    r"|[.,][0-9]+)(?:[eE][-+]?[0-9]+)?(?![.,\s'\u2019_]?[0-9])\s*(.*)"
)


def listed(parts: Sequence, most: int = 10) -> str:
    """The first names or values, for a message."""
    return ", ".join(map(str, parts[:most])) + ", ..." * (len(parts) > most)


def is_iso_date(text: str) -> bool:
    """Whether text is a date in ISO format, with or without a time zone."""
    if not ISO_DATE.match(text):
        return False
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def is_number(text: str) -> bool:
    """Whether text is a number, without commas."""
    return bool(_PLAIN_NUMBER.fullmatch(text))


def about_text(distinct: Sequence[str], is_long: bool) -> tuple[str, str] | None:
    """What text seems to represent, and a sentence on its conversion.

    None: most values represent neither numbers nor dates, or there are few.

    distinct : different texts of a column
    is_long : whether plain numbers are meant, too; a few can be names of categories
    """
    n, others = len(distinct), [text for text in distinct if not is_iso_date(text)]
    # A few numbers as text can be names of categories; a few dates cannot.
    if others and n - len(others) >= _SHARE * n:
        dates = set(distinct).difference(others)
        zone = "" if all(map(ISO_DATE.fullmatch, dates)) else ", utc=True"
        return (
            f"dates, except {len(others)} of {n} values such as {others[0][:40]!r},",
            _ISO_DATES.format(f"errors='coerce'{zone}"),
        )
    if n < _MIN_FORMATTED:
        return None
    found = [text for text in others if _DATE.fullmatch(text)]
    if len(found) >= _SHARE * n:
        return f"dates, such as {found[0][:40]!r},", DATES
    numbers = _numbers_in(distinct)
    odd = [text for text in numbers if not is_number(text)]
    if len(numbers) < _SHARE * n or len(odd) < (0 if is_long else _SHARE / 2 * n):
        return None
    return f"numbers, such as {(odd or numbers)[0][:40]!r},", NUMBERS.format("column")


def _numbers_in(texts: Sequence[str]) -> list[str]:
    """Texts that are numbers, with the same text before and after most of them."""
    found = [(text, _NUMBER.fullmatch(text.strip())) for text in texts]
    rests = [(t, (m[1].strip(" -+\u2212\u2013"), m[2])) for t, m in found if m]
    counts = Counter(rest for _, rest in rests)
    common = max(counts, key=lambda rest: counts[rest], default=("", ""))
    if 2 * counts[common] <= len(texts):
        common = ("", "")
    return [text for text, rest in rests if rest == common]
