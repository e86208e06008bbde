// SPDX-License-Identifier: Apache-2.0
// Where sockets are placed, and where they are looked for.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <thread>

#include "checkpoint/checkpoint_lock.hpp"
#include "share/control.hpp"
#include "share/rendezvous.hpp"
#include "share_world.hpp"

namespace cuvmm::test {
namespace {

namespace fs = std::filesystem;
using namespace share;
using checkpoint::lock_for_checkpoint;

// In a child that runs as a user that owns no folders. The result is the number of the first claim
// that fails, or 0.
class AnotherUser {
 public:
  static constexpr uid_t number = 54'321;

  AnotherUser() { remove_folders(); }
  ~AnotherUser() { remove_folders(); }
  AnotherUser(const AnotherUser&) = delete;
  AnotherUser& operator=(const AnotherUser&) = delete;

  static std::string folder(const char* in) {
    return std::string(in) + "/cuvmm-" + std::to_string(number);
  }

  // Keeps access to its own files in /proc, as a newly started program has.
  static bool become(uid_t user) {
    return ::seteuid(user) == 0 && ::prctl(PR_SET_DUMPABLE, 1) == 0;
  }

  static int run(const std::function<int()>& claims) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::unsetenv("XDG_RUNTIME_DIR");
      ::_exit(become(number) ? claims() : 99);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  static void remove_folders() {
    const std::string prefix = "cuvmm-" + std::to_string(number);
    for (const char* const shared : {"/tmp", "/dev/shm"}) {
      for (const auto& entry : fs::directory_iterator{shared}) {
        const std::string name = entry.path().filename();
        if (name == prefix || name.starts_with(prefix + "-")) fs::remove_all(entry.path());
      }
    }
  }
};

class SharePlaces : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to be another user";
  }
  const SharePlace place;
  const AnotherUser user;
};

TEST(ShareLongPaths, AreBoundAndConnectedTo) {
  const SharePlace place;
  const std::string folder = place.folder() + "/" + std::string(150, 'l');
  ASSERT_TRUE(fs::create_directory(folder));
  const std::string path = folder + "/ipc-4711-0123456789abcdef";
  {
    const auto listening = ListeningSocket::open(path, {});
    ASSERT_TRUE(listening.ok()) << said(listening);
    const auto socket = connect_to(path, in_time());
    EXPECT_TRUE(socket.ok()) << said(socket);
  }
  EXPECT_EQ(connect_to(path, in_time()).error().kind, ErrorKind::NotFound);
  fs::remove_all(folder);
  EXPECT_EQ(connect_to(path, in_time()).error().kind, ErrorKind::NotFound);
}

TEST(ShareSockets, OfLiveProcessesAreNeitherReplacedNorRemoved) {
  const SharePlace place;
  const std::string path = place.socket();
  auto first = ListeningSocket::open(path, {});
  ASSERT_TRUE(first.ok()) << said(first);
  const auto second = ListeningSocket::open(path, {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().kind, ErrorKind::AlreadyExists);

  fs::rename(path, place.folder() + "/elsewhere");
  const auto third = ListeningSocket::open(path, {});
  ASSERT_TRUE(third.ok()) << said(third);
  first->remove_file();
  EXPECT_TRUE(connect_to(path, in_time()).ok());
}

TEST(ShareSockets, OfLiveProcessesThatTakeNoLockAreKept) {
  const SharePlace place;
  const std::string path = place.socket();
  const auto first = ListeningSocket::open(path, {});
  ASSERT_TRUE(first.ok()) << said(first);
  const auto second = ListeningSocket::open(path, {.replace = ListeningSocket::Replace::Stale});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().kind, ErrorKind::AlreadyExists);
  EXPECT_TRUE(connect_to(path, in_time()).ok());
}

