"""How numbers of nodes are computed: matrices, compiled loops, sums over ranks, and random draws."""
