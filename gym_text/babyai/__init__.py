"""BabyAI's levels with the agent's partial view in words."""
