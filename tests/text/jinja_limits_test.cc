// Hostile templates and hostile data end with a sentence, not with a crash, and soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/text/jinja/json.h"
#include "engine/text/jinja/lexer.h"
#include "engine/text/jinja/template.h"

namespace sluice::jinja {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  absl::Status status;
  std::string text;
  int64_t steps = 0;
  size_t built_bytes = 0;
};

Outcome RunTemplate(absl::string_view source, const Limits& limits = {}) {
  auto parsed = Template::Parse(source, limits);
  if (!parsed.ok()) return {parsed.status(), ""};
  Budget budget(limits);
  Heap heap(budget);
  auto text = parsed->Render({}, absl::CivilSecond(), heap);
  return {text.status(), text.ok() ? text->bytes : "", budget.steps(), budget.built_bytes()};
}

std::string Repeat(absl::string_view part, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) absl::StrAppend(&all, part);
  return all;
}

void ExpectStatus(const Outcome& outcome, absl::StatusCode code, absl::string_view words) {
  EXPECT_EQ(outcome.status.code(), code) << outcome.status;
  EXPECT_THAT(std::string(outcome.status.message()), HasSubstr(std::string(words)));
}

// ---- syntax errors say where

TEST(SyntaxErrors, NameLineAndColumn) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\n  {{ 1 + }}", "line 2, column 10: expected an expression, found '}}'"},
      {"{{ a b }}", "line 1, column 6: expected '}}', found 'b'"},
      {"\n\n{% if x %}", "line 3, column 11: this block has no 'endif'"},
      {"x{% endfor %}", "line 1, column 5: the statement 'endfor' is not supported"},
      {"{% autoescape true %}x{% endautoescape %}", "the statement 'autoescape' is not supported"},
      {"{% call x %}{% endcall %}", "line 1, column 9: expected a call"},
      {"{% block a %}{% endblock %}{% block a %}{% endblock %}", "there are two blocks 'a'"},
      {"{% include 'x' %}", "the statement 'include' is not supported"},
      {"é{{ 'x }}", "line 1, column 6: this string has no end"},
      {"{{ [1, 2 }}", "line 1, column 10: unexpected '}', expected ']'"},
      {"{{ a ? b }}", "line 1, column 6: unexpected character '?'"},
      {"{# x", "line 1, column 1: this comment has no end"},
      {"{% raw %}x", "line 1, column 1: this raw block has no endraw"},
      {"{% break %}", "'break' outside of a loop"},
      {"{% for i in x %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "'break' outside of a loop"},
      {"{{ '\\ud800' }}", "this escape names no character"},
      {"{{ '\\xZZ' }}", "wants 2 hexadecimal digits"},
      {"{{ f(a=1, 2) }}", "a positional argument follows"},
      {"{{ f(*a, *b) }}", "an argument with a star stands in the wrong place"},
      {"{{ f(**a, b=1) }}", "an argument follows one with two stars"},
      {"{{", "this tag has no '}}'"},
      {"\xff", "not UTF-8 at byte 0"},
  };
  for (const auto& [source, words] : cases)
    ExpectStatus(RunTemplate(source), absl::StatusCode::kInvalidArgument, words);
}

// ---- nesting

TEST(Nesting, DeepSourceIsRefusedWhateverNests) {
  const int n = 50'000;
  const std::string sources[] = {
      "{{ " + Repeat("(", n) + "1" + Repeat(")", n) + " }}",
      "{{ " + Repeat("[", n) + Repeat("]", n) + " }}",
      "{{ " + Repeat("{1:", n) + "1" + Repeat("}", n) + " }}",
      "{{ " + Repeat("- ", n) + "1 }}",
      "{{ " + Repeat("not ", n) + "1 }}",
      "{{ 1" + Repeat(" if 1", n) + " }}",
      "{{ " + Repeat("1 if 1 else ", n) + "1 }}",
      Repeat("{% call a() %}", n) + Repeat("{% endcall %}", n),
      Repeat("{% with %}", n) + Repeat("{% endwith %}", n),
      "{{ a" + Repeat(".b", n) + " }}",
      "{{ a" + Repeat("[0]", n) + " }}",
      "{{ a" + Repeat("()", n) + " }}",
      "{{ a" + Repeat("|trim", n) + " }}",
      "{{ a is defined" + Repeat("(a", n) + Repeat(")", n) + " }}",
      "{{ " + Repeat("a[", n) + "0" + Repeat("]", n) + " }}",
      Repeat("{% if 1 %}", n) + Repeat("{% endif %}", n),
      Repeat("{% for x in y %}", n) + Repeat("{% endfor %}", n),
      Repeat("{% macro m() %}", n) + Repeat("{% endmacro %}", n),
      "{% set " + Repeat("(", n) + "a" + Repeat(")", n) + " = 1 %}",
  };
  Limits limits;
  limits.max_source_bytes = 1 << 24;
  for (const std::string& source : sources) {
    ExpectStatus(RunTemplate(source, limits), absl::StatusCode::kInvalidArgument, "nested deeper than 200 levels");
  }
}

