// SPDX-License-Identifier: Apache-2.0
#include "daemon/config.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include "base/fd.hpp"
#include "base/option_types.hpp"

namespace cuvmm::daemon {
namespace {

constexpr std::int64_t least_priority = -100;
constexpr std::int64_t most_priority = 100;
constexpr std::int64_t most_weight = 10'000;
constexpr const char* deep_pause_key = "deep_pause_after";

// Reads one file. Reports only the first problem.
class ConfigParser {
 public:
  ConfigParser(std::string path, Serves serves) : path_(std::move(path)), serves_(serves) {}

  ConfigRead read(const std::string& text) {
    const toml::parse_result parsed = toml::parse(text, path_);
    if (!parsed) {
      std::string why{parsed.error().description()};
      // "4G" without quotes begins like a number.
      if (why.find("integer") != std::string::npos) why += "; sizes and times need quotes: \"4G\"";
      problem_at(parsed.error().source().begin.line, "", why);
      return std::move(read_);
    }
    for (const auto& [key, node] : parsed.table()) {
      if (key == "capacity") {
        read_capacity(node);
      } else if (key == "client") {
        read_clients(node);
      } else if (key == "time") {
        read_time(node);
      } else if (key == deep_pause_key) {
        read_.config.deep_pause = deep_pause_of(node);
      } else {
        problem(node, key.str(),
                "there is no such key; allowed are capacity, client, time and deep_pause_after");
      }
    }
    return std::move(read_);
  }

 private:
  void read_capacity(const toml::node& node) {
    const toml::table* const table = node.as_table();
    if (table == nullptr) return problem(node, "capacity", "must be a table: [capacity]");
    for (const auto& [key, value] : *table) {
      const auto size = size_of(value, key.str());
      if (!size) return;
      if (key == "host") {
        read_.config.host = *size;
      } else if (key == "host_per_user") {
        read_.config.host_per_user = *size;
      } else {
        read_.config.capacity[std::string{key.str()}] = *size;
      }
    }
  }

  void read_time(const toml::node& node) {
    const toml::table* const table = node.as_table();
    if (table == nullptr) return problem(node, "time", "must be a table: [time]");
    for (const auto& [key, value] : *table) {
      if (key != "policy") {
        problem(value, key.str(), "there is no such key; allowed: policy");
        continue;
      }
      const auto rule = read_time_rule(text_of(value, key.str()));
      if (!rule) problem(value, key.str(), "allowed: off, share, priority, turns");
      read_.config.time.rule = rule.value_or(node::TimeRule::Off);
    }
  }

  void read_clients(const toml::node& node) {
    const toml::array* const rules = node.as_array();
    if (rules == nullptr) return problem(node, "client", "must be a list: [[client]]");
    for (const toml::node& rule : *rules) {
      const toml::table* const table = rule.as_table();
      if (table == nullptr) return problem(rule, "client", "must be a list: [[client]]");
      read_client(*table);
    }
  }

  void read_client(const toml::table& table) {
    ClientRule rule;
    rule.line = table.source().begin.line;
    for (const auto& [key, value] : table) read_entry(rule, key.str(), value);
    const bool fits_everybody = rule.name.empty() && !rule.user && rule.cgroup.empty();
    if (fits_everybody) problem(table, "client", "name, user or cgroup has to say whose terms");
    const bool gives_away = rule.guarantee != 0 || rule.priority.value_or(0) > 0;
    if (serves_ == Serves::AllUsers && gives_away && !rule.user && rule.cgroup.empty()) {
      problem(table, "client",
              "a guarantee or a priority above 0 needs user or cgroup: anybody can claim a name");
    }
    if (rule.limit && rule.guarantee > *rule.limit) {
      problem(*table.get("guarantee"), "guarantee",
              print_size(rule.guarantee) + " exceeds the limit of " + print_size(*rule.limit));
    }
    read_.config.rules.push_back(std::move(rule));
  }

