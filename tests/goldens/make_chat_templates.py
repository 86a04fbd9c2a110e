#!/usr/bin/env python3
"""Writes the golden files of chat templates, rendered by transformers with Jinja2.

  pip install jinja2==3.1.6 transformers==5.24.0 gguf==0.19.0
  make_chat_templates.py features                 features.json: the snippets below
  make_chat_templates.py expressions              expressions.json: every filter, test, method and operator on values of
                                                  every kind
  make_chat_templates.py conversations            conversations.json: the cases that the next two render
  make_chat_templates.py gguf MODEL.gguf NAME     NAME.json: the template inside of a model
  make_chat_templates.py folder DIR NAME          NAME.json: every DIR/*.jinja, as hashes; for templates.json llama.cpp's
                                                  models/templates and those that the vocabularies come with
  make_chat_templates.py roles DIR                roles.json: every DIR/*.jinja with messages of each role in each place,
                                                  as one text and in parts

Files go to chat_templates/ beside this script. What came out of a case is {text} or {error}; as a hash, FNV-1a of the text
(64 bits folded to 32) or "error". Messages, tools and variables are kept as JSON text, as a server would get them.
"""
import copy
import datetime
import glob
import json
import os
import sys

import jinja2.sandbox
from transformers.utils import chat_template_utils

from chat_template_expressions import (
    BINARY,
    BRACE_FORMATS,
    BRACE_VALUES,
    FILTERS,
    METHODS,
    MORE_EXPRESSIONS,
    OPERANDS,
    PERCENT_FORMATS,
    PERCENT_VALUES,
    TESTS,
    VALUES,
)

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Get the weather's <state> & more",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "City \"name\" über"},
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
            "days": {"type": ["integer", "null"], "minimum": 1},
            "tags": {"type": "array", "items": {"type": "string"}},
            "nested": {"type": "object", "required": ["a"],
                       "properties": {"a": {"type": "number"}, "b": {"type": "boolean"}}},
            "any": {"oneOf": [{"type": "string", "description": "s"}, {"type": "object", "default": {"x": 1.0}}]}}},
        "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "now", "description": "Time",
                                      "parameters": {"type": "object", "properties": {}}}},
]


def call(arguments, call_id="123456789", name="get_weather"):
    return {"type": "function", "id": call_id, "function": {"name": name, "arguments": arguments}}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def tool(content, call_id="123456789", name="get_weather"):
    return {"role": "tool", "name": name, "tool_call_id": call_id, "content": content}


CONVERSATIONS = {
    "user": [user("Hi there")],
    "spaces": [user("  \n Hi 😀 <|im_end|> \u3000\n")],
    "system": [{"role": "system", "content": "Be brief."}, user("What's 2+2?")],
    "multi": [{"role": "system", "content": " S "}, user("a"), assistant("  b "), user("c")],
    "think": [user("a"), assistant("<think>\nhmm\n</think>\n\nanswer"), user("c")],
    "reason": [user("a"), assistant("answer", reasoning_content="why\nso"), user("c"), assistant("d", reasoning="r2"),
               user("e")],
    "tool": [user("weather?"),
             assistant("let me see", tool_calls=[
                 call({"city": "Köln", "days": 3, "f": 1.5, "n": None, "b": True, "l": [1, "x"]})]),
             tool('{"t": 21}'), assistant("21 degrees"), user("thanks")],
    "tool_text_arguments": [{"role": "system", "content": "sys"}, user("weather?"),
                            assistant("", tool_calls=[call('{"city": "Köln"}')]), tool("sunny")],
    "tool_null_content": [user("w?"), assistant(None, tool_calls=[call({"city": "A'B"})]), tool("x")],
    "tool_numbers": [user("w?"), assistant("c", tool_calls=[call({"x": 12345678901234567890123, "y": 1e20, "z": -0.0})]),
                     tool([{"type": "text", "text": "x"}])],
    "two_calls": [user("w?"),
                  assistant("", reasoning_content="two calls",
                            tool_calls=[call({"city": "A"}, "aaaaaaaa1"), call({}, "aaaaaaaa2", "now")]),
                  tool("x", "aaaaaaaa1"), tool("12:00", "aaaaaaaa2", "now"), assistant("done"), user("more")],
    "parts": [user([{"type": "text", "text": "one"}, {"type": "text", "text": " two"}])],
    "image": [user([{"type": "image", "image": "u"}, {"type": "text", "text": "what is it?"}])],
    "developer": [{"role": "developer", "content": "dev"}, user("u")],
    "wrong_order": [assistant("x"), assistant("y")],
    "empty": [],
}
KWARGS = [
    {},
    {"enable_thinking": True},
    {"enable_thinking": False, "thinking": False, "reasoning_effort": "high"},
    {"thinking": True, "builtin_tools": ["python", "browser"], "custom_tools": TOOLS, "date_string": "1 Jan 2026",
     "tools_in_user_message": False, "keep_cot": True, "preserve_thinking": True, "add_vision_id": True},
]


def conversation_cases():
    """All of the conversations, with and without tools and flags, and with each ending."""
    for name, messages in CONVERSATIONS.items():
        for tools in (None, TOOLS):
            for i, kwargs in enumerate(KWARGS):
                yield {"conversation": name, "messages": messages, "tools": tools, "kwargs": kwargs, "kwargs_index": i,
                       "ending": "prompt"}
        for ending in ("complete", "continue"):
            yield {"conversation": name, "messages": messages, "tools": None, "kwargs": {}, "kwargs_index": 0,
                   "ending": ending}


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 11, 29, 12, 34, 56)


chat_template_utils.datetime = FixedTime


class FrozenDict(dict):
    """A dict of the request."""


