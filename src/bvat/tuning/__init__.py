"""The search for settings, and the automatic choice of a method."""
