# Start one process in the background, by hand; start_scheduler.sh, start_server.sh and
# start_worker.sh source this script.
#
#   start_role NAME MODULE FLAG…
#
# The process goes on after the terminal is closed. Its output is in
# ${ESYNC_RUN_DIR:-runs}/NAME.log, its process id in NAME.pid beside it. DMLC_PS_ROOT_URI,
# DMLC_PS_ROOT_PORT, DMLC_NUM_SERVER and DMLC_NUM_WORKER must be set.

start_role() {
    local name=$1 module=$2 directory=${ESYNC_RUN_DIR:-runs} variable
    shift 2
    for variable in DMLC_PS_ROOT_URI DMLC_PS_ROOT_PORT DMLC_NUM_SERVER DMLC_NUM_WORKER; do
        if [ -z "${!variable:-}" ]; then
            echo "$variable is not set, for instance:" >&2
            echo "  export DMLC_PS_ROOT_URI=10.1.1.34 DMLC_PS_ROOT_PORT=9091 DMLC_NUM_SERVER=1 DMLC_NUM_WORKER=6" >&2
            exit 2
        fi
    done
    mkdir -p "$directory"
    local python=.venv/bin/python
    [ -x "$python" ] || python=python3
    local number=0 file=$directory/$name
    while [ -e "$file.pid" ] && kill -0 "$(cat "$file.pid")" 2>/dev/null; do
        number=$((number + 1)) file=$directory/$name-$number
    done
    nohup "$python" -m "$module" "$@" >"$file.log" 2>&1 </dev/null &
    echo $! >"$file.pid"
    sleep 1
    if ! kill -0 "$(cat "$file.pid")" 2>/dev/null; then
        echo "the $name has ended at once:" >&2
        tail -n 5 "$file.log" >&2
        exit 1
    fi
    echo "$name: process $(cat "$file.pid"), output in $file.log"
    echo "to end it: kill $(cat "$file.pid")"
}
