"""The benchmark: what methods, models, spaces and sizes cost, measured side by side (``bvat bench``)."""
