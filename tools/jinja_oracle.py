"""What jinja2 makes of a template in transformers' environment, with a fixed clock."""
import copy
import datetime as datetime_module
import html
from typing import Any

from jinja2.compiler import CodeGenerator
from jinja2.nodes import Impossible
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


def plain_escape(value: Any) -> str:
    return html.escape(str(value)).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")


# Filters that mark strings as safe, without the mark.
PLAIN = {"e": plain_escape, "escape": plain_escape, "forceescape": plain_escape, "safe": str}


class Unfolded(CodeGenerator):
    def _output_child_to_const(self, *_: Any) -> str:
        raise Impossible


def render(source: str, context: dict[str, Any], plain: bool = False) -> dict[str, str]:
    """{"out": text} or {"error": message}. Plain: constant expressions are not calculated ahead, and no string is marked as safe."""
    context = copy.deepcopy(context)  # some filters change lists that they are given
    try:
        template = compile_template(source)
        if plain:
            environment = template.environment.overlay(optimized=False)
            environment.filters = {**environment.filters, **PLAIN}
            environment.code_generator_class = Unfolded
            template = environment.from_string(source)
        return {"out": template.render(**context)}
    except Exception as error:  # noqa: BLE001 whatever it is, ours must fail too
        return {"error": f"{type(error).__name__}: {error}"}
