// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

namespace cuvmm {

// A copy of the caller's bytes that outlives the call. Small ones are stored in place.
template <std::size_t in_place>
class KeptBytes {
 public:
  explicit KeptBytes(std::size_t size) : size_(size) {
    if (size > in_place) far_.reset(new (std::nothrow) std::byte[size]);
  }
  KeptBytes(KeptBytes&& other) noexcept : size_(other.size_), far_(std::move(other.far_)) {
    if (far_ == nullptr) std::memcpy(near_, other.near_, size_ < in_place ? size_ : in_place);
  }
  KeptBytes(const KeptBytes&) = delete;
  KeptBytes& operator=(const KeptBytes&) = delete;

  // False if the allocation failed.
  bool ok() const { return size_ <= in_place || far_ != nullptr; }
  std::byte* data() { return far_ != nullptr ? far_.get() : near_; }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_;
  std::unique_ptr<std::byte[]> far_;
  alignas(16) std::byte near_[in_place];
};

}  // namespace cuvmm
