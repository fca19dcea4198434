"""Do rows that are held out choose the prior's length scale of MC dropout well?

On the tables of ``likelihoods.py``: parts of the training rows of the UCI sets, and
others, scored on up to 1,500 rows kept apart. Printed are the log density less that of
the rule that looks at the width of the layers and N alone, and the CRPS as a ratio to
its (geometric; in brackets of the table with the lowest and the highest), on average
over tables: of what the held-out rows say is likeliest, which is the default, of what
they say is likelier than the rule by its standard error, and of what the new rows
themselves would choose. Then the share of new rows in the default's 90 % intervals (the
table with the fewest, and the most), and its seconds over the rule's (geometric).

    python benchmarks/length_choice.py
"""

import time
import warnings

import numpy as np
from common import command_line, environment, table
from held_out_noise import scores
from likelihoods import parts
from sklearn.base import clone

from skbayesnn import MCDropoutRegressor
from skbayesnn.estimators import _selection
from skbayesnn.estimators._job import task_of
from skbayesnn.estimators._training_data import prepare

KINDS = {
    "gaussian": MCDropoutRegressor(device="cpu", random_state=0),
    "heteroscedastic": MCDropoutRegressor(
        likelihood="heteroscedastic", device="cpu", random_state=0
    ),
    "rates learned": MCDropoutRegressor(dropout="auto", device="cpu", random_state=0),
}
ROWS = (60, 150, 600, 1500)
best_setting = _selection.best_setting


def timed(network, rows):
    """A fit, and its seconds."""
    start = time.perf_counter()
    return clone(network).fit(*rows), time.perf_counter() - start


def judged_fits(network, rows, new):
    """Scores under every length scale, what each rule chooses of them, and seconds.

    The first are those of the rule of width and N.
    """
    scales = {
        one.length_scale.tobytes(): one.length_scale
        for one in task_of(network, prepare(network, *rows)).settings
    }
    by_rule, *_ = scales.values()
    one, seconds = timed(clone(network).set_params(length_scale=by_rule), rows)
    found, said = [scores(one, *new)], []

    def kept(task, judged):
        # Trainings that are shorter have the first scale.
        said[:] = judged[: len(scales)]
        return best_setting(task, judged)

    _selection.best_setting = kept
    _, longer = timed(network, rows)
    for number in range(len(scales)):
        _selection.best_setting = lambda task, judged, number=number: number
        found.append(scores(timed(network, rows)[0], *new))
    _selection.best_setting = best_setting
    of_scales = np.array(found[1:])
    densities = np.array([one.score for one in said])
    surely = [True, *(one.is_better_than(said[0]) for one in said[1:])]
    chosen = [
        densities.argmax(),
        np.where(surely, densities, -np.inf).argmax(),
        of_scales[:, 1].argmin(),
    ]
    chosen = of_scales[chosen]
    return found[0], chosen, longer / seconds


def told(of_rule, chosen):
    """Of (tables, scores) each, as a cell."""
    ratios = chosen[:, 1] / of_rule[:, 1]
    mean = np.exp(np.log(ratios).mean())
    density = (chosen[:, 0] - of_rule[:, 0]).mean()
    return f"{density:+.2f}; {mean:.3f} ({ratios.min():.2f} to {ratios.max():.2f})"


def main():
    """Print the table."""
    command_line(__doc__).parse_args()
    warnings.simplefilter("ignore")
    print(environment(), flush=True)
    lines = []
    for kind, network in KINDS.items():
        for n_rows in ROWS:
            found = [judged_fits(network, *cut) for cut in parts(n_rows)]
            of_rule, chosen, longer = map(np.array, zip(*found, strict=True))
            cells = [told(of_rule, chosen[:, i]) for i in range(3)]
            inside = chosen[:, 0, 2]
            cells += [
                f"{inside.mean():.2f} ({inside.min():.2f} to {inside.max():.2f})",
                f"{np.exp(np.log(longer).mean()):.1f}",
            ]
            lines.append([kind, n_rows, *cells])
    names = "likeliest", "by its standard error", "best", "in 90 %", "seconds"
    print(table(["noise", "N", *names], lines))


if __name__ == "__main__":
    main()
