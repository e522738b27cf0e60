"""Answers sent to an MQTT broker, where Home Assistant finds them by itself (MQTT discovery)."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from importlib.metadata import version
from typing import Any
from urllib.parse import unquote, urlsplit

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from fairshot.progress import SILENT, Reporter
from fairshot.watching.backoff import LONGEST, SHORTEST
from fairshot.watching.capture import Capture, identity
from fairshot.watching.errors import BadAddress
from fairshot.watching.receivers import Record, Unreachable

TIMEOUT = 10.0  # seconds for the broker to acknowledge an answer
PORTS = {"mqtt": 1883, "mqtts": 8883}
NOT_IN_TOPICS = re.compile(r"[+#\x00-\x1f\ud800-\udfff]|.{1000}")  # of those that one publishes to
ONLINE, OFFLINE = "online", "offline"
UNKNOWN_IF_NONE = "{{ value_json.answer if value_json.answer else 'unknown' }}"


class Mqtt:
    """A broker, by its address `mqtt://USER:PASSWORD@HOST:PORT/TOPIC`, all but the host optional.

    Answers go to TOPIC/NAME/answer, retained, so that a subscriber that comes later gets the last one. The
    client connects again by itself, and tells the broker how to be found and that it is there each time.
    """

    name = "mqtt"

    def __init__(
        self, url: str, device: str, password: str | None = None, reporter: Reporter = SILENT
    ) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port or PORTS[parts.scheme]
            host = parts.hostname or ""
        except (ValueError, KeyError):
            host = ""
        what = "the address of the MQTT broker"
        if not host:
            raise BadAddress(what, "mqtt://HOST, mqtts://HOST, or with :PORT/TOPIC")
        prefix = unquote(parts.path).strip("/") or "fairshot"
        if NOT_IN_TOPICS.search(prefix):
            raise BadAddress(what, "a topic without + and #, of fewer than 1,000 characters")
        self.device, self.reporter = device, reporter
        # Two devices of one name in other scripts, or with other signs, are still two.
        plain = re.sub(r"[^a-z0-9]+", "_", device.lower()).strip("_")
        self.node = plain if plain == device.lower() else f"{plain}_{identity(device)[:6]}".lstrip("_")
        self.topic = f"{prefix}/{self.node}"
        self._client = Client(CallbackAPIVersion.VERSION2, client_id=f"fairshot_{self.node}")
        if parts.username or password:
            given = unquote(parts.password) if parts.password else password
            self._client.username_pw_set(unquote(parts.username or ""), given)
        if parts.scheme == "mqtts":
            self._client.tls_set()
        self._client.will_set(f"{self.topic}/status", OFFLINE, qos=1, retain=True)
        self._client.reconnect_delay_set(int(SHORTEST), int(LONGEST))
        self._client.on_connect = self._connected
        self._client.connect_async(host, port)
        self._client.loop_start()

    def _connected(self, client: Client, _data: Any, _flags: Any, reason: ReasonCode, _more: Any) -> None:
        if reason.is_failure:
            self.reporter.say(f"mqtt: the broker does not let us in ({reason})")
            return
        for topic, description in self.discovery().items():
            client.publish(topic, json.dumps(description), qos=1, retain=True)
        client.publish(f"{self.topic}/status", ONLINE, qos=1, retain=True)

    def discovery(self) -> dict[str, dict[str, Any]]:
        """Return what Home Assistant is told, by topic: a sensor of the answer and one of its confidence."""
        own = version("fairshot")
        shared = {
            "state_topic": f"{self.topic}/answer",
            "availability_topic": f"{self.topic}/status",
            "device": {"identifiers": [f"fairshot_{self.node}"], "name": self.device, "sw_version": own},
            "origin": {"name": "fairshot", "sw_version": own},
        }
        sensors = {
            "answer": {
                "name": "Answer",
                "icon": "mdi:eye-check",
                "value_template": UNKNOWN_IF_NONE,
                "json_attributes_topic": f"{self.topic}/answer",
            },
            "confidence": {
                "name": "Confidence",
                "icon": "mdi:percent",
                "unit_of_measurement": "%",
                "state_class": "measurement",
                "value_template": "{{ (value_json.confidence * 100) | round(1) }}",
            },
        }
        return {
            f"homeassistant/sensor/fairshot_{self.node}/{key}/config": {
                **shared,
                **sensor,
                "unique_id": f"fairshot_{self.node}_{key}",
            }
            for key, sensor in sensors.items()
        }

    def message(self, record: Record, capture: Capture) -> str | None:
        """Return the record as JSON; nothing of pictures that cannot be read."""
        del capture
        return None if "error" in record else json.dumps(record)

    def deliver(self, message: str) -> None:
        """Publish it, and wait until the broker has it."""
        if not self._client.is_connected():
            raise Unreachable("the broker is not there")
        published = self._client.publish(f"{self.topic}/answer", message, qos=1, retain=True)
        try:
            published.wait_for_publish(TIMEOUT)
        except (RuntimeError, ValueError) as problem:
            raise Unreachable(str(problem)) from None
        if not published.is_published():
            raise Unreachable("the broker does not acknowledge")

    def close(self) -> None:
        """Say that nobody watches any more, and disconnect."""
        if self._client.is_connected():
            with suppress(RuntimeError, ValueError):  # the connection has just broken, and the will says it
                self._client.publish(f"{self.topic}/status", OFFLINE, qos=1, retain=True).wait_for_publish(1)
        self._client.disconnect()
        self._client.loop_stop()
