"""From measured kernels to a hardware profile: one schema, readers, fits, reports, a collector."""
