"""From the fields of config dataclasses to options, YAML keys and help."""
