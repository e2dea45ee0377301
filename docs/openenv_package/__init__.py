"""CookingWorld as a package of OpenEnv: see README.md."""
