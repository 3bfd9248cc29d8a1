"""Settings, presets, the training loop, checkpoints, runs of several seeds and their folders."""
