// SPDX-License-Identifier: Apache-2.0
// Doubles a buffer as programs do: a larger buffer, a copy, a free. The source of memory (the
// driver, the runtime) is a Memory.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace growth {

using Address = std::uint64_t;
using Size = std::uint64_t;
constexpr Size MiB = Size{1} << 20;
constexpr Size GiB = Size{1} << 30;

enum Exit { Succeeded = 0, Failed = 1, Usage = 2, Broken = 3 };

[[noreturn]] inline void give_up(const char* what, const std::string& error) {
  std::fprintf(stderr, "resize_test: %s returned %s\n", what, error.c_str());
  std::exit(Broken);
}

class Memory {
 public:
  virtual ~Memory() = default;
  virtual const char* functions() const = 0;  // "cuMemAlloc, cuMemcpyDtoD and cuMemFree"
  virtual std::string device_name() = 0;
  virtual Size total() = 0;
  virtual Size free() = 0;
  virtual Address allocate(Size size) = 0;  // 0: out of memory
  virtual void release(Address address) = 0;
  virtual void copy(Address to, Address from, Size size) = 0;
  virtual void wait() = 0;
  virtual void write(Address to, const void* from, Size size) = 0;
  virtual void read(void* to, Address from, Size size) = 0;
};

struct Request {
  Size largest = 0;  // bytes at the end; 0: 16 GiB, or as much as the device has room for
  int times = 4;     // number of doublings
};

// Parses "512M" or "16G". Returns 0 if the text is not a size.
inline Size size_of(const char* text) {
  char* end = nullptr;
  const unsigned long long number = std::strtoull(text, &end, 10);
  const std::string unit = end;
  const Size scale = unit == "M" ? MiB : unit == "G" ? GiB : 0;
  return *text >= '0' && *text <= '9' && number <= (Size{1} << 30) ? number * scale : 0;
}

inline Request read_words(int count, char** words) {
  Request request;
  const bool is_size = count == 3 && std::strcmp(words[1], "--largest") == 0;
  if (is_size) request.largest = size_of(words[2]);
  if (count != 1 && request.largest < 64 * MiB) {
    std::fprintf(stderr,
                 "usage: resize_test [--largest SIZE]\n"
                 "  grows a buffer to SIZE (at least 64M) by doubling it four times\n");
    std::exit(count == 2 && std::strcmp(words[1], "--help") == 0 ? Succeeded : Usage);
  }
  return request;
}

// cuvmm's own figures, if this process runs under it and its library can be found.
class Cuvmm {
 public:
  Cuvmm() {
    Dl_info where{};
    void* entry = ::dlsym(RTLD_DEFAULT, "cuvmm_engine_v1");
    if (entry == nullptr || ::dladdr(entry, &where) == 0) return;
    is_here_ = true;
    std::string path = where.dli_fname;
    path.resize(path.rfind('/') + 1);
    if (void* library = ::dlopen((path + "libcuvmm.so").c_str(), RTLD_NOW)) {
      get_ = reinterpret_cast<Get*>(::dlsym(library, "cuvmm_get_resize_info"));
    }
  }
  bool is_here() const { return is_here_; }
  bool can_tell() const { return !is_here_ || get_ != nullptr; }
  // Bytes of copies elided so far.
  Size elided_bytes() const {
    std::uint64_t info[8] = {};
    return get_ != nullptr && get_(info, nullptr) == 0 ? info[1] : 0;
  }
  std::string words() const {
    if (!is_here_) return "native";
    const char* mode = std::getenv("VMM_MODE");
    const char* resize = std::getenv("VMM_RESIZE");
    return std::string("cuvmm, VMM_MODE=") + (mode != nullptr ? mode : "vmm") +
           ", VMM_RESIZE=" + (resize != nullptr ? resize : "auto");
  }

 private:
  using Get = int(std::uint64_t* info, void* error);
  bool is_here_ = false;
  Get* get_ = nullptr;
};

