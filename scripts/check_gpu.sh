#!/usr/bin/env bash
# Find out on a machine with an NVIDIA GPU what has never run on one:
#
#     scripts/check_gpu.sh [cu101 | cu112 | cu117]
#
# The word is the build of MXNet 1.9.1, by its CUDA release (cu112 unless the GPU needs cu101). The
# script installs it into .venv-cu112 (6 GB, NVIDIA's libraries included), runs the tests that are
# skipped without a GPU, trains with a GPU and a CPU beside each other, evaluates, loads the
# exported model and times ResNet-18. It ends with a report to be pasted into an issue
# (runs/check_gpu/report.md), and changes nothing outside of .venv-cu112, data and runs.
#
# Exit codes: 0 everything works, 1 something does not, 2 nothing can be checked on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

cannot() {
    echo "check_gpu: $1" >&2
    exit 2
}

query() { nvidia-smi --id=0 --format=csv,noheader --query-gpu="$1" 2>/dev/null; }

# --- the machine ----------------------------------------------------------------------------------

gpu=$(query name) && [ -n "$gpu" ] ||
    cannot "no NVIDIA GPU here: nvidia-smi is not installed, finds no GPU, or cannot reach the driver"
driver=$(query driver_version) || driver=unknown
capability=$(query compute_cap) || capability=unknown  # old drivers do not tell it

build=${1:-}
case "$capability" in
    3.*) build=${build:-cu101} ;;
    *) build=${build:-cu112} ;;
esac
# What the builds have machine code for. They have none that a newer GPU could translate.
case "$build" in
    cu101) capabilities="3.0 to 7.5" fits='[3567].*' ;;
    cu112 | cu117) capabilities="5.0 to 8.9" fits='[5678].*' ;;
    *) cannot "'$build' is not a build of MXNet 1.9.1 for GPUs: cu101, cu112 or cu117" ;;
esac
# shellcheck disable=SC2254  # it is a pattern
case "$capability" in
    unknown | $fits) ;;
    *) cannot "MXNet 1.9.1's $build is for GPUs of compute capability $capabilities; the $gpu has $capability" ;;
esac

# --- MXNet and NVIDIA's libraries -----------------------------------------------------------------

. scripts/setup.sh "$build,dev"
packages=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
missing() { ldd "$packages/mxnet/libmxnet.so" | awk '/not found/ {print $1}' | sort -u | xargs; }

if [ -n "$(missing)" ] && [ "$build" != cu101 ]; then
    echo "== installing NVIDIA's libraries of CUDA 11 (once; 3 GB)"
    python -m pip install --quiet --disable-pip-version-check --progress-bar off --no-compile \
        nvidia-{cublas,cuda-nvrtc,cuda-runtime,cufft,curand,cusolver,cusparse,nccl,nvtx}-cu11 'nvidia-cudnn-cu11<9'
    for folder in "$packages"/nvidia/*/lib; do
        LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    done
    export LD_LIBRARY_PATH
fi
[ -z "$(missing)" ] || cannot "MXNet 1.9.1's $build does not find $(missing): add their folders to LD_LIBRARY_PATH"

# --- the checks -----------------------------------------------------------------------------------

out=$PWD/runs/check_gpu
rm -rf "$out"
mkdir -p "$out"
report=$out/report.md
failed=0

# check NAME COMMAND…: run the command for ten minutes at most, and report how it went.
check() {
    local name=$1 log=$out/${1// /-}.log verdict=works began=$SECONDS
    shift
    echo "== $name"
    if ! timeout --kill-after=30 600 "$@" >"$log" 2>&1; then
        verdict=FAILS
        failed=1
    fi
    printf '\n**%s**: %s (%d s)\n\n' "$name" "$verdict" $((SECONDS - began)) >>"$report"
    tail -n 12 "$log" | cut -c -200 | sed 's/^/    /' >>"$report"
}

# describe DEVICE: describe a cluster of a GPU, a CPU and a parameter server on that device.
describe() {
    cat <<END
scheduler: {host: localhost}
servers: [{host: localhost, device: $1}]
state_server: {host: localhost}
workers:
  - {host: localhost, device: gpu0}
  - {host: localhost, device: cpu}
train: {mode: esync, network: lenet, batch_size: 64, local_lr: 0.002, max_time: 30}
END
}

sees_gpu='
from esync import mx
print(mx.context.num_gpus(), "GPU(s), memory of the first (free, all):", mx.context.gpu_memory_info(0))
print("cuDNN:", mx.runtime.Features().is_enabled("CUDNN"))
assert (mx.nd.ones((2, 3), ctx=mx.gpu(0)) * 2).asnumpy().sum() == 12'
# shellcheck disable=SC2016
loads_model='
import sys
import numpy
from esync import mx
images = numpy.random.default_rng(0).random((64, 1, 28, 28), "float32")
scores = []
for context in (mx.gpu(0), mx.cpu()):
    files = f"{sys.argv[1]}/model-symbol.json", ["data"], f"{sys.argv[1]}/model-0000.params"
    scores.append(mx.gluon.SymbolBlock.imports(*files, ctx=context)(mx.nd.array(images, ctx=context)).asnumpy())
print("largest difference of a score between GPU and CPU:", abs(scores[0] - scores[1]).max())
numpy.testing.assert_allclose(*scores, rtol=1e-3, atol=1e-3)'

{
    echo "GPU check of esync $(git rev-parse --short HEAD 2>/dev/null || python -m esync --version), $(date -u +%F)"
    echo
    echo "$gpu, compute capability $capability, driver $driver, mxnet-$build 1.9.1, $(python --version), $(uname -sr)"
} >"$report"
describe cpu >"$out/job.yaml"
describe gpu0 >"$out/gpu-server.yaml"

check "MXNet sees the GPU" python -c "$sees_gpu"
check "tests for GPUs" python -m pytest -q -m gpu tests
check "job of a GPU and a CPU" python -m esync.launch "$out/job.yaml" \
    --log-dir "$out/job" --checkpoint-dir "$out/checkpoints" --checkpoint-every 1
check "evaluation on the GPU" python -m esync.evaluate --checkpoint-dir "$out/checkpoints" --gpu 0 --once --out "$out"
check "exported model" python -c "$loads_model" "$out/checkpoints/model"
check "parameter server on the GPU" python -m esync.launch "$out/gpu-server.yaml" --log-dir "$out/gpu-server"
check "iteration of ResNet-18" python benchmarks/iteration.py --device gpu0 --json "$out/iteration.json"

echo
cat "$report"
echo
echo "This report is in $report. Please paste it into an issue."
exit $failed
