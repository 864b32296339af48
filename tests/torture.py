"""Kill `veil share` again and again under a stream, then look for anything that a reader could notice.

`python -m tests.torture --kills 300 --steps 2000`: a plant in numpy sends its states line by line, waits for
each answer, reacts to it, and asks again after every death. Two in five deaths are between the first byte in
the ledger and the first byte of the release, a third just before or after; the others come from outside, at
any moment of a step or while the program starts.
"""

import argparse
import collections
import contextlib
import json
import multiprocessing
import os
import select
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.sharing import attacks
from tests.sharing.aftermath import check_answers, check_ledger, check_repairs, check_spending
from tests.sharing.dying_share import AROUND, INSIDE, MARK, MEMORY, SNAPSHOTS, Death, share
from tests.sharing.streams import NOISE, SECRET, Plant
from tests.sharing.test_sharer import counterfactual
from veil.policies.budgeted import Exhausted

BUDGET = 0.5  # nats
PATIENCE = 300.0  # seconds without an answer after which the program counts as hung
OUTSIDE = ("any moment", "while starting")
STEP = 0.004  # seconds, about two steps of the program
NEVER = Death("never", 0)


@dataclass
class Story:
    """One stream from its first step to its last, over many processes."""

    folder: Path
    steps: int
    policy: str = "noise"
    exhausted: Exhausted = "blur"
    answers: dict[int, set[bytes]] = field(default_factory=dict)
    rests: list[tuple[int, bytes]] = field(default_factory=list)  # of lines that were cut, and their step
    codes: list[int] = field(default_factory=list)  # of the processes
    messages: list[str] = field(default_factory=list)  # of the processes, for their owner
    states: list[float] = field(default_factory=list)
    externals: list[float] = field(default_factory=list)
    attacked: collections.Counter = field(default_factory=collections.Counter)

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.jsonl"

    @property
    def secret(self) -> Path:
        return self.folder / "secret.json"

    @property
    def command(self) -> list[str]:
        words = ["share", "gain", "--secret-file", str(self.secret), "--ledger", str(self.ledger)]
        if self.policy == "noise":
            words += ["--sd", str(NOISE), "--budget", str(BUDGET)]
            words += ["--on-exhausted", self.exhausted, "--horizon", str(self.steps)]
        return [*words, "--policy", self.policy, "--resolution", "0"]

    def heard(self, line: bytes) -> None:
        self.answers.setdefault(json.loads(line)["step"], set()).add(line)


class Life:
    """One process, and what passes between it and the owner."""

    def __init__(self, command: list[str], folder: Path, death: Death = NEVER):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.sharing.dying_share"])
        self._input, mouth = context.Pipe(duplex=False)
        ear, self._output = context.Pipe(duplex=False)
        self._send, self._read, self._rest = mouth, ear, b""
        own = None if death.point in (*OUTSIDE, NEVER.point) else death
        given = (command, own, folder, (self._input, self._output))
        self.process = context.Process(target=share, args=given)
        self.process.start()
        self._input.close()
        self._output.close()

    def say(self, step: int, state: float, external: float) -> None:
        """Send a line; to the dead in vain."""
        request = {"step": step, "state": {"level": state}, "external": {"push": external}}
        with contextlib.suppress(BrokenPipeError):
            os.write(self._send.fileno(), json.dumps(request).encode() + b"\n")

    def hear(self) -> bytes | None:
        """The next line of the answer; None if the process died before it was whole."""
        while b"\n" not in self._rest:
            if not select.select([self._read], [], [], PATIENCE)[0]:
                raise AssertionError(f"no answer within {PATIENCE:.0f} seconds")
            more = os.read(self._read.fileno(), 1 << 16)
            if not more:
                return None
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def end(self) -> tuple[int | None, bytes]:
        """Close, wait; the exit code and what is left of an answer."""
        self._send.close()
        self.process.join(PATIENCE)
        self._read.close()
        return self.process.exitcode, self._rest


