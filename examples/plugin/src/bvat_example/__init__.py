"""A method and a model for bvat."""
