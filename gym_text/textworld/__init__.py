"""Microsoft's TextWorld: games that are made from a seed, and any other game file of TextWorld."""
