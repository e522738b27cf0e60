"""Recipes: one YAML file per benchmark and method over what its methods share, checked by typed settings."""

from fairshot.recipes.annotated import annotated_yaml as annotated_yaml
from fairshot.recipes.recipe import DEFAULT_METHOD as DEFAULT_METHOD
from fairshot.recipes.recipe import Recipe as Recipe
from fairshot.recipes.recipe import check_recipe as check_recipe
from fairshot.recipes.recipe import default_recipe as default_recipe
from fairshot.recipes.recipe import load_recipe as load_recipe
from fairshot.recipes.recipe import read_recipe as read_recipe
from fairshot.recipes.recipe import run_name as run_name
from fairshot.recipes.recipe import write_recipe as write_recipe
from fairshot.recipes.sources import recipe_names as recipe_names
