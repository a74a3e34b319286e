"""Chat-stream: `{input}` in, five kinds of named events out (seed 003). Pure and synchronous."""
