"""What to do about values of another kind: sentences of errors and warnings.

``{}`` is the column, as Python code.
"""

import datetime
import re
from collections import Counter
from collections.abc import Sequence
from itertools import product

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
_MISSING = ", which makes other values, such as {!r}, missing"
_TRUTH = (
    "Convert it with {}.str.strip().str.lower().map("
    "{{'true': True, 'yes': True, 'false': False, 'no': False}})."
)
_PLAIN = "Convert it with pandas.to_numeric({}, errors='coerce'){}."
_NUMBERS = (
    "Write all numbers in one format, such as 1234.5, without units and without marks "
    "between thousands; then pandas.to_numeric({}, errors='coerce') reads them{}."
)
_ISO_DATES = "Convert it with pandas.to_datetime({}, format='ISO8601', {}){}."
_DATES = "Convert it with pandas.to_datetime({}, format={!r}{}){}."
_ONE_FORMAT = "Write all dates in one format, such as 2024-12-31."
_NO_DATES = "Replace values that are no dates by None, a missing value."
_OTHER_DATES = {
    "number": "Convert it with pandas.to_datetime({}, unit='s'), with the unit of the "
    "numbers: 'D', 's' or 'ms' since 1970.",
    "Period": "Convert it with pandas.PeriodIndex({}).to_timestamp().",
}

