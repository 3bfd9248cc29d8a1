"""What to trust: prediction sets, labels to look at, nodes to label next, reasons of a prediction."""
