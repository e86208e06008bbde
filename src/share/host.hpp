// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "share/granted.hpp"
#include "share/packet.hpp"
#include "share/runtime_socket.hpp"

namespace cuvmm::share {

using PeerId = std::uint64_t;  // never reused
using GrantId = std::uint64_t;

// Something an importer did.
struct HostEvent {
  enum class What : std::uint8_t {
    Came,          // it has shown the right token
    Asked,         // it asked for memory; answer with grant() or refuse()
    Fetched,       // it has received all chunks of the grant
    Acknowledged,  // its program acknowledged the grant, with a status
    Released,      // it no longer holds the grant
    Left,          // it has disconnected and released all its grants
  };
  What what = What::Came;
  PeerId peer = 0;
  GrantId grant = 0;
  std::uint32_t status = 0;  // Acknowledged
  Ask asked;                 // Asked
};

struct HostSettings {
  std::string path;  // of the socket
  ListeningSocket::Replace replace = ListeningSocket::Replace::Stale;
  Token token;
  std::string token_path = {};  // file to write the token to, for importers; empty: none
  std::size_t most_peers = 4096;
  Duration patience{2'000'000};  // how long to wait for a connected peer's Hello
};

// The exporter's side: a socket, the importers that have connected, and the grants that each holds.
// It has no thread of its own: it works inside wait(). No importer can delay it; one that is slow,
// lies or dies loses its own connection and nothing else. Not thread-safe.
class Host {
 public:
  static Result<std::unique_ptr<Host>> open(const HostSettings& settings);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // The next event, or nothing if none arrives by the deadline. The wait also ends once the
  // descriptor `also` becomes readable.
  Result<std::optional<HostEvent>> wait(Deadline until, int also = -1);

  // Grants memory to a connected importer. NotFound if it has disconnected.
  Result<GrantId> grant(PeerId peer, Granted granted);
  Result<void> refuse(PeerId peer, Refusal why);

  std::size_t peers() const { return known_; }
  std::size_t grants() const;
  const std::string& path() const { return listening_.path(); }
  const Token& token() const { return settings_.token; }

 private:
  struct Peer {
    ForkClosedFd socket;
    bool known = false;  // has presented the token
    std::uint64_t came_us = 0;
    std::map<GrantId, Granted> grants;
  };
  using Peers = std::map<PeerId, Peer>;

  Host(const HostSettings& settings, ListeningSocket listening)
      : settings_(settings), listening_(std::move(listening)) {}

  void refuse_importers_without_grants();
  void refresh_files();
  void listen_again();
  void accept_all();
  void accept_one(Fd socket);
  Result<void> serve(PeerId id, Peer& peer);
  Result<void> take(PeerId id, Peer& peer, const Message& message);
  Result<void> greet(PeerId id, Peer& peer, const Hello& hello);
  Result<void> answer_fetch(PeerId id, Peer& peer, const Fetch& fetch);
  Result<void> say(const Peer& peer, const Message& message, std::span<const int> files = {});
  void drop(PeerId id);
  void drop_closed_peers();
  void drop_the_silent();
  void add(HostEvent event) { events_.push_back(event); }

  const HostSettings settings_;
  const pid_t process_ = ::getpid();
  ListeningSocket listening_;
  Peers peers_;
  std::size_t known_ = 0;
  std::uint64_t refreshed_us_ = now_us();
  PeerId last_peer_ = 0;
  GrantId last_grant_ = 0;
  std::deque<HostEvent> events_;
};

}  // namespace cuvmm::share
