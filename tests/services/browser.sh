#!/usr/bin/env bash
# What the browser test needs: chromium, node and playwright-core. Installs what is missing, and says so.
set -euo pipefail
here=$(cd "$(dirname "$0")/../browser" && pwd)

missing=
command -v chromium >/dev/null || missing="chromium fonts-dejavu-core"
command -v node >/dev/null || missing="$missing nodejs"
command -v npm >/dev/null || missing="$missing npm"
if [ -n "$missing" ]; then
  echo "-- missing: $missing. Installing by apt."
  if [ "$(id -u)" = 0 ]; then as=; else as=sudo; fi
  # shellcheck disable=SC2086
  $as apt-get update -q && $as apt-get install -y -q --no-install-recommends $missing
fi
if ! cmp -s "$here/package-lock.json" "$here/node_modules/.installed"; then
  (cd "$here" && npm ci --no-audit --no-fund --ignore-scripts)
  cp "$here/package-lock.json" "$here/node_modules/.installed"
fi
