// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace cuvmm {

using Size = std::uint64_t;

enum class ErrorKind : std::uint8_t {
  InvalidArgument,  // the caller's numbers are wrong: zero, overflow, unaligned, out of range
  InvalidOption,    // an option's text does not parse
  OutOfMemory,      // physical memory, or the limit
  OutOfAddresses,   // no contiguous addresses of that size
  InvalidGranule,   // memory cannot be mapped in granules of that size
  InvalidOffset,    // bytes beyond the end
  AlreadyMapped,    // the range is already in use
  NotMapped,        // nothing is mapped there
  NotFound,         // no such thing
  AlreadyExists,    // the name is taken
  NotAvailable,     // this driver is too old for the function
  NotSupported,     // this device or this build lacks the feature
  DriverMissing,    // no libcuda, or one that cuvmm cannot use
  DriverFailed,     // a driver call failed; see driver_code
  SystemFailed,     // a system call failed; see system_code
  TimedOut,
};

// What went wrong, small enough to pass by value. `doing` and `subject` are string literals or live
// as long as the process.
struct Error {
  ErrorKind kind = ErrorKind::DriverFailed;
  int driver_code = 0;       // a CUresult, if a driver call failed
  int system_code = 0;       // an errno, if a system call failed
  const char* doing = "";    // the step that failed: "map chunk"
  const char* subject = "";  // what the step was applied to, or why it failed
  Size asked = 0;            // bytes requested; 0 if not applicable
  Size available = 0;        // bytes available; 0 or `unlimited`: not applicable
  std::uint32_t tried = 0;   // the steps tried before it failed; the caller defines the bits
  bool counts = false;       // `asked` and `available` count something other than bytes

  static Error invalid(const char* doing, const char* why, Size asked = 0) {
    return {.kind = ErrorKind::InvalidArgument, .doing = doing, .subject = why, .asked = asked};
  }

  // One readable line: "map chunk: out of memory (CUDA error 2), 2.00 MiB requested".
  std::string text() const;
};

const char* name_of(ErrorKind kind);

}  // namespace cuvmm
