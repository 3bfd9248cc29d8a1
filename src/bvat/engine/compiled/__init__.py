"""Loops that numba compiles, for numpy arrays.

``attention`` is a layer of a GAT. ``rowwise`` is arithmetic for ranks, which does not depend on how rows are
spread over processes; its products are in ``loops``, which imports numba and is imported only when needed.
"""
