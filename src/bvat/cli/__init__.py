"""The command line. It holds no mathematics."""
