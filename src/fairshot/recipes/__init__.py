"""Recipes: one YAML a dataset and method, validated by typed settings."""

from fairshot.recipes.recipe import (
    Recipe,
    check_recipe,
    default_recipe,
    load_recipe,
    read_recipe,
    recipe_names,
)

__all__ = ["Recipe", "check_recipe", "default_recipe", "load_recipe", "read_recipe", "recipe_names"]
