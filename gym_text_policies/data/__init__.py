"""Training data: rows of conversations with labels, where they come from, and the forms in which other trainers take them."""
