"""The agent as an MCP server: JSON-RPC messages in, results and progress out. Pure and synchronous."""
