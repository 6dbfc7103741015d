#!/usr/bin/env bash
# The whole reproduction in a few minutes on one machine: an emulated cluster of unequal devices (clusters/demo.yaml)
# trains ResNet-18 on Fashion-MNIST to an accuracy of 0.8, with ESync and then with synchronous SGD; then the figures
# that compare them are drawn.  scripts/demo.sh [LOG_DIR]
set -euo pipefail
logs=$(realpath -m "${1:-runs/demo}")
. "$(dirname "$0")/setup.sh" cpu

for mode in esync sync; do
    echo "== training with $mode"
    python -m esync.launch clusters/demo.yaml --mode "$mode" --log-dir "$logs"
done

echo "== comparing"
for mode in esync sync; do
    python logs_tools/summarize.py -b "$logs" -n resnet18-v1 -m "$mode"
done
python logs_tools/plot.py -b "$logs" -n resnet18-v1
