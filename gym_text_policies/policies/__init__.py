"""Everything that acts: random, the expert, language models, what a search has found."""
