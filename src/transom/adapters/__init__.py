"""Concrete parts behind the ports. Siblings never import each other."""
