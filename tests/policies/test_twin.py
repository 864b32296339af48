import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import integrate, stats

from tests.policies.policy_truths import Moody, play, same_noise
from veil.attacks.twin_reader import TwinReader
from veil.checks.system import check_system
from veil.evaluation.episodes import play_episodes, private_key
from veil.evaluation.evaluate import evaluate
from veil.evaluation.scoring import APART, TwoSidedBound, score
from veil.policies import Counterfactual, Twin
from veil.policies.base import sensed, with_sensor
from veil.policies.twin import plain_self_model
from veil.settings import AuditSettings
from veil.stats import stratified_mean
from veil.systems import Building, Driver, Gain, Platoon, finite_prior, with_resolution
from veil.systems.base import Scenario
from veil.systems.scenarios import nominal
from veil.systems.variants import WithInitial, WithNoise
from veil.types import as_float64


def two():
    """Two owners; in the precision that the test has set."""
    return finite_prior([0.3, 0.8])


def read(scenario, policy, steps, episodes, starts=8):
    """Both sides of the exact reader, and the excess log-loss."""
    key, numbers = jr.key(5), np.arange(episodes)
    records = play_episodes(scenario, policy, steps, numbers, key=key)
    reader = TwinReader(scenario.plant, policy, scenario.believed, starts)

    @eqx.filter_jit
    def run(reader, records, numbers):
        def one(both):
            record, number = both
            own = private_key(key, number)
            return reader(record, steps, APART, play_key=own, key=jr.fold_in(jr.key(8), number))

        return jax.lax.map(one, (records, numbers), batch_size=64)

    found = run(reader, records, jnp.asarray(numbers, jnp.int32))
    index, count = np.asarray(records.index), len(scenario.believed)
    sides = TwoSidedBound(found.runs, found.pinned, jnp.ones(episodes), jnp.full((episodes, 1), 0.5))
    leakage = score(sides, index, np.full(count, -np.log(count))).leakage
    return leakage, stratified_mean(np.asarray(found.excess), index, np.full(count, 1.0 / count))


def told(densities, low, high):
    """Leakage of one number with these densities, equally likely, by quadrature."""

    def integrand(s):
        values = np.array([one(s) for one in densities])
        mean = values.mean()
        return 0.0 if mean <= 0 else float(np.mean(np.where(values > 0, values * np.log(values / mean), 0.0)))

    return integrate.quad(integrand, low, high, limit=400)[0]


@pytest.mark.parametrize("kind", [Gain, Platoon, Moody])
def test_with_the_system_itself_as_its_self_model_it_is_the_counterfactual_policy(float64, kind):
    system = as_float64(kind())
    found, known = (same_noise(system, one(system), 30).public for one in (Twin, Counterfactual))
    assert np.allclose(found.shared, known.shared, atol=2e-6) and np.std(found.shared) > 0.1


@pytest.mark.parametrize(("factors", "steps"), [((1.0, 1.3), 9), ((0.8, 1.1), 6)])
def test_a_wrong_size_of_noise_leaks_what_quadrature_says_and_at_most_the_excess(float64, factors, steps):
    """Of ε ~ N(0, 1/c²) the sum of squares tells all: a scaled chi-square. The excess is a divergence."""
    plant = as_float64(Gain(prior=two()))
    models = [
        plain_self_model(WithNoise(plant, factor), secret, (True,), jnp.zeros(1))
        for factor, secret in zip(factors, plant.prior.secrets, strict=True)
    ]
    twin = Twin(plant, models, plant.prior.secrets, preroll=0)
    leakage, excess = read(nominal(plant), twin, steps + 1, 6144, starts=4)
    laws = [lambda s, c=factor: c**2 * stats.chi2.pdf(s * c**2, steps) for factor in factors]
    truth = told(laws, 0.0, 200.0)
    bound = steps * np.mean([np.log(c) + 0.5 / c**2 - 0.5 for c in factors])
    assert abs(leakage.lower.value - truth) < 4 * leakage.lower.error + 1e-3
    assert abs(leakage.upper.value - truth) < 4 * leakage.upper.error + 1e-3
    assert abs(excess.value - bound) < 4 * excess.error
    assert truth < bound and truth > 0.02


