"""Runs: their folders, the store that never computes anything twice, and parallel processes."""
