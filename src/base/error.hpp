// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace cuvmm {

using Size = std::uint64_t;

enum class ErrorKind : std::uint8_t {
  InvalidArgument,  // the caller's numbers do not fit: zero, overflow, unaligned, out of range
  InvalidOption,    // an option's text does not parse
  OutOfMemory,      // physical memory, or the limit
  OutOfAddresses,   // no contiguous addresses of that size
  InvalidGranule,   // no granule that memory can be mapped in
  InvalidOffset,    // bytes beyond the end
  AlreadyMapped,    // something lies there
  NotMapped,        // nothing lies there
  NotFound,         // no such thing
  AlreadyExists,    // there is one of that name
  NotAvailable,     // this driver is too old for the function
  NotSupported,     // this device, or this build, cannot
  DriverMissing,    // no libcuda, or not one that we can use
  DriverFailed,     // the driver refused; driver_code says how
  SystemFailed,     // the operating system refused; system_code says how
  TimedOut,
};

// What went wrong, small enough to travel by value. `doing` and `subject` are string literals or
// live as long as the process.
struct Error {
  ErrorKind kind = ErrorKind::DriverFailed;
  int driver_code = 0;       // a CUresult, where the driver was asked
  int system_code = 0;       // an errno, where the system was asked
  const char* doing = "";    // what was being done: "map chunk"
  const char* subject = "";  // what it was done to, or why it was refused
  Size asked = 0;            // bytes asked for, where that says something
  Size available = 0;        // bytes there were; `unlimited` says nothing
  std::uint32_t tried = 0;   // the steps tried before it failed, as the asker's bits
  bool counts = false;       // those two are numbers of something else than bytes

  static Error invalid(const char* doing, const char* why, Size asked = 0) {
    return {.kind = ErrorKind::InvalidArgument, .doing = doing, .subject = why, .asked = asked};
  }

  // One line for a person: "map chunk: out of memory (CUDA error 2), 2.00 MiB asked".
  std::string text() const;
};

const char* name_of(ErrorKind kind);

}  // namespace cuvmm
