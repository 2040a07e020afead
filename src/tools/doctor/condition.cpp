// Parser and evaluator of conditions: recursive descent into a tree of nodes, bounded in depth.
#include "tools/doctor/condition.h"

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "pyflame/base/error.h"
#include "tools/base/text.h"

namespace pyflame::tools::doctor {

namespace {

using Json = nlohmann::json;
enum class Op { always, literal, version, path, list, compare, and_, or_, not_, any, all, exists, set, on, off, count };
enum class Cmp { eq, ne, lt, le, gt, ge, in, contains, starts };

bool is_on(std::string_view value) {
  const std::string s = lower(value);
  return s == "1" || s == "true" || s == "on" || s == "yes";
}
bool is_off(std::string_view value) {
  const std::string s = lower(value);
  return s == "0" || s == "false" || s == "off" || s == "no";
}

std::optional<double> number(const Json& v) {
  if (v.is_number()) return v.get<double>();
  if (!v.is_string()) return std::nullopt;
  const std::string& s = v.get_ref<const std::string&>();
  if (s.empty() || std::isspace(static_cast<unsigned char>(s[0]))) return std::nullopt;
  char* end = nullptr;
  const double d = std::strtod(s.c_str(), &end);
  return end == s.c_str() + s.size() ? std::optional(d) : std::nullopt;
}

std::string as_text(const Json& v) { return v.is_string() ? v.get<std::string>() : v.dump(); }

}  // namespace

struct Condition::Node {
  Op op = Op::always;
  Cmp cmp = Cmp::eq;
  Json value;        // the value of a literal
  std::string path;  // the name in a path, list iteration, exists, set or count
  std::vector<Node> children;
};

namespace {

using Node = Condition::Node;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Node parse() {
    Node n = disjunction();
    skip();
    if (at_ != text_.size()) wrong("there is text after its end");
    return n;
  }

