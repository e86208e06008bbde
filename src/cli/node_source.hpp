// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "observe/published.hpp"
#include "observe/web_source.hpp"

namespace cuvmm::cli {

// What can be seen from here: as the node's service serves it, where there is one, else what this
// user's processes publish.
class NodeSource : public observe::WebSource {
 public:
  virtual ~NodeSource() = default;
  // Only this user and root.
  std::optional<observe::WebViewer> viewer_of(uid_t user) const override;
};

std::unique_ptr<NodeSource> source_here(observe::ShowsArguments arguments);

// Asks for new figures, and waits for them for a moment.
void wait_for_figures(observe::WebSource& source);

}  // namespace cuvmm::cli
