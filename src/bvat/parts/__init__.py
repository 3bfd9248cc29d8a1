"""Training over several processes: the world, the parts of a graph, and the exchanged matrix.

``world`` is what losses, metrics and steps go through; alone, it costs nothing. ``parts`` cuts a graph and
writes a folder per part, ``exchange`` multiplies by Â over all parts, ``draws`` gives random numbers that do
not depend on the number of processes, ``fields`` samples nodes with disjoint receptive fields over all parts,
and ``join`` turns the processes that ``torchrun`` started into ranks.
"""