 private:
  [[noreturn]] void wrong(std::string_view what) const {
    PF_FAIL(Value, "condition: {}; got '{}'; at column {}", what, text_, at_ + 1);
  }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  static bool word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }
  std::string_view peek_word() {
    skip();
    size_t end = at_;
    while (end < text_.size() && word_char(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }
  bool take_word(std::string_view word) {
    if (peek_word() != word) return false;
    at_ += word.size();
    return true;
  }
  bool take(std::string_view symbol) {
    skip();
    if (text_.substr(at_, symbol.size()) != symbol) return false;
    at_ += symbol.size();
    return true;
  }
  void expect(std::string_view symbol) {
    if (!take(symbol)) wrong(fmt::format("'{}' is missing", symbol));
  }

  Node joined(Op op, std::string_view word, Node (Parser::*next)()) {
    Node first = (this->*next)();
    if (peek_word() != word) return first;
    Node n;
    n.op = op;
    n.children.push_back(std::move(first));
    while (take_word(word)) n.children.push_back((this->*next)());
    return n;
  }
  Node disjunction() { return joined(Op::or_, "or", &Parser::conjunction); }
  Node conjunction() { return joined(Op::and_, "and", &Parser::negation); }
  Node negation() {
    if (++depth_ > 50) wrong("nested too deeply");
    Node n;
    if (take_word("not")) {
      n.op = Op::not_;
      n.children.push_back(negation());
    } else {
      n = primary();
    }
    --depth_;
    return n;
  }

  std::string path_in_brackets() {
    expect("(");
    std::string path(peek_word());
    if (path.empty()) wrong("a name is missing");
    at_ += path.size();
    expect(")");
    return path;
  }

  Node primary() {
    Node n;
    if (take("(")) {
      n = disjunction();
      expect(")");
      return n;
    }
    for (const auto& [word, op] : {std::pair{"any", Op::any}, {"all", Op::all}})
      if (take_word(word)) {
        n.op = op;
        n.path = std::string(peek_word());
        if (n.path.empty()) wrong("the list is missing");
        at_ += n.path.size();
        expect("(");
        n.children.push_back(disjunction());
        expect(")");
        return n;
      }
    for (const auto& [word, op] : {std::pair{"exists", Op::exists}, {"set", Op::set}, {"on", Op::on}, {"off", Op::off}})
      if (take_word(word)) {
        n.op = op;
        n.path = path_in_brackets();
        return n;
      }
    return comparison();
  }

  Node comparison() {
    Node left = operand();
    static constexpr std::pair<std::string_view, Cmp> kSymbols[] = {{"==", Cmp::eq}, {"!=", Cmp::ne}, {"<=", Cmp::le},
                                                                    {">=", Cmp::ge}, {"<", Cmp::lt},  {">", Cmp::gt}};
    static constexpr std::pair<std::string_view, Cmp> kWords[] = {
        {"in", Cmp::in}, {"contains", Cmp::contains}, {"startswith", Cmp::starts}};
    std::optional<Cmp> cmp;
    for (const auto& [symbol, c] : kSymbols)
      if (!cmp && take(symbol)) cmp = c;
    for (const auto& [word, c] : kWords)
      if (!cmp && take_word(word)) cmp = c;
    if (!cmp) {  // the fact itself is true or false
      if (left.op != Op::path) wrong("a comparison is missing");
      Node yes;
      yes.op = Op::literal;
      yes.value = true;
      cmp = Cmp::eq;
      Node n;
      n.op = Op::compare;
      n.cmp = *cmp;
      n.children.push_back(std::move(left));
      n.children.push_back(std::move(yes));
      return n;
    }
    Node n;
    n.op = Op::compare;
    n.cmp = *cmp;
    n.children.push_back(std::move(left));
    n.children.push_back(operand());
    return n;
  }

  Node operand() {
    Node n;
    skip();
    if (at_ >= text_.size()) wrong("a value is missing");
    const char c = text_[at_];
    if (c == '\'') {
      const size_t end = text_.find('\'', at_ + 1);
      if (end == std::string_view::npos) wrong("a quote is not closed");
      n.op = Op::literal;
      n.value = std::string(text_.substr(at_ + 1, end - at_ - 1));
      at_ = end + 1;
      return n;
    }
    if (take("[")) {
      n.op = Op::list;
      while (!take("]")) {
        n.children.push_back(operand());
        if (!take(",") && text_.substr(at_, 1) != "]") wrong("a list is not closed");
      }
      return n;
    }
    const bool minus = c == '-';
    if (minus) ++at_;
    const std::string word(peek_word());
    if (word.empty()) wrong("a value is missing");
    at_ += word.size();
    if (std::isdigit(static_cast<unsigned char>(word[0]))) {
      n.op = Op::literal;
      char* end = nullptr;
      n.value = std::strtod(word.c_str(), &end) * (minus ? -1 : 1);
      if (*end != '\0') wrong("not a number");
      return n;
    }
    if (minus) wrong("not a number");
    if (word == "true" || word == "false") {
      n.op = Op::literal;
      n.value = word == "true";
    } else if (word.size() > 1 && word[0] == 'v' && std::isdigit(static_cast<unsigned char>(word[1]))) {
      n.op = Op::version;
      n.value = word.substr(1);
    } else if (word == "count") {
      n.op = Op::count;
      n.path = path_in_brackets();
    } else {
      n.op = Op::path;
      n.path = word;
    }
    return n;
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

Truth of(bool b) { return b ? Truth::yes : Truth::no; }
Truth opposite(Truth t) { return t == Truth::yes ? Truth::no : t == Truth::no ? Truth::yes : t; }

bool equal(const Json& a, const Json& b) {
  if (const auto x = number(a), y = number(b); x && y) return *x == *y;
  if (a.is_string() && b.is_string()) return a == b;
  return a == b;
}

class Evaluator {
 public:
  explicit Evaluator(std::vector<const Json*>* matched) : matched_(matched) {}

  Truth test(const Node& n, const Scope& s) {
    switch (n.op) {
      case Op::always: return Truth::yes;
      case Op::and_: return joined(n, s, Truth::no);
      case Op::or_: return joined(n, s, Truth::yes);
      case Op::not_: return opposite(test(n.children[0], s));
      case Op::any: return iterate(n, s, Truth::yes);
      case Op::all: return iterate(n, s, Truth::no);
      case Op::exists: {
        const Json* v = s.find(n.path);
        return of(v && !v->is_null());
      }
      case Op::set: {
        const Json* v = s.find("env." + n.path);
        return of(v && v->is_string() && !v->get_ref<const std::string&>().empty());
      }
      case Op::on:
      case Op::off: {
        const Json* v = s.find(n.path);
        if (!v || v->is_null()) return Truth::unknown;
        return of(n.op == Op::on ? is_on(as_text(*v)) : is_off(as_text(*v)));
      }
      case Op::compare: return compare(n, s);
      default: return Truth::unknown;
    }
  }

 private:
  // `and` ends at the first no, `or` at the first yes. Otherwise, one unknown operand makes the result unknown.
  Truth joined(const Node& n, const Scope& s, Truth decisive) {
    Truth result = opposite(decisive);
    for (const Node& child : n.children) {
      const Truth t = test(child, s);
      if (t == decisive) return t;
      if (t == Truth::unknown) result = t;
    }
    return result;
  }

  Truth iterate(const Node& n, const Scope& s, Truth decisive) {
    const Json* list = s.find(n.path);
    if (!list || !list->is_array()) return Truth::unknown;
    if (list->empty()) return Truth::no;  // an empty list gives no answer
    std::vector<const Json*> held;
    Truth result = opposite(decisive);
    for (const Json& item : *list) {
      Scope inner = s;
      inner.item = &item;
      const Truth t = test(n.children[0], inner);
      if (t == Truth::yes) held.push_back(&item);
      if (t == decisive) result = t;
      if (t == Truth::unknown && result != decisive) result = t;
    }
    if (result == Truth::yes && matched_) *matched_ = held;
    return result;
  }

  // The value of an operand; null: unknown.
  static Json value(const Node& n, const Scope& s) {
    if (n.op == Op::literal || n.op == Op::version) return n.value;
    if (n.op == Op::list) {
      Json list = Json::array();
      for (const Node& child : n.children) list.push_back(value(child, s));
      return list;
    }
    const Json* v = s.find(n.path);
    if (!v) return nullptr;
    if (n.op == Op::count) return v->is_array() ? Json(v->size()) : Json(nullptr);
    return *v;
  }

  static Truth compare(const Node& n, const Scope& s) {
    const Node &left = n.children[0], &right = n.children[1];
    const Json a = value(left, s), b = value(right, s);
    if (a.is_null() || b.is_null()) return Truth::unknown;
    if (n.cmp == Cmp::in || n.cmp == Cmp::contains) {
      const Json &needle = n.cmp == Cmp::in ? a : b, &hay = n.cmp == Cmp::in ? b : a;
      if (hay.is_string()) return of(hay.get_ref<const std::string&>().find(as_text(needle)) != std::string::npos);
      if (!hay.is_array()) return Truth::unknown;
      for (const Json& e : hay)
        if (equal(needle, e)) return Truth::yes;
      return Truth::no;
    }
    if (n.cmp == Cmp::starts) return of(as_text(a).starts_with(as_text(b)));
    int order = 0;
    if (left.op == Op::version || right.op == Op::version) {
      order = compare_versions(as_text(a), as_text(b));
    } else if (n.cmp == Cmp::eq || n.cmp == Cmp::ne) {
      order = equal(a, b) ? 0 : 1;
    } else {
      const auto x = number(a), y = number(b);
      if (!x || !y) return Truth::unknown;
      order = *x < *y ? -1 : *x > *y ? 1 : 0;
    }
    switch (n.cmp) {
      case Cmp::eq: return of(order == 0);
      case Cmp::ne: return of(order != 0);
      case Cmp::lt: return of(order < 0);
      case Cmp::le: return of(order <= 0);
      case Cmp::gt: return of(order > 0);
      default: return of(order >= 0);
    }
  }

  std::vector<const Json*>* matched_;
};

const Json* find_in(const Json* from, std::string_view path) {
  while (from) {
    if (!from->is_object()) return nullptr;
    const size_t dot = path.find('.');
    const auto it = from->find(std::string(path.substr(0, dot)));
    if (it == from->end()) return nullptr;
    from = &*it;
    if (dot == std::string_view::npos) return from;
    path.remove_prefix(dot + 1);
  }
  return nullptr;
}

}  // namespace

const Json* Scope::find(std::string_view path) const {
  for (const Json* from : {item, locals, facts})
    if (const Json* v = find_in(from, path)) return v;
  return nullptr;
}

Condition::Condition() = default;
Condition::Condition(Condition&&) noexcept = default;
Condition& Condition::operator=(Condition&&) noexcept = default;
Condition::~Condition() = default;

Condition Condition::parse(std::string_view text) {
  Condition c;
  c.root_ = std::make_unique<Node>(Parser(text).parse());
  return c;
}

Truth Condition::test(const Scope& scope, std::vector<const Json*>* matched) const {
  return root_ ? Evaluator(matched).test(*root_, scope) : Truth::yes;
}

int compare_versions(std::string_view a, std::string_view b) {
  const auto next = [](std::string_view& s) -> long {
    while (!s.empty() && !std::isdigit(static_cast<unsigned char>(s[0]))) s.remove_prefix(1);
    long v = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
    s.remove_prefix(static_cast<size_t>(end - s.data()));
    return error == std::errc() ? v : 0;
  };
  while (!a.empty() || !b.empty()) {
    const long x = next(a), y = next(b);
    if (x != y) return x < y ? -1 : 1;
  }
  return 0;
}

bool same_setting(std::string_view a, std::string_view b) {
  const std::string x(a), y(b);
  if ((is_on(x) && is_on(y)) || (is_off(x) && is_off(y))) return true;
  const auto m = number(Json(x)), n = number(Json(y));
  return m && n ? *m == *n : x == y;
}

}  // namespace pyflame::tools::doctor
