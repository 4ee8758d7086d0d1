#!/usr/bin/env python3
"""Makes the golden files of the chat template tests with jinja2 in transformers' environment.

  make_template_golden.py CASES_JSON TOKENIZERS_DIR GGUF

CASES_JSON has the conversations with the text that they must give; TOKENIZERS_DIR has MODEL/tokenizer_config.json.xz; GGUF is a
model file with a template. Writes tests/data/text/chat_template_cases.json and tests/data/text/jinja_golden.json.
"""
import json
import lzma
import pathlib
import sys
from typing import Any

from jinja_oracle import CONTEXT, NOW, render
from jinja_snippets import SNIPPETS

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/text"

CONVERSATIONS = {
    "plain": [{"role": "user", "content": "Hi, ü 你好"}],
    "system": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "a"},
               {"role": "assistant", "content": "b\n"}, {"role": "user", "content": " c"}],
    "long": [{"role": "user" if i % 2 == 0 else "assistant", "content": f"message {i}: it's \"quoted\" <b>&amp;</b>\n"}
             for i in range(17)],
    "thinking": [{"role": "user", "content": "q"},
                 {"role": "assistant", "content": "<think>\nhm\n</think>\n\nanswer"}, {"role": "user", "content": "r"}],
    "tools": [{"role": "user", "content": "weather?"},
              {"role": "assistant", "content": "",
               "tool_calls": [{"type": "function", "function": {"name": "w", "arguments": {"city": "Köln", "n": 1}}}]},
              {"role": "tool", "content": "{\"t\": 20}"}, {"role": "tool", "content": "x"},
              {"role": "user", "content": "ok"}],
}
TOOLS = [{"type": "function", "function": {"name": "w", "description": "Wetter <b>&'\"",
          "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "number", "default": 1.0}},
                         "required": ["city"]}}}]


def dump(path: pathlib.Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def model_templates(tokenizers: str, gguf_path: str) -> dict[str, str]:
    templates: dict[str, str] = {}
    for config in sorted(pathlib.Path(tokenizers).glob("*/tokenizer_config.json.xz")):
        source = json.loads(lzma.open(config).read()).get("chat_template")
        if source:
            templates[config.parent.name] = source
    from gguf import GGUFReader
    templates["smollm2"] = GGUFReader(gguf_path).fields["tokenizer.chat_template"].contents()
    return templates


def chat_cases(cases_path: str, templates: dict[str, str]) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = []
    case: dict[str, Any]
    for case in json.load(open(cases_path, encoding="utf-8"))["templates"]:
        keep: dict[str, Any] = {key: case[key] for key in ("id", "why", "messages", "tools", "add_generation_prompt", "vars", "rendered",
                                           "error_contains") if key in case}
        keep["template" if case["template"] is not None else "model"] = case["template"] or case["model"]
        keep["clock"] = case["clock"]
        cases.append(keep)
    for model, source in templates.items():
        for name, messages in CONVERSATIONS.items():
            for tools in (None, TOOLS):
                case = {"id": f"{model}.{name}{'.tools' if tools else ''}", "why": "as jinja2 renders it", "model": model,
                        "messages": messages, "tools": tools, "add_generation_prompt": True,
                        "vars": {"bos_token": "<s>", "eos_token": "</s>"}, "clock": NOW.isoformat()}
                result = render(source, {"messages": messages, "tools": tools, "documents": None,
                                         "add_generation_prompt": True, **case["vars"]})
                case.update({"rendered": result["out"]} if "out" in result else {"error_contains": ""})
                cases.append(case)
    return cases


def main(cases_path: str, tokenizers: str, gguf_path: str) -> None:
    templates = model_templates(tokenizers, gguf_path)
    dump(OUT / "chat_template_cases.json", {"templates": templates, "cases": chat_cases(cases_path, templates)})
    golden = [{"template": source, **render(source, CONTEXT)} for source in SNIPPETS]
    golden = [g for g in golden if " at 0x" not in g.get("out", "")]  # addresses are nobody's business
    dump(OUT / "jinja_golden.json", {"clock": NOW.isoformat(), "context": CONTEXT, "golden": golden})
    print(len(golden), "snippets,", sum("error" in g for g in golden), "of them errors")


if __name__ == "__main__":
    main(*sys.argv[1:])
