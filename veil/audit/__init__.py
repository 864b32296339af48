"""The audit: two-sided leakage of a whole run, the attacks, the gate and the verdict."""
