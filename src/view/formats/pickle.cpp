// SPDX-License-Identifier: Apache-2.0
#include "view/formats/pickle.hpp"

#include <utility>

namespace cuvmm::view {
namespace {

// The JavaScript reader passes the items of a part as arguments of one call.
constexpr char items_a_part = 100;

constexpr char proto = '\x80';
constexpr char mark = '(';
constexpr char stop = '.';
constexpr char empty_dict = '}';
constexpr char set_items = 'u';
constexpr char empty_list = ']';
constexpr char appends = 'e';
constexpr char short_text = '\x8c';
constexpr char long_text = 'X';
constexpr char number_1 = 'K';
constexpr char number_2 = 'M';
constexpr char long_1 = '\x8a';

}  // namespace

void PickleWriter::put(std::uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) bytes_ += static_cast<char>(number >> (8 * i) & 0xFF);
}

void PickleWriter::begin() {
  bytes_ += proto;
  bytes_ += '\x04';
}
void PickleWriter::finish() {
  bytes_ += stop;
}

void PickleWriter::begin_dict() {
  bytes_ += empty_dict;
  bytes_ += mark;
}
void PickleWriter::end_dict() {
  bytes_ += set_items;
}

void PickleWriter::begin_list() {
  bytes_ += empty_list;
  bytes_ += mark;
  list_counts_ += '\0';
}
void PickleWriter::end_item() {
  if (++list_counts_.back() < items_a_part) return;
  list_counts_.back() = '\0';
  bytes_ += appends;
  bytes_ += mark;
}
void PickleWriter::end_list() {
  list_counts_.pop_back();
  bytes_ += appends;
}

void PickleWriter::text(std::string_view text) {
  if (text.size() < 256) {
    bytes_ += short_text;
    put(text.size(), 1);
  } else {
    text = text.substr(0, 0xFFFFFFFF);
    bytes_ += long_text;
    put(text.size(), 4);
  }
  bytes_ += text;
}

void PickleWriter::number(std::uint64_t number) {
  if (number < 0x100) {
    bytes_ += number_1;
    put(number, 1);
  } else if (number < 0x10000) {
    bytes_ += number_2;
    put(number, 2);
  } else {
    // Two's complement, so a number whose highest bit is set has one byte more.
    int bytes = 3;
    while (bytes < 8 && number >> (8 * bytes) != 0) ++bytes;
    const bool looks_negative = (number >> (8 * bytes - 1) & 1) != 0;
    bytes_ += long_1;
    put(static_cast<std::uint64_t>(bytes) + (looks_negative ? 1 : 0), 1);
    put(number, bytes);
    if (looks_negative) bytes_ += '\0';
  }
}

std::string PickleWriter::take() {
  return std::exchange(bytes_, {});
}

}  // namespace cuvmm::view