class FrozenList(list):
    """A list of the request."""


def frozen(value):
    if isinstance(value, dict):
        return FrozenDict((key, frozen(item)) for key, item in value.items())
    return FrozenList(frozen(item) for item in value) if isinstance(value, list) else value


def is_safe_attribute(self, obj, attr, value):
    """As the immutable sandbox for values of the request; a template may change what it made itself (Kimi K2 appends)."""
    if not jinja2.sandbox.SandboxedEnvironment.is_safe_attribute(self, obj, attr, value):
        return False
    return not (isinstance(obj, (FrozenDict, FrozenList)) and jinja2.sandbox.modifies_known_mutable(obj, attr))


class FreezingTemplate:
    """A compiled template that gets the request's values frozen."""

    def __init__(self, template):
        self.template = template

    def render(self, **variables):
        return self.template.render(**{name: frozen(value) for name, value in variables.items()})


def render_with(case, allow_changes):
    original = jinja2.sandbox.ImmutableSandboxedEnvironment
    messages = [{k: v for k, v in m.items() if v is not None} for m in copy.deepcopy(case["messages"])]
    safe = original.is_safe_attribute
    compiled = chat_template_utils._compile_jinja_template
    if allow_changes:
        original.is_safe_attribute = is_safe_attribute
        chat_template_utils._compile_jinja_template = lambda source: FreezingTemplate(compiled(source))
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            [messages], tools=copy.deepcopy(case["tools"]), documents=copy.deepcopy(case.get("documents")),
            chat_template=case["template"], continue_final_message=case["ending"] == "continue",
            add_generation_prompt=case["ending"] == "prompt", bos_token="<BOS>", eos_token="<EOS>",
            **copy.deepcopy(case["kwargs"]))
        return texts[0]
    finally:
        original.is_safe_attribute = safe
        chat_template_utils._compile_jinja_template = compiled


def render(case):
    try:
        try:
            return {"text": render_with(case, False)}
        except jinja2.exceptions.SecurityError:
            return {"text": render_with(case, True)}
    except Exception as e:  # whatever the template or Python object to
        return {"error": f"{type(e).__name__}: {e}"[:200]}


def fnv1a(text):
    h = 0xCBF29CE484222325
    for byte in text.encode("utf-8"):
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return f"{(h >> 32) ^ (h & 0xFFFFFFFF):08x}"


def as_inputs(messages):
    """Messages as a server gets them: role, content if it is a string, and the rest as JSON."""
    result = []
    for message in messages:
        plain = {k: v for k, v in message.items() if k == "role" or (k == "content" and isinstance(v, str))}
        rest = {k: v for k, v in message.items() if k not in plain}
        result.append({**plain, **({"extra": json.dumps(rest)} if rest else {})})
    return result


