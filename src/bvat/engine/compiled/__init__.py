"""Compiled twins of a few tensor operations, for tensors on a CPU.

``backend`` decides what runs compiled, and is the only module that the rest of the package asks. ``compile``
compiles loops that have no equivalent in tensor operations; ``layout`` holds tensor operations that are
faster in another memory layout; ``adam`` is one fused step of Adam. The others import numba: ``vectors``
(sums of rows in vector registers, of which all else is made), ``functions`` (exp and log), ``layers`` (sparse
products and the layers of a GCN), ``entropy``, and ``searches`` (the steps of a search).
"""
