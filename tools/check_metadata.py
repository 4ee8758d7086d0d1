#!/usr/bin/env python3
"""Checks that every field of the attention batch, plan and metadata structs has a reader (docs/design.md section 4.4).

usage: check_metadata.py [--build build/cuda] [--table | --check FILE | --update FILE]

Parses the sources of src/ that see one of these structs with libclang and notes for each field which functions write it
and which read it. Kernels are read as C++ of the host (tools/cuda_as_cpp.h), so a build for CUDA has to be configured. What is no reader: a log or format call, an assert (release builds have none), a check, reference or
benchmark of attention, a function that nobody calls, and the field's only writer. A getter stands for the functions that
call it. Exits 1 and names each field without a reader and its writers. --table prints the fields of structs in headers
as Markdown; --check compares that with the table between the "metadata table" markers of FILE, --update writes it there.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shlex
import sys
from typing import Any

try:
    from clang import cindex
except ImportError:  # a Python other than Debian's finds Debian's module here
    sys.path.append("/usr/lib/python3/dist-packages")
    from clang import cindex

from clang.cindex import CursorKind as Kind, TypeKind

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Structs by name, wherever they are defined, ...
STRUCTS = ["AttentionBatch", "PhaseRange", "AttentionGroup", "AttentionLayer", "PagedKv", "HeadRows", "ConstHeadRows"]
# ... every struct defined in these files, ...
STRUCT_FILES = ["src/attention/*", "src/kernels/attention/attention.h", "src/kernels/attention/gpu/attention.h",
                "src/kernels/step_input/gpu/step_input.h", "src/kernels/sample/gpu/sample.h", "src/sample/gpu_rows.h"]
# ... and what derives from these.
BASES = ["AttentionPlan"]
# Checks, references and benchmarks of attention, not users of the batch.
UNCOUNTED_FILES = ["src/attention/check.cc", "src/kernels/attention/ref/*", "src/bench/*"]
# Calls whose arguments are for people.
LOG_CALL = re.compile(r"^(log_(debug|info|warning|error|fatal)|critical|trace|debug|info|warn|error|format|format_to|print)$")
LOG_NAMESPACES = {"fmt", "spdlog", "v9", "v10"}

# Methods of containers that change them and give nothing back that is used.
MUTATORS = {"append", "assign", "clear", "emplace", "emplace_back", "erase", "fill", "insert", "pop_back", "push_back",
            "reserve", "reset", "resize", "shrink_to_fit", "store", "swap"}
FILLERS = {"fill", "fill_n", "iota", "memset"}
# What is wrong with a CUDA source as C++ of the host, and says nothing about fields.
EXPECTED_ERRORS = re.compile(r"invalid (in|out)put constraint '.*' in asm|kernels are launched from GPU sources")
CUDA_FLAGS = ["-x", "c++", "-include", str(ROOT / "tools" / "cuda_as_cpp.h")]
KEPT_FLAGS = ("-D", "-U", "-I", "-std=", "-m")
FLAGS_WITH_VALUE = ("-isystem", "-iquote", "-include")
RECORDS = {Kind.STRUCT_DECL, Kind.CLASS_DECL, Kind.CLASS_TEMPLATE, Kind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION}
FUNCTIONS = {Kind.FUNCTION_DECL, Kind.FUNCTION_TEMPLATE, Kind.CXX_METHOD, Kind.CONSTRUCTOR, Kind.DESTRUCTOR,
             Kind.CONVERSION_FUNCTION}
SHOWN = 4  # names in a cell of the table
MARKERS = ("<!-- metadata table -->", "<!-- end of metadata table -->")


class Failure(Exception):
    """The check can't be made: a source that does not parse, a struct that is gone."""


