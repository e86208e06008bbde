// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cuvmm::view {

// Python's pickle, protocol 4, as far as snapshots need it: what is written is read back by any
// Python, and by the viewer's own reader in JavaScript.
//
//   pickle.begin_dict(); pickle.key("size"); pickle.number(3); pickle.end_dict();
class PickleWriter {
 public:
  void begin();
  void finish();

  void begin_dict();
  void key(std::string_view name) { text(name); }
  void end_dict();

  void begin_list();
  void end_item();  // after each item of a list: long lists are handed over in parts
  void end_list();

  void text(std::string_view text);
  void number(std::uint64_t number);

  // What was written since.
  std::string take();
  std::size_t size() const { return bytes_.size(); }

 private:
  void put(std::uint64_t number, int bytes);

  std::string bytes_;
  std::string list_counts_;  // of the lists that are open, as a stack: items since the last part
};

}  // namespace cuvmm::view
