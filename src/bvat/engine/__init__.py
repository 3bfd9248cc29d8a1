"""How numbers of nodes are computed: on tensors, compiled, or over ranks.

``tensor`` has the mathematics once; ``cpu`` overrides what compiled loops do faster, ``ranks``
what is a sum or a product over several processes. Matrices (``sparse``, ``dense``) and graphs carry their
engine, and ``draws`` are random numbers behind one interface.
"""
