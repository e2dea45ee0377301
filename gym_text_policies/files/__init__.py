"""Files: what is read from them safely, JSON, digests, caches, and folders that belong to one configuration."""
