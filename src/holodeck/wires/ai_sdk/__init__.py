"""The UI message stream of Vercel's AI SDK (`useChat`): UI messages in, chunks out. Pure and synchronous."""
