// SPDX-License-Identifier: Apache-2.0
#include "replay/pickle.hpp"

#include <bit>
#include <cstring>
#include <span>
#include <string>

#include "replay/text_lines.hpp"

namespace cuvmm::replay {
namespace {

// The names are those of Python's pickletools.
struct RefusedOpcode {
  unsigned char code;
  const char* name;
};
constexpr RefusedOpcode calling_opcodes[] = {
    {'c', "GLOBAL"}, {0x93, "STACK_GLOBAL"}, {'R', "REDUCE"},  {'b', "BUILD"},
    {'i', "INST"},   {'o', "OBJ"},           {0x81, "NEWOBJ"}, {0x92, "NEWOBJ_EX"},
    {'P', "PERSID"}, {'Q', "BINPERSID"},     {0x82, "EXT1"},   {0x83, "EXT2"},
    {0x84, "EXT4"}};
constexpr RefusedOpcode textual_opcodes[] = {{'I', "INT"},    {'L', "LONG"},    {'F', "FLOAT"},
                                             {'S', "STRING"}, {'V', "UNICODE"}, {'p', "PUT"},
                                             {'g', "GET"}};

constexpr std::size_t most_scanned = 256;    // keys and values of a dict without an index
constexpr std::size_t longest_indexed = 64;  // bytes of a key

const char* name_among(unsigned char code, std::span<const RefusedOpcode> opcodes) {
  for (const RefusedOpcode& one : opcodes) {
    if (one.code == code) return one.name;
  }
  return nullptr;
}

}  // namespace

class Pickle::Machine {
 public:
  Machine(std::string_view bytes, Size most_bytes) : bytes_(bytes), most_bytes_(most_bytes) {}

  Result<Pickle> run() {
    for (bool has_stopped = false; !has_stopped;) {
      at_ = next_;
      const unsigned char code = TRY(take<unsigned char>());
      has_stopped = TRY(step(code));
    }
    made_.root_ = TRY(pop());
    return std::move(made_);
  }

 private:
  static constexpr PickleValue a_mark = ~PickleValue{0};

  Error damaged(const std::string& why) const {
    return unreadable("the pickle, at byte " + std::to_string(at_) + ": " + why);
  }
  Error refused(unsigned char code) const {
    if (const char* const name = name_among(code, calling_opcodes)) {
      return damaged(std::string{name} + " would run Python code; cuvmm reads only plain values");
    }
    if (const char* const name = name_among(code, textual_opcodes)) {
      return damaged(std::string{name} + " is of protocol 0 or 1; 2 to 5 are read");
    }
    return damaged("opcode " + std::to_string(code) + " does not build a plain value");
  }

  template <class Number>
  Result<Number> take() {
    static_assert(std::endian::native == std::endian::little);
    const std::string_view raw = TRY(take_bytes(sizeof(Number)));
    Number number;
    std::memcpy(&number, raw.data(), sizeof number);
    return number;
  }
  Result<std::string_view> take_bytes(std::uint64_t count) {
    if (count > bytes_.size() - next_) return damaged("the file ends too early");
    const std::string_view taken = bytes_.substr(next_, count);
    next_ += count;
    return taken;
  }

  // Charges the approximate memory of the values created.
  Result<void> charge(Size bytes) {
    used_ += bytes;
    if (used_ <= most_bytes_) return {};
    return Error{.kind = ErrorKind::OutOfMemory,
                 .doing = "read trace",
                 .subject = "the pickle holds too many values",
                 .asked = used_,
                 .available = most_bytes_};
  }

