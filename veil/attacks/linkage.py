"""Linkage: whose recording is this? Attackers match shared streams with recordings whose owners they know.

The attacker has a reference of every individual, by name, and streams without names. A *matcher* gives every
pair of a stream and an individual a score; the individuals of a stream are ranked by it. If streams do not
depend on their owners, every assignment of owners to streams is as likely as every other, whatever the
scores: so ranks are compared with those under permuted owners. This holds as well where one individual
attracts all streams. Ranks that are too low tell as much as ranks that are too high, hence two-sided tests.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import optimize, stats
from scipy.special import log_softmax

from veil.stats import Mean

Matcher = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Features of all references and of all streams, a row each, to scores with a row per stream and a column
per reference; higher is more alike."""

PERMUTATIONS = 50_000

PARTS = 20  # in which permutations are made and counted, to save memory

FOLDS = 5  # of streams, for the scale of a posterior

NAMED = 5  # individuals that an attacker may name

FURTHEST = 5.0  # robust standard deviations at which features are cut off

RIDGES = 10.0 ** np.arange(-2.0, 5.0)  # penalties of the learned matcher, in units of one individual


@dataclass(frozen=True)
class Linkage:
    """How well an attacker finds the owners of streams.

    Attributes:
        name: of the attacker.
        streams: that were matched.
        candidates: among how many individuals, on average over the streams.
        places: where the owner is among the candidates, in (0, 1); 0 is first, one half is chance.
        first: share of streams whose owner comes first; ties count by their part. Errors of this and of the
            next two are those under chance, by permuted owners.
        named: share of streams whose owner is among the first five.
        place: mean of the places.
        median_rank: of the owners.
        information: what the ranked scores tell about the owner, nats per stream: the mean logarithm of the
            posterior mass of the owner by a calibration on other streams, minus that of a guess. In
            expectation it is at most the mutual information, and negative where it tells nothing.
        chance: the first two shares and the mean place under permuted owners.
        p: of the shares and the mean place, two-sided, in the same order.
    """

    name: str
    streams: int
    candidates: float
    places: Float[np.ndarray, " S"]
    first: Mean
    named: Mean
    place: Mean
    median_rank: float
    information: Mean
    chance: tuple[float, float, float]
    p: tuple[float, float, float]

    @property
    def errors(self) -> float:
        """Standard errors between the mean place and chance; positive if owners are found too often."""
        return (self.chance[2] - self.place.value) / self.place.error

    def links(self, attackers: int = 1, level: float = 0.0027) -> bool:
        """Whether owners are found more often than by chance, or less often.

        Args:
            attackers: that are tried (Bonferroni); each has two tests, of first places and of the mean place.
            level: probability of a false alarm over all of them; by default that of three standard errors.
        """
        return min(self.p[0], self.p[2]) < level / (2 * attackers)


def true_ranks(scores: Float[np.ndarray, "S C"]) -> Float[np.ndarray, "S C"]:
    """Rank of every candidate for every stream, from 1 for the highest score. Ties share their mean rank."""
    return stats.rankdata(-np.asarray(scores, float), axis=1)


