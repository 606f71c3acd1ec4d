"""``simkv sweep``: many scenarios that differ in a few fields, and which of them answers best.

``grid`` reads what is varied, ``points`` makes scenarios of it, ``executor`` runs them somewhere, ``answer``
is what one of them runs (with ``find``, ``slo`` and ``load``), ``folder`` keeps what is done, ``table`` and
``ranking`` show it, ``study`` ties them together.
"""
