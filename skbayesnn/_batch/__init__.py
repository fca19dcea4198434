"""Fit many estimators; networks of the same shape are trained in one program."""
