"""OpenAI's Responses, as their SDKs and Open Responses (2026-04-24) read them."""
