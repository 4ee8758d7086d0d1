#!/usr/bin/env python3
"""Makes tests/data/text/chat_format_golden.json: conversations in the chat templates of chat_template_cases.json as transformers'
apply_chat_template renders them.

  make_chat_golden.py TOKENIZERS_DIR GGUF

TOKENIZERS_DIR has MODEL/tokenizer_config.json.xz, whose special tokens count; those of the template that is not there come from GGUF.
"""
import copy
import json
import lzma
import pathlib
import sys
from typing import Any

import jinja_oracle  # noqa: F401 fixes the clock
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests/data/text"
NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

CALL = {"type": "function", "id": "c1", "function": {"name": "get_weather", "arguments": {"city": "Köln", "days": 3}}}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "user": [{"role": "user", "content": " Hi, ü 你好\n"}],
    "system": [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "2+2?"}],
    "turns": [{"role": "system", "content": "S"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b\n"},
              {"role": "user", "content": " c"}, {"role": "assistant", "content": "d"}, {"role": "user", "content": "e <|im_end|> {{ x }}"}],
    "answered": [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "One, two, "}],
    "answered_twice": [{"role": "user", "content": "Again."}, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "Again."},
                       {"role": "assistant", "content": "yes"}],
    "thought": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nanswer"},
                {"role": "user", "content": "r"}, {"role": "assistant", "content": "s", "reasoning": "because"}],
    "call": [{"role": "user", "content": "weather?"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}],
    "called": [{"role": "system", "content": "S"}, {"role": "user", "content": "weather?"},
               {"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "tool", "content": "{\"t\": 20}", "tool_call_id": "c1"},
               {"role": "assistant", "content": "20."}, {"role": "user", "content": "thanks"}],
    "called_twice": [{"role": "user", "content": "w"}, {"role": "assistant", "content": "", "tool_calls": [CALL, copy.deepcopy(CALL)]},
                     {"role": "tool", "content": "a", "name": "w"}, {"role": "tool", "content": "b", "name": "w"}],
    "two_users": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    "unknown_role": [{"role": "user", "content": "a"}, {"role": "oracle", "content": "b"}],
    "empty_content": [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}, {"role": "user", "content": " "}],
    "no_content": [{"role": "user", "content": None}],
    "system_only": [{"role": "system", "content": "S"}],
    "spaces": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "  deep \n\u00a0"}],
}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Wetter <b>&'\"\n天気", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Köln", "東京"]}, "days": {"type": "number", "default": 1.0}},
    "required": ["city"]}}}]
DOCUMENTS = [{"title": "T", "text": "Long ago."}]
VARIANTS: dict[str, dict[str, Any]] = {
    "prompt": {"add_generation_prompt": True}, "plain": {"add_generation_prompt": False},
    "continued": {"add_generation_prompt": False, "continue_final_message": True}, "tools": {"add_generation_prompt": True, "tools": TOOLS},
    "documents": {"add_generation_prompt": True, "documents": DOCUMENTS},
    "values": {"add_generation_prompt": True, "enable_thinking": False, "bos_token": "<B>", "tools_in_user_message": False, "date_string": "now"},
}
# Which conversations go with the variants other than the first two.
WITH = {"continued": ["user", "answered", "answered_twice", "thought", "spaces", "call", "empty_content", "no_content"],
        "tools": ["user", "system", "call", "called", "called_twice"], "documents": ["system"], "values": ["user", "turns"]}


def special_tokens(config: dict[str, Any]) -> dict[str, str]:
    tokens = {name: config.get(name) for name in NAMES}
    return {name: token["content"] if isinstance(token, dict) else token for name, token in tokens.items() if token}


def gguf_tokens(path: str) -> dict[str, str]:
    from gguf import GGUFReader
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    keys = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {name: fields.get(f"tokenizer.ggml.{key}_token_id") for name, key in keys.items()}
    return {name: tokens[field.contents()] for name, field in ids.items() if field is not None}


def main(tokenizers: str, gguf: str) -> None:
    templates = json.loads((DATA / "chat_template_cases.json").read_text(encoding="utf-8"))["templates"]
    all_tokens: dict[str, dict[str, str]] = {}
    cases: list[dict[str, str]] = []
    for model, source in templates.items():
        config = pathlib.Path(tokenizers, model, "tokenizer_config.json.xz")
        tokens = special_tokens(json.loads(lzma.open(config).read())) if config.exists() else gguf_tokens(gguf)
        all_tokens[model] = tokens
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), chat_template=source, **tokens)
        assert tokenizer.special_tokens_map == tokens, (tokenizer.special_tokens_map, tokens)
        for variant, options in VARIANTS.items():
            for name, messages in CONVERSATIONS.items():
                if variant in WITH and name not in WITH[variant]:
                    continue
                case = {"model": model, "messages": name, "variant": variant}
                try:
                    case["out"] = tokenizer.apply_chat_template(copy.deepcopy(messages), tokenize=False, **copy.deepcopy(options))
                except Exception as error:  # noqa: BLE001 ours must fail too
                    case["error"] = f"{type(error).__name__}: {str(error)[:100]}"
                cases.append(case)
    data = {"clock": jinja_oracle.NOW.isoformat(), "special_tokens": all_tokens, "messages": CONVERSATIONS, "variants": VARIANTS, "cases": cases}
    (DATA / "chat_format_golden.json").write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(len(cases), "cases,", sum("error" in case for case in cases), "of them errors")


if __name__ == "__main__":
    main(*sys.argv[1:])
