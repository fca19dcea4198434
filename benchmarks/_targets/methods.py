"""The methods: a function of a table, which fits, and returns the prediction.

``METHODS`` has the kinds of tables that a method takes. A method reads the training
rows of the table and X of the test rows. It returns a function without parameters that
returns a ``Predictive`` of the test rows. Only the first call is timed. Peers have
their default parameters, or those of their documentation.
"""

import numpy as np
import pandas as pd
from _leaderboard.regressors import held_out
from _targets.scores import of_distribution, of_scipy, piecewise, with_zeros
from mixed_tables import filled
from scipy import stats
from scipy.special import expit, gammainc, logit
from sklearn.compose import TransformedTargetRegressor

import skbayesnn
from skbayesnn import (
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)

# Ours


def _predicted(model, table):
    return of_distribution(skbayesnn.predict_distribution(model, table.X_test))


def ours(make, intervals=False):
    """An estimator of this package.

    make : function of the table that returns an estimator, not fitted. It can read the
        ``bounds`` and the ``exposure`` of the table
    intervals : whether y of censored tables are intervals, not plain numbers
    """

    def fit(table):
        y = table.y_plain
        if intervals and table.is_censored:
            bounds = table.lower[table.train], table.upper[table.train]
            y = skbayesnn.interval_target(*bounds)
        model = make(table).fit(table.X_train, y)
        return lambda: _predicted(model, table)

    return fit


def transformed(make):
    """An estimator of log y, or of logit y for proportions."""

    def fit(table):
        y, n, functions = table.y_plain, len(table.train), (np.log, np.exp)
        if table.kind == "proportions":
            y, functions = (y * (n - 1) + 0.5) / n, (logit, expit)  # without 0 and 1
        model = TransformedTargetRegressor(
            make(), func=functions[0], inverse_func=functions[1]
        ).fit(table.X_train, y)
        return lambda: _predicted(model, table)

    return fit


def hurdle(classifier, regressor):
    """A classifier of y > 0, and a regressor of log y in the other rows."""

    def fit(table):
        y, positive = table.y_plain, table.y_plain > 0
        is_positive = classifier().fit(table.X_train, positive)
        amount = TransformedTargetRegressor(
            regressor(), func=np.log, inverse_func=np.exp
        ).fit(table.X_train[positive], y[positive])

        def predict():
            p_zero = is_positive.predict_proba(table.X_test)[:, 0]
            return with_zeros(_predicted(amount, table), p_zero)

        return predict

    return fit


# Without columns, and survival analysis


def no_columns(table):
    """The distribution of y, or the Kaplan-Meier estimator."""
    n, levels = len(table.test), np.linspace(0, 1, 201)
    if table.kind == "survival":
        from sksurv.nonparametric import kaplan_meier_estimator

        times, survival = kaplan_meier_estimator(*_event_and_time(table))
        return lambda: _steps(times, np.tile(survival, (n, 1)), table)
    values = np.quantile(table.y_plain, levels, method="inverted_cdf")
    return lambda: piecewise(np.tile(values, (n, 1)), levels, 1e-3 * table.scale)


def _event_and_time(table):
    lower, upper = table.lower[table.train], table.upper[table.train]
    return lower == upper, lower


def _steps(times, survival, table):
    """Predictive of survival curves, which are constant between the times."""
    dead = 1 - np.repeat(survival, 2, axis=1)
    dead = np.column_stack([np.zeros(len(dead)), dead[:, :-1]])
    dead = np.maximum.accumulate(dead, axis=1)
    return piecewise(np.repeat(times, 2), dead, 1e-3 * table.scale)


def _scikit_survival(module, name, **options):
    def fit(table):
        from importlib import import_module

        from sksurv.util import Surv

        X, X_test = table.numbers
        kind = getattr(import_module(f"sksurv.{module}"), name)
        model = kind(**options).fit(X, Surv.from_arrays(*_event_and_time(table)))
        curves = model.predict_survival_function(X_test, return_array=True)
        return lambda: _steps(model.unique_times_, curves, table)

    return fit


def log_normal_aft(table):
    """Log-normal accelerated failure time of lifelines, for any intervals."""
    from lifelines import LogNormalAFTFitter

    X, X_test = (pd.DataFrame(part).add_prefix("c") for part in table.numbers)
    # Zero has an infinite logarithm.
    lower = np.maximum(table.lower[table.train], 1e-6 * table.scale)
    frame = X.assign(lower=lower, upper=table.upper[table.train])
    model = LogNormalAFTFitter(penalizer=0.01)
    model.fit_interval_censoring(frame, "lower", "upper")
    location = model.params_["mu_"]
    median = np.exp(X_test @ location[X.columns] + location["Intercept"]).to_numpy()
    sigma = np.exp(model.params_["sigma_"]["Intercept"])
    return lambda: of_scipy(stats.lognorm(sigma, scale=median))


