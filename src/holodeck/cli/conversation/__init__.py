"""A conversation between a person and an agent: what is said, kept, checked and commanded, whatever it is shown on."""
