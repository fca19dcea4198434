"""Encodings of columns, for the pipeline step before a network.

A network's first layer is linear in each column. An encoding by bins lets it treat
parts of a column's range differently from the first layer on, as trees do.
"""

from skbayesnn._data.table_encoder import TableEncoder
from skbayesnn._data.target import parse_limits
from skbayesnn.preprocessing._piecewise_linear import PiecewiseLinearEncoder

__all__ = ["PiecewiseLinearEncoder", "TableEncoder", "parse_limits"]
