// SPDX-License-Identifier: Apache-2.0
// The comb: fills a card with blocks, frees every second one, and requests nearly all of the freed
// memory as one allocation. The source of memory (the driver, the runtime) is a Memory.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace comb {

using Address = std::uint64_t;
using Size = std::uint64_t;
constexpr Size KiB = Size{1} << 10;
constexpr Size MiB = Size{1} << 20;
constexpr Size GiB = Size{1} << 30;

enum Exit { Succeeded = 0, Failed = 1, Usage = 2, Broken = 3 };

class Memory {
 public:
  virtual ~Memory() = default;
  virtual const char* functions() const = 0;  // "cuMemAlloc and cuMemFree"
  virtual std::string device_name() = 0;
  virtual Size total() = 0;
  virtual Size free() = 0;
  virtual Address allocate(Size size) = 0;  // 0: out of memory
  virtual void release(Address address) = 0;
  // Rows of `width` bytes, contiguous on the host and `pitch` bytes apart on the device.
  virtual void write(Address to, Size pitch, const void* from, Size width, Size rows) = 0;
  virtual void read(void* to, Address from, Size pitch, Size width, Size rows) = 0;
};

[[noreturn]] inline void give_up(const char* what, const std::string& error) {
  std::fprintf(stderr, "frag_test: %s returned %s\n", what, error.c_str());
  std::exit(Broken);
}

struct Request {
  Size block = 512 * KiB;
  Size fill = 0;          // bytes of the comb; 0: all free memory
  Size every = 64 * KiB;  // distance of the marks that are written to a block and checked
};

inline std::string pretty(Size bytes) {
  char text[32];
  if (bytes < KiB) {
    std::snprintf(text, sizeof text, "%llu B", static_cast<unsigned long long>(bytes));
  } else if (bytes < MiB) {
    std::snprintf(text, sizeof text, "%.5g KiB", static_cast<double>(bytes) / KiB);
  } else if (bytes < GiB) {
    std::snprintf(text, sizeof text, "%.5g MiB", static_cast<double>(bytes) / MiB);
  } else {
    std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / GiB);
  }
  return text;
}

// Parses "512K", "2M" or "3G". Returns 0 if the text is not a size.
inline Size size_of(const char* text) {
  char* end = nullptr;
  const unsigned long long number = std::strtoull(text, &end, 10);
  const std::string unit = end;
  const Size scale = unit.empty()  ? 1
                     : unit == "K" ? KiB
                     : unit == "M" ? MiB
                     : unit == "G" ? GiB
                                   : 0;
  return *text >= '0' && *text <= '9' && number <= (Size{1} << 50) ? number * scale : 0;
}

inline void print_usage() {
  std::printf(
      "usage: frag_test [--block SIZE] [--fill SIZE] [--every SIZE]\n"
      "\n"
      "Fills the card with blocks, frees every second one, and requests 90%% of the freed memory\n"
      "as one allocation. Then checks the contents of all other blocks.\n"
      "\n"
      "  --block SIZE   size of a block, 4K or more (512K)\n"
      "  --fill SIZE    bytes of blocks; large ones take the rest of the card (all free memory;\n"
      "                 with blocks under 192K, 3G)\n"
      "  --every SIZE   distance between the 256-byte samples that are written and checked (64K);\n"
      "                 256: every byte\n"
      "\n"
      "Exit status: 0 if the allocation succeeds and all contents are right, 1 if not, 2 for\n"
      "invalid arguments, 3 if there is no card or a call fails.\n");
}

inline Request read_words(int count, char** words) {
  Request request;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--help" || word == "-h") {
      print_usage();
      std::exit(Succeeded);
    }
    Size* value = word == "--block"   ? &request.block
                  : word == "--fill"  ? &request.fill
                  : word == "--every" ? &request.every
                                      : nullptr;
    if (value == nullptr || i + 1 == count || (*value = size_of(words[++i])) == 0) {
      std::fprintf(stderr, "frag_test: invalid argument '%s'; see --help\n", word.c_str());
      std::exit(Usage);
    }
  }
  if (request.block < 4 * KiB || request.block % 4 != 0 || request.every < 256 ||
      request.every % 4 != 0) {
    std::fprintf(
        stderr,
        "frag_test: --block must be at least 4K and --every at least 256, both multiples of 4\n");
    std::exit(Usage);
  }
  if (request.fill == 0 && request.block < 192 * KiB) request.fill = 3 * GiB;
  return request;
}

