"""normfuse: fuse what computes a normalization, fold what is affine, prove the result."""
