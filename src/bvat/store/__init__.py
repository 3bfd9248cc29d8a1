"""The folders of runs, the store that never computes anything twice, and parallel processes."""