// How this process' memory is served, as far as the process can tell.
inline std::string mode() {
  std::ifstream maps{"/proc/self/maps"};
  bool has_cuvmm = false;
  for (std::string line; std::getline(maps, line);) {
    has_cuvmm = has_cuvmm || line.find("libcuvmm_preload.so") != std::string::npos;
  }
  if (!has_cuvmm) return "native";
  const char* chosen = std::getenv("VMM_MODE");
  return std::string{"cuvmm, VMM_MODE="} + (chosen != nullptr && *chosen != '\0' ? chosen : "VMM");
}

inline bool is_simulated() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver != nullptr && ::dlsym(driver, "cuvmm_sim_calls") != nullptr;
}

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  }

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

inline void say(const char* what, const std::string& value) {
  std::printf("  %-28s %s\n", what, value.c_str());
  std::fflush(stdout);
}
inline std::string in_seconds(const Stopwatch& watch) {
  char text[32];
  std::snprintf(text, sizeof text, "  (%.2f s)", watch.seconds());
  return text;
}

// The contents of blocks. Every word depends on its block and its position, so that a block with
// another block's bytes, or its own at another position, is detected.
class Contents {
 public:
  Contents(Memory& memory, Size every) : memory_(memory), every_(every) {}

  void write(Address block, Size size, std::uint64_t number) {
    const Size rows = rows_of(size);
    fill(expected_, number, 0, every_, rows);
    memory_.write(block, every_, expected_.data(), width, rows);
    fill(expected_, number, size - width, width, 1);
    memory_.write(block + size - width, width, expected_.data(), width, 1);
  }

  bool is_right(Address block, Size size, std::uint64_t number) {
    const Size rows = rows_of(size);
    fill(expected_, number, 0, every_, rows);
    found_.assign(expected_.size(), 0);
    memory_.read(found_.data(), block, every_, width, rows);
    if (found_ != expected_) return false;
    fill(expected_, number, size - width, width, 1);
    found_.assign(expected_.size(), 0);
    memory_.read(found_.data(), block + size - width, width, width, 1);
    return found_ == expected_;
  }

 private:
  static constexpr Size width = 256;
  using Words = std::vector<std::uint32_t>;

  Size rows_of(Size size) const { return size < every_ ? 1 : (size - width) / every_ + 1; }

  static std::uint32_t word(std::uint64_t number, Size offset) {
    std::uint64_t mixed = (number << 40) ^ offset;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
    return static_cast<std::uint32_t>(mixed >> 32);
  }
  static void fill(Words& words, std::uint64_t number, Size begin, Size pitch, Size rows) {
    words.clear();
    for (Size row = 0; row < rows; ++row) {
      for (Size at = 0; at < width; at += 4)
        words.push_back(word(number, begin + row * pitch + at));
    }
  }

  Memory& memory_;
  Size every_;
  Words expected_;
  Words found_;
};

class Comb {
 public:
  Comb(Memory& memory, const Request& request)
      : memory_(memory), request_(request), contents_(memory, request.every) {}

  int run() {
    std::printf("%s, %s\n", memory_.functions(), mode().c_str());
    say("card", memory_.device_name() + (is_simulated() ? ", simulated" : ""));
    say("memory", pretty(memory_.free()) + " free of " + pretty(memory_.total()));
    take_what_the_comb_leaves();
    fill();
    const Size freed = free_every_second();
    const bool got_it = ask_for(freed / 10 * 9 / KiB * KiB);
    const bool is_right = look_at_contents();
    std::printf("%s\n", verdict(got_it, is_right).c_str());
    give_all_back();
    return got_it && is_right ? Succeeded : Failed;
  }

