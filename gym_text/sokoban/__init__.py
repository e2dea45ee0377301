"""Sokoban in words and characters, with levels made from a seed and a solver as its expert."""
