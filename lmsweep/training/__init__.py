"""One run: data, model and margin callback in; checkpoint and results out."""
