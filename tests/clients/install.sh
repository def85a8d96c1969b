#!/bin/bash
# Fetches the agents that tests/clients drives into CLIENTS_DIR (about 2 GB the first time). Their installer lies beside
# the recorded sessions; where these are absent there is nothing to do, and the tests say so and skip.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
installer=${TRANSOM_SHARED:-$here/../../../shared}/tools/clients/install.sh
if [ -f "$installer" ]; then
  exec bash "$installer" claude codex opencode pi qwen mini aider
fi
