"""Java in this process, for the engines that are Java programs."""