def link(
    name: str,
    scores: Float[np.ndarray, "S C"],
    owners: Int[np.ndarray, " S"],
    groups: Int[np.ndarray, " C"] | None = None,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
) -> Linkage:
    """What scores tell about the owners of streams.

    Args:
        name: of the attacker.
        scores: of every stream with every individual; only those within a group count.
        owners: which individual each stream belongs to.
        groups: of the individuals. The attacker knows the group of every stream, and ranks within it.
        seed: of permutations and folds.
        permutations: of owners.
    """
    count = scores.shape[1]
    group = np.zeros(count, int) if groups is None else np.asarray(groups)
    owners = np.asarray(owners)
    if not np.all(np.isfinite(scores[group[owners][:, None] == group[None, :]])):
        raise ValueError(f"{name} gave scores that are not finite.")
    places, firsts, nameds = (np.zeros(len(owners)) for _ in range(3))
    ranks, told, sizes = np.zeros(len(owners)), np.zeros(len(owners)), np.zeros(len(owners))
    chances = np.zeros((3, permutations))
    present = np.unique(group[owners])
    lengths = tuple(int(np.sum(group[owners] == one)) for one in present)
    for one, (fold, orders) in zip(present, _draws(seed, lengths, permutations), strict=True):
        rows, columns = np.flatnonzero(group[owners] == one), np.flatnonzero(group == one)
        own = np.searchsorted(columns, owners[rows])
        inside = np.asarray(scores, float)[np.ix_(rows, columns)]
        told[rows], sizes[rows] = _information(inside, own, fold), len(columns)
        rank = true_ranks(inside)
        hits = [_among(inside, size) for size in (1, NAMED)]
        tables = [*hits, (rank - 0.5) / len(columns)]
        for found, table in zip((firsts, nameds, places), tables, strict=True):
            found[rows] = table[np.arange(len(rows)), own]
        ranks[rows] = rank[np.arange(len(rows)), own]
        for part in np.array_split(np.arange(permutations), PARTS):
            permuted = own[orders[part]]
            for place, table in enumerate(tables):
                chances[place, part] += table[np.arange(len(rows))[None, :], permuted].sum(axis=1)
    chances /= len(owners)
    seen = firsts.mean(), nameds.mean(), places.mean()
    low, high = ((np.sum(s(chances, np.array(seen)[:, None]), axis=1) + 1.0) for s in (_at_most, _at_least))
    p = np.minimum(1.0, 2.0 * np.minimum(low, high) / (permutations + 1.0))
    means = [Mean(float(value), float(row.std())) for value, row in zip(seen, chances, strict=True)]
    information = Mean(float(told.mean()), float(told.std(ddof=1) / np.sqrt(len(told))))
    return Linkage(
        name,
        len(owners),
        float(sizes.mean()),
        places,
        means[0],
        means[1],
        means[2],
        float(np.median(ranks)),
        information,
        (float(chances[0].mean()), float(chances[1].mean()), float(chances[2].mean())),
        (float(p[0]), float(p[1]), float(p[2])),
    )


def match(
    name: str,
    matcher: Matcher,
    references: Float[np.ndarray, "C F"],
    streams: Float[np.ndarray, "S G"],
    owners: Int[np.ndarray, " S"],
    groups: Int[np.ndarray, " C"] | None = None,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
) -> Linkage:
    """What a matcher finds. It meets streams and individuals in a random order, which it cannot use.

    Args:
        name: of the attacker.
        matcher: it gives the scores.
        references: features of the individuals, a row each.
        streams: features of the streams, a row each.
        owners: which individual each stream belongs to.
        groups: see `link`.
        seed: of the order, of permutations and folds.
        permutations: see `link`.
    """
    rng = np.random.default_rng(seed)
    columns, rows = rng.permutation(len(references)), rng.permutation(len(streams))
    found = np.zeros((len(streams), len(references)))
    found[np.ix_(rows, columns)] = matcher(references[columns], streams[rows])
    return link(name, found, owners, groups, seed, permutations)


def match_others(
    name: str,
    train: Callable[[np.ndarray, np.ndarray], Matcher],
    references: Float[np.ndarray, "C F"],
    streams: Float[np.ndarray, "S G"],
    owners: Int[np.ndarray, " S"],
    *,
    folds: int = 4,
    groups: Int[np.ndarray, " C"] | None = None,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
) -> Linkage:
    """What a matcher finds that was trained on other individuals, whose streams have names.

    Individuals are ranked among those of their own fold, none of whom the matcher has seen: one that has
    seen the wrong candidates but not the right one could tell them apart for that reason alone.

    Args:
        name: of the attacker.
        train: from features of references and of their owners' streams, row by row, to a matcher.
        references: features of the individuals, a row each.
        streams: features of the streams, a row each.
        owners: which individual each stream belongs to.
        folds: parts of the individuals; with groups, whole groups.
        groups: see `link`.
        seed: of folds, order, permutations.
        permutations: see `link`.
    """
    rng, count = np.random.default_rng(seed), len(references)
    group = np.zeros(count, int) if groups is None else np.unique(groups, return_inverse=True)[1]
    if groups is None:
        part = rng.permutation(count) % folds
    else:
        part = (rng.permutation(group.max() + 1) % folds)[group]
    scores = np.zeros((len(streams), count))
    for fold in range(folds):
        columns, rows = np.flatnonzero(part == fold), np.flatnonzero(part[owners] == fold)
        others = np.flatnonzero(part[owners] != fold)
        matcher = train(references[owners[others]], streams[others])
        columns, rows = rng.permutation(columns), rng.permutation(rows)
        scores[np.ix_(rows, columns)] = matcher(references[columns], streams[rows])
    return link(name, scores, owners, part if groups is None else group, seed, permutations)


