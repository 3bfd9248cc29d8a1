"""Compiled loops of the inner passes, for tensors on a CPU.

Each does what some tensor operations do, in one pass over memory; the operations themselves stay beside every
call for other devices and precisions, and tests hold the two against each other. Importing these modules
imports numba, so nothing does before it has work for them: :func:`bvat.kernels.compile.usable` tells when.

``vectors``: sums of rows, several numbers at a time, of which all else is made; ``products``: sparse products
and the layers of a GCN; ``functions``: exp and log; ``entropy``; ``searches``: the steps of a search.
"""
