// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "node/grant_board.hpp"
#include "observe/devices.hpp"

namespace cuvmm::daemon {

// Applies the time policy through the boards shared with clients. A client's entries on its board
// are not trusted: they affect only that client's own time.
class TimeKeeper {
 public:
  // Sends `to` a descriptor of the board of a client above it.
  using SendBoard = std::function<void(node::ClientId to, std::uint32_t slot, int descriptor)>;
  TimeKeeper(std::vector<observe::NodeDevice> devices, SendBoard send_board)
      : devices_(std::move(devices)), send_board_(std::move(send_board)) {}

  void configure(const node::TimeSettings& settings, node::Microseconds now);

  // Returns the descriptor of the client's board, which TimeKeeper owns; nothing if there is no
  // memory for a board.
  std::optional<int> came(node::ClientId client, pid_t process, const node::TimeTerms& terms,
                          node::Microseconds now);
  void uses(node::ClientId client, node::PlaceId device, node::Microseconds now);
  void terms_changed(node::ClientId client, const node::TimeTerms& terms, node::Microseconds now);
  void left(node::ClientId client, node::Microseconds now);
  void groups_changed(const std::map<node::ClientId, std::string>& groups, node::Microseconds now);
  // The client has changed its board.
  void news(node::ClientId client, node::Microseconds now);
  void has_memory_turn(node::ClientId client, bool has, node::Microseconds now);
  // The client accepts the boards of clients above it.
  void yields(node::ClientId client);

  void time_passed(node::Microseconds now);
  std::optional<node::Microseconds> next_wake() const;

  bool knows(node::ClientId client) const { return clients_.contains(client); }
  std::uint32_t cap_of(node::ClientId client) const;
  node::TimeUse use_of(node::ClientId client) const { return policy_.use_of(client); }
  // Whether it competes with others on any device.
  bool competes(node::ClientId client) const;

 private:
  // Unmaps a board.
  struct Unmap {
    void operator()(node::GrantBoard* board) const;
  };
  struct Client {
    pid_t process = 0;
    std::uint32_t cap = 100;
    Fd descriptor;
    std::unique_ptr<node::GrantBoard, Unmap> board;
    std::map<node::PlaceId, bool> wants;
    bool is_stopped = false;
    Fd for_others;  // its board, for reading
    bool yields = false;
    std::map<node::ClientId, std::uint32_t> foregrounds;  // whose boards it has, in which slots
  };

  node::GrantWords* words_of(Client& client, node::PlaceId device) const;
  void read_times_in_flight();
  void read_board(node::ClientId id, Client& client, node::Microseconds now);
  void look_for_stopped(node::Microseconds now);
  void tell(const node::TimePolicy::Decisions& decisions);
  std::uint32_t heeded_by(node::ClientId id, Client& client, node::PlaceId device);
  std::optional<std::uint32_t> slot_for(node::ClientId id, Client& client, node::ClientId above);
  void report_suspensions();
  void beat(node::Microseconds now);

  const std::vector<observe::NodeDevice> devices_;
  const SendBoard send_board_;
  node::TimePolicy policy_;
  std::map<node::ClientId, Client> clients_;
  std::set<node::PlaceId> suspended_;  // devices reported as such
  std::uint32_t last_number_ = 0;      // sequence number of a grant
  node::Microseconds beaten_at_ = 0;
  node::Microseconds holders_checked_at_ = 0;
};

}  // namespace cuvmm::daemon
