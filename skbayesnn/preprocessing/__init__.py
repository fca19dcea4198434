"""What stands before the network in a pipeline: columns, encoded.

A network sees a column as one straight axis. An encoding by bins lets it treat parts
of that axis differently from the first layer on, as trees do.
"""

from skbayesnn.preprocessing._piecewise_linear import PiecewiseLinearEncoder

__all__ = ["PiecewiseLinearEncoder"]
