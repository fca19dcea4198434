"""Checks of X and y, their scaling, and the training rows on a device."""
