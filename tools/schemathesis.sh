#!/usr/bin/env bash
# Sends thousands of requests made from /openapi.json to a server with a tiny model: no answer may be a 5xx, be of an undocumented shape or
# status, or take what the description forbids. Arguments go to schemathesis (tools/schemathesis.sh -n 200 --seed 7).
. "$(dirname "$0")/common.sh"

version=4.32.5
binary=${QUIRE_TEST_BINARY:-$root/build/release/quire}
venv=$cache/schemathesis-$version
if [ ! -x "$venv/bin/st" ]; then
  say "installing schemathesis $version"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check "schemathesis==$version"
fi

work=$(mktemp -d)
server=
cleanup() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
python3 "$root/tests/http/tiny_model.py" "$work/model"
# A short context and few choices keep each request short.
"$binary" serve "$work/model" --load-format dummy --served-model-name m --host 127.0.0.1 --port 0 --max-model-len 64 --max-sequences 4 \
  --enable-tokenizer-info-endpoint --server-dev-mode --disable-access-log 2> "$work/log" &
server=$!
url=
for _ in $(seq 100); do
  url=$(sed -n 's/.*Starting quire server on \(http:[^ ]*\).*/\1/p' "$work/log")
  if [ -n "$url" ] && curl -sf "$url/health"; then break; fi
  sleep 0.1
done

# Whether a valid request is taken may depend on more than its schema (the length of the prompt, fields that exclude one another).
cd "$work"
"$venv/bin/st" run "$url/openapi.json" -n 60 --seed 1 --workers 1 --no-color --request-timeout 30 --continue-on-failure --generation-database none \
  --exclude-checks positive_data_acceptance "$@"
if grep -q ERROR "$work/log"; then
  grep ERROR "$work/log" >&2
  exit 1
fi
