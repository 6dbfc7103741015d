# Make, once, a virtual environment in .venv with this package, and fetch the data set. The other
# scripts source this one:
#
#   . scripts/setup.sh cpu          for the demo
#   . scripts/setup.sh cpu,dev      for the tests, too
#   . scripts/setup.sh cu112,dev    the same with MXNet for GPUs, in .venv-cu112
#
# Afterwards `python` is that of the virtual environment, and the current directory is the checkout.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || return 1

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

# pip would compile all modules one by one, most of which are never imported. So the demo compiles
# only those that it imports, and for the tests all cores compile. (Some packages have files for
# other releases of Python, which do not compile.)
compile_modules() {
    case "$1" in
        *dev*) "$environment/bin/python" -m compileall -qq -j 0 "$environment/lib" >/dev/null 2>&1 || true ;;
        *) env -u PYTHONDONTWRITEBYTECODE "$environment/bin/python" -W ignore -c "
import esync.evaluate, esync.training.accuracy, esync.training.evaluation_process, esync.launch.command, esync.server, esync.state_server.serving, esync.training.loop, esync.world
import esync.reports.plot, esync.reports.summarize" ;;
    esac
}

make_environment() {
    local extras=$1 python wanted
    wanted="$extras $(sha256sum pyproject.toml)"
    if [ ! -x "$environment/bin/python" ]; then
        python=$(find_python) || return 1
        echo "== making a virtual environment in $environment with $("$python" --version)"
        "$python" -m venv "$environment" || return 1
    fi
    # An installation with more extras will do, too.
    case "$(cat "$environment/installed" 2>/dev/null)" in
        "$wanted" | "cpu,dev ${wanted#* }") return 0 ;;
    esac
    echo "== installing this package and what it needs (once; MXNet is 45 MB, for GPUs 500 MB)"
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --progress-bar off --no-compile \
        -e ".[$extras]" || return 1
    compile_modules "$extras" || return 1
    echo "$wanted" >"$environment/installed"
}

# The builds of MXNet exclude one another, so those for GPUs have environments of their own.
case "$1" in
    cu*) environment=.venv-${1%%,*} ;;
    *) environment=.venv ;;
esac
make_environment "$1" || return 1
export PATH="$PWD/$environment/bin:$PATH"
python -m esync.data fetch || return 1
