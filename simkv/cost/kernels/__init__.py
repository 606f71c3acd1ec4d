"""How long kernels take, one module a family: a few physical parameters and pure functions of the shape."""