def test_a_misfit_that_all_owners_share_inflates_the_bound_and_leaks_nothing(float64):
    plant = as_float64(Gain(prior=two()))
    wide = as_float64(WithNoise(Gain(prior=two()), 1.3))
    models = [plain_self_model(wide, secret, (True,), jnp.zeros(1)) for secret in plant.prior.secrets]
    twin = Twin(plant, models, plant.prior.secrets, preroll=0)
    leakage, excess = read(nominal(plant), twin, 9, 512, starts=2)
    assert abs(leakage.upper.value) < 1e-9 and excess.value > 0.1


def test_misjudging_ones_gain_leaks_between_the_two_sides_and_less_than_the_excess(float64):
    plant = as_float64(Gain(prior=two()))
    scenario = Scenario("wrong", plant, jnp.asarray([[0.5], [0.6]]))
    twin = Twin(plant, start="public")
    leakage, excess = read(scenario, twin, 30, 2048, starts=16)
    assert leakage.lower.value > 0.05, "the reader finds it"
    assert leakage.lower.value < leakage.upper.value + 4 * leakage.upper.error
    assert leakage.upper.value < excess.value + 4 * excess.error


def test_a_start_that_tells_is_found_where_it_is_whitened_and_hidden_where_it_is_public(float64):
    """Condition 4. The start differs by its own sd: ε_1 has the means ±1/2, and nothing else tells."""
    model = as_float64(Gain(prior=two()))
    sd = float(model.initial(two().secrets[0]).scale[0, 0])
    plant = as_float64(WithInitial(Gain(prior=two()), slope=sd / 0.5))
    scenario = Scenario("telling start", plant, plant.prior.secrets)
    truth = told([lambda s, m=mean: stats.norm.pdf(s, m) for mean in (-0.5, 0.5)], -9, 9)
    whitened, _ = read(scenario, Twin(model), 8, 4096)
    public, _ = read(scenario, Twin(model, start="public"), 8, 1024)
    assert abs(whitened.upper.value - truth) < 4 * whitened.upper.error + 1e-3
    assert abs(public.upper.value) < 1e-9 and truth > 0.1


def test_an_environment_that_sees_the_state_is_refused(float64):
    """Condition 1."""

    class Watched(Gain):
        environment_sees_state = True

    with pytest.raises(ValueError, match="sees the true state"):
        Twin(Watched())
    with pytest.raises(ValueError, match="sees the true state"):
        Twin(with_resolution(Watched(), 0.1))
    assert "environment" in {finding.rule for finding in check_system(Watched()).findings}
    assert "environment" not in {finding.rule for finding in check_system(Gain()).findings}


