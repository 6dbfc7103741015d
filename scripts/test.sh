#!/usr/bin/env bash
# Style, types and tests, with all the set-up they need: scripts/test.sh [--long] [pytest's own arguments]
# --long also runs the suites that take many minutes. As many tests at a time as there are cores, four at most; -n 0: one.
set -euo pipefail
. "$(dirname "$0")/setup.sh" cpu,dev

# Launching over ssh is tested against a real sshd. In a container it is installed; a machine with services of its own is
# left alone, because a new sshd would listen there from now on: then those tests are skipped and say so.
if [ ! -x /usr/sbin/sshd ] && [ "$(id -u)" = 0 ] && [ ! -d /run/systemd/system ] && command -v apt-get >/dev/null; then
    echo "== installing sshd for the tests of launching over ssh (once)"
    install_sshd() { DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends openssh-server; }
    timeout 120 bash -c "$(declare -f install_sshd); install_sshd || { apt-get update -qq && install_sshd; }" \
        >/dev/null 2>&1 || echo "   that failed; they will be skipped"
fi

# The dashboard's tests are skipped where there is no Chromium; a container's root can have it in half a minute.
if ! command -v chromium chromium-browser google-chrome >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "== installing Chromium, for the tests of the dashboard"
    export DEBIAN_FRONTEND=noninteractive
    { timeout 60 apt-get update -qq && timeout 240 apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core; } \
        >/dev/null 2>&1 || echo "it could not be installed: those tests are skipped"
fi

echo "== style"
ruff check .
ruff format --check .
echo "== types"
mypy
echo "== tests"
cores=$(nproc)
pytest -n $((cores < 4 ? cores : 4)) --dist worksteal "$@"