# Small templates, one or more for each feature and rule. All see the same conversation and variables.
FEATURE_MESSAGES = [
    {"role": "system", "content": "You are <b>helpful</b> & 'kind'."},
    {"role": "user", "content": "  Grüße 😀\n", "name": None},
    {"role": "assistant", "content": None, "reasoning": "because", "tool_calls": [call({"z": 1, "a": [1.5, None, True]})]},
    {"role": "tool", "content": [{"type": "text", "text": "sunny"}], "items": "key", "weight": 3},
]
FEATURE_KWARGS = {
    "s": "hello World", "n": 7, "f": 2.5, "yes": True, "no": False, "nothing": None, "l": [3, 1, 2], "e": [], "es": "",
    "words": ["b", "A", "c", "B"], "d": {"b": 1, "a": {"x": [10, 20]}, "C": 3}, "t": "a,b,,c", "ws": "\t a  b\u00a0c \u200b\n",
    "rows": [{"k": "x", "v": 2}, {"k": "y", "v": 1}, {"k": "x"}], "u": "Straße ΟΔΟΣ ŉ", "html": "<a href='x'>&\"</a>",
    "lines": "one\n two\n\nthree\r\nfour", "big": 123456789012345678901234567890, "floats": [0.1, 1.0, -0.0, 1e20, 1e-7, 1e16, 123456.789, 1e15],
    "control": "a\u0001\u007f\u2028\"\\/\t\b\f\n<|im_end|>", "quote": "it's", "quotes": "it's \"x\"", "nested": [["a", 1], ["b", 2]],
}
FEATURES = {
    # Whitespace control
    "trim_blocks": "a\n{% if true %}\nb\n{% endif %}\nc\n",
    "lstrip_blocks": "a\n   {% if true %}  b{% endif %}\n\t{# c #}\nd {% if true %}e{% endif %}",
    "lstrip_first_line": "  {% if true %}x{% endif %}",
    "lstrip_off": "a\n   {%+ if true %}b{% endif %}",
    "trim_off": "{% if true +%}\nb{% endif %}",
    "minus": "a \n {%- if true -%} \n b \n {%- endif -%} \n c",
    "minus_print": "a \n {{- 'x' -}} \n b",
    "print_keeps_newline": "{{ 'x' }}\nb\n   {{ 'y' }}\n",
    "comment_trim": "a\n  {# x\n y #}\nb{#- z -#}  c",
    "final_newlines": "a\n\n\n",
    "crlf": "a\r\n{% if true %}\r\nb\r{% endif %}\r\nc\r\n",
    "lstrip_after_trim": "{% if true %}\n   {% if true %}x{% endif %}{% endif %}",
    "lstrip_after_print": "{{ 'a' }}   {% if true %}x{% endif %}",
    "unicode_space": "a\u00a0\u3000{%- if true %}x{% endif %}",
    "raw": "{% raw %}{{ x }} {% if %}{% endraw %}|{%- raw -%} {# y #} {%- endraw -%} z",
    "brace_text": "{ { } } {x} %} }} #}",
    # Literals
    "strings": r"""{{ 'a\n\t\\\'\"' ~ "b'\x41\u00e9\U0001F600\101\q" ~ 'x' 'y' "z" }}""",
    "numbers": "{{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1.5 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 2E+2 }}",
    "constants": "{{ true }} {{ True }} {{ false }} {{ none }} {{ None }}",
    "lists": "{{ [] }} {{ [1, 'a', none,] }} {{ (1,) }} {{ () }} {{ (1, 2) }} {{ 1, 2 }}",
    "dicts": "{{ {} }} {{ {'a': 1, 2: [true], none: 1.0,} }}",
    "nested_braces": "{{ {'a': {'b': {}}} }}",
    # Printing
    "print_values": "{{ nothing }} {{ yes }} {{ n }} {{ f }} {{ l }} {{ d }} {{ missing }} {{ es }} {{ big }}",
    "print_floats": "{{ floats }}",
    "print_quotes": "{{ [quote, quotes, control, 'a\\\\b'] }}",
    "print_views": "{{ d.items() }} {{ d.keys() }} {{ d.values() }} {{ d.items() | list }}",
    "print_namespace_attribute": "{% set ns = namespace(a=1, b='x') %}{{ ns.a }}{{ ns.b }}{{ ns.c }}",
    # Operators
    "arithmetic": "{{ 1 + 2 * 3 - 4 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }}",
    "float_arithmetic": "{{ 1.5 + 1 }} {{ 0.1 + 0.2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 6 / 3 }} {{ 1.0 * 3 }}",
    "bool_arithmetic": "{{ true + true }} {{ true * 3 }} {{ -true }}",
    "unary": "{{ -n }} {{ +n }} {{ - -n }} {{ -n | string }} {{ not yes }} {{ not not n }}",
    "text_plus": "{{ 'a' + s + 'b' }} {{ [1] + l }} {{ (1,) + (2,) }}",
    "repeat": "{{ 'ab' * 3 }} {{ 2 * 'x' }} {{ [0] * 2 }} {{ 'x' * -1 }}|",
    "concat": "{{ 'a' ~ 1 ~ none ~ true ~ 1.0 ~ missing ~ [1] }}",
    "concat_precedence": "{{ '1' ~ 2 + '3' }} {{ 2 * 3 ~ 4 }}",
    "and_or": "{{ '' or 'x' }} {{ 'a' and 'b' }} {{ 0 or none }} {{ [] and 1 }} {{ missing or 5 }} {{ not '' and 3 }}",
    "comparison": "{{ 1 < 2 }} {{ 2 <= 2 }} {{ 3 > 4 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 1 == true }} {{ 'a' != 'b' }}",
    "equality": "{{ missing == none }} {{ missing == missing2 }} {{ none == none }} {{ l == [3, 1, 2] }} {{ d == {'a': {'x': [10, 20]}, 'C': 3, 'b': 1} }} {{ (1,) == [1] }} {{ '1' == 1 }}",
    "membership": "{{ 1 in l }} {{ 9 not in l }} {{ 'ell' in s }} {{ 'b' in d }} {{ 1 in d }} {{ '' in s }} {{ 1 in missing }} {{ 1 in (1, 2) }} {{ true in [1] }} {{ 'x' in {'x': 1}.keys() }}",
    "conditional": "{{ 'a' if yes else 'b' }} {{ 'a' if no else 'b' }} [{{ 'a' if no }}] {{ 1 if no else 2 if no else 3 }} {{ (1 if no) is defined }}",
    "precedence": "{{ 1 + 2 == 3 and not 4 == 5 or false }} {{ 'a' ~ 'b' == 'ab' }} {{ not 1 in [2] }} {{ -1 | abs }} {{ 2 + 3 | string | length }}",
    # Subscripts
    "attribute_and_item": "{{ d.b }} {{ d['b'] }} {{ d.a.x[1] }} {{ d['a']['x'][-1] }} {{ l[0] }} {{ l.0 }} {{ l[99] }} {{ s[0] }} {{ s[-1] }} {{ u[4] }} [{{ s[99] }}]",
    "missing_item": "{{ d.zz }} {{ d['zz'] is defined }} {{ l['x'] is defined }} {{ nothing.x is defined }} {{ n.x is defined }} {{ s.nope is defined }}",
    "slices": "{{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ s[1:3] }} {{ s[::-1] }} {{ u[3:6] }} {{ u[::2] }} {{ l[5:] }} {{ l[-2:] }} {{ s[:-20] }}| {{ (1, 2, 3)[1:] }} {{ l[none:2] }} {{ [0, 1, 2, 3, 4][4:0:-2] }} {{ s[-3:-1] }}",
    "method_or_key": "{{ messages[3]['items'] }} {{ messages[3].items is string }} {{ messages[0].items is callable }} {{ messages[0]['items'] is callable }} {{ d.get is defined }} {{ messages[3].weight }}",
    "slice_of_none": "{{ nothing[1:] }}",
    "slice_step_zero": "{{ l[::0] }}",
    # Undefined
    "undefined_uses": "[{{ missing }}] {{ missing | length }} {% for x in missing %}x{% endfor %}{{ missing is defined }} {{ missing | default('d') }} {{ missing | list }} {{ missing | join(',') }}| {{ missing | trim }}| {{ missing | string }}| {{ not missing }}",
    "undefined_attribute": "{{ missing.x }}",
    "undefined_item": "{{ missing['x'] }}",
    "undefined_call": "{{ missing() }}",
    "undefined_plus": "{{ 'a' + missing }}",
    "undefined_minus": "{{ -missing }}",
    "undefined_less": "{{ missing < 1 }}",
    "undefined_tojson": "{{ missing | tojson }}",
    "undefined_in_text": "{{ missing in 'abc' }}",
    "undefined_int": "{{ missing | int }}",
    "undefined_slice": "{{ missing[1:] }}",
    # Statements
    "if_chain": "{% if no %}a{% elif nothing %}b{% elif n > 5 %}c{% else %}d{% endif %}{% if es %}x{% else %}y{% endif %}",
    "if_tuple": "{% if 1, 2 %}t{% endif %}{% if () %}t{% else %}f{% endif %}",
    "for_loop": "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.previtem is defined }};{% endfor %}",
    "for_unpack": "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for a, b in nested %}{{ a }}{{ b }}{% endfor %}{% for (a, b), c in [((1, 2), 3)] %}{{ a + b + c }}{% endfor %}",
    "for_if": "{% for x in [1, 2, 3, 4] if x % 2 == 0 %}{{ x }}{{ loop.last }}{{ loop.length }}{% else %}none{% endfor %}",
    "for_else": "{% for x in e %}x{% else %}empty{% endfor %}{% for x in l if x > 9 %}x{% else %}none{% endfor %}",
    "for_break": "{% for x in [1, 2, 3, 4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "for_kinds": "{% for c in 'aé😀' %}{{ c }}.{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for x in range(3) %}{{ x }}{% endfor %}{% for x in 1, 2 %}{{ x }}{% endfor %}{% for x in d.values() %}{{ x }}{% endfor %}",
    "for_none": "{% for x in nothing %}{% endfor %}",
    "for_number": "{% for x in 5 %}{% endfor %}",
    "for_unpack_wrong": "{% for a, b in [[1, 2, 3]] %}{% endfor %}",
    "nested_loops": "{% for a in [1, 2] %}{% for b in [3, 4] %}{{ loop.index }}{{ a }}{{ b }} {% endfor %}{{ loop.index }}{% endfor %}",
    "set_scope": "{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 3 %}{% endif %}{{ x }}",
    "set_in_loop_again": "{% for i in [1, 2] %}[{{ y }}]{% set y = i %}{{ y }}{% endfor %}{{ y is defined }}",
    "set_unpack": "{% set a, b = 1, 'z' %}{{ a }}{{ b }}{% set (c, dd) = [2, 3] %}{{ c + dd }}",
    "set_namespace": "{% set ns = namespace(x=0, found=false) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.found }}",
    "set_attribute_of_dict": "{% set d.x = 1 %}",
    "set_block": "{% set x %}a{{ n }}{% set inner = 1 %}{% endset %}{{ x }}{{ x | length }}{{ inner is defined }}{% set y | upper | trim %} b {% endset %}{{ y }}|",
    "filter_block": "{% filter upper | replace('A', 'b') %}a{{ s }}{% endfilter %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.role }}{% set z = 1 %}{% endgeneration %}{{ z is defined }}{% endfor %}",
    "macro": "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{{ d.b }}{% endmacro %}{{ m(1) }} {{ m(1, c=5) }} {{ m(b=3, a=4) }} {{ m() }} {{ m('x') | upper }} {{ m('x') is string }}",
    "macro_recursive": "{% macro f(x) %}{{ x }}{% if x > 0 %}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "macro_sees_later_globals": "{% macro f() %}{{ later }}{% endmacro %}[{{ f() }}]{% set later = 1 %}[{{ f() }}]",
    "macro_not_loop_scope": "{% macro f() %}{{ i is defined }}{{ loop is defined }}{% endmacro %}{% for i in [1] %}{{ f() }}{% endfor %}",
    "macro_in_loop": "{% for i in [1, 2] %}{% macro f(x) %}{{ i }}{{ x }}{% if x %}{{ f(0) }}{% endif %}{% endmacro %}{{ f(7) }}{% endfor %}",
    "macro_too_many": "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}",
    "macro_unknown_keyword": "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}",
    "macro_default_order": "{% macro f(a, b=1, c=b) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(0, 5) }}",
    "call_block": "{% macro box(title) %}<{{ title }}|{{ caller() }}|{{ caller('x') if false }}>{% endmacro %}{% call box('t') %}in {{ n }}{% endcall %}",
    "call_block_arguments": "{% macro each(items) %}{% for i in items %}{{ caller(i, loop.index) }};{% endfor %}{% endmacro %}{% call(item, k=9) each(l) %}{{ item }}-{{ k }}{% endcall %}",
    "call_block_nested": "{% macro a() %}a({{ caller() }}){% endmacro %}{% macro b() %}b({{ caller() }}){% endmacro %}{% call a() %}{% call b() %}x{% endcall %}{% endcall %}",
    "call_block_scope": "{% set v = 1 %}{% macro m() %}{{ caller() }}{% endmacro %}{% for i in [5] %}{% call m() %}{{ i }}{{ v }}{% set v = 2 %}{{ v }}{% endcall %}{% endfor %}{{ v }}",
    "call_block_without_caller": "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "call_block_no_call": "{% call x %}y{% endcall %}",
    "call_missing_caller": "{% macro m() %}{{ caller is defined }}{{ caller() }}{% endmacro %}{{ m() }}",
    "caller_as_argument": "{% macro m(caller) %}{{ caller() }}{% endmacro %}{% call m() %}y{% endcall %}",
    "macro_varargs": "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}{{ m() }}",
    "macro_star": "{% macro m(a, b, c=0) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(1, **{'b': 2, 'c': 3}) }}{{ m(*[1], **{'b': 5}) }}{{ range(*[1, 4]) | list }}",
    "macro_star_twice": "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(a=1, **{'a': 2}) }}",
    "macro_name": "{% macro m(a, b=1) %}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.nope is defined }}",
    "with": "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% set c = 3 %}{{ c }}{% endwith %}{{ a }}{{ c is defined }}{% with %}{% set a = 9 %}{{ a }}{% endwith %}{{ a }}",
    "block": "{% set v = 1 %}{% block one %}[{{ v }}{{ n }}{% set w = 2 %}]{% endblock %}{{ w is defined }}{% for i in [7] %}{% block two scoped %}{{ i }}{% endblock two %}{% endfor %}",
    "block_sees_no_loop": "{% for i in [7] %}{% block two %}{{ i is defined }}{% endblock %}{% endfor %}",
    "block_twice": "{% block a %}{% endblock %}{% block a %}{% endblock %}",
    "print_statement": "{% print n, s %}|{% print 1 + 1 %}",
    "loop_recursive": "{% for x in [[1, [2, 3]], 4] recursive %}{{ loop.depth }}{{ loop.depth0 }}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{{ ',' if not loop.last }}{% endfor %}",
    "loop_not_recursive": "{% for x in [[1]] %}{{ loop(x) }}{% endfor %}",
    "loop_cycle": "{% for x in [1, 2, 3] %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}",
    "loop_cycle_empty": "{% for x in [1] %}{{ loop.cycle() }}{% endfor %}",
    "loop_in_else": "{% for x in [1] %}{% for y in [] %}{% else %}{{ loop.index }}{% endfor %}{% endfor %}",
    "cycler": "{% set c = cycler('a', 'b', 'c') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}{{ c.current }}",
    "cycler_empty": "{{ cycler() }}",
    "joiner": "{% set j = joiner('|') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}{% set k = joiner() %}{{ k() }}x{{ k() }}",
    "groupby": "{% for g, items in rows | groupby('k') %}{{ g }}={{ items | length }};{% endfor %}{% for g in rows | groupby('v', default=0) %}{{ g.grouper }}{{ g.list | length }}{{ g }}{% endfor %}",
    "long_sum": "{{ " + " + ".join(["1"] * 150) + " }}{{ " + " and ".join(["1"] * 150) + " }}{{ " + " or ".join(["0"] * 150) + " }}",
    "request_append": "{% set _ = messages.append(1) %}",
    "request_pop": "{% set _ = messages[0].pop('role') %}",
    "request_update": "{{ d.update({'z': 1}) }}",
    "request_nested": "{{ d.a.x.append(1) }}",
    "request_method_is_not_defined": "{{ l.append is defined }}{{ d.update is defined }}{{ d['pop'] is defined }}{{ l['sort'] }}|",
    "request_through_copy": "{% set q = [] + l %}{% set _ = q.append(9) %}{{ q }}{{ l }}{% set c = dict(d) %}{% set _ = c.update({'q': 1}) %}{{ c | length }}{{ d | length }}",
    "e_filter": "{{ html | e }} {{ html | e | e }} {{ html | escape + '<' }} {{ (html | e) ~ '<' }} {{ html | forceescape | forceescape }} {{ n | e }}",
    "format_filter": "{{ '%s-%05d' | format('x', 42) }} {{ '%(a)s' | format(a='b') }} {{ 'x' | format }}",
    "big_integers": "{{ big + 1 }} {{ big * big }} {{ big % 7 }} {{ big // 10 }} {{ -big }} {{ big == big }} {{ big > 5 }} {{ [big] | tojson }} {{ '%d' % big }} {{ '{:,}'.format(big) }}",
    "raise": "{{ raise_exception('no ' ~ 'way') }}",
    "raise_not_taken": "{% if no %}{{ raise_exception('x') }}{{ 1 | from_json }}{% endif %}ok",
    "unknown_filter": "{% if yes %}{{ s | from_json }}{% endif %}",
    "unknown_test": "{% if yes %}{{ s is odder }}{% endif %}",
    # Tests
    "tests_types": "{% for v in [none, true, 1, 1.5, 'x', [1], {'a': 1}, missing, (1,)] %}{{ v is defined }} {{ v is undefined }} {{ v is none }} {{ v is string }} {{ v is number }} {{ v is integer }} {{ v is float }} {{ v is boolean }} {{ v is true }} {{ v is false }} {{ v is mapping }} {{ v is iterable }} {{ v is sequence }} {{ v is callable }}\n{% endfor %}",
    "tests_views": "{{ d.items() is iterable }} {{ d.items() is sequence }} {{ (l | map('string')) is iterable }} {{ (l | map('string')) is sequence }} {{ range is callable }} {{ s.upper is callable }}",
    "tests_values": "{{ 3 is odd }} {{ 3 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(4) }} {{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 1 is gt 2 }} {{ 2 is ge(2) }} {{ 2 is le 1 }} {{ 1 is in [1, 2] }} {{ 1 is not in [1] }} {{ 'a' is lower }} {{ 'A' is upper }} {{ '1' is lower }} {{ none is sameas none }} {{ 1 is true }}",
    "tests_not": "{{ s is not none }} {{ s is not string and yes }} {{ not s is string }} {{ s is string or no }}",
    # Filters
    "tojson": "{{ d | tojson }} {{ floats | tojson }} {{ control | tojson }} {{ html | tojson }} {{ u | tojson }} {{ big | tojson }} {{ (1, none) | tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}",
    "tojson_options": "{{ d | tojson(indent=2) }} {{ d | tojson(indent=0) }} {{ {'e': [], 'o': {}, 'l': [1]} | tojson(indent=4) }} {{ u | tojson(ensure_ascii=true) }} {{ '😀' | tojson(true) }} {{ d | tojson(separators=(',', ':')) }} {{ d | tojson(sort_keys=true) }} {{ [1] | tojson(indent='\t') }} {{ [1, 2] | tojson(indent=1, separators=(', ', ' = ')) }}",
    "tojson_view": "{{ d.items() | tojson }}",
    "length": "{{ s | length }} {{ u | length }} {{ '😀' | count }} {{ l | length }} {{ d | length }} {{ missing | length }} {{ d.items() | length }}",
    "length_none": "{{ nothing | length }}",
    "length_generator": "{{ l | map('string') | length }}",
    "trim": "[{{ ws | trim }}] [{{ '\x1c\u0085\u3000a\u200b\ufeff ' | trim }}] [{{ 'xxaxx' | trim('x') }}] [{{ n | trim }}] [{{ '中a中' | trim('中') }}]",
    "default": "{{ missing | default('d') }} {{ nothing | default('d') }} {{ es | default('d', true) }} {{ 0 | default('d', boolean=true) }} {{ missing | d }}| {{ missing.x | default('d') if no }} {{ d.zz | default(1) }}",
    "join": "{{ l | join }} {{ l | join('-') }} {{ words | join(', ') }} {{ rows | join('/', attribute='k') }} {{ 'abc' | join('.') }} {{ [1, none, 'x'] | join('|') }} {{ d | join(',') }}",
    "list_and_items": "{{ 'abc' | list }} {{ d | list }} {{ d | items | list }} {% for k, v in d | items %}{{ k }}{% endfor %} {{ missing | items | list }} {{ (1, 2) | list }}",
    "items_of_list": "{{ l | items | list }}",
    "select": "{{ [0, 1, '', 'a'] | select | list }} {{ l | select('odd') | list }} {{ l | reject('equalto', 1) | list }} {{ l | select('gt', 1) | list }} {{ rows | selectattr('v') | list }} {{ rows | selectattr('k', 'equalto', 'x') | list }} {{ rows | selectattr('v', 'defined') | list }} {{ rows | rejectattr('v', 'defined') | list }} {{ nothing | select | list }}",
    "select_is_true": "{{ 'yes' if l | select('gt', 99) else 'no' }}",
    "generator_once": "{% set g = l | map('string') %}{{ g | join(',') }}|{{ g | join(',') }}",
    "map": "{{ words | map('upper') | list }} {{ rows | map(attribute='k') | join }} {{ rows | map(attribute='v', default=0) | list }} {{ nested | map(attribute=0) | list }} {{ [d] | map(attribute='a.x.1') | list }} {{ l | map('default', 5) | list }} {{ words | map('replace', 'b', 'z') | list }}",
    "sort": "{{ l | sort }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ words | sort(reverse=true) }} {{ rows | selectattr('v', 'defined') | sort(attribute='v') }} {{ rows | sort(attribute='k') | map(attribute='k') | join }} {{ nested | sort(attribute='1', reverse=true) }}",
    "sort_mixed": "{{ [1, 'a'] | sort }}",
    "dictsort": "{{ d | dictsort }} {{ d | dictsort(true) }} {{ {'x': 2, 'y': 1} | dictsort(by='value') }} {{ d | dictsort(reverse=true) }}",
    "unique": "{{ [1, 1, 2] | unique | list }} {{ words | unique | list }} {{ words | unique(case_sensitive=true) | list }} {{ rows | unique(attribute='k') | list }}",
    "extremes": "{{ l | min }} {{ l | max }} {{ words | min }} {{ e | min }}| {{ rows | selectattr('v', 'defined') | max(attribute='v') }}",
    "first_last": "{{ l | first }} {{ l | last }} {{ s | first }} {{ s | last }} {{ e | first }}| {{ e | last is defined }}",
    "reverse": "{{ s | reverse }} {{ l | reverse | list }} {{ u | reverse }}",
    "case": "{{ s | upper }} {{ u | upper }} {{ u | lower }} {{ s | capitalize }} {{ n | upper }} {{ 'İ' | lower }} {{ 'ΑΣ Σ ΣΑ' | lower }} {{ 'ﬁ' | upper }}",
    "replace": "{{ s | replace('l', 'L') }} {{ s | replace('l', 'L', 1) }} {{ 'abc' | replace('', '-') }} {{ n | replace(7, 8) }} {{ s | replace('zz', 'y') }}",
    "int_float": "{{ '42' | int }} {{ '42.9' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ ' 7 ' | int }} {{ 3.9 | int }} {{ true | int }} {{ '0x1f' | int(base=16) }} {{ '1_000' | int }} {{ none | int }} {{ '1.5' | float }} {{ 'x' | float }} {{ 2 | float }} {{ -3 | abs }}",
    "indent": "{{ lines | indent }}|{{ lines | indent(2, true) }}|{{ lines | indent(1, blank=true) }}|{{ lines | indent('> ', first=true) }}|{{ 'a\n' | indent }}|{{ '' | indent(2, true) }}|",
    "string": "{{ 1 | string }}{{ none | string }}{{ [1, 'a'] | string }}{{ (1 | string) is string }}",
    "safe": "{{ html | safe }} {{ (html | safe) ~ html }} {{ (html | safe) + html }} {{ html + ('<' | safe) }} {{ html | safe | length }}",
    # Methods
    "split": "{{ t.split(',') }} {{ t.split(',', 1) }} {{ ws.split() }} {{ 'a b c d'.split(none, 2) }} {{ t.rsplit(',', 1) }} {{ ' a b '.rsplit(maxsplit=1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'aXXbXX'.split('XX') }} {{ t.split(',')[-1] }} {{ ' a  b '.split(' ') }} {{ ' a b  c '.split(none, 1) }} {{ ' a b  c '.split(none, 0) }} {{ ' a '.rsplit(none, 0) }}",
    "split_empty": "{{ s.split('') }}",
    "strip": "[{{ ws.strip() }}] [{{ ws.lstrip() }}] [{{ ws.rstrip() }}] [{{ 'xyaxy'.strip('yx') }}] [{{ 'xyaxy'.lstrip('x') }}] [{{ '\n\na\n'.rstrip('\n') }}] [{{ 'abc'.strip(none) }}]",
    "affix": "{{ s.startswith('he') }} {{ s.endswith(('x', 'ld')) }} {{ s.startswith('') }} {{ s.removeprefix('hello ') }} {{ s.removesuffix('zz') }}",
    "affix_wrong": "{{ s.startswith(1) }}",
    "text_methods": "{{ s.upper() }} {{ s.lower() }} {{ s.capitalize() }} {{ s.replace('o', '0', 1) }} {{ '-'.join(words) }} {{ u.find('ß') }} {{ s.find('zz') }} {{ s.count('l') }} {{ '12'.isdigit() }} {{ 'a\nb\r\nc\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }}",
    "format": "{{ '{} and {}'.format(1, 'x') }} {{ '{1}{0}{{}}'.format('a', 'b') }} {{ '{x}-{y}'.format(x=none, y=[1]) }}",
    "format_too_few": "{{ '{} {}'.format(1) }}",
    "dict_methods": "{{ d.get('b') }} {{ d.get('zz') }} {{ d.get('zz', 5) }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.copy() == d }} {{ {'a': 1}.items() | list }}",
    "list_methods": "{{ l.index(1) }} {{ l.count(3) }} {{ (1, 2).index(2) }}",
    "list_changes": "{% set q = [] %}{% set _ = q.append('a') %}{% set _ = q.append('b') %}{{ q }}{{ q.pop(0) }}{{ q }}{{ q.pop() }}{{ q }}",
    "dict_changes": "{% set q = {'a': 1} %}{% set _ = q.update({'b': 2}) %}{% set _ = q.update(c=3) %}{{ q }}{{ q.pop('a') }}{{ q.pop('z', 9) }}{{ q }}",
    # Functions
    "range": "{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {{ range(2, 10, 3) | list }}",
    "range_too_long": "{{ range(100001) | list }}",
    "range_long": "{{ range(100000) | length }}",
    "dict_function": "{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }}",
    "strftime": "{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y, %H:%M:%S %A %j') }} {{ strftime_now('') }}|",
    # The conversation
    "null_keys": "{% for m in messages %}{{ m.role }} {{ 'content' in m }} {{ 'name' in m }} {{ m.content is defined }};{% endfor %}",
    "reasoning": "{% for m in messages %}{{ m.reasoning_content }} {{ m.thinking }} {{ m.reasoning }};{% endfor %}",
    "message_order": "{{ messages[2] }}{{ messages[3] | tojson }}",
    "tools_defined": "{{ tools is defined }} {{ tools is none }} {{ documents is defined }} {{ documents }} {{ add_generation_prompt }} {{ bos_token }} {{ eos_token }}",
    "arguments": "{% for c in messages[2].tool_calls %}{{ c.function.name }} {{ c.function.arguments }} {{ c.function.arguments | tojson }}{% endfor %}",
    # Syntax errors
    "open_tag": "{% if x",
    "open_if": "{% if true %}x",
    "open_string": "{{ 'x }}",
    "open_comment": "a {# b",
    "stray_end": "{% endif %}",
    "stray_else": "{% else %}",
    "bad_operator": "{{ 1 + }}",
    "bad_bracket": "{{ (1] }}",
    "bad_character": "{{ a ? b }}",
    "bad_target": "{% set none = 1 %}",
    "chained_is": "{{ 1 is string is string }}",
    "empty_print": "{{ }}",
}


