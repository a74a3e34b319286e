#!/bin/sh
# Installs what tests need that pip does not bring: Chromium with its driver and axe-core (beside this file) for the
# playground, tmux for the chat.
# Where that is not possible it says so and leaves: the tests then skip (fail with CI=true).
set -eu
here=$(cd "$(dirname "$0")" && pwd)

wanted=
command -v tmux >/dev/null || wanted="tmux"
command -v chromium >/dev/null && command -v chromedriver >/dev/null || wanted="$wanted chromium chromium-driver"
command -v npm >/dev/null || wanted="$wanted nodejs npm"
if [ -n "$wanted" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  apt-get update -qq
  # shellcheck disable=SC2086  # several names
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $wanted >/dev/null
fi
command -v chromedriver >/dev/null || echo "No Chromium here: the playground will not be tested in a browser." >&2
if ! command -v npm >/dev/null; then
  echo "No Node.js here: the playground's modules and its accessibility will not be tested." >&2
  exit 0
fi
"$here/../npm_install.sh" "$here"
