"""Random templates and conversations. Expressions are drawn by the type that their place wants, so that most templates render."""
from __future__ import annotations

import random
from typing import Any, Callable

TEXTS = ["'a'", "'b c'", "'é,x'", "''", "' p '", "'abcabc'", "'\\n'", "'ß'", "'A-b'", "'x\\ty'", "'<b>&'", "\"it's\"", "'ǆΣ'", "'1'",
         "'4.5'", "'😀z'", "'Hello World'", "'%s-%s'", "'{}'", "'a=b'"]
TEXT_VARIABLES = ["text", "lines", "blank", "bos_token", "messages[0].content", "messages[1]['role']", "names[0]", "users[1].name"]
INTEGERS = ["0", "1", "2", "-1", "3", "7", "10", "100", "zero", "users[0].age", "numbers[2]", "-5", "1_000", "0x1F", "true"]
REALS = ["0.5", "1.0", "3.14159", "-2.5", "1e3", "1e20", "1.5e-7", "reals[0]", "reals[1]", "2.675"]
BOOLEANS = ["true", "false", "yes", "no", "True", "add_generation_prompt", "range is callable", "text.upper is callable", "1 is callable"]
LISTS = ["numbers", "names", "reals", "users", "messages", "empty", "[]", "[1, 'a', none]", "(1, 2)", "[[1, 2], [3, 4]]", "['b', 'a', 'C']",
         "range(3)", "[true, 1.0]", "[3, 1, 2]", "tools", "('x',)", "range(5, 0, -2)", "[1,]"]
DICTS = ["table", "users[0]", "{}", "{'a': 1, 'b': [2]}", "messages[1]", "{'k': 'v', 'n': none, 3: 4.0}", "dict(a=1, b='x')", "tools[0]",
         "dict([('x', 1)])"]
OTHERS = ["none", "missing", "nothing", "table.zzz", "users[9]", "big", "huge", "None"]
NAMES = ["x", "y", "m"]
ATTRIBUTES = ["role", "content", "name", "age", "a", "b", "zzz", "active", "function", "type"]

TEXT_FILTERS = ["trim", "upper", "lower", "title", "capitalize", "string", "replace('a', 'zz')", "replace('b', '', 1)", "indent",
                "indent(1, true)", "indent('> ', blank=true)", "e", "escape", "safe", "forceescape", "urlencode", "truncate(5)", "truncate(5, true)",
                "truncate(9, false, '..', 0)", "center(9)", "wordwrap(5)", "wordwrap(3, false)", "trim('a ')", "reverse",
                "default('d')", "default('d', true)", "format('q', 2)", "d('e')"]
LIST_FILTERS = ["list", "reverse | list", "sort", "sort(reverse=true)", "unique | list", "map('upper') | list", "map('string') | list",
                "select | list", "reject | list", "select('odd') | list", "select('string') | list", "reject('none') | list",
                "batch(2) | list", "batch(2, 0) | list", "slice(2) | list", "slice(2, 'f') | list", "map(attribute='name') | list",
                "map(attribute='zzz', default='-') | list", "selectattr('role') | list", "selectattr('age', '>', 26) | list",
                "selectattr('name', 'defined') | list", "rejectattr('name') | list", "sort(attribute='name')",
                "sort(case_sensitive=true)", "groupby('age')", "groupby('zzz', default=1)", "map('tojson') | list", "map('default', 'q') | list",
                "selectattr('role', 'in', ['user', 'tool']) | list", "map('attr', 'role') | list", "map(attribute='content') | list",
                "select('in', [1, 'a', 3]) | list", "rejectattr('role', 'eq', 'user') | list", "map('first') | list",
                "unique(attribute='age') | list", "map(attribute='function.name') | list", "map('int') | list", "default([])", "items | list",
                "dictsort", "dictsort(by='value')", "map('length') | list", "select('mapping') | list"]
