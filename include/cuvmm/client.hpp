// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "cuvmm/client.h"
#include "cuvmm/result.hpp"

namespace cuvmm {
inline namespace v1 {

enum class Policy : int32_t {
  Off = CUVMM_SCHEDULE_OFF,
  Fifo = CUVMM_SCHEDULE_FIFO,
  RoundRobin = CUVMM_SCHEDULE_ROUND_ROBIN,
  Priority = CUVMM_SCHEDULE_PRIORITY,
  Fair = CUVMM_SCHEDULE_FAIR,
};

inline Result<void> set_policy(Policy policy) {
  return detail::answer(
      [&](cuvmm_error* error) { return cuvmm_set_policy(static_cast<int32_t>(policy), error); });
}

using ClientFigures = cuvmm_client_figures;

// A client of the scheduler. Destroying the object ends the client, once its work has been issued
// to the driver.
class Client {
 public:
  static Result<Client> create(const char* name, int priority = 0, int weight = 1) {
    auto made = detail::answer_with<cuvmm_client>([&](cuvmm_client* client, cuvmm_error* error) {
      return cuvmm_client_create(name, priority, weight, client, error);
    });
    if (!made.ok()) return made.error();
    return Client{*made};
  }
  ~Client() {
    if (number_ != 0) cuvmm_client_destroy(number_, nullptr);
  }
  Client(Client&& other) noexcept : number_(std::exchange(other.number_, 0)) {}
  Client& operator=(Client&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  cuvmm_client number() const { return number_; }

  // Binds the calling thread: work that it submits from now on belongs to this client.
  Result<void> bind() const {
    return detail::answer([&](cuvmm_error* error) { return cuvmm_client_bind(number_, error); });
  }
  // Binds every thread that is not bound individually.
  Result<void> bind_others() const {
    return detail::answer(
        [&](cuvmm_error* error) { return cuvmm_client_bind_others(number_, error); });
  }
  static Result<void> unbind() { return detail::answer(&cuvmm_client_unbind); }

  Result<ClientFigures> figures() const {
    return detail::answer_with<ClientFigures>([&](ClientFigures* figures, cuvmm_error* error) {
      return cuvmm_client_get_figures(number_, figures, error);
    });
  }

 private:
  explicit Client(cuvmm_client number) : number_(number) {}

  cuvmm_client number_;
};

}  // namespace v1
}  // namespace cuvmm
