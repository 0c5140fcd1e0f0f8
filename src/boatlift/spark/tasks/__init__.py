"""What runs inside tasks."""