TEXT_OF_ANY = ["tojson", "tojson(indent=1)", "tojson(sort_keys=true)", "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'))",
               "tojson(indent='--')", "string", "filesizeformat", "urlencode", "xmlattr", "e"]
NUMBER_FILTERS = ["round", "round(1)", "abs", "float", "round(2, 'floor')", "round(method='ceil')", "round(-1)"]
LAZY_FILTERS = ["map('upper')", "select('odd')", "reject('even')", "select", "map(attribute='name')", "selectattr('age', 'gt', 26)",
                "map('abs')", "unique", "batch(2)", "slice(2)", "reverse", "rejectattr('role', 'eq', 'user')", "map('nofilter')",
                "map('length')", "select('notest')", "items", "map(attribute='a.b')"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable", "sequence", "callable",
         "odd", "even", "lower", "upper", "true", "false", "divisibleby 2", "divisibleby(3)", "in [1, 'a']", "eq 1", "gt 0", "sameas none",
         "ne 'a'", "escaped", "filter", "test", "== 2", "lessthan 3", "equalto('a')", "in 'abc'"]
TEXT_METHODS = ["strip()", "strip('a')", "lstrip()", "rstrip('b')", "upper()", "lower()", "title()", "capitalize()", "replace('a', 'é')",
                "swapcase()", "zfill(4)", "center(6, '*')", "ljust(4)", "rjust(5, '-')", "removeprefix('a')", "removesuffix('c')",
                "join(['x', 'y'])", "format(1, 2)", "casefold()", "expandtabs(3)", "replace('b', 'q', 1)", "join(names)", "join('ab')",
                "format(a=1)", "translate({97: 'X'})"]
LIST_OF_TEXT_METHODS = ["split()", "split('b')", "split(',', 1)", "rsplit('a', 1)", "splitlines()", "partition('b')", "rpartition(',')",
                        "splitlines(true)", "split(none, 1)", "split(sep='a', maxsplit=2)"]
TEST_METHODS = ["startswith('a')", "endswith('c')", "isdigit()", "isupper()", "istitle()", "isalpha()", "isspace()", "isalnum()",
                "startswith(('a', 'b'))", "isidentifier()", "isdecimal()", "isnumeric()", "islower()", "isascii()", "isprintable()",
                "startswith('b', 1)"]
NUMBER_METHODS = ["find('b')", "count('a')", "rfind('c', 1)", "index('b')", "find('z')"]
DICT_LISTS = ["items()", "keys()", "values()", "items() | list", "keys() | list", "values() | list"]


