// SPDX-License-Identifier: Apache-2.0
#include "cli/node_view.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/printable.hpp"
#include "base/size.hpp"
#include "cli/output.hpp"
#include "node/service_socket.hpp"
#include "observe/snapshot.hpp"
#include "share/packet.hpp"
#include "share/runtime_socket.hpp"

namespace cuvmm::cli {
namespace {

using namespace node;  // NOLINT(google-build-using-namespace): its words are this file's subject
using observe::name_of;

constexpr const char* asking_node = "ask the node service";
constexpr Duration node_patience{2'000'000};
constexpr int name_width = 16;
constexpr const char* waits_title = "WAITS FOR";

Result<Fd> connect_to_node(share::Deadline until) {
  const char* const named = std::getenv("VMM_NODE_SOCKET");
  const bool is_named = named != nullptr && *named != '\0';
  // Errors refer to the paths.
  static const auto sockets = is_named ? std::vector<std::string>{named} : usual_service_sockets();
  Error problem{.kind = ErrorKind::NotFound,
                .doing = asking_node,
                .subject = "no cuvmmd listens at the usual places; VMM_NODE_SOCKET names another"};
  for (const std::string& path : sockets) {
    auto socket = share::connect_to(path, until);
    if (socket.ok()) return socket;
    if (!is_named && socket.error().kind == ErrorKind::NotFound) continue;
    problem = socket.error();
    problem.doing = asking_node;
    problem.subject = path.c_str();
  }
  return problem;
}

Result<void> send_words(const Fd& socket, const ObserverMessage& words) {
  const std::vector<std::byte> packet = encode_observed(words);
  const ssize_t sent = ::send(socket.number(), packet.data(), packet.size(), MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(packet.size())) return {};
  return share::system_error(asking_node);
}

Result<ObserverMessage> receive_words(const Fd& socket, share::Deadline until) {
  std::array<std::byte, longest_message + 1> packet{};
  for (;;) {
    TRY(share::wait_for(socket, POLLIN, until, asking_node));
    const ssize_t got = ::recv(socket.number(), packet.data(), packet.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return share::system_error(asking_node);
    if (got == 0) return share::other_side_has_gone(asking_node);
    auto said = decode_observed(std::span{packet}.first(static_cast<std::size_t>(got)));
    if (!said.ok() && said.error().kind == ErrorKind::NotAvailable) continue;
    return said;
  }
}

std::string print_place(const NodeView& view, const PlaceUuid& uuid) {
  for (const PlaceState& place : view.places) {
    if (place.place != uuid) continue;
    return place.kind == PlaceKind::Host ? "host" : fmt::format("device {}", place.index);
  }
  return "?";
}

bool is_off_devices(const NodeView& view, ClientId client) {
  const PauseState* const pause = view.pause_of(client);
  return pause != nullptr && node::is_off_devices(pause->stay);
}

bool is_paused(const NodeView& view, ClientId client) {
  const PauseState* const pause = view.pause_of(client);
  return pause != nullptr && pause->is_paused;
}

std::string print_state(const NodeView& view, const ClientState& client) {
  if (client.is_stalled) return "stalled";
  if (is_off_devices(view, client.client)) return "off card";
  if (is_paused(view, client.client)) return "paused";
  if (client.has_turn) return "turn";
  return client.is_idle ? "idle" : "running";
}

std::string print_limit(Size limit) {
  return limit == node::unlimited ? "-" : print_size(limit);
}

nlohmann::json limit_as_json(Size limit) {
  return limit == node::unlimited ? nlohmann::json() : nlohmann::json(limit);
}

// An older service does not say, and calls such a reclaim applied.
bool is_in_progress(const MoveState& move) {
  return move.is_open.value_or(false);
}

nlohmann::json outcome_as_json(const MoveState& move) {
  return is_in_progress(move) ? nlohmann::json() : nlohmann::json(name_of(move.how));
}

double seconds(Microseconds time) {
  return static_cast<double>(time) / 1e6;
}

double milliseconds(Microseconds time) {
  return static_cast<double>(time) / 1e3;
}

std::string print_name(const ClientState& client) {
  return first_letters(printable(client.name), name_width);
}

struct ClientRow {
  const NodeView& view;
  const ClientState& client;
  const HoldingState& held;
};
struct ClientColumn {
  const char* title;
  int width;       // negative: to the left
  int importance;  // the least important is left out first
  std::string (*cell)(const ClientRow& row);
};
constexpr int always_shown = 5;  // columns of at least this importance are never left out
constexpr ClientColumn client_columns[] = {
    {"CLIENT", -name_width, 9, [](const ClientRow& row) { return print_name(row.client); }},
    {"PROCESS", 8, 7, [](const ClientRow& row) { return std::to_string(row.client.process); }},
    {"STATE", -8, 8, [](const ClientRow& row) { return print_state(row.view, row.client); }},
    {"PLACE", -9, 6, [](const ClientRow& row) { return print_place(row.view, row.held.place); }},
    {"LEASED", 10, 8, [](const ClientRow& row) { return print_size(row.held.leased); }},
    {"GUARANTEE", 10, 3, [](const ClientRow& row) { return print_size(row.held.guarantee); }},
    {"LIMIT", 10, 4, [](const ClientRow& row) { return print_limit(row.held.limit); }},
    {"WEIGHT", 6, 1, [](const ClientRow& row) { return std::to_string(row.client.weight); }},
    {"PRIORITY", 8, 2, [](const ClientRow& row) { return std::to_string(row.client.priority); }},
};

std::string print_wait(const HoldingState& held) {
  if (held.waited_for == 0) return "";
  if (held.waits_for.empty()) return fmt::format("{}, its turn", print_size(held.waited_for));
  return fmt::format("{} of {}", print_size(held.waited_for), printable(held.waits_for));
}

// The columns that fit beside the longest wait, or the most important ones if even those do not.
std::vector<const ClientColumn*> columns_that_fit(const NodeView& view, std::size_t width) {
  std::size_t longest = std::string_view{waits_title}.size();
  for (const HoldingState& held : view.holdings) {
    longest = std::max(longest, print_wait(held).size());
  }
  for (int least = 0;; ++least) {
    std::vector<const ClientColumn*> columns;
    std::size_t taken = longest;
    for (const ClientColumn& column : client_columns) {
      if (column.importance < least) continue;
      columns.push_back(&column);
      taken += static_cast<std::size_t>(std::abs(column.width)) + 1;
    }
    if (taken <= width || least == always_shown) return columns;
  }
}

void append_cell(std::string& line, const ClientColumn& column, const std::string& text) {
  line += column.width < 0 ? fmt::format("{:<{}} ", text, -column.width)
                           : fmt::format("{:>{}} ", text, column.width);
}

void append_clients(const NodeView& view, std::size_t width, std::vector<std::string>& lines) {
  const std::vector<const ClientColumn*> columns = columns_that_fit(view, width);
  std::string heading;
  for (const ClientColumn* column : columns) append_cell(heading, *column, column->title);
  lines.push_back(heading + waits_title);
  for (const ClientState& client : view.clients) {
    for (const HoldingState& held : view.holdings) {
      if (held.client != client.client) continue;
      std::string line;
      for (const ClientColumn* column : columns) {
        append_cell(line, *column, column->cell({view, client, held}));
      }
      lines.push_back(line + print_wait(held));
    }
  }
}

void append_times(const NodeView& view, std::vector<std::string>& lines) {
  if (view.times.empty()) return;
  lines.push_back(fmt::format("{:<16} {:>8} {:>10} {:>10} {:>6} {:>5} {}", "CLIENT", "PROCESS",
                              "DEVICE S", "WAITED S", "WEIGHT", "CAP", "TIME"));
  for (const ClientState& client : view.clients) {
    const TimeState* const time = view.time_of(client.client);
    if (time == nullptr) continue;
    lines.push_back(fmt::format(
        "{:<16} {:>8} {:>10.3f} {:>10.3f} {:>6} {:>5} {}", print_name(client), client.process,
        seconds(time->held), seconds(time->waited), client.weight,
        time->cap < 100 ? fmt::format("{}%", time->cap) : "-", time->competes ? "shared" : "free"));
  }
}

nlohmann::json time_as_json(const NodeView& view, ClientId client) {
  const TimeState* const time = view.time_of(client);
  if (time == nullptr) return {};
  return {{"device_seconds", seconds(time->held)},
          {"waited_seconds", seconds(time->waited)},
          {"cap_percent", time->cap},
          {"is_shared", time->competes}};
}

}  // namespace

Result<NodeView> look_at_node() {
  const auto until = share::Deadline::after(node_patience);
  const Fd socket = TRY(connect_to_node(until));
  TRY(send_words(socket, StateAsk{}));
  NodeView view;
  for (;;) {
    const ObserverMessage said = TRY(receive_words(socket, until));
    if (const auto* place = std::get_if<PlaceState>(&said)) view.places.push_back(*place);
    if (const auto* client = std::get_if<ClientState>(&said)) view.clients.push_back(*client);
    if (const auto* held = std::get_if<HoldingState>(&said)) view.holdings.push_back(*held);
    if (const auto* move = std::get_if<MoveState>(&said)) view.moves.push_back(*move);
    if (const auto* time = std::get_if<TimeState>(&said)) view.times.push_back(*time);
    if (const auto* pause = std::get_if<PauseState>(&said)) view.pauses.push_back(*pause);
    if (std::holds_alternative<StateEnd>(said)) return view;
    if (std::holds_alternative<ObserverAnswer>(said)) {
      return Error{.kind = ErrorKind::NotSupported,
                   .doing = asking_node,
                   .subject = "it shows this user nothing"};
    }
  }
}

const TimeState* NodeView::time_of(ClientId client) const {
  const auto found = std::find_if(times.begin(), times.end(),
                                  [&](const TimeState& one) { return one.client == client; });
  return found == times.end() ? nullptr : &*found;
}

const PauseState* NodeView::pause_of(ClientId client) const {
  const auto found = std::find_if(pauses.begin(), pauses.end(),
                                  [&](const PauseState& one) { return one.client == client; });
  return found == pauses.end() ? nullptr : &*found;
}

Result<ObserverAnswer> ask_for_terms(const ObserverMessage& asked) {
  const auto until = share::Deadline::after(node_patience);
  const Fd socket = TRY(connect_to_node(until));
  TRY(send_words(socket, asked));
  for (;;) {
    const ObserverMessage said = TRY(receive_words(socket, until));
    if (const auto* answer = std::get_if<ObserverAnswer>(&said)) return *answer;
  }
}

std::vector<std::string> lines_of(const NodeView& view, std::size_t width) {
  std::vector<std::string> lines;
  for (const PlaceState& place : view.places) {
    lines.push_back(fmt::format("{}: {} leased of {}, {} foreign", print_place(view, place.place),
                                print_size(place.leased), print_size(place.capacity),
                                print_size(place.foreign)));
  }
  if (view.clients.empty()) return lines;
  append_clients(view, width, lines);
  append_times(view, lines);
  constexpr std::size_t most_moves = 8;
  const std::size_t first = view.moves.size() - std::min(view.moves.size(), most_moves);
  for (std::size_t i = first; i < view.moves.size(); ++i) {
    const MoveState& move = view.moves[i];
    const bool is_open = is_in_progress(move);
    const std::string outcome =
        is_open ? "in progress"
                : fmt::format("{} in {:.0f} ms", name_of(move.how), milliseconds(move.took));
    lines.push_back(fmt::format(
        "{:.1f} s ago: {} {} {} of {} on {} ({}, {}) for {}", seconds(move.ago),
        printable(move.from), is_open ? "has given" : "gave", print_size(move.returned),
        print_size(move.asked), print_place(view, move.place), name_of(move.step), outcome,
        move.for_whom.empty() ? "a lowered limit or capacity" : printable(move.for_whom)));
  }
  return lines;
}

nlohmann::json as_json(const NodeView& view) {
  nlohmann::json places = nlohmann::json::array();
  for (const PlaceState& place : view.places) {
    places.push_back({{"place", print_place(view, place.place)},
                      {"capacity_bytes", place.capacity},
                      {"leased_bytes", place.leased},
                      {"foreign_bytes", place.foreign}});
  }
  nlohmann::json clients = nlohmann::json::array();
  for (const ClientState& client : view.clients) {
    nlohmann::json leases = nlohmann::json::array();
    for (const HoldingState& held : view.holdings) {
      if (held.client != client.client) continue;
      leases.push_back({{"place", print_place(view, held.place)},
                        {"leased_bytes", held.leased},
                        {"guarantee_bytes", held.guarantee},
                        {"limit_bytes", limit_as_json(held.limit)},
                        {"cached_bytes", held.cache},
                        {"waited_for_bytes", held.waited_for},
                        {"waits_for", printable(held.waits_for)}});
    }
    clients.push_back({{"name", printable(client.name)},
                       {"process", client.process},
                       {"user", client.user},
                       {"group", printable(client.group)},
                       {"weight", client.weight},
                       {"priority", client.priority},
                       {"state", print_state(view, client)},
                       {"paused", is_paused(view, client.client)},
                       {"off_devices", is_off_devices(view, client.client)},
                       {"time", time_as_json(view, client.client)},
                       {"leases", leases}});
  }
  nlohmann::json moves = nlohmann::json::array();
  for (const MoveState& move : view.moves) {
    moves.push_back({{"ago_us", move.ago},
                     {"took_us", move.took},
                     {"place", print_place(view, move.place)},
                     {"from", printable(move.from)},
                     {"for", printable(move.for_whom)},
                     {"step", name_of(move.step)},
                     {"asked_bytes", move.asked},
                     {"returned_bytes", move.returned},
                     {"outcome", outcome_as_json(move)}});
  }
  return {{"places", places}, {"clients", clients}, {"moves", moves}};
}

}  // namespace cuvmm::cli
