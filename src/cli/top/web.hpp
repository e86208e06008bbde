// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/clock.hpp"
#include "observe/published.hpp"

namespace cuvmm::cli {

inline constexpr const char* any_port = "127.0.0.1:0";

struct TopWebRequest {
  std::string address = any_port;
  std::string token_file;
  observe::ShowsArguments arguments = observe::ShowsArguments::No;
  Duration interval{1'000'000};
};

// Serves the live view until SIGINT or SIGTERM. Returns the exit status.
int serve_top(const TopWebRequest& request);

}  // namespace cuvmm::cli
