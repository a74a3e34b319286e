"""What operators see: log lines, metrics, spans, the context of a request."""
