#!/bin/bash
# Train on the nodes of a Slurm job: `sbatch job.sh`, in a folder that all nodes see. Arguments are
# flags of `esync launch`.
#SBATCH --job-name=esync
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1     # workers on a node without GPUs; a node with GPUs has one for each
#SBATCH --time=01:00:00
#SBATCH --requeue               # after a node's failure or a preemption Slurm starts the job anew …
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@60      # a minute before the end of its time the job writes a checkpoint
##SBATCH --gres=gpu:2           # GPUs of each node; with one # it counts

exec esync launch train.yaml --slurm --resume "$@"   # … and --resume goes on from the newest checkpoint
