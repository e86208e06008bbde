// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "share/host.hpp"
#include "share/session.hpp"

namespace cuvmm::share {

// Where exporter and importer of one user meet when nobody names a place. The importer takes the
// first place at which something is.
Result<std::string> usual_place_to_listen();
std::string usual_place_to_connect();

// A host at that path with a token of its own, which lies in a file beside it.
Result<std::unique_ptr<Host>> listen_at(const std::string& path);
// By the token beside that path.
Result<Session> connect_at(const std::string& path, Deadline until);

}  // namespace cuvmm::share
