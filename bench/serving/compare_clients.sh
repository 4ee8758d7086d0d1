#!/usr/bin/env bash
# vLLM's benchmark client and `quire bench serve` in turns against one `quire serve`: completions and chat, random and custom prompts, three
# rounds each; then quire's client against llama-server, if there is one. Prints one table (Markdown) of medians.
#
# usage: compare_clients.sh MODEL.gguf
#   QUIRE         the program (build/release/quire)
#   PEER_CLIENT   a program that is `vllm bench serve`
#   LLAMA_SERVER  llama.cpp's server and more flags for it; empty: left out
#   PYTHON        with numpy, gguf, tokenizers (for the tokenizer's folder)
#   PORT, ROUNDS, PROMPTS, CONCURRENCY, INPUT, OUTPUT
set -euo pipefail
model=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
quire=${QUIRE:-$root/build/release/quire}
vllm=${PEER_CLIENT:?the program that is vllm bench serve}
llama=${LLAMA_SERVER:-}
python=${PYTHON:-python3}
port=${PORT:-21310}
rounds=${ROUNDS:-3} prompts=${PROMPTS:-32} concurrency=${CONCURRENCY:-8} input=${INPUT:-64} output=${OUTPUT:-32}

work=$(mktemp -d)
server=
stop() { [[ -z $server ]] || { kill "$server" 2>/dev/null && wait "$server" || true; }; server=; }
trap 'stop; rm -rf "$work"' EXIT

wait_for() {  # URL
  for _ in $(seq 240); do curl -sf -o /dev/null "$1" && return; sleep 0.5; done
  echo "no answer from $1" >&2; tail -5 "$work/server.log" >&2; exit 1
}

echo "tokenizer folder" >&2
"$python" "$root/tools/gguf_to_hf.py" "$model" "$work/hf" --dtype float16 >/dev/null
"$python" - "$work/custom.jsonl" <<'PY'
import json, sys
with open(sys.argv[1], "w") as out:
    for i in range(64):
        out.write(json.dumps({"prompt": f"Question {i}: explain in {i % 7 + 3} words why the number {i * i} is or is not prime."}) + "\n")
PY

"$quire" serve "$model" --served-model-name m --host 127.0.0.1 --port "$port" --max-model-len 2048 --no-enable-prefix-caching >"$work/server.log" 2>&1 &
server=$!
wait_for "http://127.0.0.1:$port/health"

measure() {  # CLIENT BACKEND DATASET ROUND
  local program=() endpoint=/v1/completions data=()
  [[ $1 == quire ]] && program=("$quire" bench serve) || program=("$vllm")
  [[ $2 == openai-chat ]] && endpoint=/v1/chat/completions
  if [[ $3 == random ]]; then
    data=(--random-input-len "$input" --random-output-len "$output")
  else
    data=(--dataset-path "$work/custom.jsonl" --custom-output-len "$output" --ignore-eos --disable-shuffle)
  fi
  "${program[@]}" --backend "$2" --endpoint "$endpoint" --base-url "http://127.0.0.1:$port" --model m --tokenizer "$work/hf" \
    --dataset-name "$3" "${data[@]}" --num-prompts "$prompts" --max-concurrency "$concurrency" --temperature 0 --seed "$4" \
    --percentile-metrics ttft,tpot,itl,e2el --disable-tqdm --save-result --result-dir "$work/results" \
    --result-filename "$1-$2-$3-$4.json" >"$work/client.log" 2>&1 || { tail -20 "$work/client.log" >&2; exit 1; }
}

for backend in openai openai-chat; do
  for dataset in random custom; do
    for round in $(seq "$rounds"); do
      for client in vllm quire; do
        echo "$client $backend $dataset $round" >&2
        measure "$client" "$backend" "$dataset" "$round"
      done
    done
  done
done
stop

if [[ -n $llama ]]; then
  echo "llama-server" >&2
  $llama -m "$model" --host 127.0.0.1 --port "$port" -c 4096 -np "$concurrency" >"$work/server.log" 2>&1 &
  server=$!
  wait_for "http://127.0.0.1:$port/health"
  for backend in openai openai-chat; do
    "$quire" bench serve --backend "$backend" --base-url "http://127.0.0.1:$port" --random-input-len "$input" --random-output-len "$output" \
      --num-prompts "$prompts" --max-concurrency "$concurrency" --temperature 0 --disable-tqdm --save-result --result-dir "$work/results" \
      --percentile-metrics ttft,tpot,itl,e2el --result-filename "llama-$backend-random-1.json" >"$work/client.log" 2>&1 ||
      { tail -20 "$work/client.log" >&2; exit 1; }
  done
  stop
fi

"$python" "$root/bench/serving/client_table.py" "$work/results"
