"""Recipes: one YAML a dataset and method, validated by typed settings."""

from fairshot.recipes.recipe import (
    DEFAULT_METHOD,
    Recipe,
    check_recipe,
    default_recipe,
    load_recipe,
    read_recipe,
    recipe_names,
)

__all__ = [
    "DEFAULT_METHOD",
    "Recipe",
    "check_recipe",
    "default_recipe",
    "load_recipe",
    "read_recipe",
    "recipe_names",
]
