"""Is that a normalization? Forms of polynomials, one module a family, and why a candidate is none."""