  void read_entry(ClientRule& rule, std::string_view key, const toml::node& value) {
    if (key == "name") {
      rule.name = text_of(value, key);
    } else if (key == "user") {
      read_user(rule, value);
    } else if (key == "cgroup") {
      rule.cgroup = text_of(value, key);
      if (!rule.cgroup.starts_with('/')) problem(value, key, "must begin with /");
    } else if (key == "guarantee") {
      rule.guarantee = size_of(value, key).value_or(0);
    } else if (key == "limit") {
      rule.limit = size_of(value, key);
    } else if (key == "weight") {
      rule.weight = static_cast<std::uint32_t>(number_of(value, key, 1, most_weight));
    } else if (key == "priority") {
      rule.priority = static_cast<int>(number_of(value, key, least_priority, most_priority));
    } else if (key == "cap") {
      rule.cap = static_cast<std::uint32_t>(number_of(value, key, 1, 100));
    } else if (key == deep_pause_key) {
      rule.deep_pause = deep_pause_of(value);
    } else {
      problem(value, key,
              "there is no such key; allowed are name, user, cgroup, guarantee, limit, weight, "
              "priority, cap and deep_pause_after");
    }
  }

  void read_user(ClientRule& rule, const toml::node& value) {
    if (value.is_integer()) {
      constexpr std::int64_t most = std::numeric_limits<uid_t>::max() - 1;
      rule.user = static_cast<uid_t>(number_of(value, "user", 0, most));
      return;
    }
    const std::string name = text_of(value, "user");
    const passwd* const entry = name.empty() ? nullptr : ::getpwnam(name.c_str());
    if (entry == nullptr) return problem(value, "user", "there is no user '" + name + "'");
    rule.user = entry->pw_uid;
  }

  DeepPauseRule deep_pause_of(const toml::node& value) {
    const auto text = value.value<std::string>();
    const auto rule =
        text && value.is_string() ? read_deep_pause_rule(*text) : std::optional<DeepPauseRule>{};
    if (!rule)
      problem(value, deep_pause_key, "must be a time in quotes, such as \"10m\", or \"off\"");
    return rule.value_or(DeepPauseRule{});
  }

  std::string text_of(const toml::node& value, std::string_view key) {
    const auto text = value.value<std::string>();
    if (text && value.is_string() && !text->empty()) return *text;
    problem(value, key, "must be text in quotes");
    return {};
  }

  std::optional<Size> size_of(const toml::node& value, std::string_view key) {
    const auto text = value.value<std::string>();
    const auto size = text && value.is_string() ? OptionType<Bytes>::read(*text) : std::nullopt;
    if (!size) problem(value, key, "must be a size in quotes, such as \"16G\"");
    if (!size) return std::nullopt;
    return size->value;
  }

  std::int64_t number_of(const toml::node& value, std::string_view key, std::int64_t least,
                         std::int64_t most) {
    const auto number = value.value<std::int64_t>();
    if (number && value.is_integer() && *number >= least && *number <= most) return *number;
    problem(value, key,
            "must be a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    return least;
  }

  void problem(const toml::node& where, std::string_view key, const std::string& what) {
    problem_at(where.source().begin.line, key, what);
  }
  void problem_at(unsigned line, std::string_view key, const std::string& what) {
    if (!read_.problem.empty()) return;
    read_.problem = path_ + ":" + std::to_string(line) + ": ";
    if (!key.empty()) read_.problem += std::string{key} + ": ";
    read_.problem += what;
  }

  const std::string path_;
  const Serves serves_;
  ConfigRead read_;
};

}  // namespace

Size ServiceConfig::guaranteed() const {
  Size sum = 0;
  for (const ClientRule& rule : rules) sum = saturating_sum(sum, rule.guarantee);
  return sum;
}

std::optional<node::TimeRule> read_time_rule(const std::string& text) {
  constexpr std::array names{"off", "share", "priority", "turns"};
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) return {};
  return static_cast<node::TimeRule>(found - names.begin());
}

std::optional<DeepPauseRule> read_deep_pause_rule(const std::string& text) {
  if (text == "off") return DeepPauseRule{};
  const auto after = OptionType<Duration>::read(text);
  if (!after) return {};
  return DeepPauseRule{static_cast<node::Microseconds>(after->count())};
}

ConfigRead parse_config(const std::string& text, const std::string& path, Serves serves) {
  return ConfigParser{path, serves}.read(text);
}

ConfigRead read_config(const std::string& path, Serves serves) {
  const auto unreadable = [&] {
    return ConfigRead{.config = {},
                      .problem = path + ": it cannot be read (" + std::strerror(errno) + ")"};
  };
  const Fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (!file.is_open()) return unreadable();
  std::string text;
  std::array<char, 4096> part{};
  for (;;) {
    const ssize_t got = ::read(file.number(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unreadable();
    if (got == 0) return parse_config(text, path, serves);
    text.append(part.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace cuvmm::daemon
