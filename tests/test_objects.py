"""Large things by their hash: whole or not at all, once, and never another's."""

import asyncio
import base64
import io
from hashlib import sha256
from pathlib import Path

import nats
import pytest

from nemesis.streams.batch import Message, write
from nemesis.streams.credentials import seed_path
from nemesis.streams.errors import DamagedObjectError, MissingObjectError, UndeliverableError
from nemesis.streams.objects import CHUNK_BYTES, OBJECT_BYTES_MAX, ObjectStore
from nemesis.streams.server import Server
from tests.cells import in_cell

pytestmark = pytest.mark.server


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 7])
def test_what_is_put_comes_back_and_is_stored_once(tmp_path: Path, size: int) -> None:
    data = bytes(number % 251 for number in range(size))

    async def body(server: Server) -> None:
        async with (
            await server.connect("node/n001") as node,
            await server.connect("processor/attribution") as processor,
        ):
            key = await node.blobs.put(data)
            assert key == sha256(data).hexdigest()
            assert await node.blobs.put(data) == key
            assert await processor.blobs.get(key) == data
            assert await processor.blobs.get(sha256(b"else").hexdigest()) is None
        async with await server.connect("admin") as admin:
            answer = await admin.connection.request("$JS.API.STREAM.INFO.OBJ_NEMESIS_BLOBS")
            chunks = max(1, -(-size // CHUNK_BYTES))
            assert b'"messages":%d,' % (chunks + 1) in answer.data

    in_cell(tmp_path, body)


def test_a_forged_object_hides_no_real_one(tmp_path: Path) -> None:
    data = b"the dump"
    key = sha256(data).hexdigest()

    async def body(server: Server) -> None:
        async with (
            await server.connect("node/n001") as thief,
            await server.connect("node/n002") as node,
            await server.connect("reader") as reader,
        ):
            forged = Message(subject=f"$O.NEMESIS_BLOBS.C.node-n001.{key}", payload=b"forged")
            await write(thief.connection, [forged])
            assert await reader.blobs.get(key) is None
            await node.blobs.put(data)
            assert await reader.blobs.get(key) == data
            with pytest.raises(UndeliverableError, match="may not publish"):
                await write(
                    thief.connection,
                    [Message(subject=f"$O.NEMESIS_BLOBS.C.node-n002.{key}", payload=b"more")],
                )

    in_cell(tmp_path, body)


def test_states_belong_to_their_processor(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        async with (
            await server.connect("processor/healer") as healer,
            await server.connect("processor/attribution") as other,
        ):
            key = await healer.states.put(b"state")
            assert await healer.states.get(key) == b"state"
            assert await other.states.get(key) == b"state"
            other_name = f"$O.NEMESIS_STATE.C.processor-healer.{key}"
            with pytest.raises(UndeliverableError, match="may not publish"):
                await write(other.connection, [Message(subject=other_name, payload=b"x")])
            with pytest.raises(UndeliverableError):
                await other.incidents.put(b"x")

    in_cell(tmp_path, body)


def test_an_incident_is_found_by_its_name_and_by_the_tools_of_nats(tmp_path: Path) -> None:
    data = b"slice" * 300_000

    async def body(server: Server) -> None:
        async with await server.connect("archivist") as archivist:
            key = await archivist.incidents.put(data, name="i-abc")
            assert await archivist.incidents.find("i-abc") == key
            assert await archivist.incidents.find("i-other") is None
            assert await archivist.incidents.get(key) == data
        # the listing is that of any object store
        client = await nats.connect(
            server.url,
            nkeys_seed=str(seed_path(server.credentials_folder, "reader")),
            inbox_prefix="_INBOX_reader",
        )
        name = base64.urlsafe_b64encode(b"i-abc").decode()
        entry = await client.request(
            f"$JS.API.DIRECT.GET.OBJ_NEMESIS_INCIDENTS.$O.NEMESIS_INCIDENTS.M.{name}"
        )
        digest = base64.urlsafe_b64encode(sha256(data).digest()).decode()
        for field in (f'"digest":"SHA-256={digest}"', '"name":"i-abc"', f'"size":{len(data)}'):
            assert field.encode() in entry.data
        await client.close()

    in_cell(tmp_path, body)


def test_an_object_beyond_all_bounds_is_refused(tmp_path: Path) -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return OBJECT_BYTES_MAX + 1

    async def body(server: Server) -> None:
        async with await server.connect("node/n001") as node:
            with pytest.raises(UndeliverableError, match=str(OBJECT_BYTES_MAX)):
                await node.blobs.put(Huge())

    in_cell(tmp_path, body)


def test_a_large_file_is_kept_in_pieces_and_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "slice"
    path.write_bytes(bytes(number % 251 for number in range(20 * CHUNK_BYTES + 9)))
    key = sha256(path.read_bytes()).hexdigest()

    async def body(server: Server) -> None:
        async with (
            await server.connect("archivist") as first,
            await server.connect("archivist") as second,
            await server.connect("reader") as reader,
        ):
            begun = [
                Message(subject=f"$O.NEMESIS_INCIDENTS.C.archivist.{key}", payload=each)
                for each in (path.read_bytes()[:CHUNK_BYTES],)
            ]
            await write(first.connection, begun)
            kept = await asyncio.gather(
                first.incidents.put_file(path, name="i-abc/0"),
                second.incidents.put_file(path, name="i-abc/0"),
            )
            assert set(kept) == {key}
            assert await first.incidents.put_file(path, name="i-abc/0") == key
            assert await reader.incidents.find("i-abc/0") == key
            archive = ObjectStore(reader.connection, "NEMESIS_INCIDENTS", owner="archivist")
            with (tmp_path / "back").open("wb") as back:
                await archive.copy(key, back)
        async with await server.connect("admin") as admin:
            answer = await admin.connection.request("$JS.API.STREAM.INFO.OBJ_NEMESIS_INCIDENTS")
            assert b'"messages":%d,' % (21 + 1) in answer.data

    in_cell(tmp_path, body)
    assert (tmp_path / "back").read_bytes() == path.read_bytes()


def test_an_object_that_is_not_there_or_not_what_it_was_is_named(tmp_path: Path) -> None:
    key = sha256(b"whole").hexdigest()

    async def body(server: Server) -> None:
        async with await server.connect("archivist") as archivist:
            with pytest.raises(MissingObjectError, match=f"holds no object {key}"):
                await archivist.incidents.copy(key, io.BytesIO())
            cut = Message(subject=f"$O.NEMESIS_INCIDENTS.C.archivist.{key}", payload=b"who")
            await write(archivist.connection, [cut])
            with pytest.raises(DamagedObjectError, match=f"object {key} of archivist has the hash"):
                await archivist.incidents.copy(key, io.BytesIO())

    in_cell(tmp_path, body)
