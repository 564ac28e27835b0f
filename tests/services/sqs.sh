#!/usr/bin/env bash
# What the SQS tests need: ministack, an emulator that is strict about receipt handles and FIFO groups, in a virtual
# environment of its own under target/. Silent when it is there.
set -euo pipefail
version=1.5.33
place=$(cd "$(dirname "$0")/../.." && pwd)/target/services/ministack-$version
[ -e "$place/.whole" ] && exit 0

echo "-- missing: ministack $version. Installing from the Python package index."
command -v python3 >/dev/null || { echo '!! python3 is missing: the SQS emulator is a Python package' >&2; exit 1; }
rm -rf "$place"
mkdir -p "$(dirname "$place")"
python3 -m venv "$place"
"$place/bin/python" -m pip install --quiet --disable-pip-version-check "ministack==$version" hypercorn
"$place/bin/hypercorn" --help >/dev/null
touch "$place/.whole"