// As in containers that share a folder: each has a process 1.
TEST(ShareSockets, OfProcessesWithTheSameNumberAreInOneFolder) {
  const SharePlace place;
  void* const shared = ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto& ready = *new (shared) std::atomic<int>{0};
  const auto start_apart = [&] {
    const auto child = static_cast<pid_t>(::syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0));
    if (child != 0) return child;
    ::setenv("XDG_RUNTIME_DIR", place.folder().c_str(), 1);
    ++ready;
    while (ready < 2) continue;
    const auto folder = private_folder();
    ::_exit(folder.ok() && *folder == place.folder() + "/cuvmm" ? 0 : 1);
  };
  int elsewhere = 0;
  for (int round = 0; round < 200; ++round) {
    ready = 0;
    for (const pid_t child : {start_apart(), start_apart()}) {
      if (child < 0) GTEST_SKIP() << "this machine allows no namespaces of processes";
      int status = 0;
      EXPECT_EQ(::waitpid(child, &status, 0), child);
      elsewhere += status == 0 ? 0 : 1;
    }
  }
  EXPECT_EQ(elsewhere, 0) << "of 400";
  ::munmap(shared, sizeof(std::atomic<int>));
}

// ssh-agent's umask, for example, keeps even the owner out of a new folder.
TEST_F(SharePlaces, AUmaskDoesNotCloseAFolderToItsOwner) {
  ASSERT_EQ(::chown(place.folder().c_str(), AnotherUser::number, AnotherUser::number), 0);
  EXPECT_EQ(AnotherUser::run([&] {
              ::setenv("XDG_RUNTIME_DIR", place.folder().c_str(), 1);
              const std::string expected = place.folder() + "/cuvmm";
              const auto is_usable = [&] {
                const auto path = usual_place_to_listen();
                return path.ok() && path->starts_with(expected) && listen_at(*path).ok();
              };
              ::umask(0177);
              if (!is_usable()) return 1;
              const auto fresh = make_fresh_folder("/tmp");
              ::umask(022);
              const bool is_open = fresh.ok() && ::access(fresh->c_str(), X_OK) == 0;
              if (fresh.ok()) fs::remove_all(*fresh);
              if (!is_open) return 2;
              // As earlier versions left it.
              fs::permissions(expected, fs::perms::owner_read | fs::perms::owner_write);
              return is_usable() ? 0 : 3;
            }),
            0);
}

TEST_F(SharePlaces, AFolderOfAnotherUserIsSkipped) {
  ASSERT_TRUE(fs::create_directory(user.folder("/tmp")));
  EXPECT_EQ(AnotherUser::run([] {
              const auto had = private_folder();
              return had.ok() && *had == AnotherUser::folder("/dev/shm") ? 0 : 1;
            }),
            0);
}

