"""Everything made of several runs: compare, tune, ablate, trade-off, poisoning."""
