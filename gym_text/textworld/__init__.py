"""Microsoft's TextWorld: games that are made of a seed, and any other of its game files."""
