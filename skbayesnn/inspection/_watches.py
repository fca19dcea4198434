"""Sequential tests of later rows: bets that too many scores are large."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, NamedTuple

import numpy as np
from scipy.special import expit, logit

from skbayesnn import _stored as stored

# Share of undrifted rows whose score is at most the threshold, by signal.
SHARES = {"coverage": 0.9, "log density": 0.5}
# Bets: changes of the log odds of a large score. The first one bets nothing.
BETS = np.array([0.0, 0.7, 1.4, 2.8])
# Share of the wealth that is spread over all bets again after each row.
SPREAD = 0.005
# Groups with fewer rows have no test, since their thresholds are inaccurate.
LEAST_ROWS = 50


class Alarm(NamedTuple):
    """A sequential test of the rows of updates.

    Parameters
    ----------
    signal : {"coverage", "log density"}
        Too many rows outside of 90 % intervals, or with a log density below its median.
    column, group : str
        The column of groups and the value in it; empty if the test is of all rows.
    p_value : float
        Valid at any time, and for all tests together: in streams without drift the
        probability that it ever falls to p or below is at most p.
    n_rows : int
        Rows of updates.
    share, expected : float
        Share of these rows that are outside, or below the median; and without drift.
    """

    signal: str
    column: str
    group: str
    p_value: float
    n_rows: int
    share: float
    expected: float


@dataclass(frozen=True)
class Watches:
    """Tests of several signals and groups at once.

    The score of each row is large if y is far from its prediction. If rows are
    exchangeable, the number of scores above the threshold, an order statistic of the
    scores of held-out rows, follows Polya's urn. A bet multiplies its wealth by the
    ratio of its probability to the urn's, so that the wealth is a martingale; by
    Ville's inequality it ever exceeds 1 / a with probability at most a [Ramdas,
    Grunwald, Vovk & Shafer 2023, "Game-theoretic statistics and safe anytime-valid
    inference"].

    Parameters
    ----------
    names : list of tuple of str
        Signal, column and group of each test.
    threshold : ndarray of shape (tests,)
    urn_above, urn_rows : ndarray of shape (tests,)
        Rows in the urn, before updates, that are above the threshold, and all of them.
    new_above, new_rows : ndarray of shape (tests,)
        The same of updates.
    shares : ndarray of shape (tests, bets)
        Share of each bet in the wealth.
    log_wealth, log_largest : ndarray of shape (tests,)
        Logarithm of the wealth, and of the largest wealth so far.
    """

    names: Annotated[list[tuple[str, str, str]], "tests"]
    threshold: Annotated[stored.Floats, "tests", stored.NOT_NAN]
    urn_above: Annotated[stored.Integers, "tests", stored.POSITIVE]
    urn_rows: Annotated[stored.Integers, "tests", stored.POSITIVE]
    new_above: Annotated[stored.Integers, "tests", stored.NOT_NEGATIVE]
    new_rows: Annotated[stored.Integers, "tests", stored.NOT_NEGATIVE]
    shares: Annotated[stored.Floats, "tests, bets", stored.SHARE]
    log_wealth: Annotated[stored.Floats, "tests"]
    log_largest: Annotated[stored.Floats, "tests"]

    @classmethod
    def of(cls, scores: Mapping[str, np.ndarray], groups: dict) -> "Watches":
        """Tests from the scores of held-out rows; groups : of each row, by column."""
        found = []
        for column, labels in groups.items():
            for group in np.unique(labels).tolist():
                rows = labels == group
                if rows.sum() < LEAST_ROWS and group:
                    continue
                for signal, values in scores.items():
                    n = int(rows.sum())
                    rank = min(n, int(np.ceil(SHARES[signal] * (n + 1))))
                    threshold = np.sort(values[rows])[rank - 1]
                    name = signal, str(column), group
                    found.append((name, threshold, n + 1 - rank, n + 1))
        names, threshold, above, n_rows = zip(*found, strict=True)
        none = np.zeros(len(names), int)
        return cls(
            list(names),
            np.array(threshold, dtype=np.float64),
            np.array(above),
            np.array(n_rows),
            none,
            none,
            np.full((len(names), len(BETS)), 1 / len(BETS)),
            np.zeros(len(names)),
            np.zeros(len(names)),
        )

    def after(self, scores: Mapping[str, np.ndarray], groups: dict) -> "Watches":
        """The tests after some rows, in their order."""
        members = np.stack([groups[column] == group for _, column, group in self.names])
        above = np.stack([scores[signal] for signal, *_ in self.names])
        return self._after_rows((above > self.threshold[:, None]).T, members.T)

    def _after_rows(self, above, members) -> "Watches":
        """above, members : whether a row is above, and in the test, (rows, tests)."""
        new = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "names"}
        shares, n_above, n_rows = new["shares"], new["new_above"], new["new_rows"]
        log_wealth, log_largest = new["log_wealth"], new["log_largest"]
        for is_above, is_member in zip(above, members, strict=True):
            odds = (self.urn_above + n_above) / (self.urn_rows + n_rows)
            bets = expit(logit(odds)[:, None] + BETS)
            gain = np.where(is_above, bets.T / odds, (1 - bets.T) / (1 - odds)).T
            moved = gain * ((1 - SPREAD) * shares + SPREAD / len(BETS))
            total = moved.sum(1)
            shares = np.where(is_member[:, None], moved / total[:, None], shares)
            log_wealth = log_wealth + np.where(is_member, np.log(total), 0.0)
            log_largest = np.maximum(log_largest, log_wealth)
            n_above, n_rows = n_above + (is_above & is_member), n_rows + is_member
        return replace(
            self,
            shares=shares,
            new_above=n_above,
            new_rows=n_rows,
            log_wealth=log_wealth,
            log_largest=log_largest,
        )

    def alarms(self) -> list[Alarm]:
        """All tests, the smallest p-value first."""
        p_values = np.minimum(1.0, len(self.names) * np.exp(-self.log_largest))
        expected = self.urn_above / self.urn_rows
        found = [
            Alarm(*name, float(p), int(n), float(k / n) if n else np.nan, float(share))
            for name, p, n, k, share in zip(
                self.names,
                p_values,
                self.new_rows,
                self.new_above,
                expected,
                strict=True,
            )
        ]
        return sorted(found, key=lambda alarm: alarm.p_value)
