"""What the documents say is what the code does."""
