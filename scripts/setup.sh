# Sourced by the other scripts: a virtual environment in .venv with this package, and the data set, made once.
#
#   . scripts/setup.sh cpu          what the demo needs
#   . scripts/setup.sh cpu,dev      and what the tests need
#
# Afterwards `python` is the one of the virtual environment, and the current directory is the checkout.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.12 python3.11 python3.10 python3.13}; do
        if command -v "$candidate" >/dev/null &&
            "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "Python 3.10 to 3.13 is needed; set PYTHON to one" >&2
    return 1
}

# pip would compile all modules one by one, most of which nobody imports: the demo waits for its own only, and the
# tests' are compiled on all cores. (Some packages hold files for other releases of Python, which do not compile.)
compile_modules() {
    case "$1" in
        *dev*) .venv/bin/python -m compileall -qq -j 0 .venv/lib >/dev/null 2>&1 || true ;;
        *) env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -W ignore -c "
import esync.evaluate, esync.launch.command, esync.server, esync.state_server.web, esync.training.loop, esync.world
import esync.reports.plot, esync.reports.summarize" ;;
    esac
}

make_environment() {
    local extras=$1 python wanted
    wanted="$extras $(sha256sum pyproject.toml)"
    if [ ! -x .venv/bin/python ]; then
        python=$(find_python) || return 1
        echo "== making a virtual environment in .venv with $("$python" --version)"
        "$python" -m venv .venv || return 1
    fi
    # What was installed for more extras serves for fewer.
    case "$(cat .venv/installed 2>/dev/null)" in
        "$wanted" | "cpu,dev ${wanted#* }") return 0 ;;
    esac
    echo "== installing this package and what it needs (once; MXNet is 45 MB)"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --progress-bar off --no-compile \
        -e ".[$extras]" || return 1
    compile_modules "$extras" || return 1
    echo "$wanted" >.venv/installed
}

make_environment "$1" || exit 1
export PATH="$PWD/.venv/bin:$PATH"
python -m esync.data fetch || exit 1
