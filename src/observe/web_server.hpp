// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/spare_descriptor.hpp"
#include "observe/http_request.hpp"
#include "observe/web_listener.hpp"
#include "observe/web_source.hpp"

namespace cuvmm::observe {

struct WebSettings {
  std::string token;                      // clients that present it see everything; empty: none
  std::uint64_t interval_us = 1'000'000;  // between events of a stream
};

// Serves the live view ("/"), its state ("/state" once, "/events" as server-sent events) and
// "/metrics" over HTTP, read-only. It never blocks: the owner waits until descriptor() is readable
// and calls handle().
//
// A connection gets one answer and is closed. Connections that are slow to ask or to read, and
// those beyond a fixed number, are closed. A stream skips states while its reader is slow.
class WebServer {
 public:
  static Result<std::unique_ptr<WebServer>> open(WebSettings settings, WebSource& source,
                                                 std::vector<WebListener> listeners);

  int descriptor() const { return epoll_.number(); }
  void handle();
  const std::vector<WebListener>& listeners() const { return listeners_; }

 private:
  enum class Stage : std::uint8_t { Reading, Waiting, Writing, Streaming };
  struct Connection {
    Fd socket;
    const WebListener* listener = nullptr;
    std::optional<uid_t> user = {};
    Stage stage = Stage::Reading;
    std::string read = {};
    HttpRequest request = {};
    WebViewer viewer = {};
    std::string unsent = {};
    std::uint64_t until_us = 0;  // its deadline
    bool has_said_all = false;   // its side is shut down
    bool wants_room = false;
    bool is_due = false;  // waits for the figures being collected
    bool is_over = false;
  };
  using Connections = std::list<Connection>;

  WebServer(WebSettings settings, WebSource& source, std::vector<WebListener> listeners)
      : settings_(std::move(settings)), source_(source), listeners_(std::move(listeners)) {}
  bool watch(int descriptor, void* what) const;

  void accept(const WebListener& listener);
  bool make_room();
  static bool awaits_answer(const Connection& connection);
  void read(Connection& connection);
  void answer(Connection& connection);
  // Returns nothing if it has refused the request.
  std::optional<WebViewer> admit(Connection& connection);
  void respond(Connection& connection, const char* status, const char* type,
               const std::string& body, const char* more = "");
  void complain(Connection& connection, const char* status, const std::string& text,
                const char* more = "");
  void wait_for_figures(Connection& connection, Stage stage);
  void refresh(std::uint64_t now);
  void deliver();
  void send_event(Connection& connection, const std::string& state);
  void write(Connection& connection);
  void renew_watch(Connection& connection) const;
  void tick();
  void set_timer() const;
  void close_finished_connections();

  const WebSettings settings_;
  WebSource& source_;
  const std::vector<WebListener> listeners_;
  Fd epoll_;
  Fd timer_;
  SpareDescriptor spare_;
  Connections connections_;
  std::uint64_t refreshing_since_us_ = 0;  // 0: no figures are being collected
  std::uint64_t refreshed_us_ = 0;
  bool wants_figures_ = false;  // a connection waits for figures not asked for yet
  std::uint64_t next_event_us_ = 0;
};

// The live view: one self-contained document.
extern const std::string_view web_document;

}  // namespace cuvmm::observe
