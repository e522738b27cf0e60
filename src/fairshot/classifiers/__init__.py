"""The paper's equations on tensors: no files, no randomness, no device chosen."""
