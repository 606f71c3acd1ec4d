"""Readers: public formats of kernel measurements, into the table of `simkv.calibrate.measurements`."""
