// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "cuvmm/resizable.h"
#include "cuvmm/result.hpp"

namespace cuvmm {
inline namespace v1 {

using ResizableInfo = cuvmm_resizable_info;
using ResizeInfo = cuvmm_resize_info;

// Owns a resizable buffer. The destructor waits as cuvmm_release_resizable does, then releases it.
class ResizableBuffer {
 public:
  static Result<ResizableBuffer> reserve(int device, std::uint64_t most) {
    const auto address = detail::answer_with<std::uint64_t>([&](auto* at, cuvmm_error* error) {
      return cuvmm_reserve_resizable(device, most, at, error);
    });
    if (!address) return address.error();
    return ResizableBuffer{*address};
  }

  ResizableBuffer(ResizableBuffer&& other) noexcept : address_(std::exchange(other.address_, 0)) {}
  ResizableBuffer& operator=(ResizableBuffer&& other) noexcept {
    std::swap(address_, other.address_);
    return *this;
  }
  ~ResizableBuffer() {
    if (address_ != 0) cuvmm_release_resizable(address_, nullptr);
  }

  // Constant for the buffer's lifetime.
  std::uint64_t address() const { return address_; }

  Result<void> resize(std::uint64_t size) {
    return detail::answer([&](cuvmm_error* error) { return cuvmm_resize(address_, size, error); });
  }
  // In the order of `stream`, a CUstream.
  Result<void> resize(std::uint64_t size, void* stream) {
    return detail::answer(
        [&](cuvmm_error* error) { return cuvmm_resize_ordered(address_, size, stream, error); });
  }

  Result<ResizableInfo> info() const {
    return detail::answer_with<ResizableInfo>([&](ResizableInfo* info, cuvmm_error* error) {
      return cuvmm_get_resizable_info(address_, info, error);
    });
  }

  // Releases the buffer in the order of `stream`, a CUstream. After an error it still exists.
  Result<void> release(void* stream) {
    const auto released = detail::answer([&](cuvmm_error* error) {
      return cuvmm_release_resizable_ordered(address_, stream, error);
    });
    if (released) address_ = 0;
    return released;
  }

 private:
  explicit ResizableBuffer(std::uint64_t address) : address_(address) {}

  std::uint64_t address_;
};

inline Result<ResizeInfo> resize_info() {
  return detail::answer_with<ResizeInfo>(&cuvmm_get_resize_info);
}

}  // namespace v1
}  // namespace cuvmm
