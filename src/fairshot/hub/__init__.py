"""Runs and stores on a hub of models."""
