"""Answers reach a webhook and an MQTT broker, also when these are away for a while."""

from __future__ import annotations

import getpass
import json
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from fairshot.teaching import Store
from fairshot.watching import journal as journal_module
from fairshot.watching import mqtt
from fairshot.watching.capture import Capture
from fairshot.watching.errors import BadAddress
from fairshot.watching.folder import FolderSource
from fairshot.watching.journal import Journal
from fairshot.watching.mqtt import Mqtt
from fairshot.watching.receivers import Delivery, Refused, Unreachable
from fairshot.watching.watch import preparation
from fairshot.watching.webhook import Webhook
from support.watched import LONGEST_WAIT, Said, hook_server, put, wait_for, watching

FRAME = Capture("frame 1", "id", None)


def test_what_a_webhook_could_not_take_it_is_sent_again(
    shop: Store, journal: Journal, tmp_path: Path
) -> None:
    with hook_server() as server:
        server.statuses = [503, 302, 404]
        looking = FolderSource(tmp_path / "in", journal, 0.05, prepare=preparation(shop))
        put(tmp_path / "in", "a.png")
        with watching(shop, looking, journal, [Webhook(server.url)]) as running:
            wait_for(lambda: len(server.bodies) == 1)
            server.statuses = [422]  # the message is at fault: another try would not help
            put(tmp_path / "in", "b.png")
            wait_for(lambda: len(running.records) == 2 and not journal.count_waiting())
            put(tmp_path / "in", "c.png")
            wait_for(lambda: len(server.bodies) == 2)
    assert [json.loads(body) for body in server.bodies] == [running.records[0], running.records[2]]
    assert any("answers cannot be sent (503" in line for line in running.said.lines)
    assert any("answers are sent again" in line for line in running.said.lines)
    assert any("an answer is refused (422" in line for line in running.said.lines)
    assert "secret" not in "".join(running.said.lines)


def test_what_waits_is_sent_by_the_next_watch(shop: Store, tmp_path: Path) -> None:
    put(tmp_path / "in", "a.png")
    path = tmp_path / "journal.sqlite"
    with hook_server() as server:
        url = server.url
    with Journal(path) as journal:  # the server is gone
        looking = FolderSource(tmp_path / "in", journal, 0.05, prepare=preparation(shop))
        with watching(shop, looking, journal, [Webhook(url)]) as running:
            wait_for(lambda: len(running.records) == 1)
        assert journal.count_waiting() == 1
    with hook_server() as server, Journal(path) as journal:
        looking = FolderSource(tmp_path / "in", journal, 0.05, once=True, prepare=preparation(shop))
        with watching(shop, looking, journal, [Webhook(server.url)]) as later:
            wait_for(lambda: len(server.bodies) == 1)
        assert journal.count_waiting() == 0
    assert not later.records
    assert json.loads(server.bodies[0]) == running.records[0]


def test_of_frames_only_the_latest_wait(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "MOST_FRAMES", 3)
    for number in range(10):
        journal.record([FRAME], [{"webhook": str(number)}])
    assert journal.count_waiting() == 3
    heard: list[str] = []

    class Listener(Webhook):
        def deliver(self, message: str) -> None:
            if message == "8":
                raise Refused("not this one")
            heard.append(message)

    Delivery(journal, Listener("http://localhost"), Said()).end(patient=True)
    assert heard == ["7", "9"]
    assert journal.count_waiting() == 0


