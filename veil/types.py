"""The shape vocabulary.

Letters, everywhere: K secrets, M particles per secret, P size of a secret, N size of a state, E size of an
external input, Y size of a release, F number of features, T steps, B batch.
"""

from jaxtyping import Array, Float, PRNGKeyArray

# Stands for log 0. Finite, so that neither sums nor gradients ever meet −∞ − (−∞).
LOG_ZERO = -1e30

Key = PRNGKeyArray
Scalar = Float[Array, ""]
Vector = Float[Array, " d"]
Secret = Float[Array, " P"]
State = Float[Array, " N"]
External = Float[Array, " E"]
Shared = Float[Array, " Y"]
Features = Float[Array, " F"]
Noise = Float[Array, " n"]
