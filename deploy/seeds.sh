#!/bin/sh
# Runs once, as root, before everything else: one seed a role, and to each service its own seeds
# and no other. Each service runs under a user id of its own, so file modes keep them apart.
set -eu
umask 077
nemesis credentials --out /seeds/all --nodes "$(seq -s , -f n%03g 1 16)" \
  --switches "$(seq -s , -f leaf%02g 1 4)" >/tmp/authorization.conf

# give SERVICE UID SEED...: the folder /seeds/SERVICE, readable by UID alone
give() {
  service=$1 uid=$2
  shift 2
  mkdir -p "/seeds/$service"
  for seed in "$@"; do cp "/seeds/all/$seed.nk" "/seeds/$service/"; done
  chown -R "$uid:$uid" "/seeds/$service"
}

mkdir -p /seeds/nats
cp /tmp/authorization.conf /seeds/nats/
[ -e /seeds/nats/cluster.conf ] || sh /deploy/cluster.sh nats nats-2 nats-3 >/seeds/nats/cluster.conf
give nats 10001
give provision 10002 admin
give clock 10003 ticker keeper
give intake 10004 processor-intake
give attribution 10005 processor-attribution
give healer 10006 processor-healer
give ecc-rules 10014 processor-ecc_5frules
give ecc-model 10017 processor-ecc_5fmodel
give incident 10015 processor-incident
give goodput 10016 processor-goodput
give scheduler 10018 processor-scheduler
give job-actor 10007 actor-job
give archivist 10011 archivist
give operator 10008 operator reader
give browser 10009 browser
give dashboard 10012 dashboard
give exporter 10019 exporter
mkdir -p /seeds/simulator
cp /seeds/all/node-*.nk /seeds/all/collector-*.nk /seeds/all/sim.nk /seeds/all/operator.nk /seeds/simulator/
give simulator 10010

# the folders on the way are nobody's secret; what lies in them is
chmod 711 /seeds
chown 10001:10001 /log
