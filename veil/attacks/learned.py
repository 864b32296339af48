"""The adversary without a model: a network that was shown many transcripts and the secrets behind them."""

import jax.numpy as jnp

from veil.attacks.base import Attack, Evidence
from veil.attacks.network import Network, Scaling
from veil.rollout import Transcript
from veil.types import Key


class LearnedAttack(Attack):
    """A classifier of transcripts, made by `train_attack`.

    It finds leaks that filters miss, as in kernels that fold the state, and its score on fresh transcripts
    is a lower bound on the leakage whatever it learned. It knows nothing of system and policy.
    """

    scaling: Scaling
    network: Network

    def __call__(self, transcript: Transcript, *, key: Key) -> Evidence:
        """The forecast of the network, less the prior it was trained under. Nothing is random."""
        del key
        logits = self.network(self.scaling(transcript), self.scaling)
        whole = jnp.all(jnp.isfinite(transcript.shared)) & jnp.all(jnp.isfinite(transcript.external))
        whole = whole & jnp.all(jnp.isfinite(transcript.features)) & jnp.all(jnp.isfinite(logits))
        evidence = jnp.where(whole, logits, 0.0).astype(transcript.shared.dtype)
        return Evidence(evidence, jnp.ones_like(evidence[0]), ~whole)
