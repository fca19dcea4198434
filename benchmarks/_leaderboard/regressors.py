"""The contestants for regression, functions ``name(seed, threads)``; see child.py.

This module imports only NumPy; every function imports its packages before the timing.
Settings are those of each package's README, or its defaults; nothing is tuned.
"""

import os
from functools import partial

import numpy as np

HELD_OUT = 0.2
# Levels of the quantile regression, including the bounds of 50, 90 and 95 % intervals.
LEVELS = (0.025, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5)
LEVELS = (*LEVELS, *(round(1 - level, 3) for level in reversed(LEVELS[:-1])))
N_TREES = 200
# Largest number of components to return of an equal-weight mixture.
MOST_COMPONENTS = 1_000


def held_out(n_rows: int, seed: int) -> np.ndarray:
    """Mask of the fifth of the rows that estimates the noise."""
    rows = np.random.default_rng(seed).permutation(n_rows)
    mask = np.zeros(n_rows, dtype=bool)
    mask[rows[: max(1, round(HELD_OUT * n_rows))]] = True
    return mask


def constant_noise(predict, std: float):
    """``predict`` with the same noise for every row."""

    def with_predictive_params(X):
        mean = np.asarray(predict(X), dtype=np.float64).ravel()
        return {"mean": mean, "std": np.full_like(mean, std)}

    return with_predictive_params


def root_mean_square(errors) -> float:
    """Root mean square of the errors of held-out rows."""
    return float(np.sqrt(np.mean(np.square(errors))))


class Standard:
    """Standardise by the training rows; constant columns are only centred."""

    def __init__(self, values):
        self.mean = values.mean(0)
        std = values.std(0)
        self.std = np.where(std > 0, std, 1.0)

    def __call__(self, values):
        return (values - self.mean) / self.std


# scikit-learn


def bayesian_ridge(seed, threads):
    """Bayesian ridge regression on standardised columns."""
    from sklearn.linear_model import BayesianRidge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def fit(X, y):
        model = make_pipeline(StandardScaler(), BayesianRidge()).fit(X, y)
        names = "mean", "std"
        return lambda X: dict(
            zip(names, model.predict(X, return_std=True), strict=True)
        )

    return fit


def gaussian_process(seed, threads):
    """Squared exponential with a length scale per column, and white noise."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def fit(X, y):
        kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel()
        process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
        X = X.astype(np.float64)
        model = make_pipeline(StandardScaler(), process).fit(X, y)
        names = "mean", "std"
        return lambda X: dict(
            zip(
                names,
                model.predict(X.astype(np.float64), return_std=True),
                strict=True,
            )
        )

    return fit


def boosting(seed, threads):
    """Boosting with noise estimated on a held-out fifth, then refitted to all rows."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    def fit(X, y):
        test = held_out(len(y), seed)
        model = HistGradientBoostingRegressor(random_state=seed)
        errors = model.fit(X[~test], y[~test]).predict(X[test]) - y[test]
        return constant_noise(model.fit(X, y).predict, root_mean_square(errors))

    return fit


