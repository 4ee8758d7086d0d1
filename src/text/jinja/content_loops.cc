#include "text/jinja/content_loops.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace quire::jinja {
namespace {

class Finder {
 public:
  explicit Finder(const Template& source) : source_(source) { collect(source.body); }

  bool run() const {
    std::vector<Symbol> message_lists;
    for (size_t i = 0; i < source_.symbols.size(); ++i) {
      if (source_.symbols[i] == "messages") message_lists.push_back(static_cast<Symbol>(i));
    }
    for (size_t done = 0; done < message_lists.size(); ++done) {
      for (const Set* set : sets_) {
        if (!is_plain(set->target) || !is_variable(*set->value, message_lists[done])) continue;
        if (!contains(message_lists, set->target.symbol)) message_lists.push_back(set->target.symbol);
      }
    }
    std::vector<Symbol> messages;
    for (const For* loop : loops_) {
      const auto is_list = [loop](Symbol list) { return is_variable(*loop->iterable, list); };
      if (is_plain(loop->target) && std::any_of(message_lists.begin(), message_lists.end(), is_list)) {
        messages.push_back(loop->target.symbol);
      }
    }
    return std::any_of(loops_.begin(), loops_.end(), [&](const For* loop) {
      return std::any_of(messages.begin(), messages.end(),
                         [loop](Symbol message) { return is_content(*loop->iterable, message); });
    });
  }

 private:
  static bool is_plain(const Target& target) { return !target.is_tuple && target.attribute.empty(); }
  static bool contains(const std::vector<Symbol>& list, Symbol symbol) {
    return std::find(list.begin(), list.end(), symbol) != list.end();
  }

  // What filters, tests and slices are applied to; null for the text of a filter block.
  static const Expression* bare(const Expression* node) {
    while (node) {
      if (node->kind == ExpressionKind::kFilter) {
        node = static_cast<const FilterCall*>(node)->input.get();
      } else if (node->kind == ExpressionKind::kTest) {
        node = static_cast<const TestCall*>(node)->input.get();
      } else if (node->kind == ExpressionKind::kSlice) {
        node = static_cast<const Slice*>(node)->object.get();
      } else {
        break;
      }
    }
    return node;
  }

  static bool is_variable(const Expression& expression, Symbol symbol) {
    const Expression* node = bare(&expression);
    return node && node->kind == ExpressionKind::kName && static_cast<const Name*>(node)->symbol == symbol;
  }

  static bool is_content(const Expression& expression, Symbol message) {
    const Expression* node = bare(&expression);
    if (node && node->kind == ExpressionKind::kAttribute) {
      const auto* access = static_cast<const Attribute*>(node);
      return access->name == "content" && is_variable(*access->object, message);
    }
    if (node && node->kind == ExpressionKind::kItem) {
      const auto* access = static_cast<const Item*>(node);
      if (access->index->kind != ExpressionKind::kConstant) return false;
      const Value& index = static_cast<const Constant&>(*access->index).value;
      return index.is_string() && index.text() == "content" && is_variable(*access->object, message);
    }
    return false;
  }

  void collect(const Body& body) {
    for (const auto& statement : body) collect(*statement);
  }

  void collect(const Statement& statement) {
    switch (statement.kind) {
      case StatementKind::kIf: {
        const auto& node = static_cast<const If&>(statement);
        for (const auto& branch : node.branches) collect(branch.second);
        return collect(node.otherwise);
      }
      case StatementKind::kFor: {
        const auto& node = static_cast<const For&>(statement);
        loops_.push_back(&node);
        collect(node.body);
        return collect(node.otherwise);
      }
      case StatementKind::kSet:
        sets_.push_back(&static_cast<const Set&>(statement));
        return;
      case StatementKind::kSetBlock:
        return collect(static_cast<const SetBlock&>(statement).body);
      case StatementKind::kMacro:
        return collect(static_cast<const Macro&>(statement).definition.body);
      case StatementKind::kCallBlock:
        return collect(static_cast<const CallBlock&>(statement).caller.body);
      case StatementKind::kFilterBlock:
        return collect(static_cast<const FilterBlock&>(statement).body);
      case StatementKind::kWith:
        return collect(static_cast<const With&>(statement).body);
      case StatementKind::kScope:
        return collect(static_cast<const ScopeBlock&>(statement).body);
      case StatementKind::kText:
      case StatementKind::kPrint:
      case StatementKind::kBreak:
      case StatementKind::kContinue:
      case StatementKind::kInclude:
        return;
    }
  }

  const Template& source_;
  std::vector<const For*> loops_;
  std::vector<const Set*> sets_;
};

}  // namespace

bool loops_over_content(const Template& source) { return Finder(source).run(); }

}  // namespace quire::jinja
