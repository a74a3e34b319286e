"""Access: finds the credential of a request and its principal. It knows headers and addresses, no routes."""
