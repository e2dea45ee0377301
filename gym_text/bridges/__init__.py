"""The same environments in the forms that other libraries want: one file a library, each an extra of its own."""
