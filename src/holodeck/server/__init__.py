"""The HTTP server: routes, limits, the streaming response, start and stop."""
