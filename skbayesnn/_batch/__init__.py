"""Fits many estimators, networks together in one program."""
