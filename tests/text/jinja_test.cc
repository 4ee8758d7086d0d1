#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/chat_template.h"
#include "text/chat_template_cases.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

std::string render(const std::string& source, const Json& context = Json::object(), const std::tm* now = nullptr) {
  static const Json kNoMessages = Json::array();
  ChatTemplate::Input input;
  input.messages = context.contains("messages") ? &context.at("messages") : &kNoMessages;
  if (context.contains("tools")) input.tools = &context.at("tools");
  input.extra = &context;
  input.add_generation_prompt = context.value("add_generation_prompt", true);
  input.now = now;
  return ChatTemplate(source).render(input);
}

// The error's message, or what was rendered in brackets.
std::string error_of(const std::string& source) {
  try {
    return "[" + render(source).substr(0, 100) + "]";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
    return error.what();
  }
}

void check_golden(const Json& data) {
  const std::tm now = clock_of(data.at("clock"));
  size_t too_large = 0;
  const Json models = read_text_data("chat_template_cases.json").at("templates");
  for (const Json& test : data.at("golden")) {
    const std::string source = test.contains("model") ? models.at(test.at("model")) : test.at("template");
    try {
      const std::string text = render(source, test.contains("context") ? test.at("context") : data.at("context"), &now);
      if (test.contains("error")) {
        ADD_FAILURE() << source << "\n  gave:   " << Json(text) << "\n  wanted " << test.at("error");
      } else {
        const std::string wanted = test.at("out");
        if (text != wanted) ADD_FAILURE() << source << "\n  gave:   " << Json(text) << "\n  wanted: " << Json(wanted);
      }
    } catch (const Error& error) {
      if (std::string_view(error.what()).find("64 bits") != std::string_view::npos) {
        ++too_large;  // Python's integers have no end
      } else if (test.contains("out")) {
        ADD_FAILURE() << source << "\n  failed: " << error.what() << "\n  wanted " << test.at("out");
      }
    }
  }
  EXPECT_LE(too_large * 50, data.at("golden").size());
}

TEST(Jinja, Golden) { check_golden(read_text_data("jinja_golden.json")); }

// Templates that tools/fuzz_jinja.py made; QUIRE_JINJA_GOLDEN names a larger file of its making.
TEST(Jinja, Random) {
  const char* const path = std::getenv("QUIRE_JINJA_GOLDEN");
  check_golden(path ? read_json(path) : read_text_data("jinja_random.json"));
}

TEST(Jinja, ErrorsNameLineAndReason) {
  EXPECT_EQ(error_of("a\n{{ x.y }}"), "chat template, line 2: 'x' is undefined");
  EXPECT_EQ(error_of("{% set d = {'a': 1} %}\n\n{{ d.zz.y }}"),
            "chat template, line 3: 'dict object' has no attribute 'zz'");
  EXPECT_EQ(error_of("{{ [1][4] + 1 }}"), "chat template, line 1: list object has no element 4");
  EXPECT_EQ(error_of("{{ ''.__class__.x }}"),
            "chat template, line 1: access to attribute '__class__' of 'str' object is unsafe.");
  EXPECT_EQ(error_of("{{ [].append(1) }}"),
            "chat template, line 1: access to attribute 'append' of 'list' object is unsafe.");
  EXPECT_EQ(error_of("a\n{% if x %}"),
            "chat template, line 2: Unexpected end of template. Jinja was looking for the following "
            "tags: 'elif' or 'else' or 'endif'.");
  EXPECT_EQ(error_of("\n{% frob %}"), "chat template, line 2: Encountered unknown tag 'frob'.");
  EXPECT_EQ(error_of("{{ 1 | frob }}"), "chat template, line 1: No filter named 'frob'.");
  EXPECT_EQ(error_of("{{ [1] | random }}"),
            "chat template, line 1: the filter 'random' is not offered to chat templates");
  EXPECT_EQ(error_of("\n{% import 'x' as x %}"),
            "chat template, line 2: the tag 'import' is not supported in chat templates");
  EXPECT_EQ(error_of("\n{% include 'x' ignore missing with context %}"),
            "chat template, line 2: other templates can't be included");
  EXPECT_EQ(error_of("{% if false %}{% include x %}{% endif %}"), "[]");
  EXPECT_NE(error_of("{% if false %}{% include 'x' ignore %}{% endif %}").find("missing"), std::string::npos);
  EXPECT_EQ(error_of("{% for x in [1] %}{% generation %}{% break %}{% endgeneration %}{% endfor %}"),
            "chat template, line 1: 'break' outside of a loop");
  EXPECT_EQ(error_of("{% macro m() %}\n{{ 1 }}{% endmacro %}\n{{ m() + 1 }}"),
            "chat template, line 3: can only concatenate str (not \"int\") to str");
  EXPECT_EQ(error_of("{{ 9223372036854775807 + 1 }}"),
            "chat template, line 1: 9223372036854775807 + 1 does not fit in 64 bits");
  EXPECT_NE(error_of("\xff").find("UTF-8"), std::string::npos);
}

