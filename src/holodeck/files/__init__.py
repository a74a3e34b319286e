"""Files that users send: turns bytes into text or an image for the model. Nothing is dropped silently."""
