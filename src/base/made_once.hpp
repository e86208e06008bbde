// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace cuvmm {

// An object that is made on first use and never destroyed, in place of a function's static
// variable. The guard of such a variable stays held in a child that is forked while another thread
// initializes it: the child has no such thread, and would wait for it forever. Here nobody waits:
// each of several threads that come first makes an object, and all but one are deleted. So making
// one must have no effect outside of it.
template <class T>
class MadeOnce {
 public:
  constexpr MadeOnce() = default;
  MadeOnce(const MadeOnce&) = delete;
  MadeOnce& operator=(const MadeOnce&) = delete;

  T& get() {
    return get([] { return T(); });
  }
  // `make()` returns the object; it need not be movable.
  template <class Make>
  T& get(const Make& make) {
    if (T* const made = get_if_made()) [[likely]]
      return *made;
    return publish(new Made{make()});
  }
  // nullptr before the first use.
  T* get_if_made() const {
    Made* const made = made_.load(std::memory_order_acquire);
    return made != nullptr ? &made->object : nullptr;
  }

  // For a forked child, whose next use makes another object: a thread of the parent may have held
  // the old one's lock, so that one stays where it is, unused, but not leaked.
  void forget_after_fork() {
    Made* const old = made_.exchange(nullptr, std::memory_order_acq_rel);
    if (old == nullptr) return;
    old->left_before = left_;
    left_ = old;
  }

 private:
  struct Made {
    T object;
    Made* left_before = nullptr;
  };

  T& publish(Made* mine) {
    Made* others = nullptr;
    if (made_.compare_exchange_strong(others, mine, std::memory_order_acq_rel)) return mine->object;
    delete mine;
    return others->object;
  }

  std::atomic<Made*> made_{nullptr};
  Made* left_ = nullptr;  // by parents
};

// The same for a yes or no that never changes.
class AskedOnce {
 public:
  template <class Ask>
  bool get(const Ask& ask) {
    Answer known = answer_.load(std::memory_order_relaxed);
    if (known == Answer::Unknown) [[unlikely]] {
      known = ask() ? Answer::Yes : Answer::No;
      answer_.store(known, std::memory_order_relaxed);
    }
    return known == Answer::Yes;
  }

 private:
  enum class Answer : std::uint8_t { Unknown, No, Yes };
  std::atomic<Answer> answer_{Answer::Unknown};
};

}  // namespace cuvmm
