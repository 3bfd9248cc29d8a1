"""Time and memory of methods, spaces, sizes and compiled kernels, measured side by side (``bvat bench``)."""
