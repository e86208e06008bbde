// SPDX-License-Identifier: Apache-2.0
// cuvmm top: shows the present memory of processes under cuvmm.
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <nlohmann/json.hpp>

#include "base/option_types.hpp"
#include "cli/commands.hpp"
#include "cli/json_text.hpp"
#include "cli/node_view.hpp"
#include "cli/output.hpp"
#include "cli/top/screen.hpp"
#include "cli/top/table.hpp"
#include "cli/top/web.hpp"
#include "share/system_error.hpp"

namespace cuvmm::cli {
namespace {

constexpr Duration shortest_interval{100'000};
constexpr Duration longest_interval{60'000'000};

struct TopRequest {
  bool once = false;
  bool json = false;
  bool reversed = false;
  std::string order = "physical";
  std::string interval = "1s";
  TopFilter filter;
  bool all = false;
  bool web = false;
  bool arguments = false;
  TopWebRequest served;
};

struct NamedOrder {
  const char* name;
  TopOrder order;
  char key;
};
constexpr NamedOrder orders[] = {
    {"physical", TopOrder::Physical, 'p'}, {"live", TopOrder::Live, 'l'},
    {"cached", TopOrder::Cached, 'c'},     {"used", TopOrder::Used, 'u'},
    {"moves", TopOrder::Moves, 'm'},       {"process", TopOrder::Process, 'n'},
    {"command", TopOrder::Command, 'a'},   {"container", TopOrder::Container, 'o'},
};

// The state that keys change.
struct View {
  TopOrder order;
  Reversed reversed;
  Duration interval;
  bool goes_on = true;
};

void press(char key, View& view) {
  for (const NamedOrder& one : orders) {
    if (key == one.key) view.order = one.order;
  }
  switch (key) {
    case 'q':
    case 'Q':
    case '\4':  // control-D
      view.goes_on = false;
      break;
    case 'r':
      view.reversed = view.reversed == Reversed::Yes ? Reversed::No : Reversed::Yes;
      break;
    case '+':
      view.interval = std::min(view.interval * 2, longest_interval);
      break;
    case '-':
      view.interval = std::max(view.interval / 2, shortest_interval);
      break;
    default:
      break;
  }
}

const char* name_of(TopOrder order) {
  for (const NamedOrder& one : orders) {
    if (one.order == order) return one.name;
  }
  return "";
}

std::vector<std::string> picture_of(Processes& processes, const View& view,
                                    const TopFilter& filter) {
  const auto faint = [](const std::string& text) { return in_tone(text, Tone::Faint, 1); };
  sort_by(view.order, view.reversed, processes.all());
  std::vector<std::string> lines =
      table_of(processes.all(),
               {.width = Screen::width(), .letters = letters_here(), .history = WithHistory::Yes});
  lines.front() = in_tone(lines.front(), Tone::Strong, STDOUT_FILENO);
  lines.insert(lines.begin(),
               fmt::format("{}, by {}, every {:.3g} s", total_of(processes.all(), filter),
                           name_of(view.order), static_cast<double>(view.interval.count()) / 1e6));
  for (const std::string& problem : processes.problems()) lines.push_back(faint(problem));
  if (const auto node = look_at_node(); node.ok()) {
    for (const std::string& line : lines_of(*node, Screen::width())) {
      lines.push_back(first_letters(line, Screen::width()));
    }
  }
  // Show the keys in the last line if the screen has room for them and a process.
  const std::size_t height = Screen::height();
  if (height < 4) return lines;
  lines.resize(std::min(lines.size(), height - 1));
  lines.push_back(
      faint("q quit  r reverse  + - slower, faster  by: p physical  l live  c cached  "
            "u used  m moves  n ID  a command  o container"));
  return lines;
}

// A request that may refer to other users' processes searches everywhere if this user is root.
TopReach reach_of(const TopRequest& request) {
  const bool is_wanted =
      request.all || !request.filter.container.empty() || !request.filter.processes.empty();
  return is_wanted && ::geteuid() == 0 ? TopReach::Everywhere : TopReach::OwnFolders;
}

int watch(const TopRequest& request, TopOrder order, Duration interval) {
  View view{order, request.reversed ? Reversed::Yes : Reversed::No, interval};
  const Screen screen;
  Processes processes{request.filter, reach_of(request)};
  while (view.goes_on) {
    processes.sample();
    const share::Deadline next = share::Deadline::after(view.interval);
    do {
      screen.draw(picture_of(processes, view, request.filter));
      for (const char key : screen.keys(Duration{next.milliseconds_left() * 1000})) {
        press(key, view);
      }
    } while (view.goes_on && !next.is_over());
  }
  return 0;
}

std::string why_missing(int wanted, const TopFilter& filter, TopReach reach) {
  if (::kill(wanted, 0) != 0 && errno == ESRCH) return "no such process";
  if (is_launcher(wanted) && !filter.device && filter.container.empty()) {
    return "it publishes no figures, and no program that it started does: none has made a driver "
           "call yet, or VMM_PUBLISH is off";
  }
  return fmt::format("no process{} that runs under cuvmm{}{}",
                     reach == TopReach::Everywhere ? "" : " of this user",
                     filter.device ? " and uses that device" : "",
                     filter.container.empty() ? "" : " in that container");
}

// One line for each process that was requested by its ID but does not run under cuvmm.
std::vector<std::string> missing_lines(const TopFilter& filter, TopReach reach,
                                       const Processes& processes) {
  std::vector<std::string> lines;
  for (const int wanted : filter.processes) {
    const auto& all = processes.all();
    if (std::any_of(all.begin(), all.end(), [&](const SeenProcess& one) {
          return TopFilter::names(wanted, one.number());
        })) {
      continue;
    }
    lines.push_back(fmt::format("{}: {}", wanted, why_missing(wanted, filter, reach)));
  }
  return lines;
}

int show_once(const TopRequest& request, TopOrder order) {
  Processes processes{request.filter, reach_of(request)};
  processes.sample();
  sort_by(order, request.reversed ? Reversed::Yes : Reversed::No, processes.all());
  const auto missing = missing_lines(request.filter, reach_of(request), processes);
  const auto node = look_at_node();
  const std::size_t width = ::isatty(STDOUT_FILENO) != 0 ? Screen::width() : 240;
  if (request.json) {
    nlohmann::json all = as_json(processes);
    if (node.ok()) all["node"] = as_json(*node);
    fmt::print("{}\n", json_text(all));
  } else if (processes.all().empty() && missing.empty()) {
    fmt::print("{}\n", total_of(processes.all(), request.filter));
  } else if (!processes.all().empty()) {
    const TableForm form{.width = width, .letters = letters_here()};
    for (const std::string& line : table_of(processes.all(), form)) fmt::print("{}\n", line);
  }
  if (node.ok() && !request.json) {
    for (const std::string& line : lines_of(*node, width)) fmt::print("{}\n", line);
  }
  const bool cannot_look = !node.ok() && node.error().kind != ErrorKind::NotFound;
  if (cannot_look) say(node.error().text());
  for (const std::string& problem : processes.problems()) say(problem);
  for (const std::string& line : missing) say(line);
  const bool sees_none = processes.all().empty() && !processes.problems().empty();
  return !missing.empty() || sees_none || cannot_look ? exit_failed : 0;
}

int run(const TopRequest& request) {
  const auto interval = OptionType<Duration>::read(request.interval);
  if (!interval || *interval < shortest_interval || *interval > longest_interval) {
    say(fmt::format("--interval {}: allowed: a time from 100ms to 60s", request.interval));
    return 2;
  }
  if (request.all && ::geteuid() != 0) {
    say("--all shows other users' processes only to root");
    return 1;
  }
  TopOrder order = TopOrder::Physical;
  for (const NamedOrder& one : orders) {
    if (request.order == one.name) order = one.order;
  }
  if (request.web && !request.filter.processes.empty()) {
    // CLI11 takes the port of "--web 9558" for a process.
    const int first = request.filter.processes.front();
    say(request.filter.processes.size() == 1 && request.served.address == any_port
            ? fmt::format("--web takes its port after an equals sign: --web={}", first)
            : "process excludes --web");
    return exit_usage;
  }
  if (request.web) {
    TopWebRequest served = request.served;
    served.interval = *interval;
    if (request.arguments) served.arguments = observe::ShowsArguments::Yes;
    return serve_top(served);
  }
  const bool is_live = !request.once && !request.json && is_capable_terminal(STDOUT_FILENO) &&
                       ::isatty(STDIN_FILENO) != 0;
  return is_live ? watch(request, order, *interval) : show_once(request, order);
}

}  // namespace

void add_top(CLI::App& app, int& exit_status) {
  auto request = std::make_shared<TopRequest>();
  CLI::App* command = app.add_subcommand("top", "watch the GPU memory of processes under cuvmm");
  command->footer(
      "Examples:\n"
      "  cuvmm top\n"
      "  cuvmm top -1 --sort moves\n"
      "  cuvmm top --gpu 1                 only that device\n"
      "  cuvmm top 4711                    only that process and the programs that it started\n"
      "  sudo cuvmm top --all              all users' processes, in all containers\n"
      "  sudo cuvmm top --container 3f2a   only that container or pod\n"
      "  cuvmm top --json | jq '.processes[].physical_bytes'\n"
      "  cuvmm top --web                   the live view, in a browser\n"
      "\n"
      "Shows this user's processes; root sees those of all users with --all, --container or a "
      "PID.\n"
      "LIVE is what the program asked for and holds, CACHED what it freed and cuvmm keeps for the\n"
      "next allocation, PHYSICAL the memory held of the devices, USED the part of that which is "
      "not\n"
      "cached. A dash: not counted (--mode monitor), or no limit. If cuvmmd runs: its devices, "
      "its\n"
      "clients, which clients wait for which, and why memory last moved.\n"
      "If standard output is not a terminal, it prints once and exits.\n"
      "\n"
      "Keys: q quits; p l c u m n a o sort by physical, live, cached, used, moves, process ID,\n"
      "command, container; r reverses; + and - change the interval.");
  CLI::Option* const once = command->add_flag("-1,--once", request->once, "print once and exit");
  CLI::Option* const json =
      command->add_flag("--json", request->json, "print one JSON object and exit");
  std::vector<std::string> names;
  for (const NamedOrder& one : orders) names.emplace_back(one.name);
  CLI::Option* const sort = command->add_option("--sort", request->order, "sort key")
                                ->check(CLI::IsMember(names))
                                ->capture_default_str();
  CLI::Option* const reverse =
      command->add_flag("-r,--reverse", request->reversed, "reverse the order");
  command->add_option("--interval", request->interval, "refresh interval")
      ->type_name("TIME")
      ->capture_default_str();
  CLI::Option* const gpu =
      command
          ->add_option("--gpu", request->filter.device,
                       "only this device, by each process's numbering, and the processes on it")
          ->check(CLI::Range(0, 1023))
          ->type_name("NUMBER");
  CLI::Option* const all = command->add_flag(
      "--all", request->all, "processes of all users and in all containers, for root");
  CLI::Option* const container =
      command
          ->add_option(
              "--container", request->filter.container,
              "only processes in the container or pod whose ID begins with ID; for root, of all "
              "users. --sort container groups them by container")
          ->type_name("ID");
  command->add_option("process", request->filter.processes, "only these process IDs")
      ->check(is_process_id)
      ->type_name("PID");
  CLI::Option* const web = command->add_flag(
      "--web{127.0.0.1:0}", request->served.address,
      "show it in a browser instead, at PORT or ADDRESS:PORT, for example --web=9435; "
      "beyond loopback that needs a token");
  // The page shows everything of this user, and sorts by itself.
  for (CLI::Option* const other : {once, json, sort, reverse, gpu, all, container}) {
    web->excludes(other);
  }
  command
      ->add_option("--token-file", request->served.token_file,
                   "with --web: its first line is what remote viewers must present")
      ->needs(web)
      ->type_name("FILE");
  command
      ->add_flag("--arguments", request->arguments,
                 "with --web: show the arguments of programs, which may hold secrets")
      ->needs(web);
  command->callback([request, web, &exit_status] {
    request->web = web->count() != 0;
    exit_status = run(*request);
  });
}

}  // namespace cuvmm::cli
