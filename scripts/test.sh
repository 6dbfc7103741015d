#!/usr/bin/env bash
# Check style and types and run the tests, with all the set-up that they need:
#
#     scripts/test.sh [--long] [pytest's own arguments]
#
# --long also runs the tests marked `long`: further variants of what is tested anyway (modes,
# moments of a failure, numbers of servers), and suites that take many minutes or hours. So name
# what is to run: scripts/test.sh --long tests/cluster. Two tests more run at a time than there
# are cores, five at most, because tests also wait; -n 0 runs one at a time.
set -euo pipefail
. "$(dirname "$0")/setup.sh" cpu,dev

# Launching over ssh is tested against a real sshd. In a container it is installed. On a machine
# with services of its own it is not, because it would listen there from then on; those tests are
# then skipped, and say so.
if [ ! -x /usr/sbin/sshd ] && [ "$(id -u)" = 0 ] && [ ! -d /run/systemd/system ] && command -v apt-get >/dev/null; then
    echo "== installing sshd for the tests of launching over ssh (once)"
    install_sshd() { DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends openssh-server; }
    timeout 120 bash -c "$(declare -f install_sshd); install_sshd || { apt-get update -qq && install_sshd; }" \
        >/dev/null 2>&1 || echo "   that failed; they will be skipped"
fi

# The dashboard's tests are skipped where there is no Chromium. In a container, root can install it
# in half a minute.
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
# Writes what spares every later import of MXNet two fifths of its time (esync/runtime/mxnet_operators.py).
env -u PYTHONDONTWRITEBYTECODE python -c "import esync.runtime.mxnet_import"
cores=$(nproc)
pytest -n $((cores < 4 ? cores + 2 : 5)) --dist worksteal "$@"