@dataclasses.dataclass
class Uses:
    """What a source, or all of them, says of the fields; field keys are "Struct::field"."""

    fields: dict[str, tuple[str, int]] = dataclasses.field(default_factory=dict)  # file and offset of the definition
    defaults: set[str] = dataclasses.field(default_factory=set)
    writers: dict[str, set[str]] = dataclasses.field(default_factory=lambda: collections.defaultdict(set))
    readers: dict[str, set[str]] = dataclasses.field(default_factory=lambda: collections.defaultdict(set))
    by_name: dict[str, set[str]] = dataclasses.field(default_factory=lambda: collections.defaultdict(set))
    getters: dict[str, str] = dataclasses.field(default_factory=dict)  # function -> its field
    callers: dict[str, set[str]] = dataclasses.field(default_factory=lambda: collections.defaultdict(set))
    free_functions: set[str] = dataclasses.field(default_factory=set)
    problems: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: Uses) -> None:
        self.fields.update(other.fields)
        self.defaults |= other.defaults
        self.getters.update(other.getters)
        self.free_functions |= other.free_functions
        self.problems += other.problems
        for name in ("writers", "readers", "by_name", "callers"):
            for key, functions in getattr(other, name).items():
                getattr(self, name)[key] |= functions


def record_name(record: cindex.Cursor) -> str:
    parent = record.semantic_parent
    return f"{record_name(parent)}::{record.spelling}" if parent and parent.kind in RECORDS else record.spelling


def function_name(function: cindex.Cursor) -> str:
    parent = function.semantic_parent
    name = function.spelling.split("<")[0]
    return f"{record_name(parent)}::{name}" if parent and parent.kind in RECORDS else name


def is_cast(cursor: cindex.Cursor) -> bool:
    return cursor.kind in (Kind.UNEXPOSED_EXPR, Kind.PAREN_EXPR)


def only_child(cursor: cindex.Cursor) -> cindex.Cursor | None:
    children = list(cursor.get_children())
    return children[0] if len(children) == 1 else None


def peel(cursor: cindex.Cursor | None) -> cindex.Cursor | None:
    while cursor is not None and is_cast(cursor):
        cursor = only_child(cursor)
    return cursor


