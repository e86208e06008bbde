// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "observe/published.hpp"
#include "observe/web_source.hpp"

namespace cuvmm::cli {

// The node's state as seen from here: from the node service if there is one, or else from the
// figures of this user's processes.
class NodeSource : public observe::WebSource {
 public:
  virtual ~NodeSource() = default;
  // Only this user and root may look.
  std::optional<observe::WebViewer> viewer_of(uid_t user) const override;
};

std::unique_ptr<NodeSource> source_here(observe::ShowsArguments arguments);

// Asks for new figures and waits briefly for them.
void wait_for_figures(observe::WebSource& source);

}  // namespace cuvmm::cli
