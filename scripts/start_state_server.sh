#!/usr/bin/env bash
# Start the state server on this machine; it goes on when you log out.
#
#     scripts/start_state_server.sh [--host 0.0.0.0] [--port 10010] [flags of esync.state_server]
#
# Callers have to send a token: that of ESYNC_TOKEN or, if that is not set, a new one. The script
# prints where the server listens, the line that sets the token for the workers, the server's
# process id and its log. Workers of the published code know of no token: give --insecure for them.
# If the server does not start, the script ends with the server's exit code.
set -euo pipefail
cd "$(dirname "$0")/.."

python=.venv/bin/python
[ -x "$python" ] || python=python3
runs=${ESYNC_RUN_DIR:-runs}
mkdir -p "$runs"
log=$(realpath "$runs")/state_server-$(date +%Y%m%d-%H%M%S)-$$.log

if [[ " $* " != *" --insecure "* && -z "${ESYNC_TOKEN:-}" ]]; then
    ESYNC_TOKEN=$("$python" -c 'import secrets; print(secrets.token_urlsafe(24))')
    export ESYNC_TOKEN
fi
nohup "$python" -u -m esync.state_server --host 0.0.0.0 "$@" > "$log" 2>&1 < /dev/null &
pid=$!
until grep -q '^listening on ' "$log"; do
    if ! kill -0 "$pid" 2> /dev/null; then
        code=0
        wait "$pid" || code=$?
        cat "$log" >&2
        rm "$log"
        exit "$code"
    fi
    sleep 0.1
done
grep '^listening on ' "$log"
if [ -n "${ESYNC_TOKEN:-}" ]; then
    echo "export ESYNC_TOKEN=$ESYNC_TOKEN"
fi
echo "process $pid, log $log; stop it with: kill $pid"
