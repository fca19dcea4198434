"""The contestants for classification, functions ``name(seed, threads)``; see child.py.

As in regressors.py, packages are imported before the timing, and settings come from the
READMEs or are the defaults.
"""

import numpy as np
from regressors import Standard, held_out, on_devices


def probabilities(model):
    """``predict`` of a fitted scikit-learn classifier."""
    return lambda X: {
        "classes": model.classes_,
        "probability": model.predict_proba(X),
    }


def logistic(seed, threads):
    """Logistic regression on standardised columns."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def fit(X, y):
        line = LogisticRegression(max_iter=10_000)
        return probabilities(make_pipeline(StandardScaler(), line).fit(X, y))

    return fit


def boosting(seed, threads):
    """Histogram gradient boosting, which supports categories."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    def fit(X, y):
        return probabilities(
            HistGradientBoostingClassifier(random_state=seed).fit(X, y)
        )

    return fit


def catboost(seed, threads):
    """CatBoost, which supports categories; missing values are a level."""
    from catboost import CatBoostClassifier

    def with_text(X):
        if isinstance(X, np.ndarray):
            return X, []
        names = list(X.select_dtypes("category").columns)
        text = {name: X[name].astype(object).fillna("missing") for name in names}
        return X.assign(**text), names

    def fit(X, y):
        X, names = with_text(X)
        model = CatBoostClassifier(
            random_seed=seed,
            thread_count=threads,
            verbose=False,
            allow_writing_files=False,
        ).fit(X, y, cat_features=names)
        return lambda X: probabilities(model)(with_text(X)[0])

    return fit


def ngboost(seed, threads):
    """``NGBClassifier()`` with its defaults."""
    from ngboost import NGBClassifier
    from ngboost.distns import k_categorical

    def fit(X, y):
        classes = np.unique(y)
        model = NGBClassifier(
            Dist=k_categorical(len(classes)), verbose=False, random_state=seed
        ).fit(X, y)
        return lambda X: {"classes": classes, "probability": model.predict_proba(X)}

    return fit


def bde(seed, threads):
    """The README's classifier, on standardised X; one device per thread."""
    on_devices(threads)
    from bde import BdeClassifier
    from bde.loss import CategoricalCrossEntropy

    def fit(X, y):
        scale = Standard(X)
        model = BdeClassifier(
            n_members=4,
            hidden_layers=[16, 16],
            seed=seed,
            loss=CategoricalCrossEntropy(),
            activation="relu",
            epochs=1000,
            validation_split=0.15,
            lr=1e-3,
            warmup_steps=400,
            n_samples=100,
            n_thinning=1,
            patience=10,
        )
        model.fit(x=scale(X).astype(np.float32), y=y.astype(np.int32))
        classes = np.unique(y)
        return lambda X: {
            "classes": classes,
            "probability": np.asarray(model.predict_proba(scale(X).astype(np.float32))),
        }

    return fit


def realmlp(seed, threads):
    """``RealMLP_TD_S_Classifier`` with its README's settings for log loss."""
    from pytabkit import RealMLP_TD_S_Classifier

    return _of_pytabkit(RealMLP_TD_S_Classifier, seed, threads, use_ls=False)


def tabm(seed, threads):
    """``TabM_D_Classifier`` with early stopping by log loss."""
    from pytabkit import TabM_D_Classifier

    return _of_pytabkit(TabM_D_Classifier, seed, threads)


def _of_pytabkit(kind, seed, threads, **options):
    def fit(X, y):
        model = kind(
            device="cpu",
            random_state=seed,
            n_threads=threads,
            val_metric_name="cross_entropy",
            **options,
        )
        model.fit(X, y, val_idxs=np.flatnonzero(held_out(len(y), seed)))
        return probabilities(model)

    return fit
