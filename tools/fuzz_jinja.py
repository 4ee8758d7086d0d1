#!/usr/bin/env python3
"""Writes random templates with what jinja2 makes of them, as a golden file for the test Jinja.Random.

  fuzz_jinja.py COUNT SEED OUT     then: QUIRE_JINJA_GOLDEN=OUT text_test --gtest_filter=Jinja.Random
"""
import json
import random
import sys

from jinja_oracle import CONTEXT, NOW, render

NAMES = ["messages", "tools", "text", "lines", "numbers", "reals", "names", "users", "table", "empty", "blank", "zero", "yes",
         "no", "nothing", "missing", "x", "m"]
CONSTANTS = ["0", "1", "2", "-1", "3.5", "'a'", "'b c'", "'é,x'", "''", "' p '", "true", "false", "none", "[]", "[1, 'a']",
             "(1, 2)", "{'a': 1, 'b': [2]}", "'%s-%s'", "'abcabc'", "'\\n'", "10", "'ß'", "'A'"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or", "**"]
# What gives a generator is made a list at once: ours find errors when they are made, jinja2's when they are walked.
FILTERS = ["trim", "upper", "lower", "title", "capitalize", "length", "join", "join(',')", "first", "last",
           "default('d')", "default('d', true)", "reverse | list", "sort", "unique | list", "map('upper') | list",
           "map(attribute='name') | list", "map('string') | list", "select | list", "reject | list",
           "select('odd') | list", "selectattr('role') | list", "selectattr('age', '>', 26) | list",
           "rejectattr('name') | list", "list", "string", "int", "float", "abs", "round", "round(1)", "tojson",
           "tojson(indent=1)", "tojson(sort_keys=true)", "items | list", "dictsort", "batch(2) | list", "indent",
           "indent(1, true)", "e", "sum", "min", "max", "wordcount", "replace('a', 'zz')", "int(3)",
           "slice(2) | list", "urlencode", "truncate(5)", "center(9)", "count", "groupby('age')",
           "sort(reverse=true)", "sort(attribute='name')", "wordwrap(5)", "wordwrap(3, false)", "filesizeformat",
           "filesizeformat(true)", "xmlattr", "attr('name')"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable", "sequence",
         "callable", "odd", "even", "lower", "upper", "true", "false", "divisibleby 2", "in [1, 'a']", "eq 1", "gt 0",
         "sameas none"]
METHODS = ["strip()", "strip('a')", "lstrip()", "rstrip('b')", "split()", "split('b')", "split(',', 1)", "rsplit('a', 1)",
           "startswith('a')", "endswith('c')", "upper()", "lower()", "title()", "capitalize()", "replace('a', 'é')", "items()",
           "keys()", "values()", "get('a')", "get('z', 1)", "find('b')", "index('b')", "count('a')", "swapcase()",
           "splitlines()", "partition('b')", "rpartition(',')", "zfill(4)", "center(6, '*')", "isdigit()", "isupper()",
           "join(['x', 'y'])", "format(1, 2)", "append(1)", "index(1)", "count(1)", "removeprefix('a')", "istitle()"]
SUBSCRIPTS = ["[0]", "[-1]", "[1:]", "[:2]", "[::-1]", "[::2]", "['a']", "['role']", ".content", ".a", ".0", "[1:-1]", "[9]",
              "[-3::-1]", ".function", "[2:0:-1]", "[x]"]


class Maker:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, items: list[str]) -> str:
        return self.random.choice(items)

    def expression(self, depth: int) -> str:
        kind = self.random.randrange(12) if depth > 0 else self.random.randrange(2)

        def sub() -> str:
            return self.expression(depth - 1)

        if kind == 0:
            return self.pick(NAMES)
        if kind == 1:
            return self.pick(CONSTANTS)
        if kind in (2, 3):
            return f"{sub()} {self.pick(BINARY)} {sub()}"
        if kind in (4, 5):
            return f"{sub()} | {self.pick(FILTERS)}"
        if kind == 6:
            return f"{sub()} is {self.pick(['', 'not '])}{self.pick(TESTS)}"
        if kind == 7:
            return f"{self.pick(NAMES + CONSTANTS)}.{self.pick(METHODS)}"
        if kind == 8:
            return f"{self.pick(NAMES)}{self.pick(SUBSCRIPTS)}"
        if kind == 9:
            return f"({sub()})"
        if kind == 10:
            return f"{sub()} if {sub()} else {sub()}"
        return self.pick([f"not {sub()}", f"[{sub()}, {sub()}]", f"-{sub()}", f"({sub()}){self.pick(SUBSCRIPTS)}",
                          f"({sub()}).{self.pick(METHODS)}", f"{{'k': {sub()}}}", f"{sub()} < {sub()} < {sub()}"])

    def open(self) -> str:
        return "{%" + self.pick(["", "", "", "-", "+"]) + " "

    def close(self) -> str:
        return " " + self.pick(["", "", "", "-", "+"]) + "%}"

    def tag(self, text: str) -> str:
        return self.open() + text + self.close()

    def statement(self, depth: int) -> str:
        kind = self.random.randrange(11) if depth > 0 else self.random.randrange(4)

        def body() -> str:
            return self.template(depth - 1)

        def e() -> str:
            return self.expression(2)

        if kind in (0, 1, 2):
            return "{{" + self.pick(["", "-"]) + " " + e() + " " + self.pick(["", "-"]) + "}}"
        if kind == 3:
            return self.tag(f"set {self.pick(['x', 'm'])} = {e()}")
        if kind == 4:
            return self.tag(f"if {e()}") + body() + (self.tag(f"elif {e()}") + body() if self.random.random() < 0.3 else "") + (
                self.tag("else") + body() if self.random.random() < 0.5 else "") + self.tag("endif")
        if kind in (5, 6):
            test = f" if {e()}" if self.random.random() < 0.3 else ""
            use = self.pick(["{{ loop.index }}", "{{ loop.last }}", "{{ loop.previtem }}", "", "{{ m }}",
                             self.tag("break"), self.tag("if loop.first") + self.tag("continue") + self.tag("endif")])
            return self.tag(f"for m in {self.pick(NAMES[:9] + ['range(3)', 'table.items()', 'users'])}{test}") + use + body() + (
                self.tag("else") + body() if self.random.random() < 0.3 else "") + self.tag("endfor")
        if kind == 7:
            return self.tag("set x") + body() + self.tag("endset") + "{{ x }}"
        if kind == 8:
            return self.tag("macro f(a, b=1)") + body() + "{{ a }}{{ b }}" + self.tag("endmacro") + f"{{{{ f({e()}) }}}}"
        if kind == 9:
            return self.tag(f"filter {self.pick(FILTERS[:6])}") + body() + self.tag("endfilter")
        return self.tag(f"with x = {e()}") + body() + self.tag("endwith")

    def data(self) -> str:
        return self.pick(["", " ", "\n", "a", "  b\n", "\n  ", "{# c #}", "\n\n", "{#- d -#}", "é"])

    def template(self, depth: int) -> str:
        return "".join(self.data() + self.statement(depth) for _ in range(self.random.randrange(1, 4))) + self.data()


def main(count: str, seed: str, out: str) -> None:
    maker = Maker(int(seed))
    golden: list[dict[str, str]] = []
    while len(golden) < int(count):
        source = maker.template(2)
        result = render(source, CONTEXT)
        if " at 0x" in json.dumps(result):  # addresses differ
            continue
        if "error" in result and maker.random.random() < 0.5:  # most random templates fail
            continue
        golden.append({"template": source, **result})
    with open(out, "w", encoding="utf-8") as file:
        json.dump({"clock": NOW.isoformat(), "context": CONTEXT, "golden": golden}, file, ensure_ascii=False, indent=1)
        file.write("\n")
    print(len(golden), "templates,", sum("error" in g for g in golden), "of them errors")


if __name__ == "__main__":
    main(*sys.argv[1:])
