"""The services of `docker-compose.yml` are the parts of this release, each somebody else."""

import re

from nemesis.processors.catalogue import CATALOGUE
from nemesis.schemas.tokens import token_of
from tests.conftest import ROOT

COMPOSE = (ROOT / "docker-compose.yml").read_text()
SEEDS = (ROOT / "deploy" / "seeds.sh").read_text()


def test_every_processor_is_a_service_with_its_own_seed_and_no_other() -> None:
    services = dict(
        re.findall(r"^  ([a-z-]+):\n(?:    .*\n)*?    command: \[process, (\w+)\]", COMPOSE, re.M)
    )
    assert sorted(services.values()) == sorted(CATALOGUE)
    for service, processor in services.items():
        given = re.findall(rf"^give {service} \d+ (.*)$", SEEDS, re.M)
        assert given == [f"processor-{token_of(processor)}"]


def test_a_person_runs_commands_with_the_operators_seeds_when_asked_and_never_by_itself() -> None:
    (user,) = re.findall(r"^give operator (\d+) operator reader$", SEEDS, re.M)
    (operator,) = re.findall(r"^  operator:\n((?:    .*\n)+)", COMPOSE, re.M)
    assert "profiles: [operator]" in operator
    assert "NEMESIS_CREDENTIALS: /seeds/operator" in operator
    assert f'user: "{user}:{user}"' in operator


def test_every_service_runs_as_a_user_of_its_own() -> None:
    users = re.findall(r'^    user: "(\d+):\1"$', COMPOSE, re.M)
    parts = [user for user in users if user != "0"]
    assert len(parts) == len(set(parts))
    assert users.count("0") == 2, "what makes seeds, and what gives two volumes away"
    folders = re.findall(r"^give [a-z-]+ (\d+)", SEEDS, re.M)
    assert len(folders) == len(set(folders))
    assert set(parts) <= set(folders)
