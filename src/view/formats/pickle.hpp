// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cuvmm::view {

// Writes Python's pickle, protocol 4, as far as snapshots need it. Any Python can read the result,
// and so can the viewer's own reader in JavaScript.
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
  void end_item();  // after each item of a list: long lists are written in parts
  void end_list();

  void text(std::string_view text);
  void number(std::uint64_t number);

  // Returns what was written since the last take().
  std::string take();
  std::size_t size() const { return bytes_.size(); }

 private:
  void put(std::uint64_t number, int bytes);

  std::string bytes_;
  std::string list_counts_;  // a stack of the open lists' item counts since the last part
};

}  // namespace cuvmm::view
