"""What is known of loops without running them: ranges of values, and that what they do is safe."""
