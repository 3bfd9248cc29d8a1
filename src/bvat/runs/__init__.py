"""Runs: folders of results, made and continued from Python as on the command line."""
