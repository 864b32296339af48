"""Labelled mixtures to test with, and truths about them that share no code with the library."""

import numpy as np


def random_mixture(generator: np.random.Generator):
    """Any mixture: ragged groups, unequal weights, correlated covariances, overlapping or far apart."""
    secrets = int(generator.integers(2, 7))
    count = int(np.exp(generator.uniform(np.log(secrets), np.log(400))))
    size = int(generator.integers(1, 5))
    secret = np.concatenate([np.arange(secrets), generator.integers(0, secrets, count - secrets)])
    weight = generator.dirichlet(np.full(count, generator.choice([0.3, 1.0, 10.0]))) + 1e-300
    if generator.random() < 0.3:
        weight[secret == 0] *= 1e-6  # a secret that is nearly ruled out
    spread = np.exp(generator.uniform(np.log(0.05), np.log(6.0)))
    position = generator.standard_normal((count, size)) * spread
    if generator.random() < 0.3:
        position = position[generator.integers(0, max(count // secrets, 1), count)]  # shared by the secrets
    shift = generator.standard_normal((secrets, size)) * np.exp(generator.uniform(np.log(0.01), np.log(3.0)))
    mean = position + shift[secret] + generator.uniform(-20.0, 20.0, size)
    return secret, weight / weight.sum(), mean, random_covariances(generator, count, size)


def random_covariances(generator: np.random.Generator, count: int, size: int) -> np.ndarray:
    """Covariances with standard deviations between 0.15 and 1.2 along random directions."""
    directions = np.linalg.qr(generator.standard_normal((count, size, size)))[0]
    deviations = np.exp(generator.uniform(np.log(0.15), np.log(1.2), (count, size)))
    return np.einsum("nij,nj,nkj->nik", directions, deviations**2, directions)


def policy_like(generator, count, size=2, *, shift=0.0, shared=False, spread=2.0, noise=0.5, secrets=4):
    """y = x + noise, x of standard deviation `spread`, moved by `shift` per secret along the first axis."""
    each = count // secrets
    position = generator.standard_normal((secrets, each, size)) * spread
    position = np.repeat(position[:1], secrets, axis=0) if shared else position
    position = position + shift * np.arange(secrets)[:, None, None] * np.eye(size)[0]
    covariance = np.broadcast_to(noise**2 * np.eye(size), (count, size, size))
    secret = np.repeat(np.arange(secrets), each)
    return secret, np.full(count, 1.0 / count), position.reshape(count, size), covariance


def log_densities(mean, covariance, points) -> np.ndarray:
    """log N_i(y_s), (S, N), by plain numpy."""
    lower = np.linalg.cholesky(covariance)
    constant = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1) + 0.5 * mean.shape[1] * np.log(
        2 * np.pi
    )
    inverse = np.linalg.inv(lower)
    columns = [((points - m) @ i.T) for m, i in zip(mean, inverse, strict=True)]
    return np.stack([-0.5 * (c**2).sum(axis=1) - k for c, k in zip(columns, constant, strict=True)], axis=1)


def sample(generator, weight, mean, covariance, count: int) -> np.ndarray:
    """Independent draws from the mixture."""
    index = generator.choice(len(weight), count, p=weight)
    noise = generator.standard_normal((count, mean.shape[1]))
    return mean[index] + np.einsum("nij,nj->ni", np.linalg.cholesky(covariance)[index], noise)


def sampled_information(generator, secret, weight, mean, covariance, count=10_000) -> tuple[float, float]:
    """Mean and standard error of the posterior's divergence from the prior, by plain Monte Carlo.

    Half of the draws visit all components alike and are weighted by p/v, so that rare ones are not missed.
    """
    proposal = 0.5 * weight + 0.5 / len(weight)
    densities = log_densities(mean, covariance, sample(generator, proposal, mean, covariance, count))
    scores = np.log(weight) + densities
    groups = np.stack(
        [np.logaddexp.reduce(scores[:, secret == k], axis=1) for k in range(secret.max() + 1)], axis=1
    )
    log_total = np.logaddexp.reduce(groups, axis=1, keepdims=True)
    log_posterior = groups - log_total
    ratio = np.exp(log_total[:, 0] - np.logaddexp.reduce(np.log(proposal) + densities, axis=1))
    prior = np.bincount(secret, weight)
    values = ratio * (np.exp(log_posterior) * (log_posterior - np.log(prior))).sum(axis=1)
    return values.mean(), values.std(ddof=1) / np.sqrt(count)
