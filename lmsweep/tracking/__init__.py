"""W&B and TensorBoard beside the walk, never in its way: local files are the truth, these mirror them."""
