"""Settings, presets, the training loop and its hooks, checkpoints, and the store of runs."""
