"""The seed of the tests: 0, or the value of the variable SKBAYESNN_SEED."""

import os

SEED = int(os.environ.get("SKBAYESNN_SEED", "0"))