def test_a_common_shock_that_the_reader_knows_and_the_model_does_not_tells_what_quadrature_says(float64):
    """Condition 1. x' = θx + b·s + e with b = ±0.3 by owner and a shock s that everybody else sees.

    Each model has the right law of its own readings, shock included, and ε alone tells nothing: it is
    standard normal for both. Given s it has mean ±ρs and variance 1 − ρ². The sum A of ε·s is then
    sufficient, normal with mean ±ρS and variance (1 − ρ²)S given S, the sum of s², which is a chi-square.
    """
    steps, sd, push = 12, 0.3, 0.3
    total = np.hypot(sd, push)
    rho = push / total
    system, paths = as_float64(Gain(prior=two())), 2000
    rng = np.random.default_rng(3)
    shock, noise = rng.normal(size=(2, paths, steps))

    @eqx.filter_jit
    def whitened(model, readings, inputs):
        def one(readings, inputs):
            def step(memory, now):
                found = model.whiten(memory, now[1], now[0], jnp.full(1, 0.5))
                return found.memory, found.noise[0]

            return jax.lax.scan(step, model.begin(readings[0]), (readings[1:], inputs))[1]

        return jax.vmap(one)(readings, inputs)

    scores, known = [], []
    for gain, sign in ((0.3, 1.0), (0.8, -1.0)):
        path = np.zeros((paths, steps + 1))
        for t in range(steps):
            path[:, t + 1] = gain * path[:, t] + sign * push * shock[:, t] + sd * noise[:, t]
        secret, rows = jnp.asarray([gain]), jnp.asarray(path[..., None])
        wide = plain_self_model(WithNoise(system, total / sd), secret, (True,), jnp.zeros(1))
        epsilon = np.asarray(whitened(wide, rows, jnp.zeros((paths, steps, 1))))
        assert abs(np.std(epsilon) - 1.0) < 4 / np.sqrt(2 * epsilon.size), "right, as far as it knows"
        odds = sign * 2.0 * rho * np.sum(epsilon * shock, axis=1) / (1.0 - rho**2)
        scores.append(np.log(2.0) - np.logaddexp(0.0, -odds))
        plain = plain_self_model(system, secret, (True,), jnp.zeros(1))
        known.append(np.asarray(whitened(plain, rows, jnp.asarray(sign * push * shock[..., None]))))

    def given(total_shock):
        mean, width = rho * total_shock, np.sqrt((1.0 - rho**2) * total_shock)
        return (
            np.log(2.0)
            - integrate.quad(
                lambda z: (
                    stats.norm.pdf(z) * np.logaddexp(0.0, -2.0 * rho * (mean + width * z) / (1.0 - rho**2))
                ),
                *(-9.0, 9.0),
            )[0]
        )

    truth = integrate.quad(lambda one: stats.chi2.pdf(one, steps) * given(one), 0.0, 80.0, limit=200)[0]
    found = np.concatenate(scores)
    assert abs(found.mean() - truth) < 4 * found.std() / np.sqrt(found.size) and truth > 0.5
    assert np.allclose(known, noise, atol=1e-9), "with the shock in w the noise is that of nobody"


def test_a_model_fitted_to_the_shared_stream_itself_hands_over_the_secret():
    """Condition 2, on a loop in numpy: residuals of least squares are orthogonal to the true path only.

    The reader tries every gain, computes the path that it makes of the residuals, and takes the one whose
    path they are orthogonal to. Predictive residuals, by a gain that was fitted before, tell it nothing.
    """
    rng, gains, hits = np.random.default_rng(0), (0.3, 0.8), {"batch": 0, "before": 0}
    grid = np.linspace(0.0, 0.99, 199)
    for episode in range(60):
        gain = gains[episode % 2]
        push, noise, path = rng.normal(size=80), 0.3 * rng.normal(size=80), np.zeros(81)
        for t in range(80):
            path[t + 1] = gain * path[t] + push[t] + noise[t]
        best = path[:-1] @ (path[1:] - push) / (path[:-1] @ path[:-1])
        for name, own in (("batch", best), ("before", gain)):
            left = path[1:] - own * path[:-1] - push
            paths = np.zeros((81, len(grid)))
            for t in range(80):
                paths[t + 1] = grid * paths[t] + push[t] + left[t]
            found = grid[np.argmin(np.abs(left @ paths[:-1]) / np.linalg.norm(paths[:-1], axis=0))]
            hits[name] += gains[int(np.argmin(np.abs(np.asarray(gains) - found)))] == gain
    assert hits["batch"] >= 55
    assert abs(hits["before"] - 30) < 4 * np.sqrt(15)


def test_what_is_declared_public_is_told_and_the_rest_is_not(float64):
    """Condition 3 is that of one public function: where copies take a number over, it is told."""
    drivers = ((0.4, 0.5), (0.4, 1.1), (1.0, 0.5), (1.0, 1.1))
    system = as_float64(Platoon(prior=finite_prior(drivers)))
    found = evaluate(system, Twin(system, public=("speed_gain",)), settings=AuditSettings(8, 16))
    assert np.allclose(found.leakage.upper.value, np.log(2.0), atol=1e-9)
    assert np.allclose(found.leakage.lower.value, np.log(2.0), atol=1e-3)
    copied = same_noise(system, Twin(system, public=("speed_gain", "difference_gain")), 20)
    assert np.allclose(copied.public.shared, copied.states[:, :-1], atol=2e-6), "all of it: the truth"
    with pytest.raises(ValueError, match="speed_gain"):
        Twin(system, public=("headway",))