std::string repeat(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(Jinja, BombsEndInAnError) {
#ifdef __SANITIZE_ADDRESS__
  constexpr double kMaxSeconds = 20;
#else
  constexpr double kMaxSeconds = 1.5;
#endif
  const auto cpu_seconds = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const std::vector<std::pair<std::string, std::string>> bombs = {
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps"},
      {"{{ 'a' * 10**9 }}", "16 MiB"},
      {"{% set s = 'x' * 16000000 %}{{ ('%(a).0s' * 1000000) % {'a': s} }}", "steps"},
      {"{% set s = 'x' * 16000000 %}{{ ('{0:.0}' * 1000000).format(s) }}", "steps"},
      {"{{ [0] * 10**9 }}", "48 MiB"},
      {"{{ [0] * 10**18 * 1 }}", "48 MiB"},
      {"{{ range(10**9) }}", "Range too big"},
      {"{% for i in range(99999) %}{{ 'abcdefghij' * 100 }}{% endfor %}", "MiB"},
      {"{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "16 MiB"},
      {"{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", "48 MiB"},
      {"{% set ns = namespace(l=[]) %}{% for i in range(99) %}{% set ns.l = ns.l + ['a' * 10000000] %}{% endfor %}",
       "48 MiB"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deeper than 64"},
      {"{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}", "deeper than 64"},
      {"{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", "deeper than 64"},
      {"{% macro a(f) %}{{ f(f) }}{% endmacro %}{{ a(a) }}", "deeper than 64"},
      {"{{ " + repeat("(", 30000) + "1", "deeper"},
      {"{{ " + repeat("(", 30000) + "1" + repeat(")", 30000) + " }}", "deeper"},
      {"{{ " + repeat("[", 30000), "deeper"},
      {"{{ " + repeat("{1:", 30000), "deeper"},
      {"{{ " + repeat("not ", 30000) + "1 }}", "deeper"},
      {"{{ " + repeat("-", 30000) + "1 }}", "deeper"},
      {"{{ 1" + repeat("+1", 30000) + " }}", "deeper"},
      {"{{ 1" + repeat("|abs", 30000) + " }}", "deeper"},
      {"{{ a" + repeat(".a", 30000) + " }}", "deeper"},
      {"{{ a" + repeat("()", 30000) + " }}", "deeper"},
      {"{{ a" + repeat("[a", 30000) + repeat("]", 30000) + " }}", "deeper"},
      {"{{ " + repeat("1 if 1 else ", 30000) + "1 }}", "deeper"},
      {"{{ 1" + repeat(" and 1", 30000) + " }}", "deeper"},
      {"{{ 1" + repeat("**1", 30000) + " }}", "deeper"},
      {repeat("{% if 1 %}", 30000), "deeper"},
      {repeat("{% for a in b %}", 30000), "deeper"},
      {"{% set " + repeat("(", 30000) + "a", "deeper"},
      {"{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
       "deeper than 64"},
      {"{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}",
       "deeper than 64"},
      {"{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "deeper than 64"},
      {"{% set ns = namespace(x=1, y=1) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% "
       "endfor %}"
       "{{ ns.x == ns.y }}",
       "deeper than 64"},
      {"{% set ns = namespace(x=[1, 1]) %}{% for i in range(30) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
       ""},
      {"{% set ns = namespace(x=[1]) %}{% for i in range(30) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x == "
       "ns.x }}",
       ""},
      {"{{ 'a'.ljust(10**12) }}", "too large"},
      {"{{ 'a'.zfill(10**12) }}", "too large"},
      {"{{ '%1000000000d' % 1 }}", "width"},
      {"{{ '{:1000000000}'.format(1) }}", "width"},
      {"{{ '%.999999999f' % 1.0 }}", "precision"},
      {"{{ 'a' | indent(10**12) }}", "larger than"},
      {"{{ [1] | tojson(indent=10**12) }}", "larger than"},
      {"{{ [1] | batch(10**12, 0) | list }}", "between"},
      {"{{ ('x' * 1000000).replace('', 'y' * 1000) }}", "16 MiB"},
      {"{{ ('x' * 1000000) | replace('x', 'y' * 1000) }}", "16 MiB"},
      {"{{ (['x' * 1000000] * 1000) | join }}", "16 MiB"},
      {"{{ ('x' * 16000000) | list }}", "48 MiB"},
      {"{{ 'x'.join('y' * 16000000) | length }}", "48 MiB"},
      {"{{ 2 ** 1000000000000 }}", "64 bits"},
      {"{% set s = 'x' * 1000000 %}{% for i in range(99999) %}{{ s[999999] if s[::2] else '' }}{% endfor %}", ""},
      {"{% set s = 'é' * 1000000 %}{% for i in range(99999) %}{% if s[i:i+1] %}{% endif %}{% endfor %}", "steps"},
      {"{% set s = 'é' * 1000000 %}{% for i in range(99999) %}{% if s[999999] %}{% endif %}{% endfor %}", "steps"},
      {"{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% if 'b' in s %}{% endif %}{% endfor %}", "steps"},
      {"{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% if s.endswith('b', 5) %}{% endif %}{% endfor %}",
       "steps"},
      {"{% set s = ' ' * 1000000 %}{% for i in range(99999) %}{% if s.strip() %}{% endif %}{% endfor %}", "steps"},
      {"{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% if s | first %}{% endif %}{% endfor %}", ""},
      {"{% set s = 'ab' * 1000000 %}{% for i in range(99999) %}{% if s.rfind('c') %}{% endif %}{% endfor %}", "steps"},
      {"{% set s = [0] * 100000 %}{% for i in range(99999) %}{% if s == s %}{% endif %}{% endfor %}", "steps"},
      {"{% set s = [0] * 100000 %}{% for i in range(99999) %}{% if s.count(1) %}{% endif %}{% endfor %}", "steps"},
      {"{% set a = 'a' * 8000000 %}{{ a ~ a ~ a }}", "16 MiB"},
      {"{% set a = 'a' * 8000000 %}{% set x %}{{ a }}{% set y %}{{ a }}{% set z %}{{ a }}{% endset %}{% endset %}{% "
       "endset %}",
       "MiB"},
      {"{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% if s.strip('b' * 100000) %}{% endif %}{% endfor %}",
       "steps"},
      {"{{ ('a' * 8000000).rfind('b' + 'a' * 4000000) }}{{ ('a' * 8000000).rsplit('b' + 'a' * 4000000) }}x", "[-1"},
      {"{{ ('a' * 8000000).find('b' + 'a' * 4000000) }}{{ 'a' * 8000000 in 'b' + 'a' * 4000000 }}", "[-1"},
      {"{% set s = 'a' * 1000000 %}{% set t = 'a' * 999999 + 'b' %}{{ t in [s] * 99999 }}", "steps"},
      {"{% set d = {'a' * 1000000: 1} %}{% set k = 'a' * 999999 + 'b' %}{% for i in range(99999) %}{{ d[k] }}{% endfor "
       "%}",
       "steps"},
      {"{{ ('a ' * 2000000).split() }}", "parts"},
      {"{{ ('a,' * 800000).rsplit(',') }}", "parts"},
      {"{{ ('\n' * 2000000).splitlines() }}", "parts"},
      {"{{ [('\\0' * 8000000)] }}", "16 MiB"},
      {"{{ ('\\0' * 8000000) | tojson }}", "16 MiB"},
      {"{{ strftime_now('%A' * 10000) }}", "longer than"},
  };
  double slowest = 0;
  for (const auto& [source, reason] : bombs) {
    const double start = cpu_seconds();
    const std::string message = error_of(source);
    const double took = cpu_seconds() - start;
    EXPECT_LT(took, kMaxSeconds) << source.substr(0, 200);
    slowest = std::max(slowest, took);
    if (reason.empty()) continue;  // either way, as long as it ends
    EXPECT_NE(message.find(reason), std::string::npos) << source.substr(0, 200) << "\n  gave: " << message;
  }
  RecordProperty("slowest", std::to_string(slowest) + " s");
}

TEST(Jinja, RareFormats) {
  EXPECT_EQ(render("{{ '%-3.0c|' % 65 }}{{ '%.0c' % 'b' }}"), "A  |b");
  EXPECT_EQ(render("{{ '{:#_.0G}'.format(0.0) }} {{ '{:#.3g}'.format(0.0) }}"), "0. 0.00");
}

TEST(Jinja, DeepInputIsRefused) {
  Json deep = 1;
  for (int i = 0; i < 100; ++i) deep = Json::array({deep});
  Json context = {{"deep", deep}};
  EXPECT_THROW(render("{{ deep | length }}", context), Error);
  EXPECT_EQ(render("{{ 'aa'.ljust(-9223372036854775807 - 1) ~ '1'.zfill(-9223372036854775807 - 1) }}", context), "aa1");
  EXPECT_EQ(render("{{ other }}x", context), "x");  // what the template does not mention costs nothing
}

TEST(Jinja, CyclesAreFreed) {  // the leak checker sees to it
  EXPECT_EQ(render("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}"
                   "{% macro m() %}{{ m }}{% endmacro %}{% set a.m = m %}x"),
            "x");
}

TEST(Jinja, BrokenUtf8InTheInputIsHarmless) {
  const Json context = {{"s", "a\xff\xe4\xb8z\xf0\x9f"}};
  EXPECT_NO_THROW(
      render("{{ s | length }}{{ s[::-1] }}{{ s | upper }}{{ [s] }}{{ s[1] }}{{ s | tojson }}{{ s.strip('z') }}"
             "{{ s | list }}{{ s.split() }}{{ s.rsplit() }}{{ s | title }}{{ s.lower() }}",
             context));
}

}  // namespace
}  // namespace quire
