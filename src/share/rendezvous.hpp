// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "share/host.hpp"
#include "share/session.hpp"

namespace cuvmm::share {

// Where an exporter and an importer of one user meet if no path is given.
Result<std::string> usual_place_to_listen();

// Opens a host at that path with a fresh token, stored in a file beside the socket.
Result<std::unique_ptr<Host>> listen_at(const std::string& path);
// Connects with the token stored beside that path.
Result<Session> connect_at(const std::string& path, Deadline until);
// Connects in the first of the user's folders in which a process listens.
Result<Session> connect_at_the_usual_place(Deadline until);

}  // namespace cuvmm::share
