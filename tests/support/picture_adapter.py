"""Rows of numbers as pictures, so that scikit-learn's own checks, which give rows, can test an estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

SIDE = 8  # pixels of a picture


class PictureRows(ClassifierMixin, BaseEstimator):
    """Draws each row as a picture of stripes, one per number, and hands labels and weights on as they are.

    It checks rows, which the estimator does not know, and nothing else. Numbers are scaled by the range of
    the rows of `fit`.
    """

    def __init__(self, estimator: Any = None) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PictureRows:
        X = validate_data(self, X, ensure_all_finite=True, dtype="numeric")
        low, high = X.min(axis=0), X.max(axis=0)
        drawn = _drawn(X, low, high)
        self.estimator_ = clone(self.estimator).fit(drawn, y, sample_weight=sample_weight)
        self.low_, self.high_ = low, high
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> PictureRows:
        first = not hasattr(self, "estimator_")
        X = validate_data(self, X, reset=first, ensure_all_finite=True)
        if first:
            self.low_, self.high_ = X.min(axis=0), X.max(axis=0)
        estimator = clone(self.estimator) if first else self.estimator_
        drawn = _drawn(X, self.low_, self.high_)
        self.estimator_ = estimator.partial_fit(drawn, y, classes=classes, sample_weight=sample_weight)
        return self

    @property
    def classes_(self) -> Any:
        return self.estimator_.classes_

    def predict(self, X: Any) -> Any:
        pictures = self._pictures(X)
        return self.estimator_.predict(pictures)

    def predict_proba(self, X: Any) -> Any:
        pictures = self._pictures(X)
        return self.estimator_.predict_proba(pictures)

    def _pictures(self, X: Any) -> Any:
        check_is_fitted(self)
        return _drawn(validate_data(self, X, reset=False), self.low_, self.high_)


def _drawn(X: Any, low: Any, high: Any) -> Any:
    """Draw each row (N, d) as vertical stripes (N, SIDE, SIDE), whose greys are its numbers."""
    span = np.where(high > low, high - low, 1)
    greys = (255 * np.clip((X.astype(np.float64) - low) / span, 0, 1)).round().astype(np.uint8)
    stripes = greys[:, np.arange(SIDE) * X.shape[1] // SIDE]
    return np.repeat(stripes[:, None], SIDE, axis=1)
