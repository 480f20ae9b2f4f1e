"""What projects of other build systems take an artifact by."""
