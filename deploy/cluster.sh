#!/bin/sh
# The part of the servers' configuration that makes three of them one: cluster.sh HOST... prints it,
# with a new password that only these servers know.
set -eu
password=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
printf 'cluster {\n  name: nemesis\n  listen: 0.0.0.0:6222\n  authorization { user: routes, password: %s }\n  routes: [\n' "$password"
for host in "$@"; do printf '    nats://routes:%s@%s:6222\n' "$password" "$host"; done
printf '  ]\n}\n'
