"""Training over several processes, or on a few parts at a time: a graph cut into parts.

``parts`` cuts a graph and puts neighbours close in memory, ``folder`` writes and reads a folder of parts,
``part_graph`` is the part of one rank as a graph whose engine is :class:`bvat.engine.ranks.RankEngine`,
``join`` turns the processes that ``torchrun`` started into ranks, and ``batches`` trains on a few parts at a
time.
"""
