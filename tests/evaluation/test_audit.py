"""Whole audits of small systems, from playing to the verdict."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from veil.beliefs.particles import ParticleSpec
from veil.evaluation.audit import audit
from veil.evaluation.bounds import CoupledBounder, ExactBounder, bounder_candidates
from veil.io import Store, fingerprint
from veil.laws import Gaussian, Kernel, Point
from veil.policies import (
    Blind,
    Counterfactual,
    GaussianNoise,
    PlainPolicy,
    Quantised,
    Subsampled,
    Transport,
    Truth,
)
from veil.settings import AuditSettings
from veil.systems import ColouredPlatoon, Gain, Platoon, System, finite_prior

SMALL = AuditSettings(steps=5, episodes=60, assisted=False, scenarios="none")


class BentGain(Gain):
    """Not quite linear, so that particles are needed; the Kalman bank is exact but for 1e-3."""

    def transition(self, secret, state, external):
        law = super().transition(secret, state, external)
        return Gaussian(law.mean + 1e-3 * jnp.sin(law.mean), law.scale)


def test_an_audit_goes_on_where_it_stopped_and_repeats_itself(tmp_path):
    system = BentGain()
    policy = GaussianNoise(system, jnp.asarray([0.3]))
    stages = []

    def run(options=SMALL):
        mark = fingerprint(system, policy, options)
        return audit(
            system,
            policy,
            options,
            store=Store(tmp_path, mark),
            progress=lambda stage, done, total: stages.append(stage) if done < total else None,
        )

    first = run()
    assert any("twisted" in stage for stage in stages)
    stages.clear()
    second = run()
    assert not any("twisted" in stage or "attack" in stage for stage in stages), "read from the store"
    assert first.leakage == second.leakage and first.verdict.inputs == second.verdict.inputs
    assert np.array_equal(first.realised, second.realised)
    parts = sorted((tmp_path / "parts").glob("*.npz"))
    for part in parts[::2]:
        part.write_bytes(part.read_bytes()[:100])
    assert run().leakage == first.leakage, "a part that was cut short is made again"
    _sound(first)


def _sound(found):
    """What holds for the audit of any noisy release."""
    assert found.verdict.name == "certifiable" and found.particles == 128
    assert 0 <= found.leakage.low <= found.leakage.high <= found.leakage.entropy
    assert [at.step for at in found.times] == [1, 2, 3, 4, 5]
    means = [at.leakage.upper.value for at in found.times]
    assert means[-1] > means[0] - 0.05, "what has leaked stays leaked"
    names = [row.name for row in found.attacks]
    assert {"Bayes", "Kalman bank", "least squares", "prior", "bootstrap filter"} <= set(names)
    bank, bayes = (found.attacks[names.index(name)] for name in ("Kalman bank", "Bayes"))
    assert abs(bank.raw.value - bayes.raw.value) < 0.02, "the bank is exact here"
    prior = found.attacks[names.index("prior")]
    assert prior.raw.value == 0.0 and prior.accuracy.value == pytest.approx(1 / 3)
    quantities = {row.name: row for row in found.utility}
    assert (
        quantities["release error, y" if "release error, y" in quantities else "distortion"].value.value > 0
    )
    assert found.curves is not None and found.curves.posterior.shape == (3, 5)


def test_counterfactual_sharing_is_certified_by_its_coupling():
    system = Gain()
    found = audit(system, Counterfactual(system), SMALL)
    assert found.verdict.name == "certifiable" and found.method == "coupling of all secrets"
    assert found.leakage.upper.value == 0.0
    limit = 1 - 0.00135 ** (1 / 60)  # no disagreement in 60 episodes
    assert found.leakage.high == pytest.approx(limit * np.log(3), rel=1e-2)
    assert found.curves is None and all(row.lower.value < 1e-3 for row in found.attacks)


def test_true_data_are_audited_exactly():
    system = Gain(sd=0.05)
    found = audit(system, Truth(system), SMALL)
    assert found.particles == 0 and found.leakage.width == pytest.approx(0.0, abs=0.02)
    (exact,) = (row for row in found.attacks if row.name == "exact observer")
    assert exact.accuracy.value > 0.6


def test_one_secret_and_one_release_are_no_exception():
    system = Gain(prior=finite_prior([0.5]))
    found = audit(
        system,
        GaussianNoise(system, jnp.asarray([0.3])),
        AuditSettings(steps=1, episodes=8, assisted=False, scenarios="none"),
    )
    assert found.verdict.name == "certifiable" and found.leakage.entropy == 0.0
    assert found.leakage.high == 0.0 and found.chance == 1.0


def test_the_ladder_knows_what_applies():
    with jax.enable_x64(True):
        gain, platoon, coloured = Gain(), Platoon(), ColouredPlatoon()
        noise = GaussianNoise(gain, jnp.asarray([0.1]))
        assert isinstance(bounder_candidates(gain, Truth(gain))[0], ExactBounder)
        for system, policy in ((coloured, Truth(coloured)), (gain, Subsampled(Truth(gain), 2))):
            assert bounder_candidates(system, policy)[0].name == "conditional particles, aimed ahead"
        for policy in (noise, Blind(gain, jnp.asarray([0.1])), Transport(gain, jnp.asarray([0.1]))):
            assert [one.name for one in bounder_candidates(gain, policy)] == ["exact Kalman filters"]
        assert isinstance(bounder_candidates(gain, Counterfactual(gain))[0], CoupledBounder)
        names = [
            next(bounder.name for bounder in bounder_candidates(system, policy))
            for system, policy in (
                (BentGain(), GaussianNoise(BentGain(), jnp.asarray([0.1]))),
                (gain, Subsampled(noise, 2)),
                (platoon, Quantised(platoon, jnp.asarray([0.1, 0.1]))),
                (platoon, Transport(platoon, jnp.asarray([0.1, 0.1]), ParticleSpec(8))),
            )
        ]
        assert names == ["twisted particles"] * 4


class FoldedGain(Gain):
    """Shares the size of the level."""

    def output(self, state):
        return jnp.abs(state)


class Labelled(PlainPolicy):
    """Shares |x| without noise, and the secret in the tenth digit."""

    system: System

    def kernel(self, features, external, time):
        return LabelledKernel()


class LabelledKernel(Kernel):
    def __call__(self, secret, state):
        return Point(jnp.abs(state) + 1e-10 * secret)


def test_what_no_filter_reads_is_bounded_by_a_reader_who_is_told_the_state():
    """|x| without noise: no density to weigh by, but it tells no more than x."""
    system = FoldedGain()
    found = audit(system, Truth(system), SMALL)
    assert found.verdict.name == "certifiable" and "Bayes" not in {row.name for row in found.attacks}
    assert "the upper side is what a reader gains who is told the state before" in found.sentence
    assert found.lowest <= found.leakage.high <= found.leakage.entropy


def test_no_method_means_no_promise():
    """A release that reads the secret tells more than the state, so everything may leak."""
    system = FoldedGain()
    found = audit(system, Labelled(system), SMALL)
    assert found.verdict.name == "no_upper_bound"
    assert found.leakage.high == pytest.approx(np.log(3)) and "no method" in found.verdict.reasons[0]
