#include "pyflame/io/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>

#include "pyflame/base/error.h"
#include "pyflame/io/input_file.h"

namespace pyflame {

namespace {

using PickleKind = PickleValue::Kind;

// The instructions of protocols 0 to 5, with the names of Python's pickletools.
enum Code : unsigned char {
  MARK = '(',
  STOP = '.',
  POP = '0',
  POP_MARK = '1',
  DUP = '2',
  FLOAT = 'F',
  INT = 'I',
  BININT = 'J',
  BININT1 = 'K',
  LONG = 'L',
  BININT2 = 'M',
  NONE = 'N',
  PERSID = 'P',
  BINPERSID = 'Q',
  REDUCE = 'R',
  STRING = 'S',
  BINSTRING = 'T',
  SHORT_BINSTRING = 'U',
  UNICODE = 'V',
  BINUNICODE = 'X',
  APPEND = 'a',
  BUILD = 'b',
  GLOBAL = 'c',
  DICT = 'd',
  EMPTY_DICT = '}',
  APPENDS = 'e',
  GET = 'g',
  BINGET = 'h',
  INST = 'i',
  LONG_BINGET = 'j',
  LIST = 'l',
  EMPTY_LIST = ']',
  OBJ = 'o',
  PUT = 'p',
  BINPUT = 'q',
  LONG_BINPUT = 'r',
  SETITEM = 's',
  TUPLE = 't',
  EMPTY_TUPLE = ')',
  SETITEMS = 'u',
  BINFLOAT = 'G',
  BINBYTES = 'B',
  SHORT_BINBYTES = 'C',
  PROTO = 0x80,
  NEWOBJ = 0x81,
  TUPLE1 = 0x85,
  TUPLE2 = 0x86,
  TUPLE3 = 0x87,
  NEWTRUE = 0x88,
  NEWFALSE = 0x89,
  LONG1 = 0x8a,
  LONG4 = 0x8b,
  SHORT_BINUNICODE = 0x8c,
  BINUNICODE8 = 0x8d,
  BINBYTES8 = 0x8e,
  EMPTY_SET = 0x8f,
  ADDITEMS = 0x90,
  FROZENSET = 0x91,
  NEWOBJ_EX = 0x92,
  STACK_GLOBAL = 0x93,
  MEMOIZE = 0x94,
  FRAME = 0x95,
  BYTEARRAY8 = 0x96,
};

constexpr size_t kMaxArguments = 16;

[[noreturn]] void damaged(std::string_view problem) { PF_FAIL(Value, "the pickle is damaged: {}", problem); }

}  // namespace

// The machine that a pickle is a program for: a stack, marks on it, and a memo.
class PickleReader {
 public:
  PickleReader(Pickle& pickle, Pickle::Meaning& meaning, std::string_view& text)
      : pickle_(pickle), meaning_(meaning), text_(text) {}

  PickleValue* run() {
    for (;;) {
      const auto code = static_cast<Code>(number<unsigned char>());
      if (code == STOP) break;
      if (!push_constant(code) && !push_text(code) && !change_stack(code) && !use_memo(code) && !fill(code) &&
          !make_object(code))
        damaged(fmt::format("it has the unknown instruction 0x{:02x}", static_cast<int>(code)));
    }
    return pop();
  }