 private:
  void take_what_the_comb_leaves() {
    if (request_.fill == 0) return;
    for (Size piece = GiB; piece >= 2 * MiB;) {
      const Size free = memory_.free();
      const Address taken = free >= request_.fill + piece ? memory_.allocate(piece) : 0;
      if (taken == 0) {
        piece /= 2;
        continue;
      }
      ballast_.push_back(taken);
      ballast_bytes_ += piece;
    }
  }

  void fill() {
    const Stopwatch watch;
    while (request_.fill == 0 || blocks_.size() * request_.block < request_.fill) {
      const Address block = memory_.allocate(request_.block);
      if (block == 0) break;
      contents_.write(block, request_.block, blocks_.size());
      blocks_.push_back(block);
    }
    say("filled with", std::to_string(blocks_.size()) + " blocks of " + pretty(request_.block) +
                           ", " + pretty(blocks_.size() * request_.block) + in_seconds(watch));
    take_the_rest();
    if (ballast_bytes_ != 0) say("taken by large blocks", pretty(ballast_bytes_));
    say("left free", pretty(memory_.free()));
  }

  // Allocates the rest too, since memory left free would make the large request easier.
  void take_the_rest() {
    constexpr Size granule = 2 * MiB;
    while (const Address rest = memory_.allocate(granule)) {
      ballast_.push_back(rest);
      ballast_bytes_ += granule;
    }
  }

  Size free_every_second() {
    const Stopwatch watch;
    Size freed = 0;
    for (std::size_t i = 1; i < blocks_.size(); i += 2) {
      memory_.release(blocks_[i]);
      blocks_[i] = 0;
      freed += request_.block;
    }
    say("freed every second block", pretty(freed) + in_seconds(watch));
    return freed;
  }

  bool ask_for(Size size) {
    const Stopwatch watch;
    large_ = size != 0 ? memory_.allocate(size) : 0;
    large_size_ = size;
    say("requested in one piece, 90%", pretty(size));
    say("answer", (large_ != 0 ? "success" : "out of memory") + in_seconds(watch));
    if (large_ != 0) {
      contents_.write(large_, large_size_, number_of_large);
    } else {
      say("largest that succeeds", pretty(largest_below(size)));
    }
    return large_ != 0;
  }

  // Precise to a granule.
  Size largest_below(Size refused) {
    Size had = 0;
    while (refused - had > 2 * MiB) {
      const Size tried = had + (refused - had) / 2;
      const Address block = memory_.allocate(tried);
      (block != 0 ? had : refused) = tried;
      if (block != 0) memory_.release(block);
    }
    return had;
  }

  bool look_at_contents() {
    const Stopwatch watch;
    std::size_t right = 0;
    std::size_t all = 0;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (blocks_[i] == 0) continue;
      ++all;
      right += contents_.is_right(blocks_[i], request_.block, i) ? 1 : 0;
    }
    if (large_ != 0) {
      ++all;
      right += contents_.is_right(large_, large_size_, number_of_large) ? 1 : 0;
    }
    say("blocks with right contents",
        std::to_string(right) + " of " + std::to_string(all) + in_seconds(watch));
    return right == all;
  }

  std::string verdict(bool got_it, bool is_right) const {
    if (!is_right) return "FAILED: blocks have lost their contents.";
    if (!got_it) return "FAILED: the memory is free, but cannot be allocated in one piece.";
    if (request_.block < 2 * MiB) return "SUCCEEDED: what is free can be allocated in one piece.";
    return "SUCCEEDED: what is free can be allocated in one piece. With blocks of 2 MiB and more "
           "the\n"
           "driver copes too, since it maps each of them individually.";
  }

  void give_all_back() {
    blocks_.insert(blocks_.end(), ballast_.begin(), ballast_.end());
    blocks_.push_back(large_);
    for (const Address block : blocks_) {
      if (block != 0) memory_.release(block);
    }
  }

  static constexpr std::uint64_t number_of_large = 1 << 23;  // not the number of any block

  Memory& memory_;
  const Request request_;
  Contents contents_;
  std::vector<Address> blocks_;  // 0 once freed
  std::vector<Address> ballast_;
  Size ballast_bytes_ = 0;
  Address large_ = 0;
  Size large_size_ = 0;
};

}  // namespace comb