class Source:
    """Walks one parsed source and fills in its Uses."""

    def __init__(self, unit: cindex.TranslationUnit, root: pathlib.Path, structs: list[str], patterns: list[str],
                 uncounted: list[str]):
        self.unit, self.root, self.structs, self.patterns = unit, root, structs, patterns
        self.uncounted = uncounted
        self.uses = Uses()
        self.paths: dict[str, str | None] = {}  # by name as clang has it, relative to the root; None = not ours
        self.watched: dict[int, str | None] = {}  # record by hash of its cursor
        self.function = ""
        self.counted = True  # what the present function does
        self.stack: list[cindex.Cursor] = []

    def walk(self) -> Uses:
        self.declarations(self.unit.cursor)
        return self.uses

    def path_of(self, cursor: cindex.Cursor) -> str | None:
        file = cursor.location.file
        if file is None:
            return None
        if file.name not in self.paths:
            path = pathlib.Path(file.name).resolve()
            own = path.is_relative_to(self.root / "src")
            self.paths[file.name] = str(path.relative_to(self.root)) if own else None
        return self.paths[file.name]

    # Declarations outside functions; those of other projects are not looked into.
    def declarations(self, parent: cindex.Cursor) -> None:
        for cursor in parent.get_children():
            path = self.path_of(cursor)
            if path is None:
                continue
            if cursor.kind in FUNCTIONS:
                self.function_body(cursor, path)
            elif cursor.kind in RECORDS:
                self.record(cursor)
            elif cursor.kind == Kind.VAR_DECL:  # a table at namespace scope or a static member
                self.function, self.counted, self.stack = cursor.spelling, True, []
                self.visit(cursor)
            elif cursor.kind in (Kind.NAMESPACE, Kind.LINKAGE_SPEC, Kind.UNEXPOSED_DECL):
                self.declarations(cursor)

    def record(self, cursor: cindex.Cursor) -> None:
        if not cursor.is_definition():
            return
        name = self.watched_name(cursor)
        if name:
            for child in cursor.get_children():
                if child.kind != Kind.FIELD_DECL or not child.spelling or self.is_function(child.type):
                    continue
                key = f"{name}::{child.spelling}"
                self.uses.fields[key] = (self.path_of(child) or "", child.location.offset)
                if any(c.kind.is_expression() for c in child.get_children()):
                    self.uses.defaults.add(key)
        self.declarations(cursor)

    def watched_name(self, record: cindex.Cursor) -> str | None:
        key = record.hash
        if key not in self.watched:
            definition = record.get_definition() or record
            path = self.path_of(definition)
            name = record_name(definition)
            # A plan that a benchmark wraps around another one is the benchmark's own.
            ours = path is not None and (
                definition.spelling in self.structs or any(pathlib.PurePath(path).match(p) for p in self.patterns) or
                (self.has_base(definition) and not any(pathlib.PurePath(path).match(p) for p in self.uncounted)))
            self.watched[key] = name if ours else None
        return self.watched[key]

    # A table of functions says what code there is, not what to do.
    @staticmethod
    def is_function(kind: cindex.Type) -> bool:
        pointed = kind.get_canonical().get_pointee()
        return pointed.kind in (TypeKind.FUNCTIONPROTO, TypeKind.FUNCTIONNOPROTO)

    @staticmethod
    def has_base(record: cindex.Cursor) -> bool:
        for child in record.get_children():
            if child.kind == Kind.CXX_BASE_SPECIFIER:
                base = child.type.get_canonical().get_declaration()
                if base.spelling in BASES or Source.has_base(base):
                    return True
        return False

    def field_key(self, field: cindex.Cursor | None) -> str | None:
        if field is None or field.kind != Kind.FIELD_DECL:
            return None
        name = self.watched_name(field.semantic_parent)
        return f"{name}::{field.spelling}" if name else None

    def function_body(self, cursor: cindex.Cursor, path: str) -> None:
        if not cursor.is_definition():
            return
        self.function = function_name(cursor)
        if cursor.kind in (Kind.FUNCTION_DECL, Kind.FUNCTION_TEMPLATE) and "::" not in self.function:
            self.uses.free_functions.add(self.function)
        getter = self.getter_field(cursor)
        if getter:
            self.uses.getters[self.function] = getter
            return
        self.counted = not any(pathlib.PurePath(path).match(p) for p in self.uncounted)
        self.stack = []
        for child in cursor.get_children():
            self.visit(child)
            if child.kind == Kind.MEMBER_REF:  # member initializer
                key = self.field_key(child.referenced)
                if key and self.counted:
                    self.uses.writers[key].add(self.function)

    # The field that a method returns, if that is all it does.
    def getter_field(self, function: cindex.Cursor) -> str | None:
        if function.kind != Kind.CXX_METHOD:
            return None
        body = next((c for c in function.get_children() if c.kind == Kind.COMPOUND_STMT), None)
        statement = only_child(body) if body else None
        if statement is None or statement.kind != Kind.RETURN_STMT:
            return None
        value = peel(only_child(statement))
        if value is None or value.kind != Kind.MEMBER_REF_EXPR or any(not is_cast(c) for c in value.get_children()):
            return None
        return self.field_key(value.referenced)

    def visit(self, cursor: cindex.Cursor) -> None:
        kind = cursor.kind
        if kind == Kind.MEMBER_REF_EXPR:
            self.member(cursor)
        elif kind in (Kind.DECL_REF_EXPR, Kind.OVERLOADED_DECL_REF):
            self.mention(cursor)
        elif kind == Kind.INIT_LIST_EXPR:
            self.init_list(cursor)
        elif kind in RECORDS:
            self.record(cursor)
            return
        self.stack.append(cursor)
        for child in cursor.get_children():
            self.visit(child)
        self.stack.pop()

    def mention(self, cursor: cindex.Cursor) -> None:
        target = cursor.referenced
        name = function_name(target) if target is not None and target.kind in FUNCTIONS else cursor.spelling
        if name and name != self.function:
            self.uses.callers[name].add(self.function)

    # The record that an expression in a template is of, where its type says so although Clang doesn't resolve it yet.
    def record_of(self, cursor: cindex.Cursor) -> cindex.Cursor | None:
        cursor = peel(cursor) or cursor
        target = cursor.referenced
        if target is None and cursor.kind == Kind.MEMBER_REF_EXPR:
            target = self.dependent_field(cursor)
        if target is None:
            return None
        kind = target.type.get_canonical()
        pointed = kind.get_pointee()
        record = (pointed if pointed.kind != TypeKind.INVALID else kind).get_declaration()
        return (record.get_definition() or record) if record.kind in RECORDS else None

    def dependent_field(self, cursor: cindex.Cursor) -> cindex.Cursor | None:
        base = only_child(cursor)
        record = self.record_of(base) if base is not None else None
        names = [t.spelling for t in cursor.get_tokens() if t.kind.name == "IDENTIFIER"]
        if record is None or not names:
            return None
        fields = [c for c in record.get_children() if c.kind == Kind.FIELD_DECL and c.spelling == names[-1]]
        return fields[0] if fields else None

    def member(self, cursor: cindex.Cursor) -> None:
        target = cursor.referenced or self.dependent_field(cursor)
        if target is None:  # of a dependent type: known by its name alone
            tokens = [t.spelling for t in cursor.get_tokens() if t.kind.name == "IDENTIFIER"]
            if tokens:
                self.uses.callers[tokens[-1]].add(self.function)
                reads, writes = self.access(cursor)
                if writes and self.counted:
                    self.uses.by_name["=" + tokens[-1]].add(self.function)
                if reads and self.counted and not self.in_log():
                    self.uses.by_name[tokens[-1]].add(self.function)
            return
        if target.kind in FUNCTIONS:
            if self.counted and not self.in_log():
                self.mention(cursor)
            return
        key = self.field_key(target)
        if not key:
            return
        reads, writes = self.access(cursor)
        if writes and self.counted:
            self.uses.writers[key].add(self.function)
        if reads and self.counted and not self.in_log():
            self.uses.readers[key].add(self.function)

    def in_log(self) -> bool:
        for cursor in self.stack:
            if cursor.kind != Kind.CALL_EXPR:
                continue
            callee = cursor.referenced
            if callee is None or not LOG_CALL.match(callee.spelling):
                continue
            parent = callee.semantic_parent
            while parent is not None and parent.kind in RECORDS:
                parent = parent.semantic_parent
            if callee.spelling.startswith("log_") or (parent is not None and parent.spelling in LOG_NAMESPACES):
                return True
        return False

    # Whether the expression `cursor`, whose parents are on the stack, is read and whether it is written.
    def access(self, cursor: cindex.Cursor) -> tuple[bool, bool]:
        inner = cursor
        for depth in range(len(self.stack) - 1, -1, -1):
            outer = self.stack[depth]
            if outer.kind == Kind.PAREN_EXPR:
                pass
            elif outer.kind == Kind.MEMBER_REF_EXPR:
                method = outer.referenced
                if method is not None and method.kind in FUNCTIONS:
                    return self.method_access(method, depth)
                if method is None:  # dependent: a call of a mutator or a part that is read
                    name = [t.spelling for t in outer.get_tokens() if t.kind.name == "IDENTIFIER"][-1:]
                    return (False, True) if name and name[0] in MUTATORS else (True, False)
                if inner.type.get_canonical().kind == TypeKind.POINTER:
                    return True, False
            elif outer.kind == Kind.ARRAY_SUBSCRIPT_EXPR:
                if inner.type.get_canonical().kind != TypeKind.CONSTANTARRAY:
                    return True, False
            elif outer.kind == Kind.CALL_EXPR:
                return self.call_access(outer, inner, depth)
            elif outer.kind == Kind.BINARY_OPERATOR:
                children = list(outer.get_children())
                if children and children[0] == inner and self.is_assignment(outer, inner):
                    return self.value_is_used(depth), True
                return True, False
            elif outer.kind == Kind.COMPOUND_ASSIGNMENT_OPERATOR:
                if next(iter(outer.get_children())) == inner:
                    return self.value_is_used(depth), True
                return True, False
            elif outer.kind == Kind.UNARY_OPERATOR:
                tokens = [t.spelling for t in outer.get_tokens()]
                if tokens and ("++" in (tokens[0], tokens[-1]) or "--" in (tokens[0], tokens[-1])):
                    return self.value_is_used(depth), True
                return True, False
            else:
                return True, False
            inner = outer
        return True, False

    def value_is_used(self, depth: int) -> bool:
        while depth > 0 and is_cast(self.stack[depth - 1]):
            depth -= 1
        return depth > 0 and self.stack[depth - 1].kind not in (Kind.COMPOUND_STMT, Kind.FOR_STMT, Kind.IF_STMT,
                                                                 Kind.WHILE_STMT, Kind.CXX_FOR_RANGE_STMT,
                                                                 Kind.LAMBDA_EXPR)

    @staticmethod
    def is_assignment(operator: cindex.Cursor, left: cindex.Cursor) -> bool:
        end = left.extent.end.offset
        for token in operator.get_tokens():
            if token.extent.start.offset >= end and token.spelling != ")":
                return bool(token.spelling == "=")
        return False

    def method_access(self, method: cindex.Cursor, depth: int) -> tuple[bool, bool]:
        if method.spelling in MUTATORS and not method.is_const_method():
            return False, True
        fills = any(c.kind == Kind.CALL_EXPR and c.spelling in FILLERS for c in self.stack[max(0, depth - 4):depth])
        return (False, True) if fills and not method.is_const_method() else (True, False)

    def call_access(self, call: cindex.Cursor, inner: cindex.Cursor, depth: int) -> tuple[bool, bool]:
        callee = call.referenced
        arguments = list(call.get_arguments())
        index = next((i for i, a in enumerate(arguments) if a == inner), None)
        if callee is None or index is None:
            return True, False
        if inner.referenced is not None and inner.referenced.type.kind == TypeKind.LVALUEREFERENCE:
            return True, False  # a callee may change what the field refers to, not the field
        if callee.spelling == "operator=":
            return (False, True) if index == 0 else (True, False)
        if callee.spelling == "operator[]" and index == 0:
            # An element of a container that is assigned to; what a span refers to is not the span.
            element_of = inner.type.get_canonical().spelling
            outer = self.stack[depth - 1] if depth > 0 else None
            if outer is not None and "span<" not in element_of and outer.kind in (
                    Kind.BINARY_OPERATOR, Kind.COMPOUND_ASSIGNMENT_OPERATOR):
                first = next(iter(outer.get_children()))
                if first == call and (outer.kind != Kind.BINARY_OPERATOR or self.is_assignment(outer, call)):
                    return False, True
            return True, False
        signature = callee.type.get_canonical()
        if signature.kind == TypeKind.POINTER:
            signature = signature.get_pointee()
        parameters = list(signature.argument_types()) if signature.kind == TypeKind.FUNCTIONPROTO else []
        if callee.kind == Kind.CXX_METHOD and callee.spelling.startswith("operator"):
            index -= 1  # the object itself comes first
        if 0 <= index < len(parameters) and parameters[index].kind == TypeKind.LVALUEREFERENCE:
            if not parameters[index].get_pointee().is_const_qualified():
                return False, True
        return True, False

    def init_list(self, cursor: cindex.Cursor) -> None:
        record = cursor.type.get_canonical().get_declaration()
        name = self.watched_name(record) if record.kind in RECORDS else None
        if not name or not self.counted:
            return
        fields = [f.spelling for f in record.type.get_fields()]
        for position, value in enumerate(cursor.get_children()):
            designated = [c for c in value.get_children() if c.kind == Kind.MEMBER_REF] if is_cast(value) else []
            if designated:
                written = designated[0].spelling
            elif position < len(fields):
                written = fields[position]
            else:
                self.uses.problems.append(f"{self.path_of(cursor)}:{cursor.location.line}: braces are missing in a {name}")
                return
            self.uses.writers[f"{name}::{written}"].add(self.function)


