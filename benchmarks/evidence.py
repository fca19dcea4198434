"""How good are networks by evidence, alone and in the default stack?

Made-up tables (the default): 60 tables of 40 to 3,000 rows and 1 to 50 columns, with
linear and curved functions and noise of .01 to 3 standard deviations of the function.
LaplaceRegressor and its linear model, hidden_layer_sizes=(), are compared on 1,000 new
rows: CRPS, and whether the network is worse by more than a standard error of the mean
difference.

With ``--sets``: canonical split 0 of UCI sets, with at most ``--rows`` training rows:
the scores of LaplaceRegressor, and of the default stack with and without it; with
``--wide``, of a posterior of the last layer and an anchored ensemble instead. With
``--time``: CPU seconds of a network by rows. With ``--chains`` (needs numpyro): the
posterior of three small tables by long Markov chains, at the precisions that the
evidence has estimated.

    python benchmarks/evidence.py
    python benchmarks/evidence.py --sets naval-propulsion-plant,kin8nm --rows 750
    python benchmarks/evidence.py --time
    python benchmarks/evidence.py --chains
"""

import time
import warnings

import numpy as np
from common import command_line, environment, table
from sklearn.datasets import load_diabetes, make_friedman1
from uci import load

from skbayesnn import (
    AnchoredEnsembleRegressor,
    BayesianStackingRegressor,
    LaplaceRegressor,
    default_pool,
)
from skbayesnn.estimators._evidence import DenseNetwork
from skbayesnn.metrics import interval_coverage, mixture_log_density

N_TABLES, N_NEW = 60, 1000


def made_up(seed: int):
    """X and y of training rows and of new rows, and what they are."""
    random = np.random.default_rng(seed)
    n_rows = int(np.exp(random.uniform(np.log(40), np.log(3000))))
    n_columns = int(np.exp(random.uniform(0, np.log(50.99))))
    noise = float(np.exp(random.uniform(np.log(0.01), np.log(3))))
    X = random.normal(size=(n_rows + N_NEW, n_columns))
    used = X[:, : min(n_columns, 6)]
    f = used @ random.normal(size=used.shape[1])
    if seed % 3:
        weights = random.normal(size=(used.shape[1], 4)) / np.sqrt(used.shape[1])
        curved = np.sin(2 * used @ weights) @ random.normal(size=4)
        f = curved + (f if seed % 3 == 1 else 0)
    y = f + noise * f.std() * random.normal(size=len(f))
    kind = ("linear", "linear and curved", "curved")[seed % 3]
    what = [kind, n_rows, n_columns, f"{noise:.2f}"]
    return X[:n_rows], y[:n_rows], X[n_rows:], y[n_rows:], what


def against_linear() -> None:
    """One line for each made-up table, and the number of tables that are worse."""
    rows, worse, ratios = [], 0, []
    for seed in range(N_TABLES):
        X, y, X_new, y_new, what = made_up(seed)
        start = time.process_time()
        network = LaplaceRegressor(random_state=0).fit(X, y)
        seconds = time.process_time() - start
        linear = LaplaceRegressor((), random_state=0).fit(X, y)
        crps = [model.crps(X_new, y_new) for model in (network, linear)]
        difference = crps[0] - crps[1]
        # The same model, if the evidence selects no units.
        error = max(difference.std() / np.sqrt(N_NEW), np.finfo(float).tiny)
        worse += difference.mean() > error
        ratios.append(crps[0].mean() / crps[1].mean())
        interval = network.predict_interval(X_new, 0.9)
        rows.append(
            [
                *what,
                "x".join(map(str, network.hidden_layer_sizes_)) or "none",
                f"{ratios[-1]:.3f}",
                f"{difference.mean() / error:.1f}",
                f"{interval_coverage(y_new, interval):.2f}",
                f"{seconds:.1f}",
            ]
        )
    header = ["function", "rows", "columns", "noise", "units", "CRPS / linear"]
    print(table([*header, "standard errors", "90 % cover", "CPU s"], rows))
    print(
        f"Worse than the linear model by more than a standard error: {worse} of "
        f"{N_TABLES}; largest CRPS ratio {max(ratios):.3f}."
    )


def on_sets(names: list[str], most: int, are_wide: bool) -> None:
    """Scores on the test rows of canonical split 0."""
    pool = [item for item in default_pool() if item[0] != "laplace"]
    models: dict = {"LaplaceRegressor": LaplaceRegressor(random_state=0)}
    if are_wide:
        wide = {"posterior": "last_layer", "random_state": 0}
        models |= {
            "last layer of 50 x 50": LaplaceRegressor((50, 50), **wide),
            "AnchoredEnsembleRegressor": AnchoredEnsembleRegressor(random_state=0),
        }
    else:
        models |= {
            "stack without": BayesianStackingRegressor(pool, random_state=0),
            "stack": BayesianStackingRegressor(random_state=0),
        }
    for name in names:
        X, y, train, test = load(name, 1)
        train, test, rows = train[0][:most], test[0], []
        for label, model in models.items():
            start = time.process_time()
            model.fit(X[train], y[train])
            seconds = time.process_time() - start
            error = model.predict(X[test]) - y[test]
            interval = model.predict_interval(X[test], 0.9)
            weight = ""
            if label == "stack":
                weights = model.weights_["weight"]
                share = weights[weights.index.str.startswith("laplace")].sum()
                weight = f"{share:.2f}"
            rows.append(
                [
                    label,
                    f"{model.crps(X[test], y[test]).mean():.4g}",
                    f"{np.sqrt(np.square(error).mean()):.4g}",
                    f"{model.log_predictive_density(X[test], y[test]).mean():.3f}",
                    f"{interval_coverage(y[test], interval):.2f}",
                    weight,
                    f"{seconds:.1f}",
                ]
            )
        print(f"\n{name}: {len(train)} rows")
        header = ["model", "CRPS", "RMSE", "log density", "90 % cover", "weight"]
        print(table([*header, "CPU s"], rows), flush=True)


