// SPDX-License-Identifier: Apache-2.0
//
// Locks of directories and forked processes; descriptors and directories of the Posix Env.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "testing.h"
#include "tier_testing.h"

namespace {

std::mutex synced_mutex;
std::set<std::string>* synced = nullptr;  // paths that fsync was called with, while not null

std::string LinkOf(const std::string& link) {
  char target[4096];
  const ssize_t n = ::readlink(link.c_str(), target, sizeof target);
  return n < 0 ? "" : std::string(target, static_cast<size_t>(n));
}

}  // namespace

// In place of the C library's, which does the same; nothing else tells that a directory was synced.
extern "C" int fsync(int fd) {
  {
    const std::lock_guard<std::mutex> lock(synced_mutex);
    if (synced != nullptr) synced->insert(LinkOf("/proc/self/fd/" + std::to_string(fd)));
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace msrec {
namespace {

// Descriptors of this process by what they are of.
std::multimap<std::string, int> Descriptors() {
  std::multimap<std::string, int> out;
  DIR* dir = ::opendir("/proc/self/fd");
  while (const dirent* entry = ::readdir(dir)) {
    const std::string target = LinkOf(std::string("/proc/self/fd/") + entry->d_name);
    if (!target.empty()) out.emplace(target, std::stoi(entry->d_name));
  }
  ::closedir(dir);
  return out;
}

bool Busy(const std::string& path, bool exclusive) {
  try {
    Env::Posix()->Lock(path, exclusive);
    return false;
  } catch (const IoError& error) {
    EXPECT_EQ(error.code().value(), EBUSY);
    EXPECT_EQ(error.path(), path);
    return true;
  }
}

TEST(FileLock, TwoOfOneProcessAreRefusedAndReadersAreNot) {
  TestDirectory directory(true);
  const std::string path = directory.path() + "/LOCK";
  {
    const auto lock = Env::Posix()->Lock(path, true);
    EXPECT_TRUE(Busy(path, true));
    EXPECT_TRUE(Busy(path, false));
    // Whoever opens and closes the file for another reason takes nothing away.
    ::close(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    EXPECT_TRUE(Busy(path, true));
  }
  const auto one = Env::Posix()->Lock(path, false);
  const auto other = Env::Posix()->Lock(path, false);
  EXPECT_TRUE(Busy(path, true));
}

TEST(Env, NoDescriptorOfATierSurvivesExec) {
  TestDirectory directory(true);
  SsdOptions options = SmallOptions(directory.path() + "/tier");
  std::set<int> before;
  for (const auto& [target, fd] : Descriptors()) before.insert(fd);
  SsdTier tier(options);
  for (int64_t key = 0; key < 3000; ++key) WriteOne(&tier, key, 1);
  tier.Flush();
  size_t found = 0;
  for (const auto& [target, fd] : Descriptors()) {
    if (before.count(fd) != 0 || target.find("/proc/") == 0) continue;
    ++found;
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << target;
  }
  EXPECT_GT(found, 3u);
}

TEST(Env, DirectoriesThatWereMadeSurvivePowerLoss) {
  TestDirectory directory(true);
  std::set<std::string> paths;
  {
    const std::lock_guard<std::mutex> lock(synced_mutex);
    synced = &paths;
  }
  const std::string root = directory.path();
  Env::Posix()->CreateDirectory(root + "/a/b//c/");
  {
    const std::lock_guard<std::mutex> lock(synced_mutex);
    synced = nullptr;
  }
  EXPECT_EQ(paths, (std::set<std::string>{root, root + "/a", root + "/a/b"}));
  EXPECT_TRUE(std::filesystem::is_directory(root + "/a/b/c"));
}

// TSan does not follow a fork out of a process with threads.
#if !defined(__SANITIZE_THREAD__)

// Runs in a process of its own, which ends with what it returns.
pid_t Fork(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return child;
}

int Wait(pid_t child) {
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// Two ends that tell when the other has come to a point.
struct Pipe {
  int ends[2];
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  ~Pipe() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  void Send(pid_t value = 1) { EXPECT_EQ(::write(ends[1], &value, sizeof value), sizeof value); }
  pid_t Receive() {
    pid_t value = 0;
    EXPECT_EQ(::read(ends[0], &value, sizeof value), sizeof value);
    return value;
  }
};

TEST(FileLock, EndsWithItsProcessThoughAForkedChildLives) {
  TestDirectory directory(true);
  const std::string path = directory.path() + "/LOCK";
  Pipe ready;
  const pid_t trainer = Fork([&] {
    const auto lock = Env::Posix()->Lock(path, true);
    Fork([&] {  // as a data loader's worker
      ready.Send(::getpid());
      for (;;) ::pause();
      return 0;
    });
    for (;;) ::pause();
    return 0;
  });
  const pid_t worker = ready.Receive();
  EXPECT_TRUE(Busy(path, true));
  ::kill(trainer, SIGKILL);
  EXPECT_EQ(Wait(trainer), -SIGKILL);
  ASSERT_EQ(::kill(worker, 0), 0);
  EXPECT_FALSE(Busy(path, true));
  ::kill(worker, SIGKILL);
}

TEST(FileLock, AForkedChildCannotGiveItUp) {
  TestDirectory directory(true);
  const std::string path = directory.path() + "/LOCK";
  auto lock = Env::Posix()->Lock(path, true);
  for (const bool destroys : {false, true}) {
    EXPECT_EQ(Wait(Fork([&] {
                if (destroys) lock.reset();
                return Busy(path, true) ? 7 : 8;
              })),
              7);
    EXPECT_TRUE(Busy(path, true));
  }
  // Nor does a child close what has its descriptor's number by then.
  EXPECT_EQ(Wait(Fork([&] {
              const int first = ::open("/dev/null", O_RDONLY);
              const int second = ::open("/dev/null", O_RDONLY);
              lock.reset();
              return ::fcntl(first, F_GETFD) >= 0 && ::fcntl(second, F_GETFD) >= 0 ? 7 : 8;
            })),
            7);
  // When it is given up, a child may have it.
  lock.reset();
  EXPECT_EQ(Wait(Fork([&] {
              const auto own = Env::Posix()->Lock(path, true);
              return Wait(Fork([&] { return Busy(path, true) ? 7 : 8; }));
            })),
            7);
  EXPECT_FALSE(Busy(path, true));
}

TEST(FileLock, AForkAtAnyMomentLeavesItBehind) {
  TestDirectory directory(true);
  const std::string path = directory.path() + "/LOCK";
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    Env::Posix()->Lock(path + std::to_string(t), true);  // so that it is there
    threads.emplace_back([&, t] {
      while (!stop) Env::Posix()->Lock(path + std::to_string(t), t == 0);
    });
  }
  int inherited = 0;
  for (int i = 0; i < static_cast<int>(250 / kFewer) + 50; ++i) {
    inherited += Wait(Fork([&] {
      for (const auto& [target, fd] : Descriptors()) {
        if (target.find(path) == 0) return 1;
      }
      return 0;
    }));
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(inherited, 0);
}

#endif  // not under TSan

}  // namespace
}  // namespace msrec
