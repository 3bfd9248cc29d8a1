"""Epoch time and memory of the methods on this machine (``bvat bench``); ``benchmarks/`` has the rest."""
