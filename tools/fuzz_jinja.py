#!/usr/bin/env python3
"""Writes random templates with what jinja2 makes of them, as a golden file for the test Jinja.Random.

  fuzz_jinja.py COUNT SEED OUT [CASES]     then: QUIRE_JINJA_GOLDEN=OUT text_test --gtest_filter=Jinja.Random

With CASES (tests/data/text/chat_template_cases.json) a third are its chat templates, some of them damaged, with random conversations.
"""
import json
import resource
import signal
import sys
from typing import Any

from jinja_grammar import Grammar
from jinja_oracle import CONTEXT, NOW, render

MAX_SECONDS, MAX_OUTPUT = 2, 20_000


def too_long(*_: Any) -> None:
    raise TimeoutError


def reference(source: str, context: dict[str, Any]) -> dict[str, str] | None:
    """What jinja2 gives; none if that depends on memory addresses or on what templates of chats do not
    have (constants calculated ahead, strings marked as safe), or is too much."""
    signal.alarm(MAX_SECONDS)
    try:
        result = render(source, context)
        if result.get("out") != render(source, context, plain=True).get("out"):
            return None
    except TimeoutError:
        return None
    finally:
        signal.alarm(0)
    text = json.dumps(result)
    if " at 0x" in text or "<class '" in text or "TimeoutError" in text or "MemoryError" in text or len(text) > MAX_OUTPUT:
        return None
    try:
        json.dumps(result, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return None
    return result


def main(count: str, seed: str, out: str, cases: str = "") -> None:
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    signal.signal(signal.SIGALRM, too_long)
    grammar = Grammar(int(seed))
    templates: dict[str, str] = json.load(open(cases, encoding="utf-8"))["templates"] if cases else {}
    golden: list[dict[str, Any]] = []
    while len(golden) < int(count):
        case: dict[str, Any] = {}
        if templates and grammar.chance(1 / 3):
            model = grammar.random.choice(list(templates))
            source = templates[model]
            if grammar.chance(0.3):
                source = grammar.mutated(source)
            else:
                case["model"] = model
            case["context"] = grammar.conversation()
        else:
            source = grammar.source()
            if grammar.chance(0.1):
                case["context"] = grammar.conversation()
        result = reference(source, case.get("context", CONTEXT))
        if result is None or ("error" in result and grammar.chance(0.8)):
            continue
        golden.append({**({} if "model" in case else {"template": source}), **case, **result})
    with open(out, "w", encoding="utf-8") as file:
        json.dump({"clock": NOW.isoformat(), "context": CONTEXT, "golden": golden}, file, ensure_ascii=False, indent=1)
        file.write("\n")
    print(len(golden), "templates,", sum("error" in g for g in golden), "of them errors")


if __name__ == "__main__":
    main(*sys.argv[1:])