def test_a_receiver_that_never_answers_does_not_keep_a_watch_from_ending(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may answer byte by byte for ever, each of them in time."""
    monkeypatch.setattr("fairshot.watching.receivers.ENDING_SECONDS", 0.1)
    monkeypatch.setattr("fairshot.watching.receivers.STUCK_SECONDS", 0.1)
    asked, answered = threading.Event(), threading.Event()

    class Stuck(Webhook):
        def deliver(self, message: str) -> None:
            asked.set()
            answered.wait()

    journal.record([FRAME], [{"webhook": "1"}])
    delivery = Delivery(journal, Stuck("http://localhost"), Said())
    assert asked.wait(LONGEST_WAIT)
    ending = threading.Thread(target=delivery.end, args=(True,), daemon=True)
    ending.start()
    ending.join(30)
    ended = not ending.is_alive()
    left = journal.count_waiting()
    answered.set()
    ending.join(LONGEST_WAIT)
    delivery._thread.join(LONGEST_WAIT)
    assert ended
    assert left == 1


def test_a_watch_does_not_go_on_without_a_receiver_that_fails_for_good(journal: Journal) -> None:
    class Broken(Webhook):
        def deliver(self, message: str) -> None:
            raise UnicodeError(message)

    journal.record([FRAME], [{"webhook": "1"}])
    delivery = Delivery(journal, Broken("http://localhost"), Said())
    wait_for(lambda: delivery.problem is not None)
    with pytest.raises(UnicodeError):
        delivery.wake()
    with pytest.raises(UnicodeError):
        delivery.end(patient=True)
    assert journal.count_waiting() == 1


@pytest.mark.parametrize("url", ["ftp://host/x", "http://", "nothing", "file:///etc/passwd"])
def test_addresses_that_nothing_can_be_sent_to(url: str) -> None:
    with pytest.raises(BadAddress):
        Webhook(url)
    with pytest.raises(BadAddress):
        Mqtt(url, "shop")
    with pytest.raises(BadAddress):
        Mqtt("mqtt://host:port", "shop")


@pytest.mark.parametrize("topic", ["birds/+", "%23", "a%00b", "a%0Ab", 1000 * "a"])
def test_topics_that_nobody_may_publish_to(topic: str) -> None:
    with pytest.raises(BadAddress):
        Mqtt(f"mqtt://host/{topic}", "shop")


# MQTT, against a real broker

BROKER = shutil.which(
    "mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/sbin"
)


@contextmanager
def broker(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run mosquitto; what it has to keep for clients survives its end."""
    assert BROKER is not None
    folder.mkdir(exist_ok=True)
    (folder / "mosquitto.conf").write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\npersistence_location {folder}/\n"
        f"user {getpass.getuser()}\n"  # started by root it would become another user, who may not write there
    )
    process = subprocess.Popen(
        [BROKER, "-c", str(folder / "mosquitto.conf")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: _listens(port) or process.poll() is not None)
        assert process.poll() is None, "mosquitto ended"
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(60)


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
        return port


class Subscriber:
    """Hears everything, also what was published while it was away."""

    def __init__(self, port: int) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.client = Client(CallbackAPIVersion.VERSION2, client_id="test", clean_session=False)
        self.client.on_connect = lambda client, *_: client.subscribe("#", qos=1)
        self.subscribed = False
        self.client.on_subscribe = self._on_subscribe
        self.client.on_message = self._on_message
        self.client.reconnect_delay_set(1, 1)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        wait_for(lambda: self.subscribed)

    def _on_subscribe(self, *_: object) -> None:
        self.subscribed = True

    def _on_message(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        content = message.payload.decode()
        self.heard.append((message.topic, json.loads(content) if content.startswith("{") else content))

    def about(self, ending: str) -> list[Any]:
        return [content for topic, content in self.heard if topic.endswith(ending)]

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.mark.skipif(BROKER is None, reason="needs the broker mosquitto (apt install mosquitto)")
def test_home_assistant_finds_the_answers_and_a_broker_may_restart(
    shop: Store, journal: Journal, tmp_path: Path
) -> None:
    port, inbox = _free_port(), tmp_path / "in"
    put(inbox, "a.png")
    with broker(tmp_path / "broker", port):
        subscriber = Subscriber(port)
        receiver = Mqtt(f"mqtt://127.0.0.1:{port}/home", "Bird feeder")
        looking = FolderSource(inbox, journal, 0.05, prepare=preparation(shop))
        running_watch = watching(shop, looking, journal, [receiver])
        running = running_watch.__enter__()
        wait_for(lambda: len(subscriber.about("/answer")) == 1 and len(subscriber.about("/config")) == 2)
    try:  # the broker is gone
        for name in ("b.png", "c.png"):
            put(inbox, name, "emu")
        wait_for(lambda: journal.count_waiting() == 2)
        with broker(tmp_path / "broker", port):
            wait_for(lambda: len(subscriber.about("/answer")) >= 3)
            running_watch.__exit__(None, None, None)
            wait_for(lambda: subscriber.about("/status")[-1] == "offline")
    finally:
        running.stop.set()
        subscriber.close()
    heard = {record["id"]: record for record in subscriber.about("/answer")}
    assert list(heard.values()) == running.records
    assert journal.count_waiting() == 0
    answer, confidence = (
        next(each for each in subscriber.about("/config") if each["name"] == name)
        for name in ("Answer", "Confidence")
    )
    assert answer["state_topic"] == confidence["state_topic"] == f"home/{receiver.node}/answer"
    assert answer["availability_topic"] == f"home/{receiver.node}/status"
    assert answer["unique_id"] != confidence["unique_id"]
    assert answer["device"] == confidence["device"]
    topics = {topic for topic, _ in subscriber.heard if topic.endswith("/config")}
    assert topics == {
        f"homeassistant/sensor/fairshot_{receiver.node}/{key}/config" for key in ("answer", "confidence")
    }
    assert "online" in subscriber.about("/status")


@pytest.mark.skipif(BROKER is None, reason="needs the broker mosquitto (apt install mosquitto)")
def test_what_a_broker_does_not_acknowledge_was_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = _free_port()
    with broker(tmp_path / "broker", port) as process:
        receiver = Mqtt(f"mqtt://127.0.0.1:{port}", "shop")
        wait_for(receiver._client.is_connected)
        receiver.deliver("{}")
        process.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(mqtt, "TIMEOUT", 0.3)
        with pytest.raises(Unreachable, match="acknowledge"):
            receiver.deliver("{}")
        process.send_signal(signal.SIGCONT)
        receiver.close()


def test_a_broker_that_is_not_there_does_not_hold_up_the_watch() -> None:
    receiver = Mqtt(f"mqtt://127.0.0.1:{_free_port()}", "shop")
    with pytest.raises(Unreachable):
        receiver.deliver("{}")
    receiver.close()
    assert receiver.message({"error": "no picture"}, FRAME) is None
    assert receiver.node == "shop"
    assert (
        Mqtt.discovery(receiver)["homeassistant/sensor/fairshot_shop/answer/config"]["device"]["name"]
        == "shop"
    )