class Grammar:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.macros: list[str] = []
        self.loops = 0

    def pick(self, items: list[str]) -> str:
        return self.random.choice(items)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    # Expressions.

    def any(self, depth: int) -> str:
        return self.random.choice([self.text, self.text, self.integer, self.number, self.boolean, self.list, self.dict, self.other])(depth)

    def other(self, depth: int) -> str:
        return self.pick(OTHERS + NAMES)

    def text(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.2):
            return self.pick(TEXTS + TEXT_VARIABLES + NAMES[:1])
        sub: Callable[[], str] = lambda: self.text(depth - 1)
        kind = self.random.randrange(13)
        if kind == 0:
            return f"{sub()} {self.pick(['+', '~', '~'])} {self.pick([sub(), self.any(depth - 1)]) if self.chance(0.3) else sub()}"
        if kind in (1, 2, 3):
            return f"{self.wrap(sub())} | {self.pick(TEXT_FILTERS)}"
        if kind in (4, 5):
            return f"{self.wrap(sub())}.{self.pick(TEXT_METHODS)}"
        if kind == 6:
            return f"{self.wrap(sub())}{self.slice(depth)}"
        if kind == 7:
            join = f"join({sub()})"
            return f"{self.list(depth - 1)} | {self.pick(['join', join, 'first', 'last', 'tojson', 'string'])}"
        if kind == 8:
            return f"{self.any(depth - 1)} | {self.pick(TEXT_OF_ANY)}"
        if kind == 9 and self.chance(0.3):
            return f"{self.list(depth - 1)} | {self.pick(LAZY_FILTERS)} | {self.pick(['join', 'first', 'last', 'list | tojson', 'sort | join', 'length', 'sum', 'unique | join', 'reverse | first', 'map(' + repr('string') + ') | join', 'default(1) | first'])}"
        if kind == 9:
            return self.format(depth)
        if kind == 10:
            return f"{sub()} if {self.boolean(depth - 1)} else {sub()}"
        if kind == 11:
            return f"{self.wrap(sub())} * {self.pick(['2', '3', '0', '-1'])}"
        return f"{self.dict(depth - 1)}.get({self.pick(TEXTS)}, {sub()})"

    def format(self, depth: int) -> str:
        value = lambda: self.any(depth - 1)  # noqa: E731
        spec = self.pick(["", "", "!r", "!s", "!a"])
        if self.chance(0.8):
            spec += ":" + "".join(self.pick(part) for part in (
                ["", "", "", "<", ">", "^", "*^", "é>", "="], ["", "", "", "+", "-", " "], ["", "", "#"], ["", "", "0"], ["", "", "5", "12"],
                ["", "", "", ",", "_"], ["", "", "", ".2", ".0"], ["", "", "s", "d", "f", "x", "b", "e", "g", "%", "X", "o", "n", "c", "G"]))
        percent = "%" + "".join(self.pick(part) for part in (
            ["", "", "", "-", "+", " ", "0", "#", "-0", "+0"], ["", "", "5", "12"], ["", "", ".2", ".0", "."],
            ["s", "s", "d", "f", "r", "x", "e", "g", "c", "a", "i", "X", "o", "%", "u", "G"]))
        which = self.random.randrange(4)
        if which == 0:
            return f"'<{{{spec}}}>'.format({self.number(depth - 1)})"
        if which == 1:
            return f"'<{{{spec}}}|{{}}>'.format({value()}, {value()})"
        if which == 2:
            return f"'{percent} %s' % ({self.number(depth - 1)}, {value()})"
        return f"'{percent}' % {self.wrap(value())}"

    def slice(self, depth: int) -> str:
        return self.pick(["[0]", "[-1]", "[1:]", "[:2]", "[::-1]", "[::2]", "[1:-1]", "[-3::-1]", "[2:0:-1]", "[:-1]", "[9]", "[0:]", "[-2:]",
                          f"[{self.integer(depth - 1)}]", f"[:{self.integer(depth - 1)}]", f"[{self.integer(0)}:{self.integer(0)}]"])

    def integer(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.3):
            return self.pick(INTEGERS)
        kind = self.random.randrange(8)
        if kind in (0, 1):
            return f"{self.integer(depth - 1)} {self.pick(['+', '-', '*', '//', '%'])} {self.integer(depth - 1)}"
        if kind == 2:
            of = self.random.choice([self.list, self.text, self.dict])
            return f"{self.wrap(of(depth - 1))} | {self.pick(['length', 'count'])}"
        if kind == 3:
            return f"{self.wrap(self.any(depth - 1))} | {self.pick(['int', 'int(3)', 'int(0, 16)', 'wordcount', 'abs', 'int(default=9, base=2)'])}"
        if kind == 4:
            return f"{self.wrap(self.text(depth - 1))}.{self.pick(NUMBER_METHODS)}"
        if kind == 5:
            return f"-{self.wrap(self.integer(depth - 1))}"
        if kind == 6:
            return f"({self.integer(depth - 1)} if {self.boolean(depth - 1)} else {self.integer(depth - 1)})"
        return f"{self.list(depth - 1)}.{self.pick(['count(1)', 'index(1)', 'index(3)'])}"

    def number(self, depth: int) -> str:
        if self.chance(0.4):
            return self.integer(depth)
        if depth <= 0 or self.chance(0.3):
            return self.pick(REALS)
        kind = self.random.randrange(5)
        if kind == 0:
            return f"{self.number(depth - 1)} {self.pick(['+', '-', '*', '/', '//', '%', '**'])} {self.number(depth - 1)}"
        if kind == 1:
            return f"{self.wrap(self.number(depth - 1))} | {self.pick(NUMBER_FILTERS)}"
        if kind == 2:
            return f"{self.list(depth - 1)} | {self.pick(['sum', 'min', 'max', 'first', 'last', 'sum(start=1)'])}"
        if kind == 3:
            return f"{self.any(depth - 1)} | {self.pick(['float', 'float(2.5)'])}"
        return f"({self.number(depth - 1)})"

    def boolean(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.15):
            return self.pick(BOOLEANS)
        kind = self.random.randrange(10)
        if kind in (0, 1):
            return f"{self.wrap(self.any(depth - 1))} is {self.pick(['', '', 'not '])}{self.pick(TESTS)}"
        if kind in (2, 3):
            compare = self.random.choice([self.text, self.number, self.any])
            return f"{compare(depth - 1)} {self.pick(['==', '!=', '<', '<=', '>', '>='])} {compare(depth - 1)}"
        if kind == 4:
            return f"{self.any(depth - 1)} {self.pick(['in', 'not in'])} {self.random.choice([self.list, self.text, self.dict])(depth - 1)}"
        if kind == 5:
            return f"{self.boolean(depth - 1)} {self.pick(['and', 'or'])} {self.any(depth - 1)}"
        if kind == 6:
            return f"not {self.any(depth - 1)}"
        if kind == 7:
            return f"{self.wrap(self.text(depth - 1))}.{self.pick(TEST_METHODS)}"
        if kind == 8:
            return f"{self.integer(depth - 1)} < {self.integer(depth - 1)} <= {self.integer(depth - 1)}"
        return f"({self.boolean(depth - 1)})"

    def list(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.3):
            return self.pick(LISTS + NAMES[1:2])
        kind = self.random.randrange(10)
        if kind == 0:
            return f"[{self.any(depth - 1)}, {self.any(depth - 1)}]"
        if kind in (1, 2, 3):
            return f"{self.wrap(self.list(depth - 1))} | {self.pick(LIST_FILTERS)}"
        if kind == 4:
            return f"{self.wrap(self.text(depth - 1))}.{self.pick(LIST_OF_TEXT_METHODS)}"
        if kind == 5:
            return f"{self.dict(depth - 1)}.{self.pick(DICT_LISTS)}"
        if kind == 6:
            return f"{self.wrap(self.list(depth - 1))}{self.pick(['[1:]', '[:2]', '[::-1]', '[::2]', '[1:-1]', '[-2:]'])}"
        if kind == 7:
            return f"{self.wrap(self.list(depth - 1))} + {self.wrap(self.list(depth - 1))}"
        if kind == 8:
            return f"{self.wrap(self.random.choice([self.text, self.dict])(depth - 1))} | list"
        return f"({self.list(depth - 1)}) * 2"

    def dict(self, depth: int) -> str:
        if depth <= 0 or self.chance(0.5):
            return self.pick(DICTS)
        kind = self.random.randrange(4)
        if kind == 0:
            return f"{{{self.pick(TEXTS)}: {self.any(depth - 1)}, {self.any(0)}: {self.any(depth - 1)}}}"
        if kind == 1:
            return f"dict({self.dict(depth - 1)}, {self.pick(['q', 'a'])}={self.any(depth - 1)})"
        if kind == 2:
            return f"{self.list(0)}[{self.pick(['0', '-1', '1'])}]"
        return f"({self.dict(depth - 1)} | {self.pick(['default({})', 'd({}, true)'])})"

    def wrap(self, expression: str) -> str:
        plain = expression.replace("_", "a")
        return expression if plain.isalnum() and not plain.isdigit() else f"({expression})"

    # Statements.

    def tag(self, text: str) -> str:
        return "{%" + self.pick(["", "", "", "-", "+"]) + self.pick([" ", " ", ""]) + text + self.pick([" ", " ", "\n"]) + self.pick(
            ["", "", "", "-", "+"]) + "%}"

    def show(self, expression: str) -> str:
        return "{{" + self.pick(["", "", "-", "+"]) + " " + expression + " " + self.pick(["", "", "-"]) + "}}"

    def target(self) -> str:
        return self.pick(["x", "y", "m", "x", "ns.a", "ns.b", "x, y", "(x, y)"])

    def statement(self, depth: int) -> str:
        kind = self.random.randrange(26) if depth > 0 else self.random.randrange(10)
        body = lambda: self.template(depth - 1)  # noqa: E731
        if kind < 6:
            return self.show(self.any(3))
        if kind == 6:
            target = self.target()
            return self.tag(f"set {target} = " + (f"({self.any(1)}, {self.any(1)})" if "," in target else self.any(2)))
        if kind == 7:
            return self.pick([self.show(n) for n in NAMES] + [self.show("ns.a"), self.show("loop.index"), self.show("x ~ '|' ~ y")])
        if kind == 8:
            return self.call() if self.macros else self.data()
        if kind == 9:
            return self.pick(["{# c #}", "{#- d -#}", "{#+ e #}", "{% raw %} {{ x }} {% y %} {% endraw %}", "{%- raw -%} a\n{%- endraw -%}",
                              "{{ strftime_now('%d %b %Y %H:%M') }}", "{{ cycler('a', 'b').next() }}", "{{ joiner('|')() }}",
                              "{% print x, 1 %}", self.tag("do x") if self.chance(0.1) else "", "{% include 'x' %}" if self.chance(0.05) else "",
                              "{{ raise_exception('no') }}" if self.chance(0.1) else "", "{% break %}" if self.chance(0.05) else ""])
        if kind in (10, 11, 12):
            text = self.tag(f"if {self.boolean(2)}") + body()
            if self.chance(0.3):
                text += self.tag(f"elif {self.boolean(2)}") + body()
            if self.chance(0.5):
                text += self.tag("else") + body()
            return text + self.tag("endif")
        if kind in (13, 14, 15, 16):
            return self.loop(depth)
        if kind == 17:
            return self.tag("set x" + self.pick(["", "", " | upper", " | trim | replace('a', 'b')", " | length"])) + body() + self.tag("endset") + "{{ x }}"
        if kind in (18, 19):
            return self.macro(depth)
        if kind == 20:
            return self.call_block(depth)
        if kind == 21:
            return self.tag(f"filter {self.pick(TEXT_FILTERS)}") + body() + self.tag("endfilter")
        if kind == 22:
            values = self.pick(["", f"x = {self.any(2)}", f"x = {self.any(1)}, y = x", f"m = {self.any(1)}"])
            return self.tag(f"with {values}") + body() + self.tag("endwith")
        if kind == 23:
            return self.tag("generation") + body() + self.tag("endgeneration")
        if kind == 24:
            return self.pick(["{% set ns = namespace(a=1, b='') %}", "{% set ns = namespace({'a': 'q'}) %}"]) + body()
        if not self.chance(0.3):
            return self.show(self.any(4))
        return self.tag("block b" + str(self.random.randrange(1000000))) + body() + self.tag("endblock")

    def loop(self, depth: int) -> str:
        target = self.pick(["m", "m", "x", "i", "k, v", "m, (x, y)"])
        over = self.list(2)
        if target == "k, v":
            over = self.pick(["table.items()", "table | dictsort", "{'a': 1}.items()", "[(1, 2), (3, 4)]", "users | groupby('age')"])
        elif "(" in target:
            over = "[(1, (2, 3)), (4, [5, 6])]"
        if self.chance(0.1):
            over += " | " + self.pick(LAZY_FILTERS)
        about = target.split(",")[0] + self.pick([" is string", " > 1", " is defined", ".role == 'user'"])
        condition = f" if {self.pick([self.boolean(1), about])}" if self.chance(0.3) else ""
        recursive = self.chance(0.1)
        use = self.pick(["{{ loop.index }}", "{{ loop.last }}", "{{ loop.previtem }}", "", "{{ m }}", "{{ x }}", "{{ loop.length }}", "{{ loop.nextitem }}",
                         "{{ loop.cycle('a', 'b') }}", "{{ loop.changed(m) }}", "{{ loop.revindex0 }}", "{{ loop.depth }}", "{{ loop.first }}",
                         self.tag("break"), self.tag("if loop.index > 1") + self.tag("break") + self.tag("endif"),
                         self.tag("if loop.first") + self.tag("continue") + self.tag("endif"), "{% set x = loop.index %}", "{% set ns.a = loop.index0 %}",
                         "{{ ', ' if not loop.last }}", "{% set outer = loop %}"])
        if recursive:
            use += "{% if loop.depth < 3 %}{{ loop([m, 1]) }}{% endif %}"
        self.loops += 1
        text = self.tag(f"for {target} in {over}{condition}{' recursive' if recursive else ''}") + use + self.template(depth - 1)
        self.loops -= 1
        if self.chance(0.2):
            text += self.tag("else") + self.template(depth - 1)
        return text + self.tag("endfor")

    def macro(self, depth: int) -> str:
        name = self.pick(["f", "g", "h"])
        parameters = self.pick(["", "a", "a, b=1", "a, b='x', c=a", "a=none", "x", "x, y=x"])
        use = self.pick(["{{ a }}", "{{ b }}", "{{ varargs }}", "{{ kwargs }}", "{{ caller() if caller else '' }}", "", "{{ x }}", "{{ a is defined }}",
                         "{{ " + name + ".name }}", "{{ varargs | length }}{{ kwargs | length }}"])
        text = self.tag(f"macro {name}({parameters})") + use + self.template(depth - 1) + self.tag("endmacro")
        self.macros.append(name)
        return text + (self.call() if self.chance(0.8) else "")

    def arguments(self) -> str:
        return self.pick(["", self.any(1), self.any(1), f"{self.any(1)}, {self.any(1)}", f"a={self.any(1)}", f"{self.any(1)}, b={self.any(1)}",
                          f"{self.any(1)}, q={self.any(1)}", f"*{self.pick(['[1, 2]', 'names', '(3,)'])}", "**{'a': 1}", "1, 2, 3, 4"])

    def call(self) -> str:
        return self.show(f"{self.pick(self.macros)}({self.arguments()})" + self.pick(["", "", " | upper", " | trim", " ~ 'z'", " | length", ".strip()"]))

    def call_block(self, depth: int) -> str:
        body = self.template(depth - 1)
        define = "{% macro w(t='') %}<{{ t }}" + self.pick(["{{ caller() }}", "{{ caller(1) }}", "{{ caller(1, 2) | upper }}", "{{ caller is defined }}"]) + ">{% endmacro %}"
        return define + self.tag(f"call{self.pick(['', '', '(q)', '(q, r=5)'])} w({self.any(1) if self.chance(0.5) else ''})") + body + self.tag("endcall")

    def data(self) -> str:
        return self.pick(["", " ", "\n", "a", "  b\n", "\n  ", "\n\n", "é", "\t", " \n \n", "}", "{", "%}", "'"])

    def template(self, depth: int) -> str:
        return "".join(self.data() + self.statement(depth) for _ in range(self.random.randrange(1, 4))) + self.data()

    def source(self) -> str:
        self.macros = []
        prefix = "{% set ns = namespace(a=0, b='s') %}" if self.chance(0.5) else ""
        return prefix + self.template(2)

    # Conversations.

    def content(self) -> str:
        return self.random.choice(["", "hi", " padded \n", "Wie geht's, Köln? 天気 👩‍🚀", "<think>\nhm\n</think>\n\nyes", "a\nb\r\nc", "<|im_end|>x</s>",
                                   "{{ not a template }} {% if %}", "\"q\" \\ /", "<tool_call>{}</tool_call>", "```py\nx = 1\n```", "&amp;<b>", "\x00\x07"])

    def value(self, depth: int) -> Any:
        kind = self.random.randrange(9 if depth > 0 else 7)
        if kind == 7:
            return [self.value(depth - 1) for _ in range(self.random.randrange(3))]
        if kind == 8:
            return {self.pick(["city", "n", "größe", "a b"]): self.value(depth - 1) for _ in range(self.random.randrange(3))}
        return [None, True, self.random.randrange(-10, 10**6), self.random.choice([1.0, 0.1, -2.5e-8, 1e22]), self.content(), "x", False][kind]

    def tool(self) -> dict[str, Any]:
        properties = {self.pick(["city", "n", "unit"]): {"type": self.pick(["string", "number"]), "description": self.content(),
                                                         "default": self.value(1)} for _ in range(self.random.randrange(3))}
        return {"type": "function", "function": {"name": self.pick(["w", "get_time"]), "description": self.content(),
                                                 "parameters": {"type": "object", "properties": properties, "required": list(properties)[:1]}}}

    def message(self, role: str) -> dict[str, Any]:
        message: dict[str, Any] = {"role": role, "content": self.content()}
        if self.chance(0.1):
            message["content"] = [{"type": "text", "text": self.content()} for _ in range(self.random.randrange(3))]
        if self.chance(0.05):
            message["content"] = None
        if role == "assistant" and self.chance(0.3):
            calls = [{"type": "function", "id": "c1", "function": {"name": "w", "arguments": {"city": self.value(1), "n": self.value(2)}}}
                     for _ in range(self.random.randrange(1, 3))]
            message["tool_calls"] = calls
        if role == "assistant" and self.chance(0.2):
            message["reasoning_content"] = self.content()
        if role == "tool":
            message.update(name="w", tool_call_id="c1")
        return message

    def conversation(self) -> dict[str, Any]:
        messages = [self.message("system")] if self.chance(0.5) else []
        for _ in range(self.random.randrange(1, 4)):
            messages.append(self.message("user"))
            if self.chance(0.8):
                messages.append(self.message("assistant"))
                while "tool_calls" in messages[-1] and self.chance(0.7):
                    messages.append(self.message("tool"))
        if self.chance(0.1):
            self.random.shuffle(messages)
        context: dict[str, Any] = {"messages": messages, "add_generation_prompt": self.chance(0.5), "bos_token": "<s>", "eos_token": "</s>",
                                   "tools": [self.tool() for _ in range(self.random.randrange(1, 3))] if self.chance(0.4) else None,
                                   "documents": [{"title": self.content(), "text": self.content()}] if self.chance(0.2) else None}
        for name in ("enable_thinking", "custom_tools", "tools_in_user_message", "thinking"):
            if self.chance(0.15):
                context[name] = self.chance(0.5)
        return context

    def mutated(self, source: str) -> str:
        """A few characters or tags of the source removed, doubled or moved."""
        for _ in range(self.random.randrange(1, 3)):
            at = self.random.randrange(len(source))
            pieces = [i for i in range(len(source)) if source.startswith(("{%", "{{"), i)]
            if self.chance(0.7) and len(pieces) > 2:
                a, b = sorted(self.random.sample(pieces, 2))
                b = min(b, next((i + 2 for i in range(a, len(source)) if source.startswith(("%}", "}}"), i)), b))
                source = self.random.choice([source[:a] + source[b:], source[:b] + source[a:b] + source[b:]])
            else:
                source = self.random.choice([source[:at] + source[at + 1:], source[:at] + self.random.choice("-+ {}%'\"|.()[]1a~,=") + source[at:]])
        return source
