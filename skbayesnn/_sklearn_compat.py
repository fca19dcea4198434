"""All that is used of scikit-learn's private names, and of its newer versions.

What scikit-learn does not promise may move in any release: it is imported here and
nowhere else, and a test tries every name at the oldest and at the newest version.
"""

from sklearn.base import _fit_context as fit_context
from sklearn.metrics._scorer import _MultimetricScorer as MultimetricScorer
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import _safe_indexing as safe_indexing
from sklearn.utils.metadata_routing import _routing_enabled as routing_enabled
from sklearn.utils.metaestimators import _safe_split as safe_split
from sklearn.utils.validation import (
    _check_method_params as check_method_params,
)
from sklearn.utils.validation import (
    _check_sample_weight as check_sample_weight,
)
from sklearn.utils.validation import (
    _num_samples as num_samples,
)

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn < 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in where scikit-learn has no callbacks."""

    def with_callbacks(method):
        """Stands in where scikit-learn has no callbacks."""
        return method


__all__ = [
    "BaseSearchCV",
    "CallbackSupportMixin",
    "MultimetricScorer",
    "check_method_params",
    "check_sample_weight",
    "fit_context",
    "num_samples",
    "routing_enabled",
    "safe_indexing",
    "safe_split",
    "with_callbacks",
]
