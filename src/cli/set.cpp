// SPDX-License-Identifier: Apache-2.0
// cuvmm set: changes the terms of running clients of the node service.
#include <fmt/core.h>

#include "base/option_types.hpp"
#include "cli/commands.hpp"
#include "cli/node_view.hpp"
#include "cli/output.hpp"
#include "cli/settings.hpp"

namespace cuvmm::cli {
namespace {

struct SetRequest {
  std::string name;
  std::string guarantee;
  std::string limit;
  std::optional<std::uint32_t> weight;
  std::optional<int> priority;
  std::optional<std::uint32_t> cap;
};

bool read_size(const char* flag, const std::string& text, bool& is_set, Size& size) {
  if (text.empty()) return true;
  is_set = true;
  const auto read = OptionType<Bytes>::read(text);
  if (read) size = read->value;
  if (!read && text == "none") size = node::unlimited;
  if (read || text == "none") return true;
  say(fmt::format("{} {}: allowed: {}, or none", flag, text, OptionType<Bytes>::allowed()));
  return false;
}

// "limit 20.0 GiB, weight 3".
std::string terms_of(const SetRequest& request, const node::TermsAsk& ask) {
  std::string text;
  const auto add = [&](bool is_set, const char* name, const std::string& value) {
    if (is_set) text += (text.empty() ? "" : ", ") + std::string{name} + " " + value;
  };
  add(ask.sets_guarantee, "guarantee", print_size(ask.guarantee));
  add(ask.sets_limit, "limit", ask.limit == node::unlimited ? "none" : print_size(ask.limit));
  add(ask.sets_weight, "weight", std::to_string(ask.weight));
  add(ask.sets_priority, "priority", std::to_string(ask.priority));
  if (request.cap) add(true, "cap", std::to_string(*request.cap) + "%");
  return text;
}

int report(const SetRequest& request, const node::TermsAsk& ask,
           const Result<node::ObserverAnswer>& answer) {
  if (!answer.ok()) {
    say(answer.error().text());
    return 1;
  }
  if (!answer->why_not.empty()) {
    say(fmt::format("{}: {}", request.name, answer->why_not));
    return 1;
  }
  fmt::print("{}: {} ({} {})\n", request.name, terms_of(request, ask), answer->changed,
             answer->changed == 1 ? "client" : "clients");
  return 0;
}

int set(const SetRequest& request) {
  // The message would cut the name, and change the client that has the shorter one.
  if (request.name.size() > node::longest_name) {
    say(fmt::format("{}: names of clients have at most {} bytes, this one has {}; see `cuvmm top`",
                    printable(request.name), node::longest_name, request.name.size()));
    return exit_usage;
  }
  node::TermsAsk ask{.name = request.name};
  if (!read_size("--limit", request.limit, ask.sets_limit, ask.limit)) return 2;
  if (const auto why = problem_of_limit(ask.sets_limit ? ask.limit : unlimited, request.limit)) {
    say(fmt::format("--limit {}: {}", request.limit, *why));
    return exit_usage;
  }
  if (!read_size("--guarantee", request.guarantee, ask.sets_guarantee, ask.guarantee)) return 2;
  if (ask.guarantee == node::unlimited) ask.guarantee = 0;
  ask.sets_weight = request.weight.has_value();
  ask.weight = request.weight.value_or(1);
  ask.sets_priority = request.priority.has_value();
  ask.priority = request.priority.value_or(0);
  const bool sets_terms =
      ask.sets_limit || ask.sets_guarantee || ask.sets_weight || ask.sets_priority;
  if (!sets_terms && !request.cap) {
    say("say what to set: --guarantee, --limit, --weight, --priority or --cap");
    return 2;
  }
  // The service may refuse the terms for reasons of their own, but never the cap alone. So if it
  // refuses, nothing has changed.
  Result<node::ObserverAnswer> answer = node::ObserverAnswer{};
  if (sets_terms) answer = ask_for_terms(ask);
  if (request.cap && answer.ok() && answer->why_not.empty()) {
    answer = ask_for_terms(node::TimeTermsAsk{.name = request.name, .cap = *request.cap});
  }
  return report(request, ask, answer);
}

}  // namespace
void add_set(CLI::App& app, int& exit_status) {
  auto request = std::make_shared<SetRequest>();
  CLI::App* command = app.add_subcommand(
      "set", "change the guarantee, limit, weight, priority or cap of a node client");
  command->footer(
      "Examples:\n"
      "  cuvmm set trainer --limit 20G\n"
      "  cuvmm set trainer --weight 3 --priority 5\n"
      "  cuvmm set trainer --cap 30\n"
      "\n"
      "All clients of that name, at each device, until they or the service end. Only root and the\n"
      "service's user may do this. A client above its lowered limit is asked to release what it\n"
      "can spare; it keeps running.");
  command->add_option("name", request->name, "as `cuvmm top` shows it")->required();
  command->add_option("--guarantee", request->guarantee, "memory it can always have")
      ->type_name("SIZE");
  command->add_option("--limit", request->limit, "the most it can have, or none")
      ->type_name("SIZE");
  command
      ->add_option("--weight", request->weight,
                   "its share of the devices' time, and of turns for memory")
      ->check(CLI::Range(1, 10'000));
  command
      ->add_option("--priority", request->priority,
                   "memory is reclaimed from the lowest priority first")
      ->check(CLI::Range(-100, 100));
  command->add_option("--cap", request->cap, "largest share of each device's time, in percent")
      ->check(CLI::Range(1, 100));
  command->callback([request, &exit_status] { exit_status = set(*request); });
}

}  // namespace cuvmm::cli
