#!/usr/bin/env bash
# Check the Dockerfile, and run its steps where there is no Docker:
#
#     scripts/check_container.sh
#
# Hadolint reads the file. Then the steps that install this package run as they stand there, with a
# temporary folder in the place of /src and /opt, from the files that .dockerignore admits, in a new
# virtual environment; and the container's command runs in an empty folder: doctor, and a launched
# job of half a minute. Not run: the base image, apt-get, the user, and the variant for GPUs. Where a
# Docker daemon answers, the image is built instead, and the same is run in it.
set -euo pipefail
cd "$(dirname "$0")/.."

hadolint=$(command -v hadolint || echo .venv/bin/hadolint)
echo "== hadolint"
"$hadolint" Dockerfile

if docker info >/dev/null 2>&1; then
    echo "== docker build"
    docker build -t esync:check .
    docker run --rm esync:check --version
    docker run --rm esync:check doctor
    docker run --rm --shm-size=1g --entrypoint sh esync:check -c "esync data fetch && esync launch :quick --max-time 5"
    exit
fi

room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
echo "== no Docker daemon: the steps run in $room"
mkdir "$room/src"
admitted=$(sed -n 's/^!//p' .dockerignore)
# shellcheck disable=SC2086 # a list of names without spaces
tar --exclude=__pycache__ -cf - $admitted | tar -xf - -C "$room/src"

# The RUN that installs this package, in one line.
step=$(sed -e ':a' -e '/\\$/{N;s/\\\n *//;ba' -e '}' Dockerfile | sed -n 's/^RUN \(.*-m venv .*\)$/\1/p')
[ -n "$step" ] || { echo "the Dockerfile has no step that makes a virtual environment" >&2; exit 1; }
python=${PYTHON:-python3}
step=${step//\/src/$room\/src}
step=${step//\/opt/$room}
step=${step/#python3/$python}
echo "+ $step"
EXTRA=cpu bash -euc "$step"

mkdir "$room/work"
cp -rL data "$room/work/data" 2>/dev/null || true # the data set, where it is here
cd "$room/work"
export PATH="$room/esync/bin:$PATH"
echo "== esync --version, doctor, launch"
env -u PYTHONPATH esync --version
esync doctor
[ -d data ] || esync data fetch
esync launch :quick --max-time 5