// Bound, but with no process listening.
void leave_a_dead_socket_at(const std::string& path) {
  const Fd dead{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  (void)::bind(dead.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

TEST_F(SharePlaces, ADeadSocketInTheBestFolderHidesNoLiveOne) {
  ASSERT_EQ(::chown(place.folder().c_str(), AnotherUser::number, AnotherUser::number), 0);
  EXPECT_EQ(AnotherUser::run([&] {
              const auto path = usual_place_to_listen();
              auto host = listen_at(*path);
              if (!host.ok()) return 1;
              std::atomic<bool> over{false};
              std::thread serves{[&] {
                while (!over) (void)(*host)->wait(soon());
              }};
              ::setenv("XDG_RUNTIME_DIR", place.folder().c_str(), 1);
              const auto best = private_folder();
              if (!best.ok() || *best != place.folder() + "/cuvmm") return 2;
              leave_a_dead_socket_at(*best + "/share");
              if (!write_token(*best + "/share.token", test_token()).ok()) return 3;
              const bool connected = connect_at_the_usual_place(in_time()).ok();
              over = true;
              serves.join();
              fs::remove_all(*best);
              return connected ? 0 : 4;
            }),
            0);
}

// A login and a cron job have different runtime folders.
TEST_F(SharePlaces, CommandsWithDifferentFoldersExcludeEachOther) {
  ASSERT_EQ(::chown(place.folder().c_str(), AnotherUser::number, AnotherUser::number), 0);
  EXPECT_EQ(AnotherUser::run([&] {
              auto first = lock_for_checkpoint(4711, Deadline::after(Duration{0}));
              if (!first.ok()) return 1;
              ::setenv("XDG_RUNTIME_DIR", place.folder().c_str(), 1);
              const auto second = lock_for_checkpoint(4711, Deadline::after(Duration{0}));
              if (second.ok() || second.error().kind != ErrorKind::TimedOut) return 2;
              if (!lock_for_checkpoint(4712, Deadline::after(Duration{0})).ok()) return 3;
              first->clear();
              const bool is_free = lock_for_checkpoint(4711, Deadline::after(Duration{0})).ok();
              fs::remove_all(place.folder() + "/cuvmm");
              return is_free ? 0 : 4;
            }),
            0);
}

// As a service with a private /tmp does, or a container.
TEST_F(SharePlaces, CommandsThatSeeAnotherTmpExcludeEachOther) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root for a mount namespace";
  auto lock = lock_for_checkpoint(::getpid(), Deadline::after(Duration{0}));
  ASSERT_TRUE(lock.ok()) << lock.error().text();
  const auto is_locked_elsewhere = [] {
    const pid_t child = ::fork();
    if (child == 0) {
      const bool has_own = ::unshare(CLONE_NEWNS) == 0 &&
                           ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                           ::mount("none", "/tmp", "tmpfs", 0, nullptr) == 0 &&
                           ::mount("none", "/dev/shm", "tmpfs", 0, nullptr) == 0;
      ::unsetenv("XDG_RUNTIME_DIR");
      const auto second = lock_for_checkpoint(::getppid(), Deadline::after(Duration{0}));
      ::_exit(!has_own ? 77 : second.ok() ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  const int seen = is_locked_elsewhere();
  if (seen == 77) GTEST_SKIP() << "this machine allows no mount namespaces";
  EXPECT_EQ(seen, 1);
  lock->clear();
  EXPECT_EQ(is_locked_elsewhere(), 0);
}

void take_the_usual_names(const AnotherUser& user) {
  for (const char* const shared : {"/tmp", "/dev/shm"}) fs::create_directory(user.folder(shared));
}

TEST_F(SharePlaces, AFreshFolderIsMadeIfAllUsualNamesAreTaken) {
  take_the_usual_names(user);
  EXPECT_EQ(AnotherUser::run([] {
              const auto fresh = private_folder();
              if (!fresh.ok()) return 1;
              if (!fresh->starts_with(AnotherUser::folder("/tmp") + "-")) return 2;
              const auto facts = fs::status(*fresh);
              if (facts.permissions() != fs::perms::owner_all) return 3;
              const auto again = private_folder();
              return again.ok() && *again == *fresh ? 0 : 4;  // there are few
            }),
            0);
}

TEST_F(SharePlaces, AFreshFolderOfAnotherUserIsNotUsed) {
  take_the_usual_names(user);
  const std::string theirs = user.folder("/tmp") + "-AAAAAA";
  ASSERT_TRUE(fs::create_directory(theirs));
  EXPECT_EQ(AnotherUser::run([&] {
              const auto fresh = private_folder();
              return fresh.ok() && *fresh != theirs ? 0 : 1;
            }),
            0);
}

TEST_F(SharePlaces, ConnectingFindsAFreshFolderToo) {
  take_the_usual_names(user);
  ASSERT_EQ(::chown(place.folder().c_str(), AnotherUser::number, AnotherUser::number), 0);
  EXPECT_EQ(AnotherUser::run([&] {
              auto host = listen_at(*usual_place_to_listen());
              if (!host.ok()) return 1;
              std::atomic<bool> over{false};
              std::thread serves{[&] {
                while (!over) (void)(*host)->wait(soon());
              }};
              ::setenv("XDG_RUNTIME_DIR", place.folder().c_str(), 1);  // a better folder now
              const bool connected = connect_at_the_usual_place(in_time()).ok();
              over = true;
              serves.join();
              return connected ? 0 : 2;
            }),
            0);
}

// Links lead to folders whose entries look like cuvmm's but are not for it to remove.
TEST_F(SharePlaces, NothingIsRemovedBehindALink) {
  ASSERT_EQ(::chown(place.folder().c_str(), AnotherUser::number, AnotherUser::number), 0);
  fs::create_directory_symlink(place.folder(), user.folder("/dev/shm"));
  ASSERT_EQ(::lchown(user.folder("/dev/shm").c_str(), AnotherUser::number, AnotherUser::number), 0);
  EXPECT_EQ(AnotherUser::run([&] {
              leave_a_dead_socket_at(place.folder() + "/control-1-2");
              if (!controlled_processes().empty()) return 1;
              return fs::exists(place.folder() + "/control-1-2") ? 0 : 2;
            }),
            0);
}

TEST_F(SharePlaces, OnlyDeadSocketsOfTheUserAreRemoved) {
  EXPECT_EQ(AnotherUser::run([&] {
              const std::string folder = *private_folder();
              const std::string other = place.folder() + "/dead";
              if (!AnotherUser::become(0)) return 9;
              leave_a_dead_socket_at(other);
              leave_a_dead_socket_at(folder + "/control-3-3");  // of another user
              if (!AnotherUser::become(AnotherUser::number)) return 9;
              leave_a_dead_socket_at(folder + "/control-1-1");
              std::ofstream{folder + "/control-2-2"} << "a file";
              fs::create_symlink(other, folder + "/control-4-4");
              (void)controlled_processes();
              const auto is_there = [&](const char* name) {
                return fs::exists(fs::symlink_status(folder + name));
              };
              if (is_there("/control-1-1")) return 1;
              if (!is_there("/control-2-2")) return 2;
              if (!is_there("/control-3-3")) return 3;
              return is_there("/control-4-4") ? 0 : 4;
            }),
            0);
  EXPECT_TRUE(fs::exists(fs::symlink_status(place.folder() + "/dead")));
}

// As after setuid() in a daemon.
TEST_F(SharePlaces, ADeadSocketIsRemovedWithoutAccessToProc) {
  EXPECT_EQ(AnotherUser::run([&] {
              const std::string dead = *private_folder() + "/control-1-1";
              leave_a_dead_socket_at(dead);
              if (::prctl(PR_SET_DUMPABLE, 0) != 0) return 9;
              (void)controlled_processes();
              return fs::exists(fs::symlink_status(dead)) ? 1 : 0;
            }),
            0);
}

TEST(PrivateFolders, StayTheSameWhenTheirPathIsReplaced) {
  const SharePlace place;
  const SharePlace elsewhere;
  const std::string path = place.folder() + "/cuvmm";
  ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  const PrivateFolder folder = NEEDED(PrivateFolder::open(path));
  leave_a_dead_socket_at(path + "/control-1-1");
  fs::rename(path, place.folder() + "/moved");
  fs::create_directory_symlink(elsewhere.folder(), path);
  leave_a_dead_socket_at(elsewhere.folder() + "/control-1-1");
  remove_stale_sockets(folder, "control-");
  EXPECT_FALSE(fs::exists(place.folder() + "/moved/control-1-1"));
  EXPECT_TRUE(fs::exists(elsewhere.folder() + "/control-1-1"));
  EXPECT_EQ(PrivateFolder::open(path).error().kind, ErrorKind::InvalidArgument);
}

// As daemons do. The files that the program opens then reuse cuvmm's descriptor numbers.
class FilesInTheirPlace {
 public:
  FilesInTheirPlace() {
    for (int number = 3; number < 1024; ++number) ::close(number);
    for (auto& pipe : pipes_) {
      if (::pipe(pipe.data()) != 0 || ::write(pipe[1], content, sizeof content) < 0) ::_exit(90);
    }
  }
  bool are_as_they_were() const {
    return std::all_of(pipes_.begin(), pipes_.end(), [](const std::array<int, 2>& pipe) {
      char text[64];
      return ::fcntl(pipe[1], F_GETFD) >= 0 && ::read(pipe[0], text, sizeof text) == sizeof content;
    });
  }

 private:
  static constexpr char content[16] = "of the program";
  std::array<std::array<int, 2>, 200> pipes_{};
};

TEST(ShareFiles, AreLeftAloneAfterTheProgramClosedOurs) {
  const SharePlace place;
  const pid_t child = ::fork();
  if (child == 0) {
    auto host = NEEDED(Host::open(host_settings(place.socket())));
    std::optional<Session> session;
    std::thread importer{
        [&] { session = NEEDED(Session::connect(place.socket(), test_token(), in_time())); }};
    event_of(*host, HostEvent::What::Came);
    importer.join();
    const FilesInTheirPlace files;
    const bool asked = session->ask({}, soon()).ok();
    const bool came = NEEDED(host->wait(soon())).has_value();  // and left
    session.reset();
    host.reset();
    if (asked || !came) ::_exit(1);
    ::_exit(files.are_as_they_were() ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace cuvmm::test
