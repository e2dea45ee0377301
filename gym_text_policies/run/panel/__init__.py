"""The panel: a fixed, versioned list of worlds on which policies are compared, with scores between chance and the expert."""
