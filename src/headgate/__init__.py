"""headgate."""
