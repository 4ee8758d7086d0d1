// What a step of a rendering may cost: whatever a template does over and over, its steps run out in bounded time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "text/chat_template.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Expressions of a long text s and a list of its characters l.
constexpr const char* kExpressions[] = {
    "s | trim",
    "s | trim(c)",
    "s.strip()",
    "s.strip(c)",
    "s.lstrip(c)",
    "s.rstrip(c)",
    "s.split()",
    "s.split(none, 3)",
    "s.rsplit()",
    "s.rsplit(none, 3)",
    "s.split('~')",
    "s.rsplit('~')",
    "s.splitlines()",
    "s.partition('~')",
    "s.rpartition('~')",
    "s.rpartition('~' * 40)",
    "s.rfind('~' * 40)",
    "s.find('~')",
    "s.rfind('~')",
    "s.find('~', 5)",
    "s.count('~')",
    "s.count('')",
    "s.count(s[:1])",
    "s.startswith('~', 5)",
    "s.startswith(s)",
    "s.endswith(s)",
    "s.replace('~', 'x')",
    "s.replace(s[:1], 'x')",
    "s.replace('', '')",
    "s.replace(s[:1], '')",
    "s.join([])",
    "'~'.join(s)",
    "s.format()",
    "s.format_map({})",
    "s.removeprefix(s)",
    "s.removesuffix(s)",
    "s.removeprefix(t)",
    "s.ljust(9)",
    "s.center(200000)",
    "s.zfill(9)",
    "s.expandtabs()",
    "s.isalpha()",
    "s.isalnum()",
    "s.isdigit()",
    "s.isspace()",
    "s.isprintable()",
    "s.isascii()",
    "s.isupper()",
    "s.islower()",
    "s.istitle()",
    "s.isidentifier()",
    "s.translate({})",
    "s.translate({97: ''})",
    "s.lower()",
    "s.upper()",
    "s.title()",
    "s.capitalize()",
    "s.casefold()",
    "s.swapcase()",
    "s | upper",
    "s | lower",
    "s | capitalize",
    "s | title",
    "s | string",
    "s | safe",
    "s | replace('~', 'x')",
    "s | escape",
    "s | forceescape",
    "s | indent",
    "s | indent(2, true, true)",
    "s | truncate(9)",
    "s | truncate(99999)",
    "s | truncate(9, true)",
    "s | wordcount",
    "s | center(9)",
    "s | format",
    "s | format(1)",
    "s | urlencode",
    "[(s, s)] | urlencode",
    "s | int",
    "s | float",
    "s | length",
    "s | wordwrap",
    "s | wordwrap(1)",
    "s | tojson",
    "s | tojson(ensure_ascii=true)",
    "[s] | string",
    "s | filesizeformat",
    "{s: s} | xmlattr",
    "{'a': s} | xmlattr",
    "s | list",
    "s | reverse",
    "s | first",
    "s | last",
    "s | sort",
    "s | unique | list",
    "s | batch(3) | list",
    "s | slice(3) | list",
    "s | map('upper') | list",
    "s | select('string') | list",
    "s | groupby(0)",
    "s | join",
    "s | min",
    "s | max",
    "s is lower",
    "s is upper",
    "s is string",
    "s == t",
    "s < t",
    "s in t",
    "'~' in s",
    "s + ''",
    "s ~ t",
    "s * 1",
    "s[1:]",
    "s[::-1]",
    "s[::2]",
    "s[1]",
    "s[-1]",
    "s[99999999]",
    "s % ()",
    "'%s' % s",
    "'%r' % s",
    "'%a' % s",
    "'%.3s' % s",
    "'{}'.format(s)",
    "'{!r}'.format(s)",
    "'{!a}'.format(s)",
    "'{:>9}'.format(s)",
    "{s: 1}[t]",
    "{s: 1} | dictsort",
    "dict(a=s)",
    "[s] == [t]",
    "[s, t] | sort",
    "[s, t] | unique | list",
    "[s, s] | join(t)",
    "l | join",
    "l | sort",
    "l | unique | list",
    "l | map('upper') | list",
    "l | reverse | list",
    "l + l",
    "l * 2",
    "l[::-1]",
    "l | tojson",
    "l | string",
    "l == l",
    "l.index('~~')",
    "l.count('~')",
    "'~~' in l",
    "l | groupby(0)",
    "l | sum(start='')",
    "l | batch(3) | list",
    "l | slice(7) | list",
    "l | max",
    "l | dictsort",
    "l | first",
    "l | last",
    "l | length",
    "l | list",
    "l | select | list",
    "l | rejectattr('a') | list",
    "l | map(attribute='a') | list",
    "range(9000) | list",
    "dict(l | batch(2))",
    "d | dictsort",
    "d.items() | list",
    "d.keys() | list",
    "d | tojson",
    "d | string",
    "d.copy()",
    "d == d",
    "d['~']",
    "d.get('~')",
    "d | list",
    "d | length",
    "d | first",
    "namespace(d)",
    "dict(d)",
    "s | string == s",
    "'x' if s else 'y'",
    "s and t",
    "not s",
    "l | map(attribute=s) | list",
    "[d] | map(attribute=s) | list",
    "[d] | map(attribute=s, default=1) | list",
    "d | attr(s)",
    "d[s]",
    "d.get(s)",
    "[d] | groupby(s)",
    "[d, d] | sort(attribute=s)",
    "[d] | sum(attribute=s)",
    "[d] | selectattr(s) | list",
    "s.split(s)",
    "s is divisibleby 3",
    "s is sameas t",
    "s is in l",
    "s in d",
    "s is eq t",
    "joiner(s)()",
    "[1, 2] | tojson(separators=[s, s])",
    "d | tojson(indent=4)",
    "[1, 2] | tojson(indent=s)",
    "s | indent(s)",
    "{} | tojson(separators=[s, s])",
    "'%(a)s' % {'a': s}",
    "'{a}'.format(a=s)",
    "s.format_map({'a': s})",
    "l | select('in', s) | list",
    "l | select('in', l) | list",
    "'' | map(s) | list",
    "s[:i]",
    "s[i]",
    "l[i:i+1]",
    "l | slice(1) | list | length",
    "raise(s)",
    "s.isdecimal()",
    "s.isnumeric()",
    "cycler(s)",
    "s | attr('x')",
    "s | default(t)",
    "s | e",
    "s | sum",
    "strftime_now(s)",
    "s.encode",
    "[s, t][0]",
    "(s, t) | map('trim') | list",
    "(s,) * 9 | string",
};

