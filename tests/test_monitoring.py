"""The dashboard and the alerts ask only for what the exporter has; Prometheus itself agrees."""

import asyncio
import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import promql_parser as promql
import pytest
import yaml

from nemesis.streams.server import Server
from nemesis.views.exporter.catalogue import METRICS, PREFIX, Metric
from tests.cells import in_cell, until
from tests.conftest import ROOT
from tests.exporting import exported

RULES = ROOT / "deploy" / "prometheus" / "nemesis-alerts.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "nemesis.json"
PROMETHEUS, PROMTOOL = shutil.which("prometheus") or "", shutil.which("promtool") or ""


def rules() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if "targets" in panel]


def queries() -> dict[str, str]:
    """By where it stands; Grafana's own variable replaced by what it would be."""
    found = {rule.get("alert") or rule["record"]: rule["expr"] for rule in rules()}
    for panel in panels():
        for target in panel["targets"]:
            expr = target["expr"].replace("$__rate_interval", "5m")
            found[f"{panel['title']}/{target['refId']}"] = expr
    return found


QUERIES = queries()


def metrics() -> dict[str, Metric | None]:
    """By the names that a query may use."""
    known: dict[str, Metric | None] = {f"{PREFIX}build_info": None}
    for metric in METRICS:
        ends = ("_bucket", "_count", "_sum") if metric.type == "histogram" else ("",)
        known |= {f"{metric.exported}{end}": metric for end in ends}
    return known


def parts(expr: Any) -> Iterator[Any]:
    """An expression and all below it."""
    yield expr
    for name in ("expr", "lhs", "rhs", "vector_selector"):
        if (below := getattr(expr, name, None)) is not None:
            yield from parts(below)
    for below in getattr(expr, "args", None) or ():
        yield from parts(below)


def labels_of(metric: Metric | None, name: str) -> dict[str, tuple[str, ...]]:
    labels = {} if metric is None else {each.name: each.values for each in metric.labels}
    return labels | ({"le": ()} if name.endswith("_bucket") else {})


@pytest.mark.parametrize("where", QUERIES)
def test_a_query_parses_and_names_only_metrics_labels_and_values_that_there_are(where: str) -> None:
    known = metrics()
    found = list(parts(promql.parse(QUERIES[where])))
    selectors = [each for each in found if isinstance(each, promql.VectorSelector)]
    assert selectors
    grouped: set[str] = set()
    for selector in selectors:
        assert selector.name in known, selector.name
        labels = labels_of(known[selector.name], selector.name)
        grouped |= set(labels)
        for matcher in selector.matchers.matchers:
            assert matcher.name in labels, matcher.name
            assert set(matcher.value.split("|")) <= set(labels[matcher.name]), matcher.value
    for each in found:
        if isinstance(each, promql.AggregateExpr) and each.modifier is not None:
            assert set(each.modifier.labels) <= grouped


@pytest.mark.parametrize("rule", [r for r in rules() if "alert" in r], ids=lambda r: r["alert"])
def test_an_alert_says_what_to_do_with_labels_that_its_query_keeps(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("warning", "critical")
    said = rule["annotations"]
    assert set(said) == {"summary", "description"}
    used = set(re.findall(r"\$labels\.(\w+)", said["summary"] + said["description"]))
    known = metrics()
    kept: set[str] = set()
    for each in parts(promql.parse(rule["expr"])):
        if isinstance(each, promql.VectorSelector):
            kept |= set(labels_of(known[each.name or ""], each.name or ""))
    assert used <= kept


def test_every_metric_that_only_grows_is_asked_for_its_growth() -> None:
    for where, expr in QUERIES.items():
        for each in parts(promql.parse(expr)):
            below = getattr(each, "args", None) or [getattr(each, "expr", None)]
            plain = [
                one.name
                for one in below
                if isinstance(one, promql.VectorSelector) and (one.name or "").endswith("_total")
            ]
            assert plain == [], where


@pytest.mark.skipif(not PROMTOOL, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_takes_every_rule() -> None:
    ran = subprocess.run([PROMTOOL, "check", "rules", str(RULES)], capture_output=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def config(folder: Path, target: str) -> Path:
    path = folder / "prometheus.yml"
    scrape = {"job_name": "nemesis", "static_configs": [{"targets": [target]}]}
    path.write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "scrape_configs": [scrape],
                "rule_files": [str(RULES)],
            }
        )
    )
    return path


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.server
@pytest.mark.skipif(not PROMETHEUS, reason="Prometheus is not installed (Debian: prometheus)")
def test_a_real_prometheus_scrapes_it_and_answers_every_query(tmp_path: Path) -> None:
    async def body(server: Server) -> None:
        async with exported(server, tmp_path) as url:
            host = url.removeprefix("http://").rstrip("/")
            api = f"127.0.0.1:{free_port()}"
            prometheus = await asyncio.create_subprocess_exec(
                PROMETHEUS, f"--config.file={config(tmp_path, host)}",
                f"--web.listen-address={api}", f"--storage.tsdb.path={tmp_path / 'tsdb'}",
                "--enable-feature=exemplar-storage", "--log.level=error",
            )  # fmt: skip
            try:
                async with aiohttp.ClientSession() as session:
                    await expect_every_answer(session, f"http://{api}/api/v1")
            finally:
                prometheus.terminate()
                await prometheus.wait()

    in_cell(tmp_path, body)


async def expect_every_answer(session: aiohttp.ClientSession, api: str) -> None:
    async def asked(path: str, **query: str) -> Any:
        async with session.get(f"{api}/{path}", params=query) as answer:
            return await answer.json()

    async def scraped() -> bool:
        try:
            found = await asked(
                "query", query='nemesis_verdicts_total{fault_class="gpu.off_bus"} > 0'
            )
        except aiohttp.ClientError:
            return False  # it is still starting
        return bool(found.get("data", {}).get("result"))

    await until(scraped, "Prometheus has the verdict", every_s=0.1)
    for where, query in QUERIES.items():
        found = await asked("query", query=query)
        assert found["status"] == "success", (where, found)
    groups = (await asked("rules"))["data"]["groups"]
    assert all(rule["health"] != "err" for group in groups for rule in group["rules"])
    span = {"start": "0", "end": "2000000000"}
    answer = await asked("query_exemplars", query="nemesis_verdicts_total", **span)
    (exemplars,) = answer["data"]
    assert exemplars["exemplars"][0]["labels"] == {"incident": "i-1"}
