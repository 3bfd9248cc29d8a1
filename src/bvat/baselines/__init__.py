"""Classifiers that are not a network with a regulariser, one file each; ``table`` lists them by name."""
