#!/usr/bin/env bash
# The way of a new user: from a table to an answer of a server, with the installed command alone.
# Usage: from_table_to_answer.sh TABLE NEW_ROWS, for a table with the columns time and clicked.
set -euo pipefail

mindspore-rec init "$1" --label clicked --time time > clicks.yaml
mindspore-rec train clicks.yaml --epochs 1 --no-baseline
mindspore-rec predict clicks.yaml "$2" -o scores.csv --keep user,item
mindspore-rec serve clicks.yaml --port 0 > served.txt &
server=$!
trap 'kill $server' EXIT
until grep -q '^version' served.txt; do
  kill -0 $server
  sleep 0.2
done
url=$(sed -n 's/^listening at //p' served.txt)
curl --fail-with-body --silent "$url/infer" -d '{"rows": [
  {"time": 1767225600, "user": "u7", "item": "item-3", "city": null, "price": 249.0}]}'