def expressions():
    for value in VALUES:
        yield value
        for name in FILTERS:
            yield f"({value}) | {name}"
        for name in TESTS:
            yield f"({value}) is {name}"
        for name in METHODS:
            yield f"({value}).{name}"
    for left in OPERANDS:
        for op in BINARY:
            for right in OPERANDS:
                yield f"{left} {op} {right}" if not left.startswith("-") else f"({left}) {op} {right}"
    for text in PERCENT_FORMATS:
        for value in PERCENT_VALUES:
            yield f"'{text}' % {value}" if "**" not in value else f"'{text}' % ({value})"
    for text in BRACE_FORMATS:
        for value in BRACE_VALUES:
            yield "'{0" + text + "}'.format(" + value + ", 8)"
    yield from MORE_EXPRESSIONS


def render_expression(expression):
    """{{ expression }} as the sandbox of transformers renders it; None where it refuses."""
    case = {"template": "{{ " + expression + " }}", "messages": [], "tools": None, "kwargs": EXPRESSION_KWARGS, "ending": "prompt"}
    return render(case).get("text")


EXPRESSION_KWARGS = {"rq": [1, "a"], "rd": {"a": 1}}


def feature_cases():
    for name, template in FEATURES.items():
        yield {"name": name, "template": template}


# Conversations of each role in each place. A message is (role, pieces of its text); the words are found again in the prompt.
ROLES = {
    "system": ["system", "user"], "developer": ["developer", "user"], "user": ["user"], "answers": ["user", "assistant", "user"],
    "tool": ["user", "assistant", "tool"], "tool_then_user": ["user", "assistant", "tool", "user"],
    "late_system": ["user", "assistant", "system", "user"], "late_developer": ["user", "assistant", "developer", "user"],
    "system_and_developer": ["system", "developer", "user"], "two_systems": ["system", "system", "user"],
    "assistant_first": ["assistant", "user"], "system_alone": ["system"],
}
PIECES = [["one%d"], [" one%d ", "\ntwo%d"], ["one%d\n\n", "two%d", " three%d"]]
TRIALS = {
    "system": (["system", "user"], 0), "developer": (["developer", "user"], 0), "user": (["user"], 0),
    "assistant": (["user", "assistant", "user"], 1), "tool": (["user", "assistant", "tool"], 2),
}


