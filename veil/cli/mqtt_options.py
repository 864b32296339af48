"""Where `veil share` reads and writes: standard input and output, or topics of an MQTT broker."""

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import tyro

from veil.cli.mistakes import Mistake

if TYPE_CHECKING:
    from veil.sharing.sharer import Sharer


USUAL_PORT = 1883

BROKER = tyro.conf.arg(metavar="HOST[:PORT]", help_behavior_hint="(default: none; stdin and stdout)")

TOPIC = tyro.conf.arg(metavar="TOPIC", help_behavior_hint="")


@dataclass(frozen=True)
class Network:
    """The way in and out."""

    mqtt: Annotated[str, BROKER] = ""
    """MQTT 5 broker to stream over, at least once each way; needs the extra veil[mqtt]"""
    topic_in: Annotated[str, TOPIC] = ""
    """Topic of the inputs, one JSON object per message"""
    topic_out: Annotated[str, TOPIC] = ""
    """Topic of the releases; readers drop repeats by step"""

    def check(self) -> None:
        """Refuse what cannot be connected to."""
        given = (self.mqtt, self.topic_in, self.topic_out)
        if not any(given):
            return
        if not all(given):
            raise Mistake("--mqtt, --topic-in and --topic-out go together; give all three or none.")
        if any(sign in topic for topic in given[1:] for sign in "+#"):
            raise Mistake("--topic-in and --topic-out are single topics, without + and #.")
        if self.topic_in == self.topic_out:
            raise Mistake("--topic-in and --topic-out must differ, or releases would come back as inputs.")
        self.address()
        if importlib.util.find_spec("paho") is None:
            raise Mistake("--mqtt needs the package paho-mqtt; install it with `pip install 'veil[mqtt]'`.")

    def address(self) -> tuple[str, int]:
        """Host and port of the broker."""
        try:
            parts = urlsplit(f"//{self.mqtt}")
            if parts.hostname and parts.netloc == self.mqtt and parts.username is None:
                return parts.hostname, parts.port or USUAL_PORT
        except ValueError:  # a port that is none
            pass
        raise Mistake("--mqtt is HOST or HOST:PORT, e.g. --mqtt localhost:1883.")

    def serve(self, sharer: "Sharer", tell: Callable[[str], None]) -> int:
        """Share until the input ends; gives the number of faults. Over MQTT it ends by Ctrl-C only."""
        if not self.mqtt:
            from veil.sharing.stream import serve

            return serve(sharer, sys.stdin.buffer, sys.stdout.buffer, tell)
        from veil.sharing import mqtt

        mqtt.serve(sharer, mqtt.Route(*self.address(), self.topic_in, self.topic_out), tell)
