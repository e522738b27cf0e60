"""One run, from recipe to result: the session loop, confusion matrices, metrics, diagnostics."""
