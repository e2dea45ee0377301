"""TextArena's games, for one player and for two, run inside this process."""