TEST(Nesting, FlatButLongSourcesAreFine) {
  const int n = 20'000;
  EXPECT_EQ(RunTemplate("{{ 1" + Repeat(" ~ 1", n) + " }}").text.size(), size_t{n} + 1);
  EXPECT_EQ(RunTemplate("{{ 1" + Repeat(" + 1", n) + " }}").text, absl::StrCat(n + 1));
  EXPECT_EQ(RunTemplate("{{ 1" + Repeat(" * 1 - 0", n) + " }}").text, "1");
  EXPECT_EQ(RunTemplate("{{ 1" + Repeat(" and 2", n) + " }}").text, "2");
  EXPECT_EQ(RunTemplate("{{ 0" + Repeat(" or 0", n) + " or 3 }}").text, "3");
  EXPECT_EQ(RunTemplate("{{ 'a'" + Repeat(" + 'a'", 300) + " }}").text, Repeat("a", 301));
  EXPECT_EQ(RunTemplate("{{ [0" + Repeat(", 0", n) + "] | length }}").text, absl::StrCat(n + 1));
  EXPECT_EQ(RunTemplate("{% if 0 %}" + Repeat("{% elif 0 %}", n) + "{% else %}x{% endif %}").text, "x");
  EXPECT_EQ(RunTemplate("{{ '" + Repeat("a' '", n) + "' | length }}").text, absl::StrCat(n));
}

TEST(Nesting, SourceThatIsTooLongIsRefused) {
  ExpectStatus(RunTemplate(std::string((1 << 20) + 1, 'x')), absl::StatusCode::kResourceExhausted,
               "the limit is 1048576");
}

