#!/usr/bin/env bash
# What the ActiveMQ tests need: the broker and a JDK from Debian's packages, and a small JMS client compiled with the broker's
# own jars, under target/. Silent when all is there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
place=$(cd "$here/../.." && pwd)/target/services/activemq
jars=/usr/share/activemq/lib
missing=
[ -e "$jars/activemq-broker.jar" ] || missing="activemq"
command -v javac >/dev/null && command -v java >/dev/null || missing="$missing default-jdk-headless"
if [ -n "$missing" ]; then
  echo "-- missing: $missing. Installing by apt."
  if [ "$(id -u)" = 0 ]; then as=; else as=sudo; fi
  $as apt-get update -q && $as apt-get install -y -q --no-install-recommends $missing
fi
[ "$place/Jms.class" -nt "$here/Jms.java" ] && exit 0
mkdir -p "$place"
fresh=$(mktemp -d "$place.XXXXXX")
trap 'rm -rf "$fresh"' EXIT
javac -nowarn -cp "$jars/*" -d "$fresh" "$here/Jms.java"
# A whole one appears at once, also where two runs compile it side by side.
mv "$fresh/Jms.class" "$place/Jms.class"