 private:
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view take(uint64_t bytes) {
    if (bytes > text_.size()) damaged("it ends early");
    const std::string_view part = text_.substr(0, static_cast<size_t>(bytes));
    text_.remove_prefix(part.size());
    return part;
  }
  std::string_view line() {
    const size_t end = text_.find('\n');
    if (end == std::string_view::npos) damaged("it ends early");
    const std::string_view part = take(end);
    take(1);
    return part;
  }
  void push(PickleValue* v) { stack_.push_back(v); }
  PickleValue* pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) damaged("its stack is empty");
    PickleValue* v = stack_.back();
    stack_.pop_back();
    return v;
  }
  PickleValue* top() {
    PickleValue* v = pop();
    push(v);
    return v;
  }
  std::vector<PickleValue*> pop_to_mark() {
    if (marks_.empty()) damaged("a mark is missing");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PickleValue*> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }

  bool push_constant(Code code) {
    switch (code) {
      case NONE: push(pickle_.make(PickleKind::None)); return true;
      case NEWTRUE:
      case NEWFALSE: push_bool(code == NEWTRUE); return true;
      case BININT: push(pickle_.make_integer(number<int32_t>())); return true;
      case BININT1: push(pickle_.make_integer(number<uint8_t>())); return true;
      case BININT2: push(pickle_.make_integer(number<uint16_t>())); return true;
      case LONG1: push_long(take(number<uint8_t>())); return true;
      case LONG4: push_long(take(number<uint32_t>())); return true;
      case INT:
      case LONG: push_decimal(line()); return true;
      case FLOAT: push_float(line()); return true;
      case BINFLOAT: push_binary_float(); return true;
      case EMPTY_LIST: push(pickle_.make(PickleKind::List)); return true;
      case EMPTY_TUPLE: push(pickle_.make(PickleKind::Tuple)); return true;
      case EMPTY_DICT: push(pickle_.make(PickleKind::Dict)); return true;
      case EMPTY_SET: push(pickle_.make(PickleKind::Set)); return true;
      default: return false;
    }
  }

  void push_bool(bool value) {
    PickleValue* v = pickle_.make(PickleKind::Bool);
    v->integer = value;
    push(v);
  }
  // A number of any length in two's complement.
  void push_long(std::string_view bytes) {
    if (bytes.size() <= sizeof(int64_t)) {
      const bool negative = !bytes.empty() && (static_cast<unsigned char>(bytes.back()) & 0x80) != 0;
      uint64_t value = negative ? ~uint64_t{0} : 0;
      std::memcpy(&value, bytes.data(), bytes.size());
      push(pickle_.make_integer(static_cast<int64_t>(value)));
      return;
    }
    PickleValue* v = pickle_.make(PickleKind::BigInt);
    v->text = bytes;
    push(v);
  }
  void push_decimal(std::string_view digits) {
    if (digits == "00" || digits == "01") return push_bool(digits == "01");  // protocol 0 writes booleans so
    if (digits.ends_with('L')) digits.remove_suffix(1);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size())
      damaged(cite(digits) + " is no integer of 64 bits");
    push(pickle_.make_integer(value));
  }
  void push_float(std::string_view digits) {
    PickleValue* v = pickle_.make(PickleKind::Float);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), v->number);
    if (error != std::errc() || end != digits.data() + digits.size()) damaged(cite(digits) + " is no number");
    push(v);
  }
  void push_binary_float() {  // big-endian
    const uint64_t bits = __builtin_bswap64(number<uint64_t>());
    PickleValue* v = pickle_.make(PickleKind::Float);
    std::memcpy(&v->number, &bits, sizeof bits);
    push(v);
  }

  bool push_text(Code code) {
    switch (code) {
      case BINUNICODE: push_string(PickleKind::Text, take(number<uint32_t>())); return true;
      case SHORT_BINUNICODE: push_string(PickleKind::Text, take(number<uint8_t>())); return true;
      case BINUNICODE8: push_string(PickleKind::Text, take(number<uint64_t>())); return true;
      case UNICODE: push_plain(line()); return true;
      case BINSTRING: push_string(PickleKind::Text, take(number<uint32_t>())); return true;  // Python 2
      case SHORT_BINSTRING: push_string(PickleKind::Text, take(number<uint8_t>())); return true;
      case STRING: push_quoted(line()); return true;
      case BINBYTES: push_string(PickleKind::Bytes, take(number<uint32_t>())); return true;
      case SHORT_BINBYTES: push_string(PickleKind::Bytes, take(number<uint8_t>())); return true;
      case BINBYTES8:
      case BYTEARRAY8: push_string(PickleKind::Bytes, take(number<uint64_t>())); return true;
      default: return false;
    }
  }
  void push_string(PickleKind kind, std::string_view text) {
    PickleValue* v = pickle_.make(kind);
    v->text = text;
    push(v);
  }
  // Protocol 0 has escapes for other characters. Nothing that is read here needs them.
  void push_plain(std::string_view text) {
    if (std::any_of(text.begin(), text.end(),
                    [](char c) { return c == '\\' || static_cast<unsigned char>(c) >= 0x80; }))
      damaged("a text of protocol 0 is not plain ASCII");
    push_string(PickleKind::Text, text);
  }
  void push_quoted(std::string_view text) {
    if (text.size() < 2 || text.front() != text.back() || (text.front() != '\'' && text.front() != '"'))
      damaged("a text has no quotes");
    push_string(PickleKind::Text, text.substr(1, text.size() - 2));
  }

  bool change_stack(Code code) {
    switch (code) {
      case PROTO: take(1); return true;
      case FRAME: take(8); return true;
      case MARK: marks_.push_back(stack_.size()); return true;
      case POP:
        // A mark may be what is on top.
        if (!marks_.empty() && marks_.back() == stack_.size()) marks_.pop_back();
        else pop();
        return true;
      case POP_MARK: pop_to_mark(); return true;
      case DUP: push(top()); return true;
      default: return false;
    }
  }

  bool use_memo(Code code) {
    switch (code) {
      case PUT: memo_[memo_key(line())] = top(); return true;
      case BINPUT: memo_[number<uint8_t>()] = top(); return true;
      case LONG_BINPUT: memo_[number<uint32_t>()] = top(); return true;
      case MEMOIZE: {
        const uint64_t next = memo_.size();
        memo_[next] = top();
        return true;
      }
      case GET: push(recall(memo_key(line()))); return true;
      case BINGET: push(recall(number<uint8_t>())); return true;
      case LONG_BINGET: push(recall(number<uint32_t>())); return true;
      default: return false;
    }
  }
  static uint64_t memo_key(std::string_view digits) {
    uint64_t key = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), key);
    if (error != std::errc() || end != digits.data() + digits.size()) damaged(cite(digits) + " is no number of a memo");
    return key;
  }
  PickleValue* recall(uint64_t key) {
    const auto at = memo_.find(key);
    if (at == memo_.end()) damaged("it refers to a value that is not there");
    return at->second;
  }

  bool fill(Code code) {
    switch (code) {
      case TUPLE1: push_items(PickleKind::Tuple, pop_last(1)); return true;
      case TUPLE2: push_items(PickleKind::Tuple, pop_last(2)); return true;
      case TUPLE3: push_items(PickleKind::Tuple, pop_last(3)); return true;
      case TUPLE: push_items(PickleKind::Tuple, pop_to_mark()); return true;
      case LIST: push_items(PickleKind::List, pop_to_mark()); return true;
      case DICT: push_items(PickleKind::Dict, pop_to_mark()); return true;
      case FROZENSET: push_items(PickleKind::Set, pop_to_mark()); return true;
      case APPEND: add_items(PickleKind::List, pop_last(1)); return true;
      case APPENDS: add_items(PickleKind::List, pop_to_mark()); return true;
      case SETITEM: add_items(PickleKind::Dict, pop_last(2)); return true;
      case SETITEMS: add_items(PickleKind::Dict, pop_to_mark()); return true;
      case ADDITEMS: add_items(PickleKind::Set, pop_to_mark()); return true;
      default: return false;
    }
  }
  std::vector<PickleValue*> pop_last(size_t count) {
    std::vector<PickleValue*> items(count);
    while (count > 0) items[--count] = pop();
    return items;
  }
  void push_items(PickleKind kind, std::vector<PickleValue*> items) {
    if (kind == PickleKind::Dict && items.size() % 2 != 0) damaged("a dict has a key without a value");
    PickleValue* v = pickle_.make(kind);
    v->items = std::move(items);
    push(v);
  }
  void add_items(PickleKind kind, const std::vector<PickleValue*>& items) {
    if (kind == PickleKind::Dict && items.size() % 2 != 0) damaged("a dict has a key without a value");
    PickleValue* v = top();
    if (v->kind == PickleKind::Object)
      return;  // a list or dict of a class that is not known: only its name is of interest
    if (v->kind != kind) damaged(fmt::format("items are added to {}", describe(*v)));
    v->items.insert(v->items.end(), items.begin(), items.end());
  }

  bool make_object(Code code) {
    switch (code) {
      case GLOBAL: {
        const std::string_view module = line(), name = line();
        push_string(PickleKind::Global, fmt::format("{}.{}", module, name));
        return true;
      }
      case STACK_GLOBAL: {
        const std::vector<PickleValue*> parts = pop_last(2);
        if (!parts[0]->is(PickleKind::Text) || !parts[1]->is(PickleKind::Text))
          damaged("the name of a class is no text");
        push_string(PickleKind::Global, parts[0]->text + "." + parts[1]->text);
        return true;
      }
      case REDUCE:
      case NEWOBJ: {
        const std::vector<PickleValue*> parts = pop_last(2);
        push(call(*parts[0], arguments(*parts[1])));
        return true;
      }
      case NEWOBJ_EX: {  // with keyword arguments, which no known name has
        const std::vector<PickleValue*> parts = pop_last(3);
        push(object(*parts[0], arguments(*parts[1])));
        return true;
      }
      case OBJ: {
        std::vector<PickleValue*> parts = pop_to_mark();
        if (parts.empty()) damaged("an object has no class");
        const PickleValue& of = *parts[0];
        parts.erase(parts.begin());
        push(call(of, parts));
        return true;
      }
      case INST: {
        const std::string_view module = line(), name = line();
        PickleValue* of = pickle_.make(PickleKind::Global);
        of->text = fmt::format("{}.{}", module, name);
        push(call(*of, pop_to_mark()));
        return true;
      }
      case BUILD: {
        PickleValue* state = pop();
        PickleValue* of = top();
        if (of->is(PickleKind::Object)) of->items.push_back(state);
        return true;  // attributes of what is data already (an OrderedDict's _metadata) are not data
      }
      case PERSID: {
        PickleValue* id = pickle_.make(PickleKind::Text);
        id->text = line();
        push(persistent(*id));
        return true;
      }
      case BINPERSID: push(persistent(*pop())); return true;
      default: return false;
    }
  }
  static const std::vector<PickleValue*>& arguments(const PickleValue& v) {
    if (!v.is(PickleKind::Tuple)) damaged(fmt::format("the arguments of a call are {}; expected a tuple", describe(v)));
    return v.items;
  }
  PickleValue* object(const PickleValue& of, const std::vector<PickleValue*>& args) {
    PickleValue* v = pickle_.make(PickleKind::Object);
    v->text = of.is(PickleKind::Global) || of.is(PickleKind::Object) ? of.text : describe(of);
    // No more than anybody needs: a hostile pickle may call with the same long tuple again and again.
    v->items.assign(args.begin(), args.begin() + static_cast<std::ptrdiff_t>(std::min(args.size(), kMaxArguments)));
    return v;
  }
  PickleValue* call(const PickleValue& of, const std::vector<PickleValue*>& args) {
    PickleValue* v = of.is(PickleKind::Global) ? meaning_.call(pickle_, of.text, args) : nullptr;
    return v != nullptr ? v : object(of, args);
  }
  PickleValue* persistent(const PickleValue& id) {
    PickleValue* v = meaning_.persistent(pickle_, id);
    if (v == nullptr) damaged(fmt::format("it refers to data by {}, which is not known", describe(id)));
    return v;
  }

  Pickle& pickle_;
  Pickle::Meaning& meaning_;
  std::string_view& text_;
  std::vector<PickleValue*> stack_;
  std::vector<size_t> marks_;
  std::map<uint64_t, PickleValue*> memo_;
};

PickleValue* Pickle::read(std::string_view& text, Meaning& meaning) { return PickleReader(*this, meaning, text).run(); }

PickleValue* Pickle::make(PickleKind kind) {
  values_.emplace_back();
  values_.back().kind = kind;
  return &values_.back();
}

PickleValue* Pickle::make_integer(int64_t value) {
  PickleValue* v = make(PickleKind::Int);
  v->integer = value;
  return v;
}

std::string describe(const PickleValue& value) {
  switch (value.kind) {
    case PickleKind::None: return "None";
    case PickleKind::Bool: return "a bool";
    case PickleKind::Int:
    case PickleKind::BigInt: return "an integer";
    case PickleKind::Float: return "a float";
    case PickleKind::Text: return "the text " + cite(value.text);
    case PickleKind::Bytes: return "bytes";
    case PickleKind::List: return "a list";
    case PickleKind::Tuple: return "a tuple";
    case PickleKind::Set: return "a set";
    case PickleKind::Dict: return "a dict";
    case PickleKind::Global: return "the class or function " + cite(value.text);
    case PickleKind::Object: return "an object of " + cite(value.text);
    case PickleKind::Tensor: return "a tensor";
  }
  return "a value";
}

}  // namespace pyflame
