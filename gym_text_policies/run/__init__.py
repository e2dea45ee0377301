"""A plan says what is played, and a run plays what is missing of it. The commands bench, panel and run are plans that ship."""
