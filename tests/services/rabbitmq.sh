#!/usr/bin/env bash
# What the RabbitMQ tests need: rabbitmq-server, from the distribution's packages. Silent when it is there.
set -euo pipefail
[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] && command -v epmd >/dev/null && exit 0

echo '-- missing: rabbitmq-server. Installing it with apt.'
[ "$(id -u)" = 0 ] || { echo '!! not root: install the package rabbitmq-server' >&2; exit 1; }
command -v apt-get >/dev/null || { echo '!! no apt-get here: install rabbitmq-server' >&2; exit 1; }
# Its package would start a server of the system's at once. Nothing is started while this file says no.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends rabbitmq-server >/dev/null
[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || { echo '!! rabbitmq-server is still missing' >&2; exit 1; }
