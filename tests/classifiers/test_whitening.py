"""Whitening where the covariance is hard to invert."""

import torch

from fairshot.classifiers.whitening import WithinClassCovariance


def test_features_that_are_zero_in_nearly_all_dimensions_are_whitened():
    """LAPACK's float32 solver does not converge for such covariances."""
    torch.manual_seed(0)
    features = torch.zeros(200, 1, 1280)
    features[:, :, torch.randperm(1280)[:45]] = torch.rand(200, 1, 45)
    covariance = WithinClassCovariance.fit(features, torch.arange(200) % 2, 2, power=1.0)
    shrunk = covariance.directions * (covariance.variances + 1)[:, None] @ covariance.directions.mT
    matrix = covariance.whitening(1.0).matrix
    torch.testing.assert_close(matrix @ matrix @ shrunk, torch.eye(1280)[None], atol=1e-4, rtol=0)
