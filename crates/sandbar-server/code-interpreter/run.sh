#!/bin/sh
# The main command of the template: the service, and again if it ends.
here=${0%/*}
python=$here/../python/bin
PATH=$(cd "$python" && pwd):$PATH
while :; do
  "$python/python" "$here/server.py"
  sleep 1
done
