#!/usr/bin/env bash
# Show the whole reproduction in a few minutes on one machine:  scripts/demo.sh [LOG_DIR [ACCURACY]]
#
# An emulated cluster of unequal devices (clusters/demo.yaml) trains ResNet-18 on Fashion-MNIST to
# an accuracy of 0.75, first with ESync, then with synchronous SGD. Then the figures that compare
# them are drawn. To 0.8, synchronous SGD took two thirds longer; its accuracy goes up and down on
# the way.
set -euo pipefail
logs=$(realpath -m "${1:-runs/demo}")
accuracy=${2:-0.75}
. "$(dirname "$0")/setup.sh" cpu

for mode in esync sync; do
    echo "== training with $mode"
    python -m esync.launch clusters/demo.yaml --mode "$mode" --target-accuracy "$accuracy" --log-dir "$logs"
done

echo "== comparing"
for mode in esync sync; do
    python logs_tools/summarize.py -b "$logs" -n resnet18-v1 -m "$mode"
done
python logs_tools/plot.py -b "$logs" -n resnet18-v1 --target "$accuracy"
