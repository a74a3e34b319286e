"""Files that users send: bytes in, text or an image that the model is shown out. Nothing is dropped without a word."""
