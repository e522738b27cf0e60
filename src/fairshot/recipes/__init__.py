"""Recipes: one YAML file per benchmark and method over what its methods share, checked by typed settings."""

from fairshot.recipes.annotated import annotated_yaml
from fairshot.recipes.recipe import (
    DEFAULT_METHOD,
    Recipe,
    check_recipe,
    default_recipe,
    load_recipe,
    read_recipe,
    recipe_names,
    run_name,
    write_recipe,
)

__all__ = [
    "DEFAULT_METHOD",
    "Recipe",
    "annotated_yaml",
    "check_recipe",
    "default_recipe",
    "load_recipe",
    "read_recipe",
    "recipe_names",
    "run_name",
    "write_recipe",
]
