"""Language models behind a server, a file for each provider of `gym_text_policies.backends.provider_table`, and what they share."""
