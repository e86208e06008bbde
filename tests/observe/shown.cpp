// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "daemon/history.hpp"
#include "observe/node_metrics.hpp"
#include "observe/token_file.hpp"

namespace cuvmm::test {
namespace {

using namespace node;  // NOLINT(google-build-using-namespace): its words are this file's subject
using observe::MetricFormat;
using observe::Snapshot;

constexpr Microseconds second = 1'000'000;

TEST(Exposition, EscapesLabelsAndLeavesEmptyOnesOut) {
  observe::Exposition text{MetricFormat::Prometheus};
  text.begin({"m", observe::MetricType::Gauge, "", "", "help"});
  text.sample({{"a", "x\"y\\z\n\xff"}, {"b", ""}}, 1.5);
  text.sample({}, 9007199254740992.0);
  EXPECT_EQ(std::move(text).finish(),
            "# HELP m help\n# TYPE m gauge\nm{a=\"x\\\"y\\\\z??\"} 1.5\nm 9007199254740992\n");
}

TEST(Exposition, WritesCumulativeHistogramBuckets) {
  static constexpr std::array<std::uint64_t, 2> bounds{1'000'000, 2'500'000};
  observe::TimeHistogram waits{bounds};
  for (const std::uint64_t us : {1'000'000ul, 2'000'000ul, 9'000'000ul}) waits.note(us);
  observe::Exposition text{MetricFormat::OpenMetrics};
  text.begin({"w_seconds", observe::MetricType::Histogram, "seconds", "", "help"});
  text.sample({{"c", "x"}}, waits);
  EXPECT_EQ(std::move(text).finish(),
            "# HELP w_seconds help\n# TYPE w_seconds histogram\n# UNIT w_seconds seconds\n"
            "w_seconds_bucket{c=\"x\",le=\"1.0\"} 1\nw_seconds_bucket{c=\"x\",le=\"2.5\"} 2\n"
            "w_seconds_bucket{c=\"x\",le=\"+Inf\"} 3\nw_seconds_sum{c=\"x\"} 12\n"
            "w_seconds_count{c=\"x\"} 3\n# EOF\n");
}

TEST(Exposition, IsOpenMetricsOnlyOnRequest) {
  EXPECT_EQ(observe::format_for("application/openmetrics-text;version=1.0.0,*/*;q=0.1"),
            MetricFormat::OpenMetrics);
  EXPECT_EQ(observe::format_for("text/plain"), MetricFormat::Prometheus);
  EXPECT_EQ(observe::format_for(""), MetricFormat::Prometheus);
}

TEST(Snapshots, HideEverythingOfOtherUsers) {
  Snapshot all;
  all.clients.resize(2);
  all.clients[0] = {.label = "mine", .user = 7};
  all.clients[0].at("GPU-1").lease = observe::LeaseSample{.waits_for = "theirs"};
  all.clients[1] = {.label = "theirs", .user = 8};
  all.events.push_back({.client = "mine", .user = 7, .other = "theirs"});
  all.events.push_back({.client = "theirs", .user = 8, .other = "mine"});
  all.hide_others(7);
  EXPECT_EQ(all.clients.size(), 1u);
  EXPECT_EQ(all.hidden_clients, 1u);
  EXPECT_EQ(all.events.size(), 1u);
  EXPECT_EQ(print_metrics(all, MetricFormat::Prometheus).find("theirs"), std::string::npos);
  EXPECT_EQ(all.clients[0].holdings[0].lease->waits_for, "(another user)");
  EXPECT_EQ(all.events[0].other, "(another user)");
}

TEST(Snapshots, GiveNoTwoClientsTheSameLabel) {
  Snapshot all;
  all.clients.resize(3);
  all.clients[0] = {.label = "python[5]"};
  for (const std::size_t i : {1u, 2u}) all.clients[i] = {.process = 5, .program = "python"};
  all.label_clients();
  EXPECT_EQ(all.clients[1].label, "python[5]'");
  EXPECT_EQ(all.clients[2].label, "python[5]''");
}

class History : public ::testing::Test {
 protected:
  daemon::NodeHistory history_{{.name = [](ClientId id) { return id < 10 ? "a" : "b"; },
                                .user = [](ClientId) { return uid_t{1}; },
                                .place = [](PlaceId) { return std::string{"GPU-1"}; }}};
};

TEST_F(History, CountsWaitsOfRequestsThatWait) {
  history_.note(ClientCame{1, {}, {}}, {}, 0);
  history_.note(LeaseRequested{1, 1, 1, MiB, true},
                {LeaseRefused{1, 1, 1, MiB, RefusalReason::NotAtOnce}}, second);
  history_.note(LeaseRequested{1, 2, 1, MiB, false}, {}, second);
  EXPECT_EQ(history_.waits(1, 1, 3 * second), 2 * second);
  EXPECT_EQ(history_.waits(1, 2, 3 * second), 0u);
  history_.note(TimePassed{}, {LeaseGranted{1, 2, 1, MiB}}, 4 * second);
  const observe::ClientTally tally = history_.tally_of(1, 4 * second);
  EXPECT_EQ(tally.lease_waits.at("GPU-1").count(), 1u);
  EXPECT_EQ(tally.lease_waits.at("GPU-1").sum_us(), 3 * second);
  EXPECT_TRUE(tally.refusals.empty()) << "what waits afterwards was not refused";
  EXPECT_EQ(history_.waits(1, 1, 9 * second), 0u);
}

TEST_F(History, CountsDeparturesFromTheDevicesAndReturns) {
  history_.note(ClientCame{1, {}, {}}, {}, 0);
  history_.note_deep_pause(1, true, false, 0, 0, "the driver refuses", second);
  history_.note_deep_pause(1, true, true, 16 * MiB, 300'000, "", 2 * second);
  const observe::NodeEventSample left = history_.events(3 * second).back();
  EXPECT_EQ(left.kind, observe::NodeEventKind::LeftDevices);
  EXPECT_EQ(left.outcome, "done");
  EXPECT_EQ(left.bytes, 16 * MiB);
  EXPECT_EQ(left.took_us, 300'000u);
  EXPECT_EQ(history_.events(3 * second).at(1).cause, "the driver refuses");
  history_.note_deep_pause(1, false, true, 0, 0, "", 4 * second);
  Snapshot all;
  all.clients.resize(1);
  all.clients[0] = {.label = "a", .tally = history_.tally_of(1, 0), .is_off_devices = true};
  const std::string text = print_metrics(all, MetricFormat::Prometheus);
  for (const char* line :
       {"cuvmm_client_off_devices{client=\"a\"} 1\n",
        "cuvmm_deep_pauses_total{client=\"a\",phase=\"out\",outcome=\"done\"} 1\n",
        "cuvmm_deep_pauses_total{client=\"a\",phase=\"out\",outcome=\"failed\"} 1\n",
        "cuvmm_deep_pauses_total{client=\"a\",phase=\"in\",outcome=\"done\"} 1\n",
        "cuvmm_deep_pauses_total{client=\"a\",phase=\"in\",outcome=\"failed\"} 0\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << text;
  }
}

TEST_F(History, RecordsWhoGaveMemoryToWhom) {
  history_.note(ClientCame{1, {}, {}}, {}, 0);
  history_.note(ClientCame{11, {}, {}}, {}, 0);
  history_.note(TimePassed{}, {ReclaimRequested{1, 5, 1, ReclaimStep::Pause, 8 * MiB, 0, 0, 11}},
                second);
  history_.note(ReclaimAnswered{1, 5, 1, ReclaimOutcome::Applied, 9 * MiB},
                {ReclaimEnded{1, 5, ReclaimEnd::Applied}}, 2 * second);
  const observe::NodeEventSample last = history_.events(3 * second).back();
  EXPECT_EQ(last.client, "a");
  EXPECT_EQ(last.other, "b");
  EXPECT_EQ(last.cause, "pause");
  EXPECT_EQ(last.outcome, "applied");
  EXPECT_EQ(last.bytes, 9 * MiB);
  EXPECT_EQ(last.took_us, second);
  EXPECT_EQ(last.ago_us, 2 * second);
  const auto reclaims = history_.tally_of(1, 0).reclaims.at({"GPU-1", ReclaimStep::Pause});
  EXPECT_EQ(reclaims.bytes, 9 * MiB);
  EXPECT_EQ(reclaims.ended.at(ReclaimEnd::Applied), 1u);
}

TEST_F(History, CountsReclaimsThatOutlastTheEventsShown) {
  history_.note(ClientCame{1, {}, {}}, {}, 0);
  history_.note(ClientCame{2, {}, {}}, {}, 0);
  history_.note(TimePassed{}, {ReclaimRequested{1, 5, 1, ReclaimStep::Pause, 8 * MiB}}, second);
  history_.note(TimePassed{}, {ReclaimRequested{1, 6, 1, ReclaimStep::Cache, 8 * MiB}}, second);
  for (int i = 0; i < 300; ++i) history_.note(TimePassed{}, {TurnStarted{2, second}}, second);
  history_.note(LeaseReturned{1, 1, 2 * MiB}, {}, second);
  history_.note(ReclaimAnswered{1, 5, 1, ReclaimOutcome::Applied, 6 * MiB},
                {ReclaimEnded{1, 5, ReclaimEnd::Applied}}, second);
  history_.note(TimePassed{}, {ReclaimEnded{1, 6, ReclaimEnd::Expired}}, second);
  history_.note(ReclaimAnswered{1, 6, 1, ReclaimOutcome::Applied, MiB}, {}, second);
  const auto reclaims = history_.tally_of(1, 0).reclaims;
  const auto& pause = reclaims.at({"GPU-1", ReclaimStep::Pause});
  EXPECT_EQ(pause.bytes, 8 * MiB);
  EXPECT_EQ(pause.ended.at(ReclaimEnd::Applied), 1u);
  const auto& cache = reclaims.at({"GPU-1", ReclaimStep::Cache});
  EXPECT_EQ(cache.bytes, MiB) << "an answer after the deadline counts too";
  EXPECT_EQ(cache.ended.at(ReclaimEnd::Expired), 1u);
}

TEST_F(History, CountsATurnWhileItLasts) {
  history_.note(ClientCame{1, {}, {}}, {}, 0);
  history_.note(TimePassed{}, {TurnStarted{1, second}}, second);
  EXPECT_EQ(history_.tally_of(1, 3 * second).turns_us, 2 * second);
  history_.note(TimePassed{}, {TurnEnded{1}}, 4 * second);
  EXPECT_EQ(history_.tally_of(1, 9 * second).turns_us, 3 * second);
  EXPECT_EQ(history_.tally_of(1, 9 * second).turns, 1u);
}

TEST_F(History, NamesTheSecondOfANameByItsNumberAndKeepsNoDepartedOnes) {
  history_.note(ClientCame{1, {}, {}}, {}, 0);
  history_.note(ClientCame{2, {}, {}}, {}, 0);
  EXPECT_EQ(history_.label_of(2), "a#2");
  history_.note(ClientLeft{1}, {}, second);
  EXPECT_EQ(history_.label_of(2), "a#2") << "it stays";
  EXPECT_EQ(history_.label_of(1), "");
  history_.note(ClientCame{3, {}, {}}, {}, second);
  EXPECT_EQ(history_.label_of(3), "a");
}

TEST(HistoryOfChosenNames, GivesNoTwoClientsTheSameLabel) {
  daemon::NodeHistory history{{.name = [](ClientId id) { return id == 1 ? "a#3" : "a"; },
                               .user = [](ClientId) { return uid_t{1}; },
                               .place = [](PlaceId) { return std::string{"GPU-1"}; }}};
  for (const ClientId id : {1, 2, 3}) history.note(ClientCame{id, {}, {}}, {}, 0);
  EXPECT_EQ(history.label_of(1), "a#3");
  EXPECT_EQ(history.label_of(2), "a");
  EXPECT_EQ(history.label_of(3), "a#3#3");
}

TEST_F(History, CountsTheSameRefusalAgainAndAgainAsOneEvent) {
  history_.note(ClientCame{1, {}, {}}, {}, 0);
  for (RequestId i = 1; i <= 50; ++i) {
    history_.note(LeaseRequested{1, i, 1, MiB, true},
                  {LeaseRefused{1, i, 1, MiB, RefusalReason::TurnsAreOff}}, i * second);
  }
  const auto events = history_.events(60 * second);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events.back().times, 50u);
  EXPECT_EQ(events.back().user, 1u);
  EXPECT_EQ(events.back().ago_us, 10 * second);
  EXPECT_EQ(history_.tally_of(1, 0).refusals.at({"GPU-1", RefusalReason::TurnsAreOff}), 50u);
}

TEST_F(History, KeepsTheLatestEvents) {
  history_.note(ClientCame{1, {}, {}}, {}, 0);
  for (int i = 0; i < 1000; ++i) history_.note(TimePassed{}, {TurnStarted{1, second}}, second);
  EXPECT_EQ(history_.events(second).size(), 200u);
  EXPECT_EQ(history_.events(second).back().number, 1001u);
}

TEST(Tokens, AreTheFirstLineOfAFileThatOthersCannotRead) {
  const auto path =
      std::filesystem::temp_directory_path() / ("cuvmm-token-" + std::to_string(::getpid()));
  const auto token = [&](const std::string& text, unsigned mode) {
    std::ofstream{path} << text;
    std::filesystem::permissions(path, std::filesystem::perms{mode});
    const auto read = observe::read_token(path.string());
    std::filesystem::remove(path);
    return read.ok() ? *read : "(none)";
  };
  EXPECT_EQ(token("  0123456789abcdef \nmore", 0600), "0123456789abcdef");
  EXPECT_EQ(token("0123456789abcdef", 0640), "0123456789abcdef");
  EXPECT_EQ(token("0123456789abcdef", 0644), "(none)");
  EXPECT_EQ(token("0123456789abcdef", 0660), "(none)");
  EXPECT_EQ(token("short", 0600), "(none)");
  EXPECT_EQ(token("0123456789abcdef&x=y", 0600), "(none)");
  EXPECT_EQ(token("", 0600), "(none)");
}

}  // namespace
}  // namespace cuvmm::test
