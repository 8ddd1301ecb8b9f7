"""The stand-in's process: one websocket client, one game at a time."""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import os
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

import mpyq

from standin import world
from standin.world import sc2api

# A field that no schema knows, in front of the known ones: a message with it does not survive
# being parsed and serialized again byte for byte, so that a test can tell.
UNKNOWN_FIELD = b"\xfa\x3f\x03new"  # field 1023, length-delimited


def varint(value: int) -> bytes:
    """Protobuf's encoding of an unsigned number."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class GameDiedError(Exception):
    """The game is to end its process at once."""


class EmptyAnswerError(Exception):
    """The game is to answer with a message of no bytes."""


class Game:
    """Answers requests as the game does, or misbehaves at the loop that the plan says.

    Settings of a game: `loops`, its length; `die_at`, `hang_at`, `error_at`, `empty_at`, loops at
    which to end the process, fall silent, answer with an error or with nothing; `times`, how
    often to misbehave so (always); `start_error` and `info_error`, errors of ResponseStartReplay
    and ResponseReplayInfo by name; `local_map`, a map that the replay needs; `slow`, seconds
    that each step takes.
    """

    def __init__(self, root: Path):
        settings = json.loads((root / "plan.json").read_text())
        self.root = root
        self.observations = Path(settings["observations"])
        self.plan: dict[str, dict[str, Any]] = settings["plan"]
        self.status = sc2api.launched
        self.loop = 0
        self.seen = 0

    def settings(self, replay: bytes) -> dict[str, Any]:
        content_hash = hashlib.blake2b(replay, digest_size=16).hexdigest()
        chosen: dict[str, Any] = {"loops": 400}
        for prefix in sorted(self.plan, key=len):
            if content_hash.startswith(prefix):
                chosen.update(self.plan[prefix])
        return chosen

    def misbehaves(self, how: str) -> bool:
        """Whether the plan says to do `how` now, counting how often it was done."""
        if how not in self.game or self.loop < self.game[how]:
            return False
        counter = self.root / f"{how}.{self.hash}"
        done = len(counter.read_bytes()) if counter.exists() else 0
        if done >= self.game.get("times", 1 << 30):
            return False
        with counter.open("ab") as file:
            file.write(b".")
        return True

    def answer(self, request: Any) -> bytes:
        """The serialized Response."""
        kind = request.WhichOneof("request")
        response = sc2api.Response()
        if request.HasField("id"):
            response.id = request.id
        try:
            wire = getattr(self, kind)(getattr(request, kind), response)
        except EmptyAnswerError:
            return b""
        response.status = self.status
        head: bytes = response.SerializeToString()
        return head + (wire or b"")

    def ping(self, request: Any, response: Any) -> None:
        response.ping.game_version = "4.10.0"
        response.ping.base_build = 75689

    def replay_info(self, request: Any, response: Any) -> None:
        settings = self.settings(request.replay_data)
        info = response.replay_info
        if "info_error" in settings:
            info.error = sc2api.ResponseReplayInfo.Error.Value(settings["info_error"])
            info.error_details = "as planned"
            return
        archive = mpyq.MPQArchive(io.BytesIO(request.replay_data))
        metadata = json.loads(archive.read_file("replay.gamemetadata.json"))
        info.map_name = metadata["Title"]
        info.local_map_path = settings.get("local_map", "")
        info.game_duration_loops = settings["loops"]
        info.game_version = metadata["GameVersion"]
        info.data_build = int(metadata["DataBuild"])
        info.base_build = int(metadata["BaseBuild"][4:])
        for player in metadata["Players"]:
            extra = info.player_info.add()
            extra.player_info.player_id = player["PlayerID"]
            extra.player_info.player_name = f"Player {player['PlayerID']}"

    def start_replay(self, request: Any, response: Any) -> None:
        self.hash = hashlib.blake2b(request.replay_data, digest_size=16).hexdigest()
        self.game = self.settings(request.replay_data)
        response.start_replay.SetInParent()
        if "start_error" in self.game:
            error = self.game["start_error"]
            response.start_replay.error = sc2api.ResponseStartReplay.Error.Value(error)
            response.start_replay.error_details = "as planned"
            return
        self.replay = request.replay_data
        self.interface = request.options
        self.player = request.observed_player_id
        self.loop = self.seen = 0
        self.status = sc2api.in_replay

    def game_info(self, request: Any, response: Any) -> None:
        response.game_info.CopyFrom(world.game_info(self.observations, self.interface))

    def data(self, request: Any, response: Any) -> None:
        response.data.CopyFrom(world.data(self.observations))

    def observation(self, request: Any, response: Any) -> bytes:
        if self.misbehaves("die_at"):
            raise GameDiedError
        if self.misbehaves("hang_at"):
            time.sleep(3600)
        if self.misbehaves("error_at"):
            response.error.append("as planned")
        if self.misbehaves("empty_at"):
            raise EmptyAnswerError
        wire = (
            UNKNOWN_FIELD
            + world.observation(
                self.observations,
                self.interface,
                self.player,
                self.loop,
                self.seen,
                self.game["loops"],
            ).SerializeToString()
        )
        self.seen = self.loop
        if self.loop >= self.game["loops"]:
            self.status = sc2api.ended
        return varint(10 << 3 | 2) + varint(len(wire)) + wire

    def step(self, request: Any, response: Any) -> None:
        time.sleep(self.game.get("slow", 0))
        self.loop = min(self.loop + request.count, self.game["loops"])
        response.step.simulation_loop = self.loop

    def save_replay(self, request: Any, response: Any) -> None:
        response.save_replay.data = self.replay + b"encoded again"


def _exactly(stream: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = stream.recv(count - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return bytes(data)


def _handshake(stream: socket.socket) -> None:
    head = b""
    while b"\r\n\r\n" not in head:
        head += _exactly(stream, 1)
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if ": " in line)
    key = {name.lower(): value for name, value in headers.items()}["sec-websocket-key"]
    digest = hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    stream.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n"
    )


def _receive(stream: socket.socket) -> bytes | None:
    """One whole message from the client, None when it says goodbye."""
    message = b""
    while True:
        first, second = _exactly(stream, 2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack(">H", _exactly(stream, 2))
        elif length == 127:
            (length,) = struct.unpack(">Q", _exactly(stream, 8))
        mask = _exactly(stream, 4)
        payload = _exactly(stream, length)
        payload = bytes(
            int.from_bytes(payload, "little")
            .__xor__(int.from_bytes((mask * (length // 4 + 1))[:length], "little"))
            .to_bytes(length, "little")
        )
        if first & 0x0F == 8:
            return None
        message += payload
        if first & 0x80:
            return message


def _send(stream: socket.socket, payload: bytes) -> None:
    length = len(payload)
    if length < 126:
        head = struct.pack(">BB", 0x82, length)
    elif length < 1 << 16:
        head = struct.pack(">BBH", 0x82, 126, length)
    else:
        head = struct.pack(">BBQ", 0x82, 127, length)
    stream.sendall(head + payload)


def main() -> None:
    """Serves one client until it quits, as `SC2_x64 -listen HOST -port PORT -dataDir DIR/`."""
    parser = argparse.ArgumentParser(prefix_chars="-")
    parser.add_argument("-listen")
    parser.add_argument("-port", type=int)
    parser.add_argument("-dataDir", type=Path)
    arguments, _ = parser.parse_known_args()
    print("the game talks on standard output, as games do")
    game = Game(arguments.dataDir)
    if game.plan.get("", {}).get("die_at_start"):
        sys.exit(3)
    with socket.create_server((arguments.listen, arguments.port)) as server:
        stream, _ = server.accept()
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _handshake(stream)
        try:
            while (message := _receive(stream)) is not None:
                request = sc2api.Request.FromString(message)
                if request.WhichOneof("request") == "quit":
                    return
                _send(stream, game.answer(request))
        except GameDiedError:
            os._exit(9)
        except ConnectionError:
            return
