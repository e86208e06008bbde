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

using PeerId = std::uint64_t;  // never used again
using GrantId = std::uint64_t;

// What an importer has done.
struct HostEvent {
  enum class What : std::uint8_t {
    Came,          // it is who it says it is
    Asked,         // for memory: answered by grant() or refuse()
    Fetched,       // it has all chunks of the grant
    Acknowledged,  // what its program says of the grant
    Released,      // it has the grant no more
    Left,          // it has gone, with all its grants
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
  std::string token_path = {};  // where it is put down for importers to read; empty: nowhere
  std::size_t most_peers = 4096;
  Duration patience{2'000'000};  // with who has connected and not said who it is
};

// The exporter's side: a socket, the importers that have come, and what each of them holds. It does
// nothing by itself: the caller of wait() gives it the time. No importer can hold it up; one that
// is slow, lies or dies loses its own connection and nothing else. Not synchronised.
class Host {
 public:
  static Result<std::unique_ptr<Host>> open(const HostSettings& settings);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // The next event; nothing where there is none by then. `also`: a descriptor that ends the wait
  // when it becomes readable.
  Result<std::optional<HostEvent>> wait(Deadline until, int also = -1);

  // To an importer that is there. NotFound where it has gone.
  Result<GrantId> grant(PeerId peer, Granted granted);
  Result<void> refuse(PeerId peer, Refusal why);

  std::size_t peers() const { return known_; }
  std::size_t grants() const;
  const std::string& path() const { return listening_.path(); }

 private:
  struct Peer {
    ForkClosedFd socket;
    bool known = false;  // has shown the token
    std::uint64_t came_us = 0;
    std::map<GrantId, Granted> grants;
  };
  using Peers = std::map<PeerId, Peer>;

  Host(const HostSettings& settings, ListeningSocket listening)
      : settings_(settings), listening_(std::move(listening)) {}

  void tell_those_in_vain();
  void refresh_files();
  void accept_all();
  void accept_one(Fd socket);
  Result<void> serve(PeerId id, Peer& peer);
  Result<void> take(PeerId id, Peer& peer, const Message& message);
  Result<void> greet(PeerId id, Peer& peer, const Hello& hello);
  Result<void> answer_fetch(PeerId id, Peer& peer, const Fetch& fetch);
  Result<void> say(const Peer& peer, const Message& message, std::span<const int> files = {});
  void drop(PeerId id);
  void drop_the_lost();
  void drop_the_silent();
  void add(HostEvent event) { events_.push_back(event); }

  const HostSettings settings_;
  ListeningSocket listening_;
  Peers peers_;
  std::size_t known_ = 0;
  std::uint64_t refreshed_us_ = now_us();
  PeerId last_peer_ = 0;
  GrantId last_grant_ = 0;
  std::deque<HostEvent> events_;
};

}  // namespace cuvmm::share
