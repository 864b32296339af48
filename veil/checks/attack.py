"""The check of an attack, on a loop where the exact posterior is known."""

from collections.abc import Callable
from functools import cached_property

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from veil.attacks.base import Attack, Evidence
from veil.attacks.kalman import KalmanBank
from veil.checks.findings import ContractReport, Rule, Support, examined
from veil.evaluation.scoring import Forecast, lower_bound
from veil.policies.base import Policy
from veil.policies.plain import GaussianNoise
from veil.rollout import rollout
from veil.stats import ERRORS, stratified_mean
from veil.step import Record, Transcript
from veil.systems.base import System
from veil.systems.gain import Gain
from veil.types import Key, as_float64

Make = Callable[[System, Policy], Attack]

Reader = Callable[[Transcript, Key], Evidence]

STEPS, EPISODES = 12, 240

SD = 0.05  # of the noise on the shared level: nearly true data


class _Scene:
    """Played episodes of the gain loop, and who reads them."""

    def __init__(self, attack: Attack, records: Record, prior: np.ndarray):
        self.attack, self.records, self.prior = attack, records, prior
        self.index = np.asarray(records.index)
        self.reader = reader(attack)

    @cached_property
    def found(self) -> Evidence:
        """The evidence in every transcript."""
        return self.read(self.reader)

    @cached_property
    def forecast(self) -> Forecast:
        """As the audit scores it."""
        return self.scored(self.found)

    def read(self, reader: Reader, public: Transcript | None = None) -> Evidence:
        """The evidence in these transcripts; always the same keys."""
        keys = jr.split(jr.key(0), len(self.index))
        return jax.device_get(reader(self.records.public if public is None else public, keys))

    def scored(self, evidence: Evidence) -> Forecast:
        """The forecast that goes with some evidence."""
        return Forecast(np.asarray(evidence.log_likelihood, float), self.index, np.log(self.prior))


def reader(attack: Attack) -> Reader:
    """The attack on many transcripts; traced anew for every reader."""

    def one(transcript: Transcript, key: Key) -> Evidence:
        return attack(transcript, key=key)

    return eqx.filter_jit(jax.vmap(one))


def check_attack(make: Make) -> ContractReport:
    """Check an attack on the gain loop, where one Kalman filter per secret gives the exact posterior.

    The check never raises; it reports faults as findings. Everything runs in double precision.

    Args:
        make: makes the attack for a system and the policy in force; for instance its class.
    """
    name = getattr(make, "__name__", type(make).__name__)
    with jax.enable_x64(True):
        try:
            system = as_float64(Gain())
            policy = GaussianNoise(system, jnp.array([SD], jnp.float64))
            scene = _Scene(make(system, policy), _play(system, policy), np.exp(system.prior.log_masses))
        except Exception as error:
            reason = f"It could not be made for a system and a policy: {type(error).__name__}: {error}"
            verdict = Support(False, reason)
            return examined(name, "attack", {"made": Rule(lambda: verdict)})
        exact = scene.scored(scene.read(reader(KalmanBank(system, policy))))
        return examined(name, "attack", _rules(scene, exact))


def _rules(scene: _Scene, exact: Forecast) -> dict[str, Rule]:
    return {
        "evidence": Rule(lambda: _evidence(scene)),
        "pure": Rule(lambda: _pure(scene)),
        "shuffled": Rule(lambda: _shuffled(scene)),
        "bounded": Rule(lambda: _bounded(scene, exact)),
        "broken data": Rule(lambda: _broken(scene)),
        "gains": Rule(lambda: _gains(scene, exact), "warning"),
    }


@eqx.filter_jit
def _play(system: System, policy: Policy) -> Record:
    """Equally many episodes of every secret."""
    secrets = system.prior.secrets.shape[0]

    def one(number: jax.Array) -> Record:
        key = jr.fold_in(jr.key(17), number)
        return rollout(system, policy, STEPS, public_seed=number, key=key, index=number % secrets)

    return jax.vmap(one)(jnp.arange(EPISODES, dtype=jnp.int32))


def _evidence(scene: _Scene) -> Support:
    """One finite log-likelihood per secret."""
    found = scene.found
    wanted = (len(scene.index), len(scene.prior))
    if not isinstance(found, Evidence) or found.log_likelihood.shape != wanted:
        return Support(False, "An attack returns `Evidence` with one log-likelihood per secret.")
    if np.any(found.failed) or not np.all(np.isfinite(found.log_likelihood)):
        return Support(False, "It fails on valid transcripts of a linear loop.")
    posterior = np.exp(scene.forecast.log_posterior())
    if not np.allclose(posterior.sum(axis=1), 1.0, atol=1e-6):
        return Support(False, "The posterior masses do not sum to one.")
    return Support(True, f"{wanted[0]} transcripts of {STEPS} releases, a posterior for each.")


def _pure(scene: _Scene) -> Support:
    """The same transcript and key give the same evidence."""
    first, second = scene.found, scene.read(reader(scene.attack))
    same = np.array_equal(first.log_likelihood, second.log_likelihood)
    reason = (
        "Two runs with the same keys agree."
        if same
        else "Two runs with the same keys differ; draw by the key alone."
    )
    return Support(same, reason)


def _shuffled(scene: _Scene) -> Support:
    """With shuffled secrets, only an attack that has access to the secrets can gain."""
    forecast = scene.forecast
    index = np.random.default_rng(2).permutation(forecast.index)
    gained = stratified_mean(
        Forecast(forecast.log_likelihood, index, forecast.log_prior).scores(), index, scene.prior
    )
    if gained.low(ERRORS) > 0.0:
        return Support(False, f"It gains {gained.value:.3f} nats where secrets were shuffled.")
    return Support(True, "Gains nothing where secrets were shuffled.")


def _bounded(scene: _Scene, exact: Forecast) -> Support:
    """No forecast beats the posterior: the difference of the scores is a divergence."""
    forecast = scene.forecast
    ahead = stratified_mean(forecast.scores() - exact.scores(), scene.index, scene.prior)
    best = stratified_mean(exact.scores(), scene.index, scene.prior).value
    if ahead.low(ERRORS) > 1e-6:
        return Support(False, f"It gains {ahead.value:.3f} nats more than the exact posterior, {best:.3f}.")
    return Support(True, f"Not above the {best:.3f} nats of the exact posterior.")


def _broken(scene: _Scene) -> Support:
    """If a release is NaN, the evidence must still be finite."""
    public = scene.records.public
    shared = jnp.asarray(public.shared).at[:, STEPS // 2].set(jnp.nan)
    found = scene.read(scene.reader, eqx.tree_at(lambda one: one.shared, public, shared))
    if not np.all(np.isfinite(found.log_likelihood)):
        return Support(False, "If a release is NaN, set `failed` and return zeros as evidence.")
    return Support(True, f"Transcripts with a NaN: {np.mean(found.failed):.0%} marked as failed.")


def _gains(scene: _Scene, exact: Forecast) -> Support:
    """The attack scores better than the prior."""
    gained = lower_bound(scene.forecast)
    best = stratified_mean(exact.scores(), scene.index, scene.prior).value
    if gained.low(ERRORS) <= 0.0:
        return Support(False, f"No better than the prior on nearly true data; {best:.3f} nats are possible.")
    return Support(True, f"{gained.value:.3f} of {best:.3f} nats on nearly true data.")
