"""Fits of the families in `simkv.cost.kernels`: measurements in, parameters out."""
