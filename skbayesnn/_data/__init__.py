"""Frame -> table (validate) -> design on a device (design)."""
