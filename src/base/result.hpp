// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/error.hpp"

namespace cuvmm {

// A value, or the Error that prevented it. Factories return Results; constructors cannot fail.
template <class T>
class [[nodiscard]] Result {  // NOLINT(bugprone-exception-escape): it is assigned as a T is
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, error) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Reading a value that is absent is a bug in cuvmm, not a runtime condition: aborts.
  T& value() & {
    T* const held = std::get_if<0>(&state_);
    if (held == nullptr) std::abort();
    return *held;
  }
  const T& value() const& { return const_cast<Result*>(this)->value(); }
  T&& value() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }

  const Error& error() const {
    const Error* const held = std::get_if<1>(&state_);
    if (held == nullptr) std::abort();
    return *held;
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(error) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  void value() const {
    if (!ok()) std::abort();
  }
  const Error& error() const {
    if (ok()) std::abort();
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

namespace detail {
template <class T>
T take(Result<T>&& result) {
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}
}  // namespace detail

}  // namespace cuvmm

// Yields the value of a Result, or returns its Error from the enclosing function.
#define TRY(expression) CUVMM_TRY_AS(CUVMM_UNIQUE(try_result_), expression)

// The value of a Result that cannot fail; `why` gives the reason.
#define MUST(expression, why) CUVMM_MUST_AS(CUVMM_UNIQUE(must_result_), expression, why)

// Unique names, so that one TRY may be nested inside another.
#define CUVMM_JOIN_NOW(a, b) a##b
#define CUVMM_JOIN(a, b) CUVMM_JOIN_NOW(a, b)
#define CUVMM_UNIQUE(name) CUVMM_JOIN(name, __COUNTER__)

#define CUVMM_TRY_AS(result, expression)      \
  __extension__({                             \
    auto result = (expression);               \
    if (!result.ok()) return result.error();  \
    ::cuvmm::detail::take(std::move(result)); \
  })

#define CUVMM_MUST_AS(result, expression, why)                  \
  __extension__({                                               \
    static_assert(sizeof(why) > 1, "say why this cannot fail"); \
    auto result = (expression);                                 \
    if (!result.ok()) ::std::abort();                           \
    ::cuvmm::detail::take(std::move(result));                   \
  })
