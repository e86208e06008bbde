// SPDX-License-Identifier: Apache-2.0
// Reads Python pickles as data. A pickle is a program for a stack machine; this one supports only
// the instructions that build plain values. It refuses those that name a class or call something,
// so nothing in the file is ever executed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/size.hpp"

namespace cuvmm::replay {

// A value's number within its Pickle.
using PickleValue = std::uint32_t;

class Pickle {
 public:
  static constexpr Size usual_most_bytes = 8 * GiB;

  // Protocols 2 to 5. `bytes` must outlive the result. InvalidArgument, with the position, if they
  // are not such a pickle; OutOfMemory if the values would take more than `most_bytes`.
  static Result<Pickle> read(std::string_view bytes, Size most_bytes = usual_most_bytes);

  PickleValue root() const { return root_; }

  // Nothing if the value has another type. A bool is a number, as in Python.
  std::optional<std::int64_t> number(PickleValue value) const;
  std::optional<std::string_view> text(PickleValue value) const;
  // nullptr if it is neither a list nor a tuple.
  const std::vector<PickleValue>* items(PickleValue value) const;
  bool is_dict(PickleValue value) const { return values_[value].kind == Kind::Dict; }
  // Nothing if it is not a dict or has no such key. The last of equal keys counts.
  // Not thread-safe: indexes a large dict at the first lookup.
  std::optional<PickleValue> get(PickleValue dict, std::string_view key) const;

 private:
  class Machine;
  enum class Kind : std::uint8_t { None, Number, Float, Text, List, Dict };
  struct Value {
    Kind kind = Kind::None;
    std::uint32_t size = 0;  // of a text
    union {
      std::int64_t number;
      double real;
      const char* text;
      std::uint32_t list;  // index in lists_; a dict's list alternates keys and values
    };
    Value() : number(0) {}
  };

  using Index = std::unordered_map<std::string_view, PickleValue>;

  const Index& index_of(std::uint32_t list) const;

  std::vector<Value> values_;
  std::vector<std::vector<PickleValue>> lists_;
  mutable std::unordered_map<std::uint32_t, Index> indexes_;  // of large dicts, by their lists
  PickleValue root_ = 0;
};

}  // namespace cuvmm::replay
