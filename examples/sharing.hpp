// SPDX-License-Identifier: Apache-2.0
// Code shared by producer and consumer: the driver, the pattern, and error handling.
#pragma once

#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cuvmm/share.hpp"
#include "driver_calls.hpp"

namespace sharing {

inline const char* program = "";

// Prints one line with the remedy and ends the program.
[[noreturn, gnu::format(printf, 1, 2)]] inline void give_up(const char* format, ...) {
  va_list words;
  va_start(words, format);
  std::fprintf(stderr, "%s: ", program);
  std::vfprintf(stderr, format, words);
  std::fputc('\n', stderr);
  va_end(words);
  std::exit(1);
}

// Prints a line unbuffered, so that the output of two programs in one terminal or pipe is in order.
[[gnu::format(printf, 1, 2)]] inline void say(const char* format, ...) {
  va_list words;
  va_start(words, format);
  std::vprintf(format, words);
  std::putchar('\n');
  std::fflush(stdout);
  va_end(words);
}

[[noreturn]] inline void missing_driver(const char*) {
  give_up("no CUDA driver here; `cuvmm run --sim -- %s` has a simulated one", program);
}

inline void check(CUresult answer, const char* what) {
  if (answer == CUDA_SUCCESS) return;
  give_up("%s returned %s", what, driver_calls::error_text(answer).c_str());
}
template <class T>
T taken(cuvmm::Result<T> result) {
  if (!result.ok()) give_up("%s", result.error().message());
  return std::move(result).value();
}
inline void check(const cuvmm::Result<void>& result) {
  if (!result.ok()) give_up("%s", result.error().message());
}

struct Options {
  std::string socket;  // empty: the usual socket
  std::chrono::seconds timeout{60};
  bool corrupt = false;
};

inline Options read_options(int count, char** words, bool may_corrupt) {
  const char* const usage = may_corrupt ? "[--socket PATH] [--timeout SECONDS] [--corrupt]"
                                        : "[--socket PATH] [--timeout SECONDS]";
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--corrupt" && may_corrupt) {
      options.corrupt = true;
    } else if (word == "--socket" && i + 1 < count) {
      options.socket = words[++i];
    } else if (word == "--timeout" && i + 1 < count && std::atoi(words[i + 1]) > 0) {
      options.timeout = std::chrono::seconds{std::atoi(words[++i])};
    } else {
      give_up("usage: %s %s", program, usage);
    }
  }
  return options;
}

// Device 0 with its primary context.
class Device {
 public:
  Device() {
    check(CALL(cuInit)(0), "cuInit");
    check(CALL(cuDeviceGet)(&device_, 0), "cuDeviceGet");
    char name[256] = "";
    check(CALL(cuDeviceGetName)(name, sizeof name, device_), "cuDeviceGetName");
    say("Using CUDA device 0: %s", name);
    if (!has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
      give_up(
          "this device has no virtual memory management; use one of compute capability 6.0 or "
          "later "
          "with driver 11.0 or later");
    }
    if (!has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
      give_up(
          "this device cannot share memory by file descriptor; run both programs on Linux outside "
          "WSL, on a device that can");
    }
    check(CALL(cuDevicePrimaryCtxRetain)(&context_, device_), "cuDevicePrimaryCtxRetain");
    check(CALL(cuCtxSetCurrent)(context_), "cuCtxSetCurrent");
  }
  ~Device() { CALL(cuDevicePrimaryCtxRelease)(device_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  bool has(CUdevice_attribute what) const {
    int value = 0;
    check(CALL(cuDeviceGetAttribute)(&value, what, device_), "cuDeviceGetAttribute");
    return value != 0;
  }

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

constexpr std::size_t buffer_size = std::size_t{1} << 20;
constexpr std::size_t integer_count = buffer_size / sizeof(std::uint32_t);

constexpr std::uint32_t expected(std::size_t i) {
  return static_cast<std::uint32_t>(i * 2 + 1337) ^ 0xDEADBEEF;
}

constexpr std::uint32_t verified = 0;
constexpr std::uint32_t corrupted = 1;

}  // namespace sharing
