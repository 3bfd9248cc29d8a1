"""The experiments of the paper, the search for presets, and what is needed to repeat them exactly."""