def seconds_by_rows() -> None:
    """CPU seconds of one network on Friedman's first function, 8 columns."""
    rows = []
    for n_rows in (1000, 5000, 20_000):
        X, y = make_friedman1(n_rows, 8, noise=1.0, random_state=0)
        line = [f"{n_rows:,}"]
        for hidden in ((16,), (16, 16)):
            model = LaplaceRegressor(
                hidden, likelihood="gaussian", n_estimators=1, random_state=0
            )
            start = time.process_time()
            model.fit(X, y)
            line += [f"{time.process_time() - start:.2f}", str(model.n_iter_)]
        rows.append(line)
    header = ["rows", "16 units, CPU s", "steps", "16 x 16 units, CPU s", "steps"]
    print(table(header, rows))


def chain_draws(network: DenseNetwork, x, y, starts, alpha, tau) -> np.ndarray:
    """Draws of the weights by NUTS, a chain from each start, (draws, n_weights)."""
    import jax
    from numpyro.infer import MCMC, NUTS

    jax.config.update("jax_enable_x64", True)
    inputs, units, _ = network.sizes
    ends = np.cumsum([inputs * units, units, units])

    def potential(w):
        first, bias, last, _ = jax.numpy.split(w, ends)
        hidden = jax.numpy.tanh(x @ first.reshape(inputs, units) + bias)
        error = hidden @ last + w[-1] - y
        return 0.5 * (tau * error @ error + alpha @ w**2)

    chains = MCMC(
        NUTS(potential_fn=potential, max_tree_depth=9),
        num_warmup=1000,
        num_samples=1000,
        num_chains=len(starts),
        chain_method="sequential",
        progress_bar=False,
    )
    chains.run(jax.random.PRNGKey(0), init_params=np.stack(starts))
    return np.asarray(chains.get_samples())


def against_chains() -> None:
    """Predictive mean, standard deviation and log density on rows that are new."""
    X, y = load_diabetes(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    tables = {"diabetes": (X[:150], y[:150], X[150:], y[150:])}
    for seed in (2, 20):
        X, y, X_new, y_new, (kind, *_, noise) = made_up(seed)
        tables[f"{kind}, noise {noise}"] = X, y, X_new, y_new
    rows = []
    for name, (X, y, X_new, y_new) in tables.items():
        options = {"likelihood": "gaussian", "random_state": 0}
        model = LaplaceRegressor((6,), n_estimators=4, **options).fit(X, y)
        network = DenseNetwork((X.shape[1], 6, 1), "tanh")
        starts = [network.vector(model.layers_of(k, "network")) for k in range(4)]
        x, x_new = ((a - model.x_mean_) / model.x_scale_ for a in (X, X_new))
        mean, scale = model.y_mean_[0], model.y_scale_[0]
        alpha = model.information_["alpha"][0]
        tau = model.parameters_["tau"][0, 0]
        start = time.process_time()
        draws = chain_draws(network, x, (y - mean) / scale, starts, alpha, tau)
        seconds = time.process_time() - start
        f = np.stack([network.outputs(w, x_new)[:, 0] for w in draws[::10]])
        f = f * scale + mean
        noise = np.full(f.shape, scale**2 / tau)
        density = mixture_log_density(y_new, f, noise)
        std = np.sqrt(f.var(0) + noise[0])
        found = [["chains", "", "", f"{density:.3f}", f"{seconds:.0f}"]]
        for n_networks in (1, 4):
            start = time.process_time()
            model.set_params(n_estimators=n_networks).fit(X, y)
            seconds = time.process_time() - start
            apart = (model.predict(X_new) - f.mean(0)) / std
            ratios = model.predict_uncertainty(X_new, "epistemic") / f.std(0)
            density = model.log_predictive_density(X_new, y_new).mean()
            found.append(
                [
                    f"evidence, networks: {n_networks}",
                    f"{np.sqrt(np.mean(np.square(apart))):.2f}",
                    f"{np.median(ratios):.2f}",
                    f"{density:.3f}",
                    f"{seconds:.1f}",
                ]
            )
        rows += [[name, len(y), *line] for line in found]
    header = ["table", "rows", "posterior", "mean apart", "epistemic std / chains"]
    print(table([*header, "log density", "CPU s"], rows))


def main() -> None:
    arguments = command_line(__doc__)
    arguments.add_argument("--sets", default="")
    arguments.add_argument("--rows", type=int, default=10**9)
    arguments.add_argument("--wide", action="store_true")
    arguments.add_argument("--time", action="store_true")
    arguments.add_argument("--chains", action="store_true")
    options = arguments.parse_args()
    print(environment())
    warnings.filterwarnings("ignore")
    if options.chains:
        against_chains()
    elif options.time:
        seconds_by_rows()
    elif options.sets:
        on_sets(options.sets.split(","), options.rows, options.wide)
    else:
        against_linear()


if __name__ == "__main__":
    main()
