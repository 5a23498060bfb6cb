"""The pictures: curves, distances and regions, in one style, on one kind of sheet."""
