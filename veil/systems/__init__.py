"""Systems with a secret."""
