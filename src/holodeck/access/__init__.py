"""Access: which credential a request carries, and which principal that makes. It knows headers and addresses, no routes."""
