"""What does a subgraph compute? Polynomials over a base value, and the walk that finds them."""