def test_what_has_no_noise_of_its_own_cannot_be_turned_into_noise(float64):
    """Condition 5."""
    with pytest.raises(ValueError, match="spacing"):
        Twin(Platoon(spacing_sd=0.0))


def test_rounded_readings_are_not_taken_for_exact_ones(float64):
    system = as_float64(Gain(prior=two()))
    model = plain_self_model(system, two().secrets[0], (True,), jnp.asarray([0.1]))
    with pytest.raises(ValueError, match=r"--resolution level=0\.1"):
        Twin(system, model)
    fine = plain_self_model(system, two().secrets[0], (True,), jnp.asarray([1e-3]))
    assert Twin(system, fine).preroll == 25
    assert Twin(with_resolution(system, 0.1), model).self_model(two().secrets[0]).sensor.step[0] == 0.1


def test_behind_a_sensor_that_rounds_next_to_nothing_leaks(float64):
    """Steps of a third of the noise: taken for exact, they would tell 0.2 nats in 50 steps."""
    system = as_float64(with_resolution(Gain(prior=two()), 0.1))
    found = evaluate(system, Twin(system), settings=AuditSettings(30, 256))
    assert found.bounder is not None and found.bounder.method == "filter"
    assert found.leakage.upper.value < 1e-3


@pytest.mark.parametrize("kind", [Building, Driver])
def test_coordinates_that_nobody_reads_are_left_to_the_filter_of_the_self_model(float64, kind):
    system = as_float64(kind())
    twin = Twin(system)
    assert twin.seen[-1] is False and twin.seen[0] is True
    hidden = jnp.full((len(system.state_fields),), 1e6).at[jnp.asarray(twin.axes)].set(0.0)
    secret, external = system.prior.secrets[0], system.first_external()

    @jax.jit
    def after_one_step(states):
        memory = twin.init_memory(secret, states[0], key=jr.key(0))
        return twin.update_memory(memory, secret, states[0], external, states[1], key=jr.key(1))

    start = system.initial(secret).mean
    states = jnp.stack([start, system.transition(secret, start, external).mean + 0.01])
    assert np.array_equal(after_one_step(states), after_one_step(states + hidden[None]))


def test_nothing_is_released_in_the_pre_roll_and_the_copies_do_not_hear_it(float64):
    system = as_float64(Gain(prior=two()))
    twin = Twin(system, start="public", preroll=5)
    records = play(system, twin, 12, jr.split(jr.key(2), 4), jnp.arange(4, dtype=jnp.int32) % 2)[0]
    shared, external = np.asarray(records.public.shared), np.asarray(records.public.external)
    assert np.ptp(shared[:, :5]) == 0.0, "what stands in for a missing release is public"
    copies, gains = np.zeros((4, 2)), np.asarray(two().secrets)[:, 0]
    for t in range(5):
        copies = gains[None] * copies + external[:, t]
    assert np.allclose(shared[:, 5, 0], copies.mean(axis=1), atol=1e-6), "their centre without noise"
    assert np.ptp(shared[:, 7, 0] - shared[:, 5, 0]) > 1e-2
    with pytest.raises(ValueError, match="pre-roll"):
        Twin(system, start="whitened", preroll=3)


