"""The environments of this package in the interfaces of other libraries. Each library is an extra of its own."""
