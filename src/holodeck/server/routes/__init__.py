"""One module for each group of routes; a wire is one module."""
