"""Google's Vertex AI: Gemini by its OpenAI-compatible API, Claude by Anthropic's Messages, both with Google's tokens."""
