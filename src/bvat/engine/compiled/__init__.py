"""Compiled twins of a few tensor operations, for tensors in single precision on a CPU.

``backend`` decides what runs compiled; ``attention`` does so for GAT. ``compile`` compiles loops and keeps their
machine code; ``loops`` (sparse products and the layers of a GCN) and ``searches`` (a step on receptive fields) import
numba and are imported only when needed. ``layout`` holds tensor operations that are faster in another memory layout,
``rowwise`` arithmetic that does not depend on how rows are spread over processes, ``adam`` one fused step of Adam.
"""
