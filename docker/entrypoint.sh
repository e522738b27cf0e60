#!/bin/sh
# Without arguments: serve the store on the volume, which is made if there is none. With some: fairshot ARGUMENTS.
set -eu
if [ "$#" -gt 0 ]; then
    exec fairshot "$@"
fi
store=/store/store
[ -e "$store" ] || fairshot new "$store"
exec fairshot serve "$store" --host 0.0.0.0 --port 8000