def included_files(path: pathlib.Path, root: pathlib.Path, known: dict[pathlib.Path, set[pathlib.Path]]) -> set[pathlib.Path]:
    """The project's own headers that `path` includes, directly or not."""
    if path not in known:
        known[path] = set()
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE):
            header = next((h for h in (root / "src" / name, path.parent / name) if h.exists()), None)
            if header is not None:
                known[path] |= {header} | included_files(header, root, known)
    return known[path]


def clang_flags(entry: dict[str, Any]) -> list[str]:
    """Clang needs to see what GCC sees; warnings and code generation are not its business."""
    arguments = entry.get("arguments") or shlex.split(entry["command"])
    flags: list[str] = ["-w", "-ferror-limit=0"]
    if entry["file"].endswith(".cu"):
        flags += CUDA_FLAGS
    for i, argument in enumerate(arguments):
        if argument.startswith("-isystem="):  # nvcc's spelling
            flags += argument.split("=", 1)
        elif argument in FLAGS_WITH_VALUE:
            flags += [argument, arguments[i + 1]]
        elif argument.startswith(KEPT_FLAGS) or argument.startswith("-isystem"):
            flags.append(argument)
    return flags


def parse(source: str, flags: list[str], root: pathlib.Path, structs: list[str], patterns: list[str],
          uncounted: list[str]) -> Uses:
    unit = cindex.Index.create().parse(source, args=flags)
    errors = [str(d) for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
    if source.endswith(".cu"):
        errors = [e for e in errors if not EXPECTED_ERRORS.search(e)]
    if errors:
        return Uses(problems=[f"{source} does not parse: {errors[0]}"])
    return Source(unit, root, structs, patterns, uncounted).walk()


@dataclasses.dataclass
class Field:
    struct: str
    name: str
    file: str
    writers: list[str]
    readers: list[str]
    has_default: bool


def collect(build: pathlib.Path, root: pathlib.Path, structs: list[str], patterns: list[str],
            uncounted: list[str]) -> list[Field]:
    commands = build / "compile_commands.json"
    if not commands.exists():
        raise Failure(f"{commands} is missing: configure first (cmake --preset cuda)")
    watched = {p for pattern in patterns for p in root.glob(pattern)}
    names = re.compile(r"^\s*(?:struct|class)\s+(" + "|".join(structs) + r")\b[^;]*\{", re.MULTILINE)
    watched |= {h for h in (root / "src").rglob("*.h") if structs and names.search(h.read_text(encoding="utf-8"))}
    known: dict[pathlib.Path, set[pathlib.Path]] = {}
    work = []
    for entry in json.loads(commands.read_text(encoding="utf-8")):
        path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if path.is_relative_to(root / "src") and ({path} | included_files(path, root, known)) & watched:
            work.append((str(path), clang_flags(entry)))
    work.sort(key=lambda w: -pathlib.Path(w[0]).stat().st_size)  # the long ones first
    total = Uses()
    with concurrent.futures.ProcessPoolExecutor(max_workers=min(len(work), os.cpu_count() or 1) or 1) as pool:
        jobs = [pool.submit(parse, source, flags, root, structs, patterns, uncounted) for source, flags in work]
        for job in jobs:
            total.add(job.result())
    if total.problems:
        raise Failure("\n".join(sorted(set(total.problems))))
    found = {key.rsplit("::", 1)[0] for key in total.fields}
    gone = [s for s in structs if not any(f.split("::")[-1] == s for f in found)]
    if gone:
        raise Failure(f"no definition of {', '.join(gone)}: mend the list in {pathlib.Path(__file__).name}")
    return fields_of(total)


def fields_of(uses: Uses) -> list[Field]:
    for function, field in uses.getters.items():
        short = function.split("::")[-1]
        uses.readers[field] |= uses.callers[function] | uses.by_name[short]
    unused = {f for f in uses.free_functions if f != "main" and not uses.callers[f] - {f}}
    result = []
    for key in sorted(uses.fields, key=lambda k: uses.fields[k]):
        struct, name = key.rsplit("::", 1)
        writers = uses.writers[key] | uses.by_name["=" + name]
        readers = (uses.readers[key] | uses.by_name[name]) - unused
        if len(writers) == 1:
            readers -= writers
        result.append(Field(struct, name, uses.fields[key][0], sorted(writers), sorted(readers), key in uses.defaults))
    return result


def table(fields: list[Field]) -> str:
    def cell(names: list[str], has_default: bool = False) -> str:
        return ", ".join([f"`{n}`" for n in names[:SHOWN]] + ["…"] * (len(names) > SHOWN) + ["default"] * has_default)

    rows = ["| field | written by | read by |", "|---|---|---|"]
    fields = [f for f in fields if f.file.endswith(".h")]  # what a source keeps to itself is of no interest to others
    rows += [f"| `{f.struct}::{f.name}` | {cell(f.writers, f.has_default)} | {cell(f.readers)} |" for f in fields]
    return "\n".join(rows) + "\n"


def replace_table(text: str, new: str, name: str) -> str:
    begin, end = MARKERS
    if text.count(begin) != 1 or text.count(end) != 1:
        raise Failure(f"{name} needs the lines {begin} and {end}, once each")
    head, rest = text.split(begin)
    return f"{head}{begin}\n{new}{end}{rest.split(end)[1]}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Every field of the attention structs needs a reader.")
    parser.add_argument("--build", default=str(ROOT / "build" / "cuda"), help="folder with compile_commands.json")
    parser.add_argument("--root", default=str(ROOT), help="root of the tree, with src/ in it")
    parser.add_argument("--struct", action="append", help="instead of the built-in names")
    parser.add_argument("--files", action="append", help="instead of the built-in patterns")
    parser.add_argument("--table", action="store_true", help="print the table")
    parser.add_argument("--check", metavar="FILE", help="fail if the table in FILE is another")
    parser.add_argument("--update", metavar="FILE", help="write the table to FILE")
    options = parser.parse_args(arguments)
    try:
        fields = collect(pathlib.Path(options.build), pathlib.Path(options.root).resolve(), options.struct or STRUCTS,
                         options.files or STRUCT_FILES, UNCOUNTED_FILES)
        text = table(fields)
        if options.table:
            print(text, end="")
        stale = False
        for name in filter(None, (options.check, options.update)):
            path = pathlib.Path(name)
            old = path.read_text(encoding="utf-8")
            new = replace_table(old, text, name)
            if options.update:
                path.write_text(new, encoding="utf-8")
            elif old != new:
                stale = True
                print(f"{name}: the table of fields is out of date: tools/check_metadata.py --update {name}", file=sys.stderr)
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 2
    dead = [f for f in fields if not f.readers]
    for field in dead:
        print(f"{field.struct}::{field.name} has no reader; written by {', '.join(field.writers) or 'nobody'}",
              file=sys.stderr)
    print(f"{len(fields)} fields, {len(dead)} without a reader", file=sys.stderr)
    return 1 if dead or stale or not fields else 0


if __name__ == "__main__":
    sys.exit(main())
