// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"

#include <cstring>

#include "base/size.hpp"

namespace cuvmm {
namespace {

bool says_something(const char* text) {
  return text != nullptr && *text != '\0';
}

// 13000 as "13.0".
std::string version_text(Size version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string system_text(int code) {
  char buffer[128];
  return ::strerror_r(code, buffer, sizeof buffer);
}

// The subject and the error codes.
std::string details(const Error& error) {
  std::string text;
  const auto add = [&text](const std::string& part) {
    if (!text.empty()) text += ", ";
    text += part;
  };
  if (says_something(error.subject)) add(error.subject);
  if (error.driver_code != 0) add("CUDA error " + std::to_string(error.driver_code));
  if (error.system_code != 0) add(system_text(error.system_code));
  return text;
}

}  // namespace

const char* name_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::InvalidArgument:
      return "invalid argument";
    case ErrorKind::InvalidOption:
      return "invalid option";
    case ErrorKind::OutOfMemory:
      return "out of memory";
    case ErrorKind::OutOfAddresses:
      return "out of addresses";
    case ErrorKind::InvalidGranule:
      return "invalid granule";
    case ErrorKind::InvalidOffset:
      return "invalid offset";
    case ErrorKind::AlreadyMapped:
      return "already mapped";
    case ErrorKind::NotMapped:
      return "not mapped";
    case ErrorKind::NotFound:
      return "not found";
    case ErrorKind::AlreadyExists:
      return "already exists";
    case ErrorKind::NotAvailable:
      return "not available in this driver";
    case ErrorKind::NotSupported:
      return "not supported";
    case ErrorKind::DriverMissing:
      return "no usable driver";
    case ErrorKind::DriverFailed:
      return "refused by the driver";
    case ErrorKind::SystemFailed:
      return "refused by the system";
    case ErrorKind::TimedOut:
      return "timed out";
  }
  return "unknown error";
}

std::string Error::text() const {
  std::string text;
  if (says_something(doing)) text = std::string(doing) + ": ";
  const std::string more = details(*this);
  if (kind == ErrorKind::SystemFailed && system_code != 0) {
    text += more;  // says why by itself
  } else {
    text += name_of(kind);
    if (!more.empty()) text += " (" + more + ")";
  }

  if (kind == ErrorKind::NotAvailable) {  // both values are versions here
    if (asked != 0) text += ", needs CUDA " + version_text(asked);
    if (available != 0) text += ", the driver has " + version_text(available);
    return text;
  }
  const auto print = [&](Size size) {
    return counts ? std::to_string(static_cast<std::int64_t>(size)) : print_size(size);
  };
  if (asked != 0) text += ", " + print(asked) + " requested";
  if (available != 0 && available != unlimited) text += ", " + print(available) + " available";
  return text;
}

}  // namespace cuvmm