# Boosting, with the number of trees that is best on a held-out fifth


def ngboost(name):
    """NGBoost with a distribution of NGBoost; ``NGBSurvival`` for censored times."""

    def fit(table):
        from ngboost import NGBRegressor, NGBSurvival, distns

        kind, y = NGBRegressor, (table.y_plain,)
        if table.kind == "survival":
            event, time = _event_and_time(table)
            kind, y = NGBSurvival, (time, event.astype(int))
        model = kind(Dist=getattr(distns, name), verbose=False, random_state=0)
        X, X_test = table.numbers
        held = held_out(len(X), 0)
        own, validation = ([v[rows] for v in (X, *y)] for rows in (~held, held))
        model.fit(*own, *validation, early_stopping_rounds=50)
        predicted = model.pred_dist(X_test, max_iter=model.best_val_loss_itr)
        frozen = {"Normal": stats.norm, "LogNormal": stats.lognorm}[name]
        return lambda: of_scipy(frozen(**predicted.params))

    return fit


def _catboost(table, loss, baseline=None):
    """Function of rows that returns the raw prediction of CatBoost.

    baseline : offset of the raw prediction, for all rows of the table
    """
    from catboost import CatBoostRegressor, Pool

    X = filled(table.X)
    names = [n for n in X.columns if X[n].dtype.kind not in "biuf"]
    held = held_out(len(table.train), 0)

    def pool(selected):
        rows, y = table.train[selected], table.y_plain[selected]
        offset = None if baseline is None else baseline[rows]
        return Pool(X.iloc[rows], y, cat_features=names, baseline=offset)

    options = {"thread_count": 1, "verbose": False, "allow_writing_files": False}
    model = CatBoostRegressor(
        loss_function=loss, random_seed=0, early_stopping_rounds=50, **options
    ).fit(pool(~held), eval_set=pool(held))
    return lambda rows: model.predict(X.iloc[rows], prediction_type="RawFormulaVal")


def catboost_quantiles(table):
    """Twenty quantiles, linear between them; exponential tails of both sides."""
    levels = (np.arange(20) + 0.5) / 20
    predict = _catboost(table, f"MultiQuantile:alpha={','.join(map(str, levels))}")

    def predicted():
        q = np.sort(predict(table.test), axis=1)
        rate = np.log(0.001 / levels[0]) / np.log(levels[1] / levels[0])
        first = q[:, 0] + (q[:, 1] - q[:, 0]) * rate
        last = q[:, -1] - (q[:, -2] - q[:, -1]) * rate
        probability = np.concatenate([[0.001], levels, [0.999]])
        values = np.column_stack([first, q, last])
        return piecewise(values, probability, 1e-3 * table.scale)

    return predicted


def catboost_poisson(table):
    """Poisson, with the log exposure as baseline."""
    exposure = _exposure(table)
    predict = _catboost(table, "Poisson", np.log(exposure))
    return lambda: of_scipy(
        stats.poisson(exposure[table.test] * np.exp(predict(table.test)))
    )


def _exposure(table):
    """Exposure of all rows; 1 if the table has none."""
    if table.exposure is None:
        return np.ones(len(table.X))
    return table.X[table.exposure].to_numpy()


def _lightgbm(table, loss):
    """Function of rows that returns the log of LightGBM's prediction."""
    from lightgbm import LGBMRegressor, early_stopping

    X = np.empty((len(table.X), table.numbers[0].shape[1]))
    X[table.train], X[table.test] = table.numbers
    held, y = held_out(len(table.train), 0), table.y_plain
    validation = [(X[table.train[held]], y[held])]
    stop = early_stopping(50, verbose=False)
    options = {"n_estimators": 1000, "n_jobs": 1, "random_state": 0, "verbose": -1}
    model = LGBMRegressor(objective=loss, **options)
    model.fit(X[table.train[~held]], y[~held], eval_set=validation, callbacks=[stop])
    return lambda rows: np.log(model.predict(X[rows]))


def tweedie(fit_log_mean, loss, power=1.5):
    """Compound Poisson distribution; dispersion of a held-out fifth."""

    def fit(table):
        y, held = table.y_plain, held_out(len(table.train), 0)
        predict = fit_log_mean(table, loss)
        mean = np.exp(predict(table.train[held]))
        dispersion = np.mean((y[held] - mean) ** 2 / mean**power)
        grid = np.geomspace(1e-3 * y[y > 0].min(), 5 * y.max(), 300)

        def predicted():
            mean = np.exp(predict(table.test))
            cdf = compound_poisson(grid, mean, dispersion, power)
            values = np.concatenate([[0, 0], grid])
            return piecewise(values, cdf, 1e-3 * table.scale)

        return predicted

    return fit