# With this share of values that represent numbers or dates, text should be converted.
_SHARE = 0.9
# With fewer distinct values, text is not compared with other formats; with more, the
# first ones are.
_MIN_FORMATTED, _MAX_FORMATTED = 10, 200
# A date in ISO 8601, as in CSV files that pandas writes. A time zone may follow.
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?")
# Other formats of dates, in the order of preference.
_FORMATS = [
    date + time
    for date, time in product(
        [
            *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d", "%Y.%m.%d"),
            *("%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d %b %Y", "%d %B %Y", "%d-%b-%Y"),
            *("%b %d, %Y", "%B %d, %Y", "%b. %d, %Y", "%d-%b-%y", "%Y-%m-%d"),
        ],
        ["", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", ", %H:%M", "T%H:%M"],
    )
]
# What a date may be: it begins and ends as one, with two marks in between.
_MAY_BE_DATE = re.compile(r"\w+[./, -]+\w+\.?[./, -]+\d.*")
_PLAIN_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
# A number with what is before and after it, such as "$", or a unit. Letters or # before
# it are part of a name, such as room 5; < and > are a bound. Minus signs may be those
# of typography. Thousands have a mark.
_NUMBER = re.compile(
    r"([^\w#<>]*?)\s*[-+\u2212\u2013]?"
    r"(?:(?:[0-9]+|[1-9][0-9]{0,2}(?:[.,\s'\u2019_][0-9]{3})+)(?:[.,][0-9]*)?"
    r"|[.,][0-9]+)(?:[eE][-+]?[0-9]+)?(?![.,\s'\u2019_]?[0-9])\s*(.*)"
)
# Above this share of common integers on both sides of a comma, texts are pairs.
_PAIRS_SHARE = 0.7


def listed(parts: Sequence, most: int = 10) -> str:
    """The first names or values, for a message."""
    return ", ".join(map(str, parts[:most])) + ", ..." * (len(parts) > most)


def is_iso_date(text: str) -> bool:
    """Whether text is a date in ISO format, with or without a time zone."""
    return bool(ISO_DATE.match(text)) and _is_read(
        datetime.datetime.fromisoformat, text
    )


def is_number(text: str) -> bool:
    """Whether text is a number, without commas."""
    return bool(_PLAIN_NUMBER.fullmatch(text))


def about_text(distinct: Sequence[str], is_long: bool) -> tuple[str, str] | None:
    """What text seems to represent, and a sentence on its conversion.

    None: most values represent neither numbers nor dates, or there are few.

    distinct : different texts of a column
    is_long : whether plain numbers are meant, too; a few can be names of categories
    """
    few, n = len(distinct) < _MIN_FORMATTED, len(distinct)
    dates, others = ([], distinct) if few else _dates_in(distinct, _SHARE)
    if dates:
        example = next(text for text in distinct if text not in others)
        return f"dates, such as {example[:40]!r},", _to_dates("column", dates, others)
    numbers = [] if few else _numbers_in(distinct)
    odd = [text for text in numbers if not is_number(text)]
    least = 0 if is_long else _SHARE / 2 * n
    if len(numbers) >= _SHARE * n and len(odd) >= least and not _are_pairs(odd):
        example = (odd or distinct)[0]
        commas = " with commas" if "," in example else ""
        return (
            f"numbers{commas}, such as {example[:40]!r},",
            for_numbers(distinct, "column"),
        )
    others = [text for text in distinct if not is_iso_date(text)]
    # A few numbers as text can be names of categories; a few dates cannot.
    if not others or n - len(others) < _SHARE * n:
        return None
    found = set(distinct).difference(others)
    zone = "" if all(map(ISO_DATE.fullmatch, found)) else ", utc=True"
    return (
        f"dates, except {len(others)} of {n} values such as {others[0][:40]!r},",
        _ISO_DATES.format("column", f"errors='coerce'{zone}", ""),
    )


def for_numbers(texts: Sequence[str], column: str) -> str:
    """Sentence on how to make numbers of the texts among other values.

    column : as Python code
    """
    if all(text.strip().lower() in ("true", "yes", "false", "no") for text in texts):
        return _TRUTH.format(column)
    numbers = _numbers_in(texts)
    others = [text for text in texts if text not in numbers]
    way = _PLAIN if all(map(is_number, numbers)) else _NUMBERS
    return way.format(column, _MISSING.format(others[0][:40]) if others else "")


def for_dates(texts: Sequence[str], kinds: set[str], is_mixed: bool) -> str:
    """Sentence on how to make dates of the values of a column that are none.

    texts : those among the values
    kinds : of the values: "number", or the name of a type
    is_mixed : whether other values of the column are dates
    """
    if not texts:
        [kind] = kinds if len(kinds) == 1 else [""]
        return _OTHER_DATES.get(kind, _NO_DATES).format("column")
    dates, others = _dates_in(list(dict.fromkeys(texts)), 0.5)
    rest = texts if is_mixed or not dates else others
    if any(_formats_of([text]) for text in rest):
        return _ONE_FORMAT
    return _to_dates("column", dates, others) if dates else _NO_DATES


# ---- formats


def _to_dates(column: str, formats: Sequence[str], others: Sequence[str]) -> str:
    """Sentence on dates in some formats, among other texts."""
    coerce = ", errors='coerce'" if others else ""
    missing = _MISSING.format(others[0][:40]) if others else ""
    first, *more = formats
    either = "".join(f", or format={f!r}" for f in more)
    return _DATES.format(column, first, coerce, either + missing)


def _dates_in(texts: Sequence[str], share: float) -> tuple[list[str], list[str]]:
    """Formats other than ISO of the dates among texts, and texts that are no dates.

    Day and month may be in both orders; there are then two formats.

    share : of the texts that must be dates; otherwise there are no formats
    """
    sample = texts[:_MAX_FORMATTED]
    unread = {f: [t for t in sample if not _has(t, f)] for f in _formats_of(sample)}
    fewest = min(map(len, unread.values()), default=len(sample))
    if len(sample) - fewest < max(1, share * len(sample)):
        return [], list(texts)
    formats = [f for f, others in unread.items() if len(others) == fewest]
    rest = (t for t in texts[_MAX_FORMATTED:] if not any(_has(t, f) for f in formats))
    return formats, [*unread[formats[0]], *rest]


def _formats_of(texts: Sequence[str]) -> list[str]:
    """Formats of dates that the first texts have; none of dates in ISO format."""
    some = [t for t in texts if _MAY_BE_DATE.fullmatch(t) and not is_iso_date(t)]
    return [f for f in _FORMATS if any(_has(text, f) for text in some[:10])]


def _has(text: str, date_format: str) -> bool:
    # 1.2.10 is a version.
    if len(text) < 8 and "." in text:
        return False
    return _is_read(datetime.datetime.strptime, text, date_format)


def _is_read(function, *arguments) -> bool:
    try:
        function(*arguments)
    except ValueError:
        return False
    return True


def _numbers_in(texts: Sequence[str]) -> list[str]:
    """Texts that are numbers, with the same text before and after most of them."""
    found = [(text, _NUMBER.fullmatch(text.strip())) for text in texts]
    rests = [(t, (m[1].strip(" -+\u2212\u2013"), m[2])) for t, m in found if m]
    counts = Counter(rest for _, rest in rests)
    common = max(counts, key=lambda rest: counts[rest], default=("", ""))
    if 2 * counts[common] <= len(texts):
        common = ("", "")
    return [text for text, rest in rests if rest == common]


def _are_pairs(texts: Sequence[str]) -> bool:
    """Whether most integers on one side of a comma are also on the other side.

    They are then pairs of codes, such as 3,4, rather than decimals.
    """
    if not texts or not all(re.fullmatch(r"[0-9]+,[0-9]+", text) for text in texts):
        return False
    left, right = map(set, zip(*(text.split(",") for text in texts), strict=True))
    return len(left & right) > _PAIRS_SHARE * len(left | right)
