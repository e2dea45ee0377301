"""The same environments in the forms that other libraries want; each library is an extra of its own."""