class Growth {
 public:
  Growth(Memory& memory, const Request& request) : memory_(memory), request_(request) {}

  int run() {
    if (request_.largest == 0) request_.largest = what_fits();
    const Size first = request_.largest >> request_.times;
    std::printf("%s, %s\n%s\n", memory_.functions(), cuvmm_.words().c_str(),
                memory_.device_name().c_str());
    free_before_ = memory_.free();
    Size size = first;
    Address buffer = memory_.allocate(size);
    if (buffer == 0) return out_of_memory(size);
    write_marks(buffer, 0, size);
    memory_.wait();
    for (int i = 0; i < request_.times; ++i) {
      if (!grow(buffer, size)) return out_of_memory(2 * size);
      write_marks(buffer, size, 2 * size);
      size *= 2;
    }
    const bool is_right = marks_are_right(buffer, size);
    memory_.release(buffer);
    report(size - first, is_right);
    return is_right ? Succeeded : Failed;
  }

 private:
  static constexpr Size stamp_every = 4 * MiB;

  // Natively, growing to N takes 1.5 N.
  Size what_fits() {
    Size largest = 16 * GiB;
    while (largest > 256 * MiB && largest * 2 > memory_.total() / 2) largest /= 2;
    return largest;
  }

  bool grow(Address& buffer, Size size) {
    const double began = now();
    const Address larger = memory_.allocate(2 * size);
    const double allocated = now();
    if (larger == 0) return false;
    look_at_peak();
    const double copying = now();
    memory_.copy(larger, buffer, size);
    memory_.release(buffer);
    memory_.wait();
    const double done = now();
    std::printf("  %8.2f -> %8.2f MiB: allocated in %10.1f us, copied and freed in %10.1f us\n",
                mib(size), mib(2 * size), allocated - began, done - copying);
    time_ += (allocated - began) + (done - copying);
    asked_ += size;
    buffer = larger;
    return true;
  }

  void look_at_peak() {
    peak_ = std::max(peak_, free_before_ - std::min(free_before_, memory_.free()));
  }

  // Writes words, far apart, that contain their own position.
  void write_marks(Address buffer, Size from, Size to) {
    for (Size at = from; at < to; at += stamp_every) {
      const std::uint64_t words[2] = {at, ~at};
      memory_.write(buffer + at, words, sizeof words);
      memory_.write(buffer + at + stamp_every - sizeof words, words, sizeof words);
    }
  }
  bool marks_are_right(Address buffer, Size size) {
    for (Size at = 0; at < size; at += stamp_every) {
      for (const Size place : {at, at + stamp_every - 16}) {
        std::uint64_t words[2] = {};
        memory_.read(words, buffer + place, sizeof words);
        if (words[0] != at || words[1] != ~at) return false;
      }
    }
    return true;
  }

  void report(Size grown, bool is_right) {
    std::printf("grew by %.2f MiB in %.1f us\n", mib(grown), time_);
    std::printf("asked to copy %.2f MiB", mib(asked_));
    if (cuvmm_.can_tell()) {
      std::printf(", copied %.2f MiB\n", mib(asked_ - std::min(asked_, cuvmm_.elided_bytes())));
    } else {
      std::printf("; bytes copied unknown, since libcuvmm.so is not beside the preload library\n");
    }
    std::printf("physical peak %.2f MiB\n", mib(peak_));
    std::printf(is_right ? "SUCCEEDED: every byte checked is correct.\n"
                         : "FAILED: the contents are wrong.\n");
  }

  int out_of_memory(Size asked) {
    std::printf("FAILED: out of memory, %.2f MiB requested.\n", mib(asked));
    return Failed;
  }

  static double mib(Size bytes) { return static_cast<double>(bytes) / static_cast<double>(MiB); }
  static double now() {
    const auto time = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::micro>(time).count();
  }

  Memory& memory_;
  Request request_;
  Cuvmm cuvmm_;
  Size free_before_ = 0;
  Size peak_ = 0;
  Size asked_ = 0;
  double time_ = 0;
};

}  // namespace growth
