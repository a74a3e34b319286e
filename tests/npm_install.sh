#!/bin/sh
# usage: npm_install.sh FOLDER: installs the packages of FOLDER/package.json into FOLDER/node_modules.
# npm writes .package-lock.json last. Without it an install was interrupted, and npm takes half-written packages for complete.
set -eu
last=$1/node_modules/.package-lock.json
test -e "$last" || rm -rf "$1/node_modules"
rm -f "$last"
npm install --prefix "$1" --no-package-lock --no-audit --no-fund --loglevel=error
