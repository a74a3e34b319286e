"""OpenAI's Responses API as a model API."""
