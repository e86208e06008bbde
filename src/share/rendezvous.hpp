// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "share/host.hpp"
#include "share/session.hpp"

namespace cuvmm::share {

// Where exporter and importer of one user meet when nobody names a place.
Result<std::string> usual_place_to_listen();

// A host at that path with a token of its own, which lies in a file beside it.
Result<std::unique_ptr<Host>> listen_at(const std::string& path);
// By the token beside that path.
Result<Session> connect_at(const std::string& path, Deadline until);
// In the first of the user's folders where somebody listens.
Result<Session> connect_at_the_usual_place(Deadline until);

}  // namespace cuvmm::share
