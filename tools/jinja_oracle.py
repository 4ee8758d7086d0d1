"""What jinja2 makes of a template in transformers' environment, with a fixed clock."""
import copy
import datetime as datetime_module
from typing import Any

from transformers.utils import chat_template_utils

class FixedClock(datetime_module.datetime):
    @classmethod
    def now(cls, tz: datetime_module.tzinfo | None = None) -> "FixedClock":
        return NOW


NOW = FixedClock(2026, 3, 4, 5, 6, 7)
chat_template_utils.datetime = FixedClock
compile_template = chat_template_utils._compile_jinja_template

# Variables of every snippet.
CONTEXT = {
    "messages": [
        {"role": "system", "content": "  You are brief.\n"},
        {"role": "user", "content": "Hello World, how are you?"},
        {"role": "assistant", "content": "<think>hm</think>\nfine", "tool_calls": None},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": " two "}]},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "enum": ["Köln", "東京"]}, "n": {"type": "integer", "default": 3}}}}}],
    "text": "straße ÉCOLE ñandú 👩‍🚀 ΑΣ",
    "lines": "a\n\n  b\r\nc\n",
    "numbers": [3, 1, 2, 3, -5, 10],
    "reals": [1.5, -0.0, 1e20, 1e-7, 0.1, 123456789.125],
    "names": ["bob", "Alice", "carol", "Bob"],
    "users": [{"name": "bob", "age": 30, "active": True}, {"name": "Alice", "age": 25, "active": False},
              {"name": "carol", "age": 30, "active": True}],
    "table": {"b": 1, "a": [1, 2, {"x": None}], "c": {"d": "é"}},
    "empty": [], "blank": "", "zero": 0, "yes": True, "no": False, "nothing": None, "big": 9223372036854775807,
    "huge": 18446744073709551615,
    "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>",
}


def render(source: str, context: dict[str, Any]) -> dict[str, str]:
    """{"out": text} or {"error": message}."""
    context = copy.deepcopy(context)  # some filters change lists that they are given
    try:
        return {"out": compile_template(source).render(**context)}
    except Exception as error:  # noqa: BLE001 whatever it is, ours must fail too
        return {"error": f"{type(error).__name__}: {error}"}
