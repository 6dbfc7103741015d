#!/usr/bin/env bash
# Show the whole reproduction in a few minutes on one machine:  scripts/demo.sh [LOG_DIR [ACCURACY]]
#
# An emulated cluster of unequal devices (clusters/demo.yaml) trains ResNet-18 on Fashion-MNIST to
# an accuracy of 0.75: its fastest device alone, which the others have to beat, then all of them,
# with ESync, with --preset fast, and with synchronous SGD. Then figures compare them, and a table
# shows the speedups over the fastest device alone and over synchronous SGD, beside the
# limit: the sum of the devices' speeds over that of the fastest. To 0.8, synchronous SGD took two
# thirds longer; its accuracy goes up and down on the way.
set -euo pipefail
logs=$(realpath -m "${1:-runs/demo}")
accuracy=${2:-0.75}
. "$(dirname "$0")/setup.sh" cpu

train() {
    python -m esync.launch "$@" --target-accuracy "$accuracy" --log-dir "$logs"
}
echo "== training on the fastest device alone"
train clusters/demo-fastest.yaml
echo "== training with esync"
train clusters/demo.yaml --mode esync
echo "== training with tiered, as --preset fast says"
train clusters/demo.yaml --preset fast
echo "== training with sync"
train clusters/demo.yaml --mode sync

echo "== comparing"
for mode in local esync tiered sync; do
    python logs_tools/summarize.py --log-dir "$logs" -n resnet18-v1 -m "$mode"
done
python logs_tools/plot.py --log-dir "$logs" -n resnet18-v1 --target "$accuracy"
