"""GPUs by the page of DCGM's exporter, from a server of our own."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nemesis.producers.node.coverage import Seen
from nemesis.producers.node.dcgm import Dcgm, page_of
from nemesis.schemas.observed import InventoryReported, LogLineWritten
from tests.node_trees import Tree
from tests.test_node_gpus import rows_of
from tests.test_node_watch import Watched, states_of

SHUT = Seen("node/n1", "kmsg", "denied")


class Exporter(http.server.ThreadingHTTPServer):
    """Serves a page that the test writes."""

    page = ""

    def say(self, **fields: str) -> None:
        """The fields of one GPU."""
        labels = 'gpu="0",UUID="GPU-1",pci_bus_id="00000000:1B:00.0",hostname="x"'
        lines = [f"DCGM_FI_DEV_{field}{{{labels}}} {value}" for field, value in fields.items()]
        self.page = "# HELP x\n" + "\n".join(lines) + "\n"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Exporter)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.page.encode())

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    with Exporter(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def watched(tmp_path: Path, exporter: Exporter) -> Watched:
    dcgm = Dcgm(f"http://127.0.0.1:{exporter.server_port}/metrics")
    return Watched(Tree(tmp_path), dcgm=dcgm)


def test_an_exporters_page_fills_the_rows_that_nvml_cannot(
    tmp_path: Path, exporter: Exporter
) -> None:
    exporter.say(
        GPU_TEMP="61",
        POWER_USAGE="412.5",
        CORRECTABLE_REMAPPED_ROWS="1",
        UNCORRECTABLE_REMAPPED_ROWS="2",
        MEMORY_TEMP="9223372036854775792",
        PCIE_REPLAY_COUNTER="NaN",
    )
    facts = watched(tmp_path, exporter).poll()
    (row,) = rows_of(facts)
    assert (row["temp_c"], row["power_mw"], row["remapped_rows_count"]) == (61, 412_500, 3)
    assert (row["memory_temp_c"], row["pcie_replay_count"], row["dram_ce_count"]) == (None,) * 3
    (inventory,) = [fact for fact in facts if isinstance(fact, InventoryReported)]
    assert [each.pci for each in inventory.gpus] == ["0000:1b:00.0"]
    assert states_of(facts)["dcgm", "node/n1"] == "read"


def test_the_last_xid_of_a_page_is_told_when_it_changes(tmp_path: Path, exporter: Exporter) -> None:
    exporter.say(XID_ERRORS="43", GPU_TEMP="50")
    node = watched(tmp_path, exporter)
    told = []
    for xid in ("43", "43", "79", "79"):
        exporter.say(XID_ERRORS=xid, GPU_TEMP="50")
        lines = [f.text for f in node.poll([SHUT]) if isinstance(f, LogLineWritten)]
        told.append([line.partition(",")[0] for line in lines])
    assert told == [[], [], ["Xid 79 on GPU 0000:1b:00.0"], []]


def test_a_page_that_is_none_and_a_server_that_is_gone_are_told(
    tmp_path: Path, exporter: Exporter
) -> None:
    exporter.page = "hello"
    node = watched(tmp_path, exporter)
    assert states_of(node.poll())["dcgm", "node/n1"] == "broken"
    exporter.say(GPU_TEMP="50")
    assert states_of(node.poll())["dcgm", "node/n1"] == "read"
    exporter.server_close()
    assert states_of(node.poll())["dcgm", "node/n1"] == "absent"


@pytest.mark.parametrize("line", ["", "DCGM_FI_DEV_GPU_TEMP{} 1", 'x{pci_bus_id="q"} 1'])
def test_a_line_without_a_gpu_is_passed_over(line: str) -> None:
    assert page_of(line).rows == {}
