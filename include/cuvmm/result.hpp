// SPDX-License-Identifier: Apache-2.0
// The results of the C++ API's calls: a value, or an Error. No call throws an exception. The C++
// API consists of inline wrappers over the C API, so a program and the library need not be built by
// the same compiler.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "cuvmm/error.h"

namespace cuvmm {
inline namespace v1 {

enum class ErrorKind : std::int32_t {
  InvalidArgument = CUVMM_ERROR_INVALID_ARGUMENT,
  InvalidGranule = CUVMM_ERROR_INVALID_GRANULE,
  InvalidOffset = CUVMM_ERROR_INVALID_OFFSET,
  AlreadyMapped = CUVMM_ERROR_ALREADY_MAPPED,
  NotMapped = CUVMM_ERROR_NOT_MAPPED,
  OutOfPhysicalMemory = CUVMM_ERROR_OUT_OF_PHYSICAL_MEMORY,
  OutOfAddresses = CUVMM_ERROR_OUT_OF_ADDRESSES,
  ModelAlreadyExists = CUVMM_ERROR_MODEL_ALREADY_EXISTS,
  ModelNotFound = CUVMM_ERROR_MODEL_NOT_FOUND,
  NotSupported = CUVMM_ERROR_NOT_SUPPORTED,
  DeviceLost = CUVMM_ERROR_DEVICE_LOST,
  DriverFailed = CUVMM_ERROR_DRIVER_FAILED,
  SystemFailed = CUVMM_ERROR_SYSTEM_FAILED,
  TimedOut = CUVMM_ERROR_TIMED_OUT,
  NotFound = CUVMM_ERROR_NOT_FOUND,
  AlreadyExists = CUVMM_ERROR_ALREADY_EXISTS,
};

// For example "already mapped".
inline const char* name_of(ErrorKind kind) {
  return cuvmm_status_name(static_cast<cuvmm_status>(kind));
}

// details() is the C API's error; cuvmm_error documents its members.
class Error {
 public:
  explicit Error(const cuvmm_error& of) : details_(of) {}

  ErrorKind kind() const { return static_cast<ErrorKind>(details_.status); }
  const char* message() const { return details_.message; }
  const char* model() const { return details_.model; }
  const cuvmm_error& details() const { return details_; }

 private:
  cuvmm_error details_;
};

namespace detail {
// Reading the value of a failed result, or the error of a successful one, is a bug in the program:
// print a line (with the failed call's error, if there is one) and abort.
[[noreturn]] inline void no_value(const std::optional<Error>& error) {
  std::fprintf(stderr, "cuvmm: the value of a failed call was read: %s\n",
               error.has_value() ? error->message() : "the result was moved from");
  std::abort();
}
[[noreturn]] inline void no_error() {
  std::fputs("cuvmm: error() was called on a successful result\n", stderr);
  std::abort();
}
}  // namespace detail

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(const Error& error) : error_(error) {}

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }

  // Prints a message and aborts if the call failed.
  T& value() & {
    if (!value_.has_value()) detail::no_value(error_);
    return *value_;
  }
  const T& value() const& {
    if (!value_.has_value()) detail::no_value(error_);
    return *value_;
  }
  T&& value() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  const Error& error() const {
    if (!error_.has_value()) detail::no_error();
    return *error_;
  }

 private:
  std::optional<T> value_;
  std::optional<Error> error_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(const Error& error) : error_(error) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    if (!error_.has_value()) detail::no_error();
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

namespace detail {

// A negative time is none.
inline std::uint64_t in_us(std::chrono::microseconds time) {
  return time.count() > 0 ? static_cast<std::uint64_t>(time.count()) : 0;
}

// Wraps a C call that takes only an error: `call(&error)`.
template <class Call>
Result<void> answer(Call call) {
  cuvmm_error error{};
  if (call(&error) == CUVMM_OK) return {};
  return Error{error};
}

// Wraps a C call that also writes a T: `call(&value, &error)`.
template <class T, class Call>
Result<T> answer_with(Call call) {
  cuvmm_error error{};
  T value{};
  if (call(&value, &error) == CUVMM_OK) return value;
  return Error{error};
}

}  // namespace detail
}  // namespace v1
}  // namespace cuvmm
