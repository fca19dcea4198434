"""All predictions of a model, and their comparison."""

import numpy as np


def predictions(model, X):
    """Predictions of a fitted model by name, rows first."""
    total = model.predict_uncertainty(X, kind="all")
    functions = np.atleast_3d(model.sample_f(X, 5, random_state=2))
    n_rows = X.shape[0]
    if hasattr(model, "classes_"):
        return total | {
            "label": model.predict(X),
            "proba": model.predict_proba(X),
            "functions": functions,
            "density": model.log_predictive_density(X, model.classes_[[1] * n_rows]),
        }
    zeros = np.zeros(n_rows)
    return total | {
        "mean": model.predict(X),
        "std": model.predict(X, return_std=True)[1],
        "quantile": model.predict_quantile(X, 0.2),
        "cdf": model.predictive_cdf(X, zeros),
        "functions": functions,
        "density": model.log_predictive_density(X, zeros),
    }


def assert_same(actual, desired, rows=slice(None), **tolerance):
    """Predictions equal ``rows`` of the desired ones; exactly by default."""
    assert actual.keys() == desired.keys()
    for name, value in desired.items():
        if tolerance and value.dtype.kind == "f":
            np.testing.assert_allclose(
                actual[name], value[rows], err_msg=name, **tolerance
            )
        else:
            np.testing.assert_array_equal(actual[name], value[rows], err_msg=name)