def compound_poisson(grid, mean, dispersion, power):
    """P(Y <= 0-, 0, grid) of a Tweedie distribution, (rows, 2 + grid)."""
    rate = mean ** (2 - power) / (dispersion * (2 - power))
    shape = (2 - power) / (power - 1)
    at = grid / (dispersion * (power - 1) * mean[:, None] ** (power - 1))
    total = np.exp(-rate)[:, None] * np.ones_like(at)
    for n in range(1, int(rate.max() + 8 * np.sqrt(rate.max()) + 10)):
        total += stats.poisson.pmf(n, rate)[:, None] * gammainc(n * shape, at)
    return np.column_stack([np.zeros(len(mean)), np.exp(-rate), total])


def negative_binomial(table):
    """Generalised linear model with an offset; dispersion by Pearson's moments."""
    import statsmodels.api as sm

    X, X_test = (sm.add_constant(part, has_constant="add") for part in table.numbers)
    exposure, y = _exposure(table), table.y_plain
    exposed = exposure[table.train]
    mean = sm.GLM(y, X, sm.families.Poisson(), exposure=exposed).fit().fittedvalues
    alpha = max(((y - mean) ** 2 - mean).sum() / (mean**2).sum(), 1e-6)
    family = sm.families.NegativeBinomial(alpha=alpha)
    model = sm.GLM(y, X, family, exposure=exposed).fit()
    mean = model.predict(X_test, exposure=exposure[table.test])
    return lambda: of_scipy(stats.nbinom(1 / alpha, 1 / (1 + alpha * mean)))


def _stack(pool="auto"):
    return BayesianStackingRegressor(pool, random_state=0)


def _fast():
    return _stack("fast")


def _fast_classifier():
    return BayesianStackingClassifier("fast", random_state=0)


def _dropout(**settings):
    return MCDropoutRegressor(random_state=0, **settings)


def _dropout_classifier():
    return MCDropoutClassifier(random_state=0)


FOREST = {"n_estimators": 200, "min_samples_leaf": 15, "random_state": 0}
_forest = _scikit_survival("ensemble", "RandomSurvivalForest", **FOREST)
_cox = _scikit_survival("linear_model", "CoxPHSurvivalAnalysis", alpha=0.1)
KINDS = "survival limit zeros counts skew proportions rounded plain"
# name: (function, kinds of tables)
METHODS = {
    "no columns": (no_columns, KINDS),
    "stack": (
        ours(
            lambda table: _stack().set_params(exposure=table.exposure), intervals=True
        ),
        KINDS,
    ),
    "stack fast": (
        ours(lambda table: _fast().set_params(exposure=table.exposure), intervals=True),
        KINDS,
    ),
    "MC dropout": (ours(lambda table: _dropout()), KINDS),
    "MC dropout, count scale": (
        ours(lambda table: _dropout(target_scale="count")),
        "counts",
    ),
    "MC dropout, Poisson": (
        ours(lambda table: _dropout(likelihood="poisson")),
        "counts",
    ),
    "MC dropout, negative binomial": (
        ours(lambda table: _dropout(likelihood="negative_binomial")),
        "counts",
    ),
    "stack fast of log, logit": (
        transformed(_fast),
        "skew proportions survival limit",
    ),
    "hurdle of MC dropout": (hurdle(_dropout_classifier, _dropout), "zeros"),
    "hurdle of stack fast": (hurdle(_fast_classifier, _fast), "zeros"),
    "random survival forest": (_forest, "survival"),
    "Cox": (_cox, "survival"),
    "log-normal AFT": (log_normal_aft, "survival limit"),
    "NGBoost": (
        ngboost("Normal"),
        "limit zeros counts skew proportions rounded plain",
    ),
    "NGBoost log-normal": (ngboost("LogNormal"), "survival limit skew"),
    "CatBoost quantiles": (catboost_quantiles, "zeros skew proportions"),
    "CatBoost Tweedie": (tweedie(_catboost, "Tweedie:variance_power=1.5"), "zeros"),
    "LightGBM Tweedie": (tweedie(_lightgbm, "tweedie"), "zeros"),
    "CatBoost Poisson": (catboost_poisson, "counts"),
    "negative binomial": (negative_binomial, "counts"),
}
