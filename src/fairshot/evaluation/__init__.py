"""Session loop, confusion matrices, metrics, diagnostics."""
