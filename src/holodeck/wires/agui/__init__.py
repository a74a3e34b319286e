"""AG-UI 1.0 (and the 0.0.59 dialect): bytes in, RunRequest; events in, SSE or protobuf. Pure and synchronous."""
