"""The form of loops: nodes, what they mean, what must hold of them, and how they are written."""