def boosting_quantiles(seed, threads):
    """Quantile boosting, one model per level."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    make = partial(HistGradientBoostingRegressor, loss="quantile", random_state=seed)

    def fit(X, y):
        models = [make(quantile=level).fit(X, y) for level in LEVELS]

        def predict(X):
            quantile = np.column_stack([model.predict(X) for model in models])
            return {"levels": np.array(LEVELS), "quantile": quantile}

        return predict

    return fit


def extra_trees(seed, threads):
    """Extremely randomised trees as draws."""
    from sklearn.ensemble import ExtraTreesRegressor

    return _trees_as_draws(ExtraTreesRegressor, seed, threads)


def random_forest(seed, threads):
    """The trees of a random forest as draws."""
    from sklearn.ensemble import RandomForestRegressor

    return _trees_as_draws(RandomForestRegressor, seed, threads)


def _trees_as_draws(kind, seed, threads):
    """Each tree predicts the mean and the standard deviation of the rows in a leaf."""

    def fit(X, y):
        model = kind(N_TREES, min_samples_leaf=5, n_jobs=threads, random_state=seed)
        model.fit(X, y)
        least = 1e-3 * np.std(y)

        def predict(X):
            leaf = model.apply(X).T
            trees = [member.tree_ for member in model.estimators_]
            pairs = list(zip(trees, leaf, strict=True))
            mean = np.stack([tree.value[rows, 0, 0] for tree, rows in pairs])
            # The impurity of a leaf is the variance of its rows.
            variance = np.stack([tree.impurity[rows] for tree, rows in pairs])
            variance = np.maximum(variance, least**2)  # rounding can make it negative
            return {"mean": mean, "std": np.sqrt(variance)}

        return predict

    return fit


# Boosting and forests in other packages


def xgboost(seed, threads):
    """XGBoost with the noise of five folds, then refitted."""
    from sklearn.model_selection import KFold, cross_val_predict
    from xgboost import XGBRegressor

    def fit(X, y):
        model = XGBRegressor(random_state=seed, n_jobs=threads)
        folds = KFold(5, shuffle=True, random_state=seed)
        errors = cross_val_predict(model, X, y, cv=folds) - y
        return constant_noise(model.fit(X, y).predict, root_mean_square(errors))

    return fit


def xgboost_meta(seed, threads):
    """XGBoost with the parameters that pytabkit tuned on other tables.

    A held-out fifth selects the number of trees and estimates the noise; then refitted.
    """
    from xgboost import XGBRegressor

    make = partial(
        XGBRegressor,
        max_depth=9,
        learning_rate=0.05,
        min_child_weight=2.0,
        reg_lambda=0.0,
        subsample=0.7,
        random_state=seed,
        n_jobs=threads,
    )

    def fit(X, y):
        test = held_out(len(y), seed)
        model = make(n_estimators=1000, early_stopping_rounds=300)
        model.fit(X[~test], y[~test], eval_set=[(X[test], y[test])], verbose=False)
        errors = model.predict(X[test]) - y[test]
        model = make(n_estimators=model.best_iteration + 1).fit(X, y)
        return constant_noise(model.predict, root_mean_square(errors))

    return fit


def chimeraboost(seed, threads):
    """``ChimeraBoostQuantileRegressor()``, one model for all levels."""
    from chimeraboost import ChimeraBoostQuantileRegressor, warmup

    warmup()

    def fit(X, y):
        model = ChimeraBoostQuantileRegressor(
            list(LEVELS), thread_count=threads, random_state=seed
        ).fit(X, y)
        return lambda X: {
            "levels": np.array(LEVELS),
            "quantile": np.asarray(model.predict(X)),
        }

    return fit


def lightgbm_quantiles(seed, threads):
    """Quantile boosting of LightGBM, one model per level."""
    from lightgbm import LGBMRegressor

    def fit(X, y):
        models = [
            LGBMRegressor(
                objective="quantile",
                alpha=level,
                n_jobs=threads,
                random_state=seed,
                verbose=-1,
            ).fit(X, y)
            for level in LEVELS
        ]

        def predict(X):
            quantile = np.column_stack([model.predict(X) for model in models])
            return {"levels": np.array(LEVELS), "quantile": quantile}

        return predict

    return fit


def quantile_forest(seed, threads):
    """``RandomForestQuantileRegressor()`` of quantile-forest."""
    from quantile_forest import RandomForestQuantileRegressor

    def fit(X, y):
        model = RandomForestQuantileRegressor(random_state=seed, n_jobs=threads)
        model.fit(X, y)
        return lambda X: {
            "levels": np.array(LEVELS),
            "quantile": model.predict(X, quantiles=list(LEVELS)),
        }

    return fit


def catboost(seed, threads):
    """``RMSEWithUncertainty``: a Gaussian per row."""
    make = _catboost(seed, threads)
    return lambda X, y: gaussians_of_catboost(make().fit(X, y))


def catboost_stopped(seed, threads):
    """``catboost`` with the number of trees that is best on a held-out fifth."""
    make = _catboost(seed, threads)

    def fit(X, y):
        test = held_out(len(y), seed)
        test_set = X[test], y[test]
        return gaussians_of_catboost(make().fit(X[~test], y[~test], eval_set=test_set))

    return fit


def catboost_ensemble(seed, threads):
    """``catboost`` with ``posterior_sampling``: a mixture of ten virtual ensembles."""
    make = _catboost(seed, threads)

    def fit(X, y):
        model = make(posterior_sampling=True).fit(X, y)

        def predict(X):
            members = model.virtual_ensembles_predict(X, thread_count=threads)
            mean, variance = members.reshape(len(X), -1, 2).transpose(2, 1, 0)
            return {"mean": mean, "std": np.sqrt(variance)}

        return predict

    return fit


def _catboost(seed, threads):
    from catboost import CatBoostRegressor

    return partial(
        CatBoostRegressor,
        loss_function="RMSEWithUncertainty",
        random_seed=seed,
        thread_count=threads,
        verbose=False,
        allow_writing_files=False,
    )


def gaussians_of_catboost(model):
    """``predict`` of a fitted CatBoost model, which returns mean and variance."""

    def predict(X):
        mean, variance = model.predict(X).T
        return {"mean": mean, "std": np.sqrt(variance)}

    return predict


def ngboost(seed, threads):
    """``NGBRegressor()``: a Gaussian per row."""
    from ngboost import NGBRegressor

    def fit(X, y):
        model = NGBRegressor(verbose=False, random_state=seed).fit(X, y)

        def predict(X):
            moments = model.pred_dist(X).params
            return {"mean": moments["loc"], "std": moments["scale"]}

        return predict

    return fit


# Networks in other packages


def bde(seed, threads):
    """The README's regressor; X and y standardised, as there; one device per thread."""
    on_devices(threads)
    from bde import BdeRegressor
    from bde.loss import GaussianNLL

    def fit(X, y):
        scale_x, scale_y = Standard(X), Standard(y)
        model = BdeRegressor(
            hidden_layers=[16, 16],
            n_members=8,
            seed=seed,
            loss=GaussianNLL(),
            epochs=200,
            validation_split=0.15,
            lr=1e-3,
            weight_decay=1e-4,
            warmup_steps=5000,
            n_samples=2000,
            n_thinning=2,
            patience=10,
        )
        model.fit(x=scale_x(X), y=scale_y(y)[:, None])

        def predict(X):
            raw = np.asarray(model.predict(scale_x(X), raw=True))
            raw = raw.reshape(-1, *raw.shape[-2:])
            raw = raw[:: -(-len(raw) // MOST_COMPONENTS)]
            mean, std = raw[..., 0], np.logaddexp(0, raw[..., 1]) + 1e-6
            return {"mean": scale_y.mean + scale_y.std * mean, "std": scale_y.std * std}

        return predict

    return fit


def on_devices(threads: int) -> None:
    """Set up JAX with ``threads`` devices of one thread each, before its import."""
    os.environ["XLA_FLAGS"] = (
        f"--xla_force_host_platform_device_count={threads} "
        "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    )
    os.environ["NPROC"] = str(threads)


def realmlp(seed, threads):
    """``RealMLP_TD_S_Regressor()``; noise of the fifth that selects its epoch."""
    from pytabkit import RealMLP_TD_S_Regressor

    return _of_pytabkit(RealMLP_TD_S_Regressor, seed, threads)


def tabm(seed, threads):
    """``TabM_D_Regressor()``; noise of the fifth that stops it."""
    from pytabkit import TabM_D_Regressor

    return _of_pytabkit(TabM_D_Regressor, seed, threads)


def _of_pytabkit(kind, seed, threads):
    def fit(X, y):
        test = held_out(len(y), seed)
        model = kind(device="cpu", random_state=seed, n_threads=threads)
        model.fit(X, y, val_idxs=np.flatnonzero(test))
        errors = np.ravel(model.predict(X[test])) - y[test]
        return constant_noise(model.predict, root_mean_square(errors))

    return fit


def uqr_mc_dropout(seed, threads):
    """``MCDropoutRegressor()`` of uqregressors."""
    from uqregressors.bayesian.dropout import MCDropoutRegressor

    return _of_uqregressors(MCDropoutRegressor, seed)


def uqr_deep_ensemble(seed, threads):
    """``DeepEnsembleRegressor()`` of uqregressors."""
    from uqregressors.bayesian.deep_ens import DeepEnsembleRegressor

    return _of_uqregressors(DeepEnsembleRegressor, seed)


def _of_uqregressors(kind, seed):
    """Its intervals are Gaussian, so their width determines the std."""
    from scipy.stats import norm

    def fit(X, y):
        model = kind(random_seed=seed)
        model.fit(X, y)

        def predict(X):
            mean, lower, upper = (np.ravel(values) for values in model.predict(X))
            widths = 2 * norm.ppf(1 - model.alpha / 2)
            return {"mean": mean, "std": (upper - lower) / widths}

        return predict

    return fit
