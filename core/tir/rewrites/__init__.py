"""From loops to equal loops."""