// Long texts of one unit again and again, and collections of short ones.
Json variables(const std::string& unit) {
  constexpr size_t kTextBytes = 50'000;
  constexpr int kItems = 1'500;
  std::string text;
  while (text.size() < kTextBytes) text += unit;
  Json list = Json::array(), dict = Json::object();
  for (int i = 0; i < kItems; ++i) {
    list.push_back(std::to_string(i * 7919 % kItems) + unit);
    dict[std::to_string(i) + unit] = i;
  }
  return {{"s", text}, {"t", text + "b"}, {"c", unit + "0123456789ABCDEFGHIJ\n\t \u3000"}, {"l", list}, {"d", dict}};
}

// The error that rendering ends with; empty if there is none.
std::string error_of(const std::string& source, const Json& values, int64_t max_steps) {
  const Json messages = Json::array();
  ChatTemplate::Input input;
  input.messages = &messages;
  input.extra = &values;
  input.max_steps = max_steps;
  try {
    ChatTemplate(source).render(input);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(JinjaCost, EveryStepIsCheap) {
#ifdef __SANITIZE_ADDRESS__
  constexpr double kMaxSeconds = 2e-5;
#else
  constexpr double kMaxSeconds = 2e-6;
#endif
  constexpr int64_t kSteps = 5'000;
  constexpr int kTries = 3;  // other work on the machine counts for little in the best of them
  for (const char* unit : {"a", " ", "\n", "1", "\u00e9", "\xff", "{{"}) {
    const Json values = variables(unit);
    for (const char* expression : kExpressions) {
      const std::string source =
          fmt::format("{{% for i in range(99999) %}}{{% if ({}) is none %}}{{% endif %}}{{% endfor %}}", expression);
      double best = HUGE_VAL;
      for (int i = 0; i < kTries && best > kMaxSeconds; ++i) {
        const double begin = cpu_seconds();
        EXPECT_NE(error_of(source, values, kSteps), "") << expression;
        best = std::min(best, (cpu_seconds() - begin) / static_cast<double>(kSteps));
      }
      EXPECT_LT(best, kMaxSeconds) << "seconds a step of " << expression << " on " << unit;
    }
  }
}

TEST(JinjaCost, LookingAtEachCharacterCostsMoreThanCopying) {
  const std::string spaces(100'000, ' ');
  const Json values = {{"s", spaces}};
  constexpr int64_t kFew = 6'000;  // one for 16 bytes are 6,250
  for (const char* expression : {"s | trim",         "s | trim(' \t')",
                                 "s.strip()",        "s.rstrip(' ')",
                                 "s.split()",        "s.rsplit()",
                                 "s.splitlines()",   "s.isspace()",
                                 "s.istitle()",      "s.isupper()",
                                 "s.isidentifier()", "s is lower",
                                 "s | wordcount",    "s.expandtabs()",
                                 "s | int",          "s | float",
                                 "s | urlencode",    "s | upper",
                                 "s | title",        "s.casefold()",
                                 "s | wordwrap",     "[1] | map(attribute=s) | list"}) {
    const std::string source = fmt::format("{{% if {} %}}{{% endif %}}", expression);
    EXPECT_NE(error_of(source, values, kFew).find("steps"), std::string::npos) << expression;
  }
  for (const char* expression :
       {"s ~ s", "s.split('x')", "s.replace('x', 'y')", "s.find('x')", "s.zfill(9)", "'x' in s"}) {
    const std::string source = fmt::format("{{% if {} %}}{{% endif %}}", expression);
    EXPECT_EQ(error_of(source, values, kFew), "") << expression;
  }
}

}  // namespace
}  // namespace quire
