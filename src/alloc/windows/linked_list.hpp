// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace cuvmm {

template <class T>
struct Links {
  T* next = nullptr;
  T* previous = nullptr;
};

// An intrusive list: adding and removing members allocate nothing.
template <class T, Links<T> T::*links>
class LinkedList {
 public:
  bool is_empty() const { return first_ == nullptr; }
  T* first() const { return first_; }
  T* last() const { return last_; }
  static T* after(const T& member) { return (member.*links).next; }

  void push_front(T& member) {
    (member.*links) = {first_, nullptr};
    (first_ != nullptr ? (first_->*links).previous : last_) = &member;
    first_ = &member;
  }
  void push_back(T& member) {
    (member.*links) = {nullptr, last_};
    (last_ != nullptr ? (last_->*links).next : first_) = &member;
    last_ = &member;
  }
  void remove(T& member) {
    const Links<T> was = member.*links;
    (was.previous != nullptr ? (was.previous->*links).next : first_) = was.next;
    (was.next != nullptr ? (was.next->*links).previous : last_) = was.previous;
    member.*links = {};
  }
  T* pop_front() {
    T* const member = first_;
    if (member != nullptr) remove(*member);
    return member;
  }
  // For invariant checks: the number of members, or an impossible number if the links are
  // inconsistent.
  std::size_t count() const {
    std::size_t members = 0;
    const T* before = nullptr;
    for (const T* at = first_; at != nullptr; before = at, at = (at->*links).next, ++members) {
      if ((at->*links).previous != before) return ~std::size_t{0};
    }
    return before == last_ ? members : ~std::size_t{0};
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
};

}  // namespace cuvmm
