"""What is measured with attacks: curves, distances to the boundary, signs of masking."""
