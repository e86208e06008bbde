// SPDX-License-Identifier: Apache-2.0
#include "base/options.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/sim_options.hpp"

namespace cuvmm::test {
namespace {

using Variables = std::map<std::string, std::string>;

Environment environment_of(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

template <class Table = Options>
Table read_options(const Variables& variables) {
  return Table::from_environment(environment_of(variables));
}

template <class Table = Options>
OptionValue listed(const Table& table, std::string_view name) {
  for (OptionValue& value : table.list()) {
    if (value.name == name) return std::move(value);
  }
  ADD_FAILURE() << name << " is in no row";
  return {};
}

TEST(Options, AreTheirDefaultsUnlessSet) {
  const Options options = read_options({});
  EXPECT_TRUE(options.problems().empty());
  EXPECT_EQ(options.mode, Mode::Vmm);
  EXPECT_EQ(options.log_level, LogLevel::Warning);
  EXPECT_TRUE(options.limit.is_none());
  EXPECT_EQ(options.wait, std::chrono::seconds{1});
  EXPECT_EQ(options.spill.to, SpillTo::Off);
  for (const OptionValue& value : options.list()) {
    EXPECT_EQ(value.origin, Origin::Default) << value.name;
    EXPECT_EQ(value.value, value.default_value) << value.name;
  }
}

TEST(Options, AreReadByTheTypeOfTheirDefault) {
  const Options options = read_options({{"VMM_MODE", "monitor"},
                                        {"VMM_LOG_LEVEL", "Debug"},
                                        {"VMM_LOG_FILE", "/tmp/a b.%p"},
                                        {"VMM_LIMIT", "80%"},
                                        {"VMM_WAIT", "250ms"},
                                        {"VMM_SPILL", "host:32G"},
                                        {"VMM_SPILL_PEERS", "1, 3"},
                                        {"VMM_CONTROL", "ON"},
                                        {"VMM_SCHEDULE", "round_robin"},
                                        {"VMM_PRIORITY", "-7"},
                                        {"VMM_WEIGHT", "20"}});
  EXPECT_TRUE(options.problems().empty());
  EXPECT_EQ(options.mode, Mode::Monitor);
  EXPECT_EQ(options.log_level, LogLevel::Debug);
  EXPECT_EQ(options.log_file, "/tmp/a b.%p");
  EXPECT_EQ(options.limit.of(10 * GiB), 8 * GiB);
  EXPECT_EQ(options.wait, std::chrono::milliseconds{250});
  EXPECT_EQ(options.spill, (Spill{SpillTo::Host, SizeLimit::of_bytes(32 * GiB)}));
  EXPECT_EQ(options.spill_peers.devices, (std::vector<int>{1, 3}));
  EXPECT_EQ(options.control, Switch::On);
  EXPECT_EQ(options.schedule, Schedule::RoundRobin);
  EXPECT_EQ(options.priority, -7);
  EXPECT_EQ(options.weight, 20);
}

TEST(Options, ABadValueIsNamedWithWhatIsAllowedAndTheDefaultStays) {
  const Options options = read_options({{"VMM_GROW", "lose"}, {"VMM_LIMIT", "4G"}});
  ASSERT_EQ(options.problems().size(), 1u);
  EXPECT_EQ(options.problems()[0].text(), "VMM_GROW: 'lose' is invalid; allowed: loose, tight");
  EXPECT_EQ(options.grow, Grow::Loose);
  EXPECT_EQ(listed(options, "VMM_GROW").origin, Origin::Default);
  EXPECT_EQ(options.limit.of(unlimited), 4 * GiB);
}

TEST(Options, RefuseWhatIsNotAllowed) {
  const std::pair<const char*, std::vector<const char*>> table[] = {
      {"VMM_MODE", {"VM", "1", "VMM,OFF", "true"}},
      {"VMM_LOG_LEVEL", {"WARN", "2", "errors"}},
      {"VMM_LIMIT", {"-1", "80%%", "101%", "1.5.2G", "99999999999G", "much", "4 G G"}},
      {"VMM_WAIT",
       {"1", "-1s", "1d", "25h", "s", "1.5.2s", "2000000s", "99999999999999999999us", "1 s s"}},
      {"VMM_SPILL", {"on", "off:1G", "host:", "host:lots", "host,4G", ":4G"}},
      {"VMM_SPILL_PEERS", {"a", "1,", ",1", "1,,2", "-1", "1024", "1,1", "1;2"}},
      {"VMM_STACKS", {"yes", "0", "-1", "80%", "none", "1025G", "18446744073709551615"}},
      {"VMM_CONTROL", {"yes", "1", "o n"}},
      {"VMM_PRIORITY", {"101", "-101", "1.5", "high", "--1", "99999999999999999999"}},
      {"VMM_WEIGHT", {"0", "-1", "10001", "+1", "0x1"}},
  };
  for (const auto& [name, values] : table) {
    for (const char* value : values) {
      const Options options = read_options({{name, value}});
      ASSERT_EQ(options.problems().size(), 1u) << name << "=" << value;
      EXPECT_EQ(options.problems()[0].name, name);
      EXPECT_EQ(options.problems()[0].value, value);
      EXPECT_EQ(listed(options, name).value, listed(Options{}, name).value) << name << "=" << value;
    }
  }
}

TEST(Options, SetToAnEmptyStringAreUnset) {
  const Options options = read_options({{"VMM_LIMIT", ""}, {"VMM_MODE", ""}, {"VMM_CLIENT", ""}});
  EXPECT_TRUE(options.problems().empty());
  EXPECT_EQ(listed(options, "VMM_CLIENT").origin, Origin::Default);
}

TEST(Options, KnowWhereTheirValueCameFrom) {
  Options options = read_options({{"VMM_LIMIT", "4G"}, {"VMM_GROW", "tight"}});
  EXPECT_EQ(options.set("VMM_LIMIT", "2G", Origin::CommandLine), std::nullopt);
  EXPECT_EQ(listed(options, "VMM_LIMIT").origin, Origin::CommandLine);
  EXPECT_EQ(listed(options, "VMM_LIMIT").value, "2G");
  EXPECT_EQ(listed(options, "VMM_GROW").origin, Origin::Environment);
  EXPECT_EQ(listed(options, "VMM_MODE").origin, Origin::Default);
  EXPECT_STREQ(name_of(Origin::CommandLine), "command line");
}

TEST(Options, ARefusedCommandLineValueLeavesTheOneBefore) {
  Options options = read_options({{"VMM_LIMIT", "4G"}});
  const auto problem = options.set("VMM_LIMIT", "", Origin::CommandLine);
  ASSERT_TRUE(problem);
  EXPECT_EQ(listed(options, "VMM_LIMIT").value, "4G");
  EXPECT_EQ(listed(options, "VMM_LIMIT").origin, Origin::Environment);
}

TEST(Options, AnUnknownNameIsRefused) {
  Options options;
  const auto problem = options.set("VMM_LIMITT", "4G", Origin::CommandLine);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->text(), "VMM_LIMITT: '4G' is invalid; no such option");
}

TEST(Options, AProblemIsOneLineWhateverTheValue) {
  const Options options = read_options({{"VMM_MODE", "a\nb\x1b[31m" + std::string(5000, 'x')}});
  ASSERT_EQ(options.problems().size(), 1u);
  const std::string text = options.problems()[0].text();
  EXPECT_LT(text.size(), 200u);
  EXPECT_EQ(text.find_first_of("\n\x1b"), std::string::npos);
}

template <class Table>
void expect_defaults_read_back() {
  for (const OptionValue& value : Table{}.list()) {
    if (value.default_value.empty()) continue;
    Table table;
    EXPECT_EQ(table.set(value.name, value.default_value, Origin::CommandLine), std::nullopt)
        << value.name;
    EXPECT_EQ(listed(table, value.name).value, value.default_value) << value.name;
  }
}

TEST(Options, DefaultsRoundTrip) {
  expect_defaults_read_back<Options>();
  expect_defaults_read_back<SimOptions>();
}

TEST(Options, ValuesRoundTrip) {
  for (const auto& [name, value] : Variables{{"VMM_SPILL", "auto:50%"},
                                             {"VMM_SPILL_PEERS", "2,0,1"},
                                             {"VMM_WAIT", "1500us"},
                                             {"VMM_CACHE", "12.5%"},
                                             {"VMM_STACKS", "256K"},
                                             {"VMM_STACKS", "all"},
                                             {"VMM_SCHEDULE", "fair"}}) {
    EXPECT_EQ(listed(read_options({{name, value}}), name).value, value);
  }
  EXPECT_EQ(listed(read_options({{"VMM_WAIT", "1.5s"}}), "VMM_WAIT").value, "1500ms");
  EXPECT_EQ(listed(read_options({{"VMM_WAIT", "0"}}), "VMM_WAIT").value, "0");
  EXPECT_EQ(listed(read_options({{"VMM_WAIT", "1.5m"}}), "VMM_WAIT").value, "90s");
  EXPECT_EQ(listed(read_options({{"VMM_WAIT", "24h"}}), "VMM_WAIT").value, "86400s");
  EXPECT_FALSE(OptionType<Duration>::read("25h").has_value());
  EXPECT_EQ(listed(read_options({{"VMM_STACKS", "on"}}), "VMM_STACKS").value, "1M");
}

TEST(Options, NamesAreTakenOnce) {
  std::set<std::string> names;
  for (const auto& value : Options{}.list()) EXPECT_TRUE(names.insert(value.name).second);
  for (const auto& value : SimOptions{}.list()) EXPECT_TRUE(names.insert(value.name).second);
}

TEST(SimOptions, AreReadByTheTypeOfTheirDefault) {
  const auto options =
      read_options<SimOptions>({{"VMM_SIM_DEVICES", "2"},
                                {"VMM_SIM_MEMORY", "512M"},
                                {"VMM_SIM_DRIVER", "12.8"},
                                {"VMM_SIM_ORDER", "random:42"},
                                {"VMM_SIM_BACKING", "none"},
                                {"VMM_SIM_FAULT", "cuMemMap:7=CUDA_ERROR_OUT_OF_MEMORY"},
                                {"VMM_SIM_LEAKS", "report"},
                                {"VMM_SIM_CARD", "team-1.a_B"},
                                {"VMM_SIM_GRANULARITY", "64K"}});
  EXPECT_TRUE(options.problems().empty());
  EXPECT_EQ(options.devices, 2);
  EXPECT_EQ(options.memory, 512 * MiB);
  EXPECT_EQ(options.driver, 12080);
  EXPECT_EQ(options.order, (SimOrder{SimWhen::Random, 42}));
  EXPECT_EQ(options.backing, SimBacking::None);
  EXPECT_EQ(options.fault, "cuMemMap:7=CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(options.leaks, SimLeaks::Report);
  EXPECT_EQ(options.card, CardName{"team-1.a_B"});
  EXPECT_EQ(options.granularity, 64 * KiB);
}

TEST(SimOptions, RefuseWhatIsNotAllowed) {
  const std::string too_long(65, 'x');
  const std::pair<const char*, std::vector<const char*>> table[] = {
      {"VMM_SIM_DEVICES", {"-1", "9", "two"}},
      {"VMM_SIM_MEMORY", {"80%", "none", "-1", "8Q"}},
      {"VMM_SIM_DRIVER", {"13", "13.", ".0", "13.0.1", "a.b", "13.100", "1000.0"}},
      {"VMM_SIM_ORDER", {"random", "random:", "random:x", "random:-1", "eager:1", "fifo"}},
      {"VMM_SIM_GRANULARITY", {"3M", "2K", "0"}},
      {"VMM_SIM_LEAKS", {"on"}},
      {"VMM_SIM_CARD", {"a/b", "..", ".hidden", "two words", " ", too_long.c_str()}},
  };
  for (const auto& [name, values] : table) {
    for (const char* value : values) {
      const auto options = read_options<SimOptions>({{name, value}});
      ASSERT_EQ(options.problems().size(), 1u) << name << "=" << value;
      EXPECT_EQ(options.problems()[0].name, name);
    }
  }
}

TEST(OptionDocs, AreTheTables) {
  std::ifstream file{CUVMM_SOURCE_DIR "/docs/options.md"};
  std::stringstream text;
  text << file.rdbuf();
  for (const std::string& table : {Options::describe(), SimOptions::describe()}) {
    EXPECT_NE(text.str().find(table), std::string::npos)
        << "docs/options.md should hold this table:\n"
        << table;
  }
}

}  // namespace
}  // namespace cuvmm::test
