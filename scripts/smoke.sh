#!/usr/bin/env bash
# Try the installed package with several Pythons, each in a new virtual environment and an empty folder:
#
#     scripts/smoke.sh [PYTHON…]        python3.10 and python3.12, unless others are named
#
# The wheel is installed with the extra `cpu`. A training of seconds, a simulation, a begin and a query of
# the state server, a summary and the figures have to succeed.
set -euo pipefail
cd "$(dirname "$0")/.."

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
root=$PWD
[ $# -gt 0 ] || set -- python3.10 python3.12
for python in "$@"; do
    name=$("$python" -c 'import platform; print("python" + platform.python_version())')
    echo "== $name"
    folder=$room/$name
    "$python" -m venv "$folder/venv"
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check --progress-bar off "$root[cpu]"
    mkdir "$folder/work"
    cd "$folder/work"
    cp -rL "$root/data" data 2>/dev/null || "$folder/venv/bin/esync" data fetch
    export PATH="$folder/venv/bin:$PATH"
    unset PYTHONPATH
    esync launch :quick --max-time 5
    esync simulate :paper --numerics none --max-time 60
    esync summarize -n lenet
    esync plot -n lenet
    coproc server { exec esync state-server --port 0; }
    read -r _ _ url <&"${server[0]}"
    python - "$url" <<'END'
import sys
from urllib.parse import urlsplit

from esync.coordination.client import StateServerClient

url = urlsplit(sys.argv[1])
with StateServerClient(url.hostname, url.port, rank=0) as client:
    client.init(num_workers=1, epsilon=1.0)
    print("state server:", client.ask(iteration=1, capability=1.0).wait())
END
    kill "$server_PID"
    wait "$server_PID" || true
    cd "$root"
    echo "== $name works"
done