def as_parts(texts):
    return [{"type": "text", "text": text} for text in texts]


def render_text(template, messages, tools=None):
    return render({"template": template, "messages": messages, "tools": tools, "kwargs": {}, "ending": "prompt"}).get("text")


def traits(template, role, tools, calls=False):
    """(shown, reads parts, needs parts, refused): what the server finds out about a role, here by looking for words."""
    roles, tried = TRIALS[role]
    messages = [{"role": r, "content": "hi"} for r in roles]
    if calls:
        messages[1]["tool_calls"] = [call({"x": 1}, "abcdefghi", "f")]
        messages[2].update(tool_call_id="abcdefghi", name="f")
    messages[tried]["content"] = "quillon"
    text = render_text(template, messages, tools)
    shown, refused = text is not None and "quillon" in text, text is None
    messages[tried]["content"] = as_parts(["quillon", "marbeth"])
    text = render_text(template, messages, tools)
    reads = text is not None and "quillon" in text and "marbeth" in text and "'type'" not in text and '"type"' not in text
    if role == "tool" and not calls and not shown and not reads:
        return traits(template, role, tools, calls=True)
    return shown or reads, reads, reads and not shown, refused and not reads


def role_outcome(template, of_role, roles, pieces):
    """The text of the prompt, None where the template refuses, or the number of a message that it leaves out."""
    messages, words = [], []
    known = not of_role["user"][3]  # else the template wants something that no trial has
    for i, role in enumerate(roles):
        if role == "system" and i == 0 and known and of_role["system"][3]:
            return i
        if role == "developer" and not of_role["developer"][0]:
            if not of_role["system"][0] and known:
                return i
            role = "system" if of_role["system"][0] else role
        texts = [piece % i for piece in pieces]
        _, reads, needs, _ = of_role[role]
        content = as_parts(texts) if needs or (reads and len(texts) > 1) else "".join(texts)
        messages.append({"role": role, "content": content})
        words.append([text.strip() for text in texts])
    text = render_text(template, messages)
    if text is None:
        return None
    unseen = [i for i, ws in enumerate(words) if not any(w in text for w in ws)]
    return unseen[0] if unseen else text


