// SPDX-License-Identifier: Apache-2.0
#include "sim/interpreter/host_functions.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "sim/interpreter/device_heap.hpp"
#include "sim/interpreter/thread_block.hpp"

namespace cuvmm::sim {
namespace {

constexpr std::size_t longest_text = 1024;

const std::byte* place_of(Warp& warp, std::uint64_t address) {
  return warp.block().seen_at(address);
}

// Copies a string, truncated to what fits.
void copy_text(Warp& warp, unsigned lane, std::uint64_t address, char (&text)[longest_text]) {
  warp.lane_now = lane;
  warp.address_now = address;
  const auto* from = reinterpret_cast<const char*>(place_of(warp, address));
  std::size_t length = 0;
  while (length + 1 < longest_text && from[length] != '\0') {
    text[length] = from[length];
    ++length;
  }
  text[length] = '\0';
}

std::uint64_t argument(Warp& warp, const Instruction& instruction, unsigned lane, unsigned index) {
  const ListedOperand& operand = warp.block().program().operands[instruction.first + index];
  std::uint64_t value = 0;
  std::memcpy(&value, warp.block().local_begin(warp, lane) + operand.at,
              std::min<std::size_t>(operand.width, sizeof value));
  return value;
}

// One line of output, truncated to what fits.
class Line {
 public:
  void add(char c) {
    if (length_ + 1 < sizeof text_) text_[length_++] = c;
  }
  template <class Value>
  void add(const char* format, Value value) {
    const int written = std::snprintf(text_ + length_, sizeof text_ - length_, format, value);
    if (written > 0)
      length_ = std::min(length_ + static_cast<std::size_t>(written), sizeof text_ - 1);
  }
  void print() const { std::fwrite(text_, 1, length_, stdout); }

 private:
  char text_[4096];
  std::size_t length_ = 0;
};

// Formats one call. The compiler stores its arguments one after the other.
class Format {
 public:
  Format(Warp& warp, unsigned lane, const char* format, const std::byte* arguments)
      : warp_(warp), lane_(lane), at_(format), arguments_(arguments) {}

  int run(Line& line) {
    while (*at_ != '\0') {
      if (*at_ != '%') {
        line.add(*at_++);
      } else if (at_[1] == '%') {
        line.add('%');
        at_ += 2;
      } else {
        conversion(line);
      }
    }
    return converted_;
  }

 private:
  template <class Value>
  Value take() {
    offset_ = round_up(offset_, sizeof(Value));
    Value value{};
    if (arguments_ != nullptr) std::memcpy(&value, arguments_ + offset_, sizeof value);
    offset_ += sizeof(Value);
    return value;
  }

  void conversion(Line& line) {
    char format[64] = "%";
    std::size_t length = 1;
    bool is_long = false;
    ++at_;
    const auto keep = [&](char c) {
      if (length + 4 < sizeof format) format[length++] = c;
    };
    for (; *at_ != '\0' && std::strchr("-+ #0123456789.*hlLqjzt", *at_) != nullptr; ++at_) {
      if (*at_ == '*') {
        char number[16];
        std::snprintf(number, sizeof number, "%d", take<int>());
        for (const char* digit = number; *digit != '\0'; ++digit) keep(*digit);
      } else if (std::strchr("lLqjzt", *at_) != nullptr) {
        is_long = true;
      } else if (*at_ != 'h') {
        keep(*at_);
      }
    }
    const char kind = *at_ != '\0' ? *at_++ : 'd';
    ++converted_;
    switch (kind) {
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        if (is_long) keep('l'), keep('l');
        format[length] = kind;
        format[length + 1] = '\0';
        if (is_long) {
          line.add(format, take<long long>());
        } else {
          line.add(format, take<int>());
        }
        break;
      case 'c':
        line.add(static_cast<char>(take<int>()));
        break;
      case 'p':
        line.add("%p", reinterpret_cast<void*>(take<std::uint64_t>()));
        break;
      case 's': {
        char text[longest_text];
        copy_text(warp_, lane_, take<std::uint64_t>(), text);
        format[length] = 's';
        format[length + 1] = '\0';
        line.add(format, static_cast<const char*>(text));
        break;
      }
      default:
        format[length] = std::strchr("feEgGaAF", kind) != nullptr ? kind : 'f';
        format[length + 1] = '\0';
        line.add(format, take<double>());
        break;
    }
  }

  Warp& warp_;
  const unsigned lane_;
  const char* at_;
  const std::byte* const arguments_;
  std::size_t offset_ = 0;
  int converted_ = 0;
};

// vprintf(format, arguments). Each thread's output is written in one piece.
void run_print(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  each_lane(lanes, [&](unsigned lane) {
    char format[longest_text];
    copy_text(warp, lane, argument(warp, instruction, lane, 0), format);
    const std::uint64_t arguments = argument(warp, instruction, lane, 1);
    warp.address_now = arguments;
    Line line;
    const int converted =
        Format{warp, lane, format, arguments == 0 ? nullptr : place_of(warp, arguments)}.run(line);
    line.print();
    if (instruction.d != no_operand) {
      std::memcpy(warp.block().local_begin(warp, lane) + instruction.d, &converted,
                  sizeof converted);
    }
  });
  std::fflush(stdout);
}

// __assertfail(message, file, line, function, size of a character). Prints the same text as the
// CUDA runtime.
void run_assert(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
  char message[longest_text];
  char file[longest_text];
  char function[longest_text];
  copy_text(warp, lane, argument(warp, instruction, lane, 0), message);
  copy_text(warp, lane, argument(warp, instruction, lane, 1), file);
  copy_text(warp, lane, argument(warp, instruction, lane, 3), function);
  const auto block = warp.block().place();
  const auto thread = warp.block().thread_of(warp, lane);
  std::fprintf(stderr, "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n",
               file, static_cast<unsigned>(argument(warp, instruction, lane, 2)), function,
               block[0], block[1], block[2], thread[0], thread[1], thread[2], message);
  fail_kernel(warp, lane, CUDA_ERROR_ASSERT, "an assertion failed", 0);
}

void run_malloc(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  each_lane(lanes, [&](unsigned lane) {
    const std::uint64_t address = take_from_device_heap(argument(warp, instruction, lane, 0));
    if (instruction.d == no_operand) return;
    std::memcpy(warp.block().local_begin(warp, lane) + instruction.d, &address, sizeof address);
  });
}

void run_free(Warp& warp, const Instruction& instruction, std::uint32_t lanes) {
  each_lane(lanes, [&](unsigned lane) {
    const std::uint64_t address = argument(warp, instruction, lane, 0);
    if (address == 0 || give_to_device_heap(address)) return;
    fail_kernel(warp, lane, CUDA_ERROR_ILLEGAL_ADDRESS, "free of memory that malloc did not return",
                address);
  });
}

constexpr HostFunction host_functions[] = {{"vprintf", 2, &run_print},
                                           {"__assertfail", 5, &run_assert},
                                           {"malloc", 1, &run_malloc},
                                           {"free", 1, &run_free}};

}  // namespace

const HostFunction* find_host_function(std::string_view name) {
  const auto* found = std::find_if(std::begin(host_functions), std::end(host_functions),
                                   [&](const HostFunction& known) { return known.name == name; });
  return found == std::end(host_functions) ? nullptr : found;
}

}  // namespace cuvmm::sim
