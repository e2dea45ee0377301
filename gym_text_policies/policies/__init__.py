"""Everything that acts: random, the expert, controllers, language models, what a search has found."""