def role_outcomes(template):
    tools = TOOLS[:1] if traits(template, "user", None)[3] else None
    of_role = {role: traits(template, role, tools) for role in TRIALS}
    for roles in ROLES.values():
        for pieces in PIECES:
            outcome = role_outcome(template, of_role, roles, pieces)
            yield "error" if outcome is None else f"unseen{outcome}" if isinstance(outcome, int) else fnv1a(outcome)


def write(name, result):
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chat_templates")
    with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
        json.dump(result, f, ensure_ascii=False, indent=0, separators=(",", ":"))
        f.write("\n")


def main():
    kind, *args = sys.argv[1:] or ["help"]
    if kind == "features":
        cases = []
        for case in feature_cases():
            full = {**case, "messages": FEATURE_MESSAGES, "kwargs": FEATURE_KWARGS, "tools": None, "ending": "prompt"}
            cases.append({**case, **render(full)})
        write("features", {"messages": as_inputs(FEATURE_MESSAGES), "kwargs": json.dumps(FEATURE_KWARGS), "cases": cases})
    elif kind == "expressions":
        outcomes = [[e, render_expression(e)] for e in dict.fromkeys(expressions())]
        # A generator or method prints its address; complex numbers are not for prompts.
        outcomes = [[e, text] for e, text in outcomes if text is None or not (" at 0x" in text or text.endswith("j)"))]
        write("expressions", {"kwargs": json.dumps(EXPRESSION_KWARGS), "cases": outcomes})
    elif kind == "conversations":
        write("conversations", {
            "tools": json.dumps(TOOLS), "kwargs": [json.dumps(k) for k in KWARGS],
            "conversations": {name: as_inputs(messages) for name, messages in CONVERSATIONS.items()},
            "cases": [{"conversation": c["conversation"], "tools": c["tools"] is not None, "kwargs": c["kwargs_index"],
                       "ending": c["ending"]} for c in conversation_cases()]})
    elif kind == "gguf":
        import gguf
        field = gguf.GGUFReader(args[0]).fields["tokenizer.chat_template"]
        template = bytes(field.parts[field.data[0]]).decode("utf-8")
        write(args[1], {"template": fnv1a(template),
                        "outcomes": [render({**case, "template": template}) for case in conversation_cases()]})
    elif kind == "roles":
        result = {"roles": list(ROLES.values()), "pieces": PIECES, "templates": {}}
        for path in sorted(glob.glob(os.path.join(args[0], "*.jinja"))):
            with open(path, encoding="utf-8", newline="") as f:
                template = f.read()
            result["templates"][os.path.basename(path)] = {"template": fnv1a(template), "outcomes": " ".join(role_outcomes(template))}
        write("roles", result)
    elif kind == "folder":
        result = {}
        for path in sorted(glob.glob(os.path.join(args[0], "*.jinja"))):
            with open(path, encoding="utf-8", newline="") as f:
                template = f.read()
            outcomes = [render({**case, "template": template}) for case in conversation_cases()]
            result[os.path.basename(path)] = {
                "template": fnv1a(template),
                "outcomes": " ".join(fnv1a(o["text"]) if "text" in o else "error" for o in outcomes)}
        write(args[1], result)
    else:
        sys.exit(__doc__)


main()
