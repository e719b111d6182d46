"""Which commands there are. Each registers itself; heavy imports stay inside the commands."""

import typer

from nemesis.cli.act import act
from nemesis.cli.activate import activate
from nemesis.cli.advise import advise
from nemesis.cli.agent import agent
from nemesis.cli.approve import approve, veto
from nemesis.cli.breaker import breaker
from nemesis.cli.check import check
from nemesis.cli.clock import clock
from nemesis.cli.codes import codes
from nemesis.cli.collector import collector
from nemesis.cli.dashboard import dashboard
from nemesis.cli.decisions import decisions
from nemesis.cli.demo import demo
from nemesis.cli.doctor import doctor
from nemesis.cli.ecc import ecc
from nemesis.cli.events import events, telemetry
from nemesis.cli.exporter import exporter
from nemesis.cli.goodput import goodput
from nemesis.cli.host import host
from nemesis.cli.incident import incident
from nemesis.cli.job import job
from nemesis.cli.mfu import mfu
from nemesis.cli.pause import pause, resume
from nemesis.cli.place import place
from nemesis.cli.policy import policy
from nemesis.cli.process import process
from nemesis.cli.producer import producer
from nemesis.cli.protect import protect, unprotect
from nemesis.cli.provision import credentials, provision
from nemesis.cli.queue import queue
from nemesis.cli.record import record
from nemesis.cli.replay import replay
from nemesis.cli.report import report
from nemesis.cli.run import run
from nemesis.cli.schema import schema
from nemesis.cli.score import score
from nemesis.cli.serve import serve
from nemesis.cli.sim import sim
from nemesis.cli.simulate import simulate
from nemesis.cli.sink import sink
from nemesis.cli.status import status
from nemesis.cli.submit import release, submit
from nemesis.cli.suite import suite
from nemesis.cli.top import top
from nemesis.cli.topology import topology
from nemesis.cli.triage import triage

app = typer.Typer(
    name="nemesis",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Names the one component that broke a training job and applies the smallest recovery.",
)


def _version(show: bool) -> None:
    if show:
        from nemesis import __version__

        typer.echo(f"nemesis {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and leave."
    ),
) -> None:
    """NEMESIS keeps GPU training jobs running through hardware faults."""


app.add_typer(act, name="act")
app.command()(activate)
app.command()(advise)
app.command()(agent)
app.command()(approve)
app.add_typer(breaker, name="breaker")
app.command()(check)
app.command()(clock)
app.command()(codes)
app.command()(collector)
app.command()(credentials)
app.command()(dashboard)
app.command()(decisions)
app.add_typer(demo, name="demo")
app.command()(doctor)
app.add_typer(ecc, name="ecc")
app.command()(events)
app.command()(exporter)
app.command()(goodput)
app.add_typer(host, name="host")
app.command()(incident)
app.add_typer(job, name="job")
app.command()(mfu)
app.command()(pause)
app.command()(place)
app.add_typer(policy, name="policy")
app.command()(process)
app.command()(producer)
app.command()(protect)
app.command()(provision)
app.command()(queue)
app.command()(record)
app.command()(release)
app.command()(replay)
app.command()(report)
app.command()(resume)
app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})(
    run
)
app.add_typer(schema, name="schema")
app.command()(score)
app.command()(serve)
app.command()(sim)
app.command()(simulate)
app.add_typer(sink, name="sink")
app.command()(status)
app.command()(submit)
app.add_typer(suite, name="suite")
app.add_typer(telemetry, name="telemetry")
app.command()(top)
app.add_typer(topology, name="topology")
app.command()(triage)
app.command()(unprotect)
app.command()(veto)
