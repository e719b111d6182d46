#!/bin/sh
# One Secret a part of the chart, with the seeds that it needs and no other, and one a node:
#   nemesis credentials --out seeds --nodes nodes.txt >authorization.conf
#   sh secrets.sh NAMESPACE seeds authorization.conf [NODE...] | kubectl apply -f -
# NODE...: of nodes whose seed lies in a Secret (producer.seeds: secrets); names as Kubernetes has them.
set -eu
namespace=$1 seeds=$2 authorization=$3
shift 3

# secret NAME KEY=FILE...
secret() {
  name=$1
  shift
  printf -- '---\napiVersion: v1\nkind: Secret\nmetadata: { name: %s, namespace: %s }\ndata:\n' "$name" "$namespace"
  for each in "$@"; do printf '  %s: %s\n' "${each%%=*}" "$(base64 <"${each#*=}" | tr -d '\n')"; done
}

# part NAME SEED...
part() {
  name=$1
  shift
  for seed in "$@"; do set -- "$@" "$seed.nk=$seeds/$seed.nk"; shift; done
  secret "nemesis-$name" "$@"
}

secret nemesis-nats "authorization.conf=$authorization"
part provision admin
part clock ticker keeper
part intake processor-intake
part attribution processor-attribution
part healer processor-healer
part incident processor-incident
part goodput processor-goodput
part scheduler processor-scheduler
part ecc-rules processor-ecc_5frules
part ecc-model processor-ecc_5fmodel
part job-actor actor-job
part archivist archivist
part dashboard dashboard
part exporter exporter
for node in "$@"; do
  # as streams/permissions.py spells a name in a file: a dot is _2e
  seed=producer-$(printf '%s' "$node" | sed 's/\./_2e/g')
  part "producer-$node" "$seed"
done
