"""Recipes: one YAML a dataset and method, validated by typed settings."""
