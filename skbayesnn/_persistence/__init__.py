"""Save and load fitted models as arrays and JSON; loading executes no code."""