def drive(story: Story, deaths: list[Death], seed: int = 0, attacked: int = 0) -> None:
    """Stream to the end, dying as planned on the way, and attacked so many times in between."""
    story.secret.write_text(str(SECRET))
    story.secret.chmod(0o600)
    adversary = Adversary(story, attacked, len(deaths), seed)
    chance, plant, planned = np.random.default_rng(seed), Plant(seed), collections.deque(deaths)
    starting, step = 1.0, 1
    while step <= story.steps:
        death = planned.popleft() if planned else NEVER
        began, life = time.monotonic(), Life(story.command, story.folder, death)
        if death.point == "while starting":
            time.sleep(chance.uniform(0.0, 1.2 * starting))
            life.process.kill()
        if step > 1 and _asks_again(story, life, int(chance.integers(1, step))):
            starting = time.monotonic() - began
        step = _live(story, life, death, plant, step, chance.uniform(0.0, STEP))
        code, rest = life.end()
        story.rests += [(step, rest)] if rest else []
        story.codes.append(code if code is not None else 0)
        errors = story.folder / "errors"
        story.messages.append(errors.read_text() if errors.exists() else "")
        errors.unlink(missing_ok=True)
        if code != (0 if death == NEVER else -signal.SIGKILL):
            raise AssertionError(f"{death} ended with {code}: {story.messages[-1]}")
        if planned:
            adversary.comes(step)


