// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "observe/http_request.hpp"
#include "observe/web_listener.hpp"
#include "observe/web_source.hpp"

namespace cuvmm::observe {

struct WebSettings {
  std::string token;                      // who names it sees all; empty: there is none
  std::uint64_t interval_us = 1'000'000;  // from one event of a stream to the next
};

// Serves the live view ("/"), its state ("/state" once, "/events" as server-sent events) and
// "/metrics" over HTTP. It waits for nothing: the owner waits for descriptor() to be readable and
// calls handle(). Reading is all that can be asked of it.
//
// A connection is answered once and closed. Those that are slow to ask or to read, and those beyond
// a fixed number, are closed. A stream whose reader is slow skips states.
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
    std::uint64_t until_us = 0;  // when it is given up
    bool wants_room = false;
    bool is_due = false;  // waits for the figures that are awaited
    bool is_over = false;
  };
  using Connections = std::list<Connection>;

  WebServer(WebSettings settings, WebSource& source, std::vector<WebListener> listeners)
      : settings_(std::move(settings)), source_(source), listeners_(std::move(listeners)) {}
  bool watch(int descriptor, void* what) const;

  void accept(const WebListener& listener);
  void make_room();
  void read(Connection& connection);
  void answer(Connection& connection);
  // Nothing: it was answered that it may not.
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
  void tick();
  void set_timer() const;
  void end_those_that_are_over();

  const WebSettings settings_;
  WebSource& source_;
  const std::vector<WebListener> listeners_;
  Fd epoll_;
  Fd timer_;
  Connections connections_;
  std::uint64_t refreshing_since_us_ = 0;  // 0: no figures are awaited
  std::uint64_t refreshed_us_ = 0;
  bool wants_figures_ = false;  // somebody waits for figures that have not been asked for
  std::uint64_t next_event_us_ = 0;
};

// The live view: one document that needs nothing else.
extern const std::string_view web_document;

}  // namespace cuvmm::observe