def nearest_matcher(references: np.ndarray, streams: np.ndarray) -> np.ndarray:
    """Minus the squared distance of features, each in robust units among references and among streams.

    A mechanism that shifts and scales a feature of all streams alike does not stop it.
    """
    near, far = standardised(references), standardised(streams)
    return -np.sum((far[:, None, :] - near[None, :, :]) ** 2, axis=2)


def normalised(scores: Float[np.ndarray, "S C"]) -> Float[np.ndarray, "S C"]:
    """Scores in units of what other pairs of the same individual and of the same stream have.

    As in speaker verification: an individual who is like everybody then attracts no more streams than others.
    """
    found = np.asarray(scores, float)
    for axis in (0, 1):
        middle = np.median(found, axis=axis, keepdims=True)
        spread = np.median(np.abs(found - middle), axis=axis, keepdims=True)
        found = (found - middle) / np.maximum(spread, 1e-300)
    return found


def standardised(features: Float[np.ndarray, "S F"]) -> Float[np.ndarray, "S F"]:
    """Features in units of the median absolute deviation from their median, cut off far away."""
    middle = np.median(features, axis=0)
    spread = 1.4826 * np.median(np.abs(features - middle), axis=0)
    unit = np.where(spread > 0, spread, np.maximum(np.std(features, axis=0), 1e-300))
    return np.clip((features - middle) / unit, -FURTHEST, FURTHEST)


def trained_matcher(references: np.ndarray, streams: np.ndarray) -> Matcher:
    """A matcher that has learned what references tell about the streams of their owners.

    A ridge regression of stream features on reference features, with the penalty that predicts left-out
    individuals best, and a Gaussian law of what it leaves. The score is the log density of a stream given
    that it is the individual's.

    Args:
        references: features, a row per stream: those of its owner.
        streams: features, a row per stream.
    """
    centre, scale = _robust_units(references)
    middle, unit = _robust_units(streams)

    def known(rows: np.ndarray) -> np.ndarray:
        return np.clip((rows - centre) / scale, -FURTHEST, FURTHEST)

    def told(rows: np.ndarray) -> np.ndarray:
        return np.clip((rows - middle) / unit, -FURTHEST, FURTHEST)

    given, answers = known(references), told(streams)
    offset, level = given.mean(axis=0), answers.mean(axis=0)
    left, sizes, right = np.linalg.svd(given - offset, full_matrices=False)
    turned = left.T @ (answers - level)
    best, slopes, rest = np.inf, np.zeros((given.shape[1], answers.shape[1])), answers
    for ridge in RIDGES:
        kept = sizes**2 / (sizes**2 + ridge)
        lever = np.sum(left**2 * kept, axis=1) + 1.0 / len(given)
        away = (answers - level - left @ (kept[:, None] * turned)) / (1.0 - np.minimum(lever, 0.99))[:, None]
        if np.sum(away**2) < best:
            weights = sizes / (sizes**2 + ridge)
            best, slopes, rest = np.sum(away**2), right.T @ (weights[:, None] * turned), away
    root = np.linalg.cholesky(_shrunk_covariance(rest))

    def matcher(references: np.ndarray, streams: np.ndarray) -> np.ndarray:
        expected = level + (known(references) - offset) @ slopes
        away = told(streams)[:, None, :] - expected[None, :, :]
        white = np.linalg.solve(root, away.reshape(-1, away.shape[2]).T)
        return -0.5 * np.sum(white**2, axis=0).reshape(away.shape[:2])

    return matcher