TEST(Nesting, RecursionEnds) {
  for (const char* source : {
           "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
           "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
           "{% macro f(a=f()) %}{% endmacro %}{{ f() }}",
           "{% macro f() %}{% for x in [1] %}{% if f() %}{% endif %}{% endfor %}{% endmacro %}{{ f() }}",
           "{% set ns = namespace(l=[1]) %}{% for x in ns.l recursive %}{{ loop(ns.l) }}{% endfor %}",
           "{% macro f() %}{% call f() %}{% endcall %}{{ caller() }}{% endmacro %}{% call f() %}{% endcall %}",
           "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{% call f() %}{% endcall %}",
       }) {
    ExpectStatus(RunTemplate(source), absl::StatusCode::kResourceExhausted, "nests deeper than 1000 levels");
  }
  const std::string many_maps = "{{ 'a' | map(" + Repeat("'map', ", 5'000) + "'upper') | list }}";
  ExpectStatus(RunTemplate(many_maps), absl::StatusCode::kResourceExhausted, "nests deeper");
}

TEST(Nesting, ValuesThatContainThemselvesCannotBePrintedOrCompared) {
  const std::string self = "{% set a = [] %}{% set _ = a.append(a) %}{% set b = [] %}{% set _ = b.append(b) %}";
  for (const char* use : {"{{ a }}", "{{ a | tojson }}", "{{ a == b }}", "{{ a < b }}", "{{ b in a }}"}) {
    ExpectStatus(RunTemplate(self + use), absl::StatusCode::kResourceExhausted, "nests deeper");
  }
  ExpectStatus(RunTemplate("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}"),
               absl::StatusCode::kResourceExhausted, "nests");
  EXPECT_EQ(RunTemplate(self + "{{ a | length }}{{ a == a }}").text, "1True");
}

TEST(Nesting, DeepValuesAreBuiltAndFreedWithoutRecursion) {
  const Outcome outcome = RunTemplate(
      "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | "
      "length }}");
  EXPECT_EQ(outcome.text, "1") << outcome.status;
}

// ---- work and memory

TEST(Budget, LoopsEnd) {
  ExpectStatus(RunTemplate("{% set r = range(100000) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}"),
               absl::StatusCode::kResourceExhausted, "takes more than 10000000 steps");
  ExpectStatus(RunTemplate("{% set l = [1] %}{% for x in l %}{% set _ = l.append(1) %}{% endfor %}"),
               absl::StatusCode::kResourceExhausted, "the chat template");
}

TEST(Budget, DoublingEnds) {
  Limits limits;
  limits.max_built_bytes = 1 << 22;
  const std::string loop = "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(100) %}";
  for (const char* step :
       {"{% set ns.x = ns.x ~ ns.x %}", "{% set ns.x = ns.x + ns.x %}", "{% set ns.x = ns.x * 2 %}",
        "{% set ns.x = ns.x | replace('a', 'aa') %}", "{% set ns.x = [ns.x, ns.x] | join %}",
        "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}", "{% set ns.x = '{0}{0}'.format(ns.x) %}"}) {
    const Outcome outcome = RunTemplate(loop + step + "{% endfor %}", limits);
    ExpectStatus(outcome, absl::StatusCode::kResourceExhausted, "the chat template");
    EXPECT_LE(outcome.built_bytes, limits.max_built_bytes);
  }
  ExpectStatus(
      RunTemplate("{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"),
      absl::StatusCode::kResourceExhausted, "the chat template");
  ExpectStatus(
      RunTemplate(
          "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}"),
      absl::StatusCode::kResourceExhausted, "the chat template");
}

TEST(Budget, HugeNumbersMakeNothingHuge) {
  for (const char* source :
       {"{{ 'x' * 9223372036854775807 }}", "{{ [0] * 9223372036854775807 }}",
        "{{ 'x' | indent(9223372036854775807, true) }}", "{{ [1] | tojson(indent=9223372036854775807) }}"}) {
    ExpectStatus(RunTemplate(source), absl::StatusCode::kResourceExhausted, "the chat template");
  }
  ExpectStatus(RunTemplate("{{ range(9223372036854775807) }}"), absl::StatusCode::kResourceExhausted,
               "more than 100000 items");
  ExpectStatus(RunTemplate("{{ range(-9223372036854775807, 9223372036854775807, 1) }}"),
               absl::StatusCode::kResourceExhausted, "range");
  EXPECT_EQ(RunTemplate("{{ '' * 9223372036854775807 }}{{ [] * 9223372036854775807 }}").text, "[]");
  EXPECT_EQ(
      RunTemplate(
          "{{ 'abc'[9223372036854775807:] }}{{ 'abc'[::9223372036854775807] }}{{ [1, 2][::-9223372036854775807] }}")
          .text,
      "a[2]");
  EXPECT_EQ(
      RunTemplate("{{ 'abc'[9223372036854775807] }}{{ [1][-9223372036854775807] }}{{ 'é'[-9223372036854775807] }}")
          .text,
      "");
  EXPECT_EQ(RunTemplate("{{ (-9223372036854775807 - 1) % -1 }}").text, "0");
  for (const char* zero : {"1 / 0", "1 // 0", "1 % 0", "1.5 / 0", "1.5 % 0.0", "1 is divisibleby 0"}) {
    ExpectStatus(RunTemplate(absl::StrCat("{{ ", zero, " }}")), absl::StatusCode::kFailedPrecondition,
                 "division by zero");
  }
}

TEST(Budget, WidthsMakeNothingHuge) {
  for (const char* source :
       {"{{ '%1000000000d' % 1 }}", "{{ '%-*s' % (9223372036854775807, 'x') }}",
        "{{ '%0*d' % (9223372036854775807, 1) }}", "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:é>{w}}'.format('x', w=2000000000) }}", "{{ '{:02000000000,}'.format(1) }}",
        "{{ 'x' | center(9223372036854775807) }}", "{{ 'x'.center(9223372036854775807, '😀') }}",
        "{{ 'x'.ljust(9223372036854775807) }}", "{{ 'x'.zfill(9223372036854775807) }}",
        "{{ '\t'.expandtabs(9223372036854775807) }}", "{{ [1] | batch(1000000000, 0) | list }}",
        "{{ [1] | slice(9223372036854775807) | list }}", "{{ ('\t' * 100000).expandtabs(100000) }}"}) {
    const Outcome outcome = RunTemplate(source);
    EXPECT_EQ(outcome.status.code(), absl::StatusCode::kResourceExhausted) << source << outcome.status;
    EXPECT_LE(outcome.built_bytes, Limits().max_built_bytes);
  }
  for (const char* source : {"{{ '%99999999999d' % 1 }}", "{{ '{:99999999999}'.format(1) }}", "{{ '%.2000f' % 1.5 }}",
                             "{{ '{:.2000f}'.format(1.5) }}", "{{ '%.100000d' % 1 }}"}) {
    EXPECT_EQ(RunTemplate(source).status.code(), absl::StatusCode::kFailedPrecondition) << source;
  }
}

TEST(Budget, IntegersStayBelowTheDigitsThatPythonPrints) {
  EXPECT_EQ(RunTemplate("{{ 10 ** 4299 }}").text.size(), 4300u);
  for (const char* source :
       {"{{ 10 ** 4300 }}", "{{ 2 ** 9223372036854775807 }}", "{{ 2 ** (2 ** 70) }}",
        "{% set ns = namespace(x=3) %}{% for i in range(100) %}{% set ns.x = ns.x * ns.x %}{% endfor %}"}) {
    ExpectStatus(RunTemplate(source), absl::StatusCode::kFailedPrecondition, "more than 4300 digits");
  }
  ExpectStatus(RunTemplate("{{ " + std::string(4301, '9') + " }}"), absl::StatusCode::kInvalidArgument,
               "more than 4300 digits");
  EXPECT_EQ(RunTemplate("{{ 0 ** (2 ** 70) }}{{ 1 ** (2 ** 70) }}{{ (-1) ** (2 ** 70 + 1) }}").text, "01-1");
  Limits limits;
  limits.max_steps = 1'000'000;
  ExpectStatus(
      RunTemplate("{% set a = 3 ** 9000 %}{% for i in range(100000) %}{% set b = a // 7 * 3 %}{% endfor %}", limits),
      absl::StatusCode::kResourceExhausted, "the chat template");
}

TEST(Budget, OutputIsLimited) {
  Limits limits;
  limits.max_output_bytes = 1000;
  ExpectStatus(RunTemplate("{% for i in range(1001) %}x{% endfor %}", limits), absl::StatusCode::kResourceExhausted,
               "renders more than 1000 bytes");
  EXPECT_EQ(RunTemplate("{% for i in range(1000) %}x{% endfor %}", limits).text.size(), 1000u);
}

// Scanning long strings again and again must cost steps: 100,000 comparisons of 1 MB would be 100 GB of memory traffic.
TEST(Budget, RepeatedScansOfLongStringsEnd) {
  Limits limits;
  limits.max_steps = 1'000'000;
  const std::string two_long =
      "{% set a = 'x' * 1000000 %}{% set b = ('x' * 999999) ~ 'y' %}{% for i in range(100000) %}";
  for (const char* use :
       {"{% if a == b %}{% endif %}", "{% if 'y' in a %}{% endif %}", "{% if a < b %}{% endif %}",
        "{% if a | length %}{% endif %}{% if a.startswith(b) %}{% endif %}", "{% if a.find('y') %}{% endif %}",
        "{% if a.split('y') %}{% endif %}", "{% if a.count('y') %}{% endif %}", "{% if a | trim('x') %}{% endif %}",
        "{% if a is lower %}{% endif %}", "{% if '%s' % a %}{% endif %}", "{% if a | e %}{% endif %}",
        "{% if a | title %}{% endif %}", "{% if a.isalpha() %}{% endif %}", "{% if a.rfind(b) %}{% endif %}",
        "{% if a.find('y', 999999) %}{% endif %}", "{% if a | wordcount %}{% endif %}",
        "{% if '{:.1}'.format(a) %}{% endif %}", "{% if a | urlencode %}{% endif %}",
        "{% if a.startswith('y', 999999) %}{% endif %}"}) {
    const Outcome outcome = RunTemplate(two_long + use + "{% endfor %}", limits);
    ExpectStatus(outcome, absl::StatusCode::kResourceExhausted, "the chat template");
  }
}

TEST(Budget, StepsGrowWithTheWork) {
  const auto steps = [](int n) {
    return RunTemplate(absl::StrCat("{% for i in range(", n, ") %}{{ i }}{% endfor %}")).steps;
  };
  EXPECT_NEAR(static_cast<double>(steps(20'000)) / static_cast<double>(steps(10'000)), 2.0, 0.01);
}

// ---- JSON

TEST(Json, DeepTextIsRefused) {
  Budget budget{Limits()};
  Heap heap(budget);
  for (const char* open : {"[", "{\"a\":"}) {
    const auto value = FromJson(Repeat(open, 100'000), Origin::kUser, heap);
    EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(value.status().message()),
                HasSubstr(absl::StrCat("line 1, column ", 200 * std::string(open).size() + 1,
                                       ": JSON nests deeper than 200 levels")));
  }
}

TEST(Json, BrokenTextIsRefusedWithItsPlace) {
  Budget budget{Limits()};
  Heap heap(budget);
  for (const char* text : {"", "[1,]", "{\"a\" 1}", "nul", "\"\xff\"", "[1] 2", "NaN", "1e999"}) {
    const absl::Status status = FromJson(text, Origin::kUser, heap).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("line 1, column ")) << text;
  }
  EXPECT_THAT(std::string(FromJson("[1,\n 2\n  x]", Origin::kUser, heap).status().message()),
              HasSubstr("line 3, column 3: not valid JSON"));
  // Brackets in strings are none, and those that are closed no longer count.
  const std::string flat = "[\"[\\\"[\", " + Repeat("[[]], ", 300) + Repeat("[", 200) + Repeat("]", 200) + "]";
  EXPECT_THAT(std::string(FromJson(flat, Origin::kUser, heap).status().message()),
              HasSubstr(absl::StrCat("line 1, column ", flat.find("[[[") + 200, ": JSON nests")));
}

TEST(Json, LargeTextIsPaidFor) {
  Limits limits;
  limits.max_built_bytes = 10'000;
  Budget budget(limits);
  Heap heap(budget);
  EXPECT_EQ(FromJson("[" + Repeat("0,", 5'000) + "0]", Origin::kUser, heap).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(Json, RepeatedKeysKeepFirstPlaceAndLastValue) {
  Budget budget{Limits()};
  Heap heap(budget);
  std::string json = "{\"a\": 1, \"b\": 2";
  for (int i = 0; i < 100; ++i) absl::StrAppend(&json, ", \"k", i, "\": ", i);
  const auto value = FromJson(json + ", \"a\": 3}", Origin::kUser, heap);
  ASSERT_TRUE(value.ok()) << value.status();
  const Dict& dict = value->AsDict();
  EXPECT_EQ(dict.size(), 102u);
  EXPECT_EQ(dict.entries()[0].key.AsView(), "a");
  EXPECT_EQ(dict.Find("a")->AsInt(), 3);
  EXPECT_EQ(dict.Find("k99")->AsInt(), 99);
  EXPECT_EQ(dict.Find("k100"), nullptr);
}

TEST(Json, IntegersOfAnySizeStayExact) {
  Budget budget{Limits()};
  Heap heap(budget);
  const std::string json =
      "[9223372036854775807, -9223372036854775808, 9223372036854775808, 123456789012345678901234567890]";
  const auto value = FromJson(json, Origin::kUser, heap);
  ASSERT_TRUE(value.ok());
  TextBuilder out(budget);
  JsonStyle style;
  style.item_separator.bytes = ", ";
  ASSERT_TRUE(ToJson(*value, style, heap, out).ok());
  EXPECT_EQ(std::move(out).Finish()->bytes, json);
}

}  // namespace
}  // namespace sluice::jinja
