"""The posteriors that the benchmarks compare: estimator and settings by name."""

from skbayesnn import BBBRegressor, MCDropoutRegressor, VariationalDropoutRegressor

POSTERIORS = {
    "mc_dropout": (MCDropoutRegressor, {}),
    "gaussian": (MCDropoutRegressor, {"noise": "gaussian"}),
    "dropconnect": (MCDropoutRegressor, {"noise": "dropconnect"}),
    "additive": (MCDropoutRegressor, {"noise": "additive"}),
    "concrete": (MCDropoutRegressor, {"dropout": "auto"}),
    "bbb": (BBBRegressor, {}),
    "bbb_spike": (BBBRegressor, {"dropout": 0.02}),
    "bbb_mixture": (BBBRegressor, {"prior": "scale_mixture", "kl": "sampled"}),
    "vd_correlated": (VariationalDropoutRegressor, {}),
    "vd_independent": (VariationalDropoutRegressor, {"noise": "independent"}),
    "vd_weight": (
        VariationalDropoutRegressor,
        {"noise": "independent", "alpha_per": "weight"},
    ),
}