def test_a_memory_goes_on_after_a_gap_and_is_carried_into_the_next_run(float64):
    system = as_float64(Gain(prior=two()))
    twin = Twin(system, start="public", preroll=2)
    secret, w, key = two().secrets[0], jnp.asarray([0.1]), jr.key(0)
    memory = twin.init_memory(secret, jnp.asarray([0.4]), key=key)
    update, coast = eqx.filter_jit(twin.update_memory), eqx.filter_jit(twin.coast_memory)
    for value in (0.2, 0.5, 0.1):
        memory = update(memory, secret, jnp.zeros(1), w, jnp.asarray([value]), key=key)
    gap = twin.unpack(coast(memory, w))
    before = twin.unpack(memory)
    assert np.allclose(gap.own.known.mean, 0.3 * 0.1 + 0.1) and float(gap.own.known.covariance[0, 0]) > 0
    assert np.allclose(
        gap.copies.known.mean[:, 0], two().secrets[:, 0] * before.copies.known.mean[:, 0] + 0.1
    )
    carried = twin.unpack(twin.carried_memory(memory))
    assert np.allclose(carried.own.known.mean, before.own.known.mean)
    assert np.allclose(carried.copies.known.mean, 0.0) and float(carried.age) == 3.0


def test_a_floor_of_noise_a_mean_and_a_single_standard_system(float64):
    system = as_float64(Gain(prior=two()))
    secret, key = two().secrets[1], jr.key(0)
    kinds = {name: Twin(system, centre=name) for name in ("mean", "median", "standard")}
    found = {}

    @eqx.filter_jit
    def second(twin):
        first = jnp.asarray([0.7])
        memory = twin.init_memory(secret, first, key=key)
        memory = twin.update_memory(memory, secret, first, jnp.zeros(1), jnp.asarray([0.9]), key=key)
        return twin.release_centre(twin.unpack(memory))

    for name, twin in kinds.items():
        found[name] = float(second(twin)[0])
    noise = 0.9 - 0.8 * 0.7
    assert np.isclose(found["mean"], 0.55 * 0.7 + noise) and np.isclose(found["standard"], 0.55 * 0.7 + noise)
    assert 0.3 * 0.7 + noise - 1e-6 <= found["median"] <= 0.9 + 1e-6
    floored = Twin(system, sd=[0.2])

    @eqx.filter_jit
    def first_law(twin):
        memory = twin.init_memory(secret, jnp.asarray([0.7]), key=key)
        kernel = twin.kernel(jnp.zeros(0), jnp.zeros(1), jnp.asarray(1, jnp.int32))
        return kernel.release_law(secret, jnp.zeros(1), memory)

    law = first_law(floored)
    assert np.allclose(law.scale, [[0.2]]) and np.allclose(law.mean, 0.7)  # pyright: ignore


def test_a_sensor_is_put_before_the_standard_and_not_before_a_fitted_model(float64):
    model = plain_self_model(as_float64(Gain(prior=two())), two().secrets[0], (True,), jnp.zeros(1))
    twin = with_sensor(Twin(as_float64(Gain(prior=two())), model), 0.05)
    assert isinstance(twin, Twin) and twin.system.state_fields[0].resolution == 0.05
    assert twin.models is not None and twin.models.system.state_fields[0].resolution == 0.0
    assert sensed(twin).system.shared_fields[0].resolution == 0.05


def test_wrong_choices_are_refused(float64):
    with pytest.raises((TypeError, ValueError), match="median"):
        Twin(Gain(), centre="mode")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="owners"):
        Twin(
            Gain(), [plain_self_model(Gain(), two().secrets[0], (True,), jnp.zeros(1))] * 2, two().secrets[:1]
        )


def test_with_a_floor_the_noise_is_a_bound_from_above_only(float64):
    """Owners who misjudge themselves, in a loop that hears nothing: ε tells, and a wide floor hides it."""
    plant = as_float64(Gain(prior=two(), reply=0.0))
    scenario = Scenario("wrong", plant, jnp.asarray([[0.35], [0.7]]))
    settings = AuditSettings(20, 256)
    bare, floored = (
        evaluate(plant, Twin(plant, sd=sd), scenario, settings=settings).leakage for sd in (None, [30.0])
    )
    assert bare.lower.value > 4 * bare.lower.error > 0
    assert floored.lower.value == 0.0, "a hundred times the noise: nothing is left to tell"
    assert abs(floored.upper.value - bare.upper.value) < 4 * np.hypot(floored.upper.error, bare.upper.error)
