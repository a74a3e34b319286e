#!/bin/sh
# Installs the clients that tests/clients drives: npm packages beside this file, Python packages in .venv/clients.
# With REACT=1 (`make react`) also the page with CopilotKit's React packages, 600 MB of npm.
# Without Node it tries Debian's; where that is not possible it says so and leaves: the tests then skip (fail with CI=true).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
venv=$here/../../.venv/clients

test -x "$venv/bin/python" || "${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --requirement "$here/requirements.txt"

if ! command -v npm >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends nodejs npm >/dev/null
fi
if ! command -v npm >/dev/null; then
  echo "No Node.js here: the AG-UI clients in JavaScript will not be tested." >&2
  exit 0
fi
"$here/../npm_install.sh" "$here"
if [ "${REACT:-}" = 1 ]; then
  "$here/../npm_install.sh" "$here/react"
  (cd "$here/react" && npm run --silent bundle)
fi
