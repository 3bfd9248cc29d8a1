"""``NodeClassifier``, with the methods of scikit-learn."""