class Adversary:
    """Somebody who may write all files of a stream while it is not running.

    Args:
        story: the stream.
        count: attacks in all, spread evenly over the deaths.
        deaths: how many there are.
        seed: of all choices.
    """

    def __init__(self, story: Story, count: int, deaths: int, seed: int):
        self._story, self._chance = story, np.random.default_rng(seed + 1)
        self._every, self._deaths, self._left = max(1, deaths // max(1, count)), 0, count
        memory = story.policy == "counterfactual"
        self._refused = attacks.REFUSED | (attacks.REFUSED_BY_MEMORY if memory else {})
        self._harmless = attacks.HARMLESS_TO_MEMORY if memory else attacks.HARMLESS
        self._kinds = [*self._refused, *self._harmless]
        self._old: dict[str, bytes] = {}
        self._other = self._another() if count else {}

    def comes(self, step: int) -> None:
        """Perhaps attack, see what the program says, and put everything back."""
        self._deaths += 1
        if not self._left or self._deaths % self._every or step < 12:
            return
        files = self._files(self._story)
        assert self._start(0) == 0, "an honest stream was refused after a crash"
        before, files.old, files.other = files.read(), self._old, self._other
        self._old = before
        if not files.old:
            return
        name = self._kinds[self._left % len(self._kinds)]
        (self._refused | self._harmless)[name](files, self._chance)
        asked, said = int(self._chance.integers(1, step)), self._story.folder / "errors"
        kept = said.read_bytes()  # a repair may have been reported, which the next process is expected to do
        code = self._start(0 if name in self._refused else asked)
        said.write_bytes(kept)
        files.write(before)
        wanted = 2 if name in self._refused else 0
        assert code == wanted, f"{name} at step {step}: ended with {code}"
        self._left -= 1
        self._story.attacked[name] += 1

    def _start(self, asked: int) -> int | None:
        """The exit code of a process that is asked for one old step, or for none."""
        life = Life(self._story.command, self._story.folder)
        if asked:
            life.say(asked, 99.0, 0.0)
            line = life.hear()
            if line is not None:
                self._story.heard(line)
        return life.end()[0]

    def _files(self, story: Story) -> attacks.Files:
        memory = next(story.folder.glob("secret.json.memory-*"), story.folder / "none")
        beside = story.ledger.with_name("ledger.jsonl.belief")
        return attacks.Files(story.ledger, story.folder / "secret.json.account", beside, memory)

    def _another(self) -> dict[str, bytes]:
        """The files of a stream of another secret."""
        with tempfile.TemporaryDirectory() as folder:
            other = Story(Path(folder), 20, self._story.policy, self._story.exhausted)
            other.secret.write_text(str(1 - SECRET))
            other.secret.chmod(0o600)
            life = Life(other.command, other.folder)
            for step in range(1, 41):
                life.say(step, 0.1 * step % 1, 0.0)
                life.hear()
            life.end()
            return self._files(other).read()


def _asks_again(story: Story, life: Life, step: int) -> bool:
    """An old step, with another state: the answer must be the old one. False if nobody answers."""
    life.say(step, 99.0, 0.0)
    line = life.hear()
    if line is not None:
        story.heard(line)
    return line is not None


def _live(story: Story, life: Life, death: Death, plant: Plant, step: int, pause: float) -> int:
    """Share until the process dies or the stream ends; the step that is due then."""
    while step <= story.steps:
        if len(story.states) < step:
            story.states.append(plant.state)
            story.externals.append(plant.external)
        life.say(step, story.states[-1], story.externals[-1])
        if death.point == "any moment" and step >= death.step:
            time.sleep(pause)
            life.process.kill()
        line = life.hear()
        if line is None:
            return step
        story.heard(line)
        shared = json.loads(line)["shared"]
        plant.step(None if shared is None else shared["level"])
        step += 1
    return step


def schedule(steps: int, kills: int, seed: int = 0, *, memory: bool = False) -> list[Death]:
    """So many deaths from different steps on, the kinds evenly mixed: each is there in the first dozen."""
    chance = np.random.default_rng(seed)
    kinds = (*INSIDE, *(MEMORY if memory else AROUND), *MARK, *OUTSIDE, *INSIDE)
    cycle = [kinds[k % len(kinds)] for k in range(kills)]
    when = np.sort(chance.choice(np.arange(1, steps - SNAPSHOTS), kills, replace=False))
    return [Death(str(point), int(step)) for point, step in zip(chance.permutation(cycle), when, strict=True)]


def examine(story: Story, deaths: list[Death]) -> str:
    """Check all that must hold; gives a sentence about it."""
    assert story.codes == [-signal.SIGKILL] * len(deaths) + [0], "a process that ended otherwise"
    check_answers(story.answers, story.rests, story.steps)
    entries = check_ledger(story.ledger, story.answers)
    repairs = check_repairs([death.point for death in deaths], story.messages)
    if story.policy == "noise":
        check_spending(story.ledger, entries, BUDGET, exhausted=story.exhausted, steps=story.steps)
        found = f"{entries[-1]['total']:.4g} nats charged, the same in a replay"
    else:
        made = [entry["shared"][0] for entry in entries]
        assert np.allclose(made, counterfactual(story.states, story.externals), atol=1e-6)
        found = "releases are those of an uninterrupted stream"
    counts = collections.Counter(death.point for death in deaths)
    kinds = ", ".join(f"{count} {point}" for point, count in sorted(counts.items()))
    files = ", ".join(f"{count} {name}" for name, count in sorted(story.attacked.items()))
    return (
        f"{story.policy}: {sum(story.attacked.values())} attacks, none accepted ({files}); "
        f"{len(deaths)} kills ({kinds}), {repairs} repairs reported; "
        f"{story.steps} steps, each with one value; {found}."
    )


def main() -> None:
    """The long run, for `make torture`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--attacks", type=int, default=110, help="attacks on the files; some come too early")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.steps <= given.kills + SNAPSHOTS:
        parser.error(f"give more than --steps {given.kills + SNAPSHOTS}: each kill has a step of its own")
    fewer = max(6, given.kills // 10)
    for policy, kills, steps in (
        ("noise", given.kills, given.steps),
        ("counterfactual", fewer, max(fewer + SNAPSHOTS + 2, given.steps // 10)),
    ):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            story = Story(Path(folder), steps, policy)
            deaths = schedule(steps, kills, given.seed, memory=policy == "counterfactual")
            drive(story, deaths, given.seed, given.attacks * kills // (given.kills + fewer))
            print(f"{examine(story, deaths)} {time.monotonic() - began:.0f} s.", flush=True)


if __name__ == "__main__":
    main()
