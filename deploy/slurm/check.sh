#!/bin/sh
# Prolog, Epilog and HealthCheckProgram of Slurm in one: whether this node may be given work.
# Slurm sets no PATH and wants no Slurm commands here; nemesis-check starts none and asks nobody.
# It is silent and ends with 0 where all is well. What Slurm does otherwise:
#   Prolog            the job is queued again, the node is drained
#   Epilog            the node is drained
#   HealthCheckProgram  nothing but a line in slurmd's log; when slurmd starts, the node does not
#                     register until this ends with 0
set -eu
# what this kind of node has: /etc/nemesis/check.env sets GPUS, PORTS and ALIVE
GPUS='' PORTS='' ALIVE=''
if [ -r /etc/nemesis/check.env ]; then
  # shellcheck source=deploy/slurm/check.env
  . /etc/nemesis/check.env
fi
set --
if [ -n "$GPUS" ]; then set -- "$@" --gpus "$GPUS"; fi
if [ -n "$PORTS" ]; then set -- "$@" --ports "$PORTS"; fi
if [ -n "$ALIVE" ]; then set -- "$@" --alive "$ALIVE"; fi
exec "${NEMESIS_CHECK:-/opt/nemesis/bin/nemesis-check}" "$@"
