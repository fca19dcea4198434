"""Fitted models <-> files of arrays and JSON, of which nothing is executed."""