  Result<void> push(const Value& value) {
    TRY(charge(sizeof(Value) + sizeof(PickleValue)));
    if (made_.values_.size() >= a_mark) return damaged("too many values");
    stack_.push_back(static_cast<PickleValue>(made_.values_.size()));
    made_.values_.push_back(value);
    return {};
  }
  Result<void> push_number(std::int64_t number) {
    Value value;
    value.kind = Kind::Number;
    value.number = number;
    return push(value);
  }
  Result<void> push_none() { return push(Value{}); }
  Result<void> push_text(std::uint64_t size) {
    const std::string_view text = TRY(take_bytes(size));
    if (text.size() > 0xffff'ffffu) return damaged("a text of more than 4 GiB");
    Value value;
    value.kind = Kind::Text;
    value.size = static_cast<std::uint32_t>(text.size());
    value.text = text.data();
    return push(value);
  }
  Result<void> push_list(Kind kind, std::vector<PickleValue> items) {
    TRY(charge(sizeof(std::vector<PickleValue>) + items.size() * sizeof(PickleValue)));
    Value value;
    value.kind = kind;
    value.list = static_cast<std::uint32_t>(made_.lists_.size());
    made_.lists_.push_back(std::move(items));
    return push(value);
  }
  Result<void> push_dict(std::vector<PickleValue> items) {
    if (items.size() % 2 != 0) return damaged("a key without a value");
    return push_list(Kind::Dict, std::move(items));
  }
  // Two's complement, of any length. We need none that exceeds 64 bits, so those become None.
  Result<void> push_long(std::uint64_t size) {
    const std::string_view raw = TRY(take_bytes(size));
    if (size > sizeof(std::int64_t)) return push_none();
    const bool is_negative = size != 0 && (static_cast<unsigned char>(raw.back()) & 0x80) != 0;
    std::int64_t number = is_negative ? -1 : 0;
    std::memcpy(&number, raw.data(), raw.size());
    return push_number(number);
  }

  Result<PickleValue> top() const {
    if (stack_.empty() || stack_.back() == a_mark) return damaged("the stack is empty");
    return stack_.back();
  }
  Result<PickleValue> pop() {
    const PickleValue value = TRY(top());
    stack_.pop_back();
    return value;
  }
  Result<std::vector<PickleValue>> pop_to_mark() {
    std::size_t at = stack_.size();
    while (at > 0 && stack_[at - 1] != a_mark) --at;
    if (at == 0) return damaged("no mark on the stack");
    std::vector<PickleValue> items(stack_.begin() + static_cast<std::ptrdiff_t>(at), stack_.end());
    stack_.resize(at - 1);
    return items;
  }
  Result<void> push_tuple(std::size_t count) {
    std::vector<PickleValue> items(count);
    for (std::size_t i = count; i > 0; --i) items[i - 1] = TRY(pop());
    return push_list(Kind::List, std::move(items));
  }

  // Appends to the list or dict on top of the stack.
  Result<void> append(Kind kind, const std::vector<PickleValue>& items) {
    const Value& to = made_.values_[TRY(top())];
    if (to.kind != kind) return damaged("items for what cannot take them");
    if (kind == Kind::Dict && items.size() % 2 != 0) return damaged("a key without a value");
    TRY(charge(items.size() * sizeof(PickleValue)));
    auto& list = made_.lists_[to.list];
    list.insert(list.end(), items.begin(), items.end());
    return {};
  }
  Result<void> append_marked(Kind kind) { return append(kind, TRY(pop_to_mark())); }
  Result<void> append_popped(Kind kind, std::size_t count) {
    std::vector<PickleValue> items(count);
    for (std::size_t i = count; i > 0; --i) items[i - 1] = TRY(pop());
    return append(kind, items);
  }

  // Python numbers memo entries consecutively, with gaps where some were removed, so no number
  // exceeds the number of bytes.
  Result<void> put(std::uint64_t place) {
    const PickleValue value = TRY(top());
    if (place > bytes_.size()) return damaged("a memo that is too large");
    if (place >= memo_.size()) {
      TRY(charge((place + 1 - memo_.size()) * sizeof(PickleValue)));
      memo_.resize(place + 1, a_mark);
    }
    memo_[place] = value;
    return {};
  }
  Result<void> get(std::uint64_t place) {
    if (place >= memo_.size() || memo_[place] == a_mark) return damaged("nothing in that memo");
    TRY(charge(sizeof(PickleValue)));
    stack_.push_back(memo_[place]);
    return {};
  }

  // True after the last instruction.
  Result<bool> step(unsigned char code) {
    if (code == '.') return true;
    TRY(execute(code));
    return false;
  }
  Result<void> execute(unsigned char code) {
    switch (code) {
      case 0x80:
        return check_protocol();
      case 0x95:  // FRAME: the number of bytes to read at once
        return as_void(take<std::uint64_t>());
      case '(':
        TRY(charge(sizeof(PickleValue)));
        stack_.push_back(a_mark);
        return {};
      case '0':
        return as_void(pop());
      case '1':
        return as_void(pop_to_mark());
      case '2':
        TRY(charge(sizeof(PickleValue)));
        stack_.push_back(TRY(top()));
        return {};
      case 'h':
        return get(TRY(take<std::uint8_t>()));
      case 'j':
        return get(TRY(take<std::uint32_t>()));
      case 'q':
        return put(TRY(take<std::uint8_t>()));
      case 'r':
        return put(TRY(take<std::uint32_t>()));
      case 0x94:
        return put(memo_.size());
      default:
        return make_plain(code);
    }
  }
  Result<void> make_plain(unsigned char code) {
    switch (code) {
      case 'N':
        return push_none();
      case 0x88:
        return push_number(1);
      case 0x89:
        return push_number(0);
      case 'J':
        return push_number(TRY(take<std::int32_t>()));
      case 'K':
        return push_number(TRY(take<std::uint8_t>()));
      case 'M':
        return push_number(TRY(take<std::uint16_t>()));
      case 0x8a:
        return push_long(TRY(take<std::uint8_t>()));
      case 0x8b:
        return push_long(TRY(take<std::uint32_t>()));
      case 'G':
        return push_real();
      case 'U':
      case 'C':
      case 0x8c:
        return push_text(TRY(take<std::uint8_t>()));
      case 'T':
      case 'B':
      case 'X':
        return push_text(TRY(take<std::uint32_t>()));
      case 0x8d:
      case 0x8e:
        return push_text(TRY(take<std::uint64_t>()));
      default:
        return make_container(code);
    }
  }
  Result<void> make_container(unsigned char code) {
    switch (code) {
      case ']':
      case ')':
        return push_list(Kind::List, {});
      case '}':
        return push_list(Kind::Dict, {});
      case 'l':
      case 't':
        return push_list(Kind::List, TRY(pop_to_mark()));
      case 'd':
        return push_dict(TRY(pop_to_mark()));
      case 0x85:
      case 0x86:
      case 0x87:
        return push_tuple(code - 0x84u);
      case 'a':
        return append_popped(Kind::List, 1);
      case 'e':
        return append_marked(Kind::List);
      case 's':
        return append_popped(Kind::Dict, 2);
      case 'u':
        return append_marked(Kind::Dict);
      default:
        return refused(code);
    }
  }

  Result<void> check_protocol() {
    const unsigned protocol = TRY(take<std::uint8_t>());
    if (protocol >= 2 && protocol <= 5) return {};
    return damaged("protocol " + std::to_string(protocol) + "; 2 to 5 are read");
  }
  Result<void> push_real() {
    Value value;
    value.kind = Kind::Float;
    value.real = std::bit_cast<double>(__builtin_bswap64(TRY(take<std::uint64_t>())));
    return push(value);
  }
  template <class T>
  static Result<void> as_void(Result<T> result) {
    if (!result.ok()) return result.error();
    return {};
  }

  const std::string_view bytes_;
  const Size most_bytes_;
  Size used_ = 0;
  std::size_t at_ = 0;  // the current instruction
  std::size_t next_ = 0;
  Pickle made_;
  std::vector<PickleValue> stack_;
  std::vector<PickleValue> memo_;
};

Result<Pickle> Pickle::read(std::string_view bytes, Size most_bytes) {
  return Machine{bytes, most_bytes}.run();
}

std::optional<std::int64_t> Pickle::number(PickleValue value) const {
  const Value& one = values_[value];
  if (one.kind != Kind::Number) return {};
  return one.number;
}

std::optional<std::string_view> Pickle::text(PickleValue value) const {
  const Value& one = values_[value];
  if (one.kind != Kind::Text) return {};
  return std::string_view{one.text, one.size};
}

const std::vector<PickleValue>* Pickle::items(PickleValue value) const {
  const Value& one = values_[value];
  return one.kind == Kind::List ? &lists_[one.list] : nullptr;
}

// A file may reference one large dict many times. Long keys are left out: one long text may be the
// key of many dicts, and hashing it for each takes too long.
const Pickle::Index& Pickle::index_of(std::uint32_t list) const {
  const auto [entry, is_new] = indexes_.try_emplace(list);
  if (is_new) {
    const auto& pairs = lists_[list];
    for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
      const auto key = text(pairs[i]);
      if (key && key->size() <= longest_indexed) entry->second[*key] = pairs[i + 1];
    }
  }
  return entry->second;
}

std::optional<PickleValue> Pickle::get(PickleValue dict, std::string_view key) const {
  if (!is_dict(dict)) return {};
  const std::uint32_t list = values_[dict].list;
  const auto& pairs = lists_[list];
  if (pairs.size() > most_scanned && key.size() <= longest_indexed) {
    const Index& index = index_of(list);
    const auto found = index.find(key);
    return found == index.end() ? std::nullopt : std::optional{found->second};
  }
  for (std::size_t i = pairs.size(); i >= 2; i -= 2) {
    if (text(pairs[i - 2]) == key) return pairs[i - 1];
  }
  return {};
}

}  // namespace cuvmm::replay
