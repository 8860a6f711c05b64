"""The stages that a recipe is made of."""