def regression_features(shared: Float[np.ndarray, "T Y"], inputs: Float[np.ndarray, "T U"]) -> dict:
    """Features of a stream by a linear one-step prediction: gains, size and colour of the errors.

    Args:
        shared: what was shared.
        inputs: public inputs at the same steps.
    """
    given = np.concatenate([shared[:-1], inputs[:-1], np.ones((len(shared) - 1, 1))], axis=1)
    unit = np.maximum(given.std(axis=0), 1e-9)
    unit[-1] = 1.0
    change = np.diff(shared, axis=0)
    penalty = 1e-6 * len(given) * np.eye(given.shape[1])  # inputs may go together exactly
    scaled = given / unit
    slopes = np.linalg.solve(scaled.T @ scaled + penalty, scaled.T @ change)
    errors = change - scaled @ slopes
    sizes = np.maximum(errors.std(axis=0), 1e-12)
    scores = errors / sizes
    lags = [np.mean(scores[lag:] * scores[:-lag], axis=0) for lag in (1, 2, 5)]
    across = np.corrcoef(scores.T)[np.tril_indices(shared.shape[1], -1)] if shared.shape[1] > 1 else []
    return {
        "gains": (slopes / unit[:, None])[:-1].ravel(),
        "noise": np.concatenate([np.log(sizes), *lags, np.mean(scores**4, axis=0) ** 0.25, across]),
    }


@functools.lru_cache(maxsize=4)
def _draws(
    seed: int, lengths: tuple[int, ...], permutations: int
) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Per group a fold of each stream, and permutations: the same for all attackers."""
    rng, found = np.random.default_rng(seed), []
    for length in lengths:
        fold = rng.permutation(length) % min(FOLDS, length)
        parts = np.array_split(np.arange(permutations), PARTS)
        orders = [rng.random((len(part), length)).argsort(axis=1).astype(np.int32) for part in parts]
        found.append((fold, np.concatenate(orders)))
    return tuple(found)


def _among(scores: np.ndarray, size: int) -> np.ndarray:
    """Probability that each candidate is among the first so many, where ties are broken at random."""
    above = np.sum(scores[:, None, :] > scores[:, :, None], axis=2)
    ties = np.sum(scores[:, None, :] == scores[:, :, None], axis=2)
    return np.clip((size - above) / ties, 0.0, 1.0)


def _information(scores: np.ndarray, own: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Log posterior of the owner minus that of a guess, per stream, with a scale from other streams."""
    middle = np.median(scores, axis=1, keepdims=True)
    spread = float(np.median(np.abs(scores - middle))) or float(np.std(scores)) or 1.0
    centred = (scores - middle) / spread
    found = np.zeros(len(own))

    def told(scale: float, rows: np.ndarray) -> np.ndarray:
        posterior = log_softmax(scale * centred[rows], axis=1)
        return posterior[np.arange(len(rows)), own[rows]] + np.log(scores.shape[1])

    for fold in np.unique(part):
        others, rows = np.flatnonzero(part != fold), np.flatnonzero(part == fold)
        if len(others) == 0:
            continue

        def loss(scale: float, others: np.ndarray = others) -> float:
            return float(-told(scale, others).mean() + 1e-3 * scale**2 / len(others))

        best = float(np.asarray(optimize.brent(loss, brack=(0.0, 0.5), maxiter=60)))
        found[rows] = told(min(max(best, -1000.0), 1000.0), rows)
    return found


def _shrunk_covariance(rest: np.ndarray) -> np.ndarray:
    """Covariance of errors, drawn to its diagonal as far as it is uncertain (Ledoit and Wolf's rule)."""
    count, size = rest.shape
    sample = rest.T @ rest / count
    apart = sample - np.diag(np.diag(sample))
    errors = ((rest**2).T @ rest**2 / count - sample**2) / count
    noise = np.sum(errors - np.diag(np.diag(errors)))
    share = float(np.clip(noise / max(np.sum(apart**2), 1e-300), 0.0, 1.0)) if size > 1 else 0.0
    return sample - share * apart + 1e-9 * np.eye(size)


def _robust_units(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    middle = np.median(features, axis=0)
    spread = 1.4826 * np.median(np.abs(features - middle), axis=0)
    return middle, np.where(spread > 0, spread, np.maximum(np.std(features, axis=0), 1e-300))


def _at_most(chance: np.ndarray, seen: np.ndarray) -> np.ndarray:
    return chance <= seen + 1e-12


def _at_least(chance: np.ndarray, seen: np.ndarray) -> np.ndarray:
    return chance >= seen - 1e-12


def best_of(found: Sequence[Linkage]) -> Linkage:
    """The attacker that is furthest from chance."""
    return min(found, key=lambda one: min(one.p[0], one.p[2]))
