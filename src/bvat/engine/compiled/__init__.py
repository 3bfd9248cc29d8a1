"""Compiled versions of a few tensor operations, for tensors in single precision on a CPU.

``engine`` is the engine that uses them; ``backend`` and ``attention`` decide what runs compiled. ``compile``
compiles loops and keeps their machine code; ``loops`` (sparse products and the layers of a GCN) and
``searches`` (a step on receptive fields) import numba and are imported only when needed. ``rowwise`` is
arithmetic that does not depend on how rows are spread over processes, ``adam`` one fused step of Adam.
"""
