"""Pure values that a run is made of. Standard library and msgspec only; nothing here does I/O."""
