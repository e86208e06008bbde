// SPDX-License-Identifier: Apache-2.0
#include "base/kept_text.hpp"

#include <atomic>
#include <utility>

namespace cuvmm {

const char* kept_error_text(std::string text) {
  struct Kept {
    std::string text;
    const Kept* next;
  };
  static std::atomic<const Kept*> all{nullptr};
  auto* const kept = new Kept{std::move(text), all.load()};
  while (!all.compare_exchange_weak(kept->next, kept)) {
  }
  return kept->text.c_str();
}

Error error_at(const std::string& place, Error error) {
  const std::string subject = error.subject;
  error.subject = kept_error_text(subject.empty() ? place : place + ": " + subject);
  return error;
}

}  // namespace cuvmm
