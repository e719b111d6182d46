"""Records the golden scenarios anew: `python -m tests.record_scenarios [SCENARIO...]`.

For a processor whose version went up, or was never released. Recordings of released versions stay:
old ones must be readable and replay equal for ever.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent / "recordings"
SCENARIOS = ("gpu-off-bus", "gpu-memory", "rank-exit", "node-lost", "leaf-port-down")
NEMESIS = [sys.executable, "-m", "nemesis.cli"]


def record(scenario: str, state: str) -> int:
    """Run a scenario until its score is told, copy the whole log, stop it."""
    variables = os.environ | {"NEMESIS_STATE_DIR": state}
    demo = subprocess.Popen(
        [*NEMESIS, "demo", "--scenario", scenario, "--seed", "7", "--speed", "2", "--follow"],
        stdout=subprocess.PIPE,
        text=True,
        env=variables,
    )
    assert demo.stdout is not None
    try:
        for line in demo.stdout:
            if line.startswith("SCORE"):
                print(f"{scenario}: {line.strip()}")
                break
        out = FOLDER / f"{scenario}.ndjson.zst"
        command = [*NEMESIS, "record", "--cell", "demo", "--out", str(out), "--force"]
        subprocess.run(command, check=True, env=variables)
        return subprocess.run([*NEMESIS, "replay", str(out)], check=False).returncode
    finally:
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=300)


def main() -> int:
    """Record what is named, else everything."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as state:
        return max(record(scenario, state) for scenario in sys.argv[1:] or SCENARIOS)


if __name__ == "__main__":
    sys.exit(main())
