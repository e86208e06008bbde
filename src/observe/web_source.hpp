// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "observe/exposition.hpp"

namespace cuvmm::observe {

// Which clients a viewer may see.
struct WebViewer {
  bool sees_all = false;
  uid_t user = 0;  // otherwise only this user's clients
  auto operator<=>(const WebViewer&) const = default;
};

// The contents of a web server. Called by one thread; no function blocks.
class WebSource {
 public:
  // refresh() asks for new figures; is_fresh() returns whether they have arrived.
  virtual void refresh() = 0;
  virtual bool is_fresh() = 0;

  // What a user of this machine may see without a token; nothing if the user may see nothing at
  // all.
  virtual std::optional<WebViewer> viewer_of(uid_t user) const = 0;

  virtual std::string metrics(const WebViewer& viewer, MetricFormat format) = 0;
  // JSON, on one line.
  virtual std::string state(const WebViewer& viewer) = 0;
  // The arenas and windows of one client, as JSON on one line; empty if the viewer sees no client
  // with that label.
  virtual std::string client(const WebViewer& viewer, const std::string& label) = 0;

 protected:
  ~WebSource() = default;
};

}  // namespace cuvmm::observe
