// SPDX-License-Identifier: Apache-2.0
#include "workers/mpi_job.h"

#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "util/background.h"
#include "workers/mpi_communicator.h"

namespace msrec {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::duration;
using std::chrono::milliseconds;

// Kinds of messages on the job's own communicator. Each message has one byte; the MPI tag of a
// message is the message's kind.
enum NoteKind { kReportNote = 1, kLeftNote = 2, kNeededNote = 3 };

std::atomic<MpiJob*> the_job{nullptr};

void Print(const std::string& text) {
  const std::string whole = "mindspore_rec: " + text + "\n";
  // Use a single write call, so that lines of different threads do not mix.
  if (write(STDERR_FILENO, whole.data(), whole.size()) < 0) return;
}

// Ends the process if an operation takes longer than `seconds`.
class Deadline {
 public:
  Deadline(double seconds, std::string why, void (*print_stacks)(int))
      : thread_(StartThread("watch the start of MPI", [=] {
          std::unique_lock<std::mutex> lock(mutex_);
          if (over_.wait_for(lock, duration<double>(seconds), [this] { return done_; })) return;
          Print(why);
          if (print_stacks != nullptr) print_stacks(STDERR_FILENO);
          _exit(MpiJob::kHangCode);
        })) {}
  ~Deadline() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      done_ = true;
    }
    over_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace

MpiJob* MpiJob::The() { return the_job.load(std::memory_order_acquire); }

MpiJob* MpiJob::Start(const MpiJobOptions& options) {
  if (options.most_bytes < 1 || options.most_bytes > std::numeric_limits<int>::max()) {
    throw std::invalid_argument("most_bytes must be in [1, 2^31 - 1], got " +
                                std::to_string(options.most_bytes));
  }
  if (The() != nullptr) throw WorkerError("MPI was started before in this process");
  std::unique_ptr<MpiJob> job(new MpiJob(options));
  job->Open();
  job->Init();
  job->MakeChannels();
  job->watcher_ = StartThread("watch the workers", [raw = job.get()] { raw->Watch(); });
  the_job.store(job.get(), std::memory_order_release);
  return job.release();
}

void MpiJob::Open() {
  void* library = dlopen(options_.shim.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw WorkerError(std::string("MPI cannot be opened: ") + dlerror());
  const auto shim = reinterpret_cast<MpiShimFunction>(dlsym(library, kMpiShimSymbol));
  if (shim == nullptr || shim()->version != kMpiShimVersion) {
    throw WorkerError(options_.shim + " belongs to another version of mindspore_rec");
  }
  mpi_ = shim();
}

void MpiJob::Init() {
  const Deadline deadline(options_.start_limit,
                          "waited " + std::to_string(static_cast<int64_t>(options_.start_limit)) +
                              " s in MPI_Init for all workers to start",
                          options_.print_stacks);
  int safe = 0, started = 0;
  Check(mpi_->init(&rank_, &size_, &safe, &started), "MPI_Init_thread");
  started_mpi_ = started != 0;
  if (safe == 0) {
    throw WorkerError(
        "MPI was started without MPI_THREAD_MULTIPLE, which operators need: start it by "
        "mindspore_rec, or ask for that level where it is started");
  }
  left_ = std::make_unique<std::atomic<bool>[]>(size_);
  Check(mpi_->duplicate(&notes_), "MPI_Comm_dup");
}

void MpiJob::Check(int code, const char* what) const {
  if (code == 0) return;
  char text[512];
  mpi_->error_text(code, text, sizeof(text));
  throw WorkerError(std::string(what) + " failed: " + text);
}

void MpiJob::MakeChannels() {
  for (const char* name : kChannelNames) {
    MpiHandle handle = 0;
    Check(mpi_->duplicate(&handle), "MPI_Comm_dup");
    channels_.push_back(std::make_unique<MpiCommunicator>(this, handle, name));
    channels_.back()->set_wait_limit(options_.wait_limit);
    watched_.push_back(channels_.back().get());
  }
}

std::string MpiJob::library() const {
  char text[256] = "";
  mpi_->library_version(text, sizeof(text));
  return text;
}

std::unique_ptr<WorkerGroup> MpiJob::TakeGroup() {
  return std::make_unique<WorkerGroup>(std::move(channels_));
}

// ---- notes between the watcher threads of the workers

void MpiJob::Note(int to, int kind) {
  static const char empty = 0;
  // Do not wait until `request` completes. The byte is sent at once, or never if the receiver has
  // ended.
  MpiRequest request = 0;
  mpi_->send(notes_, &empty, 1, to, kind, &request);
}

void MpiJob::TakeNotes() {
  for (const int kind : {kReportNote, kLeftNote, kNeededNote}) {
    for (;;) {
      int found = 0, sender = 0, bytes = 0;
      MpiHandle message = 0;
      if (mpi_->probe(notes_, kMpiAnySource, kind, &found, &sender, &bytes, &message) != 0) return;
      if (found == 0) break;
      char byte = 0;
      MpiRequest request = 0;
      int done = 0, place = 0, error = 0, received = 0;
      if (mpi_->receive_matched(message, &byte, 1, &request) != 0) return;
      while (done == 0) mpi_->test_some(1, &request, &done, &place, &error, &received);
      if (kind == kLeftNote) left_[sender].store(true, std::memory_order_release);
      if (kind == kNeededNote) needed_.store(true, std::memory_order_release);
      if (kind == kReportNote && !ending_.load()) {
        // One report is enough, even if several workers request a report.
        if (!std::exchange(reported_, true)) {
          PrintReport(Me() + "worker " + std::to_string(sender) +
                      " has waited for too long and ends the job");
        }
      }
    }
  }
}

void MpiJob::Watch() {
  IsBackground() = true;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    lock.unlock();
    TakeNotes();
    lock.lock();
    stopped_.wait_for(lock, milliseconds(100), [this] { return stop_; });
  }
}

void MpiJob::StopWatching() {
  if (!owner_.here()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

// ---- normal end

void MpiJob::RequireMember() const {
  if (leaving_.load()) throw WorkerError(Me() + "the workers have ended: finish() was called");
}

bool MpiJob::Leave() {
  owner_.Require("the job of workers");
  leaving_.store(true);
  // Let other threads finish their exchanges first, because MPI must not be finalized during an
  // exchange. If an exchange takes longer than kPatience, two workers may be waiting for each
  // other.
  constexpr auto kPatience = std::chrono::seconds(5);
  const Clock::time_point called = Clock::now();
  for (const Communicator* channel : watched_) {
    while (channel->busy() && Clock::now() - called < kPatience) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  StopWatching();
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) Note(r, kLeftNote);
  }
  left_[rank_].store(true, std::memory_order_release);
  const Clock::time_point start = Clock::now();
  for (;;) {
    TakeNotes();
    if (needed_.load()) return false;
    bool all = true;
    for (int r = 0; r < size_; ++r) all = all && HasLeft(r);
    if (all) return true;
    std::this_thread::sleep_for(milliseconds(Clock::now() - start < milliseconds(200) ? 1 : 10));
  }
}

void MpiJob::Finish() {
  if (finished_) return;
  finished_ = true;
  if (!Leave()) {
    throw WorkerError(Me() + "it has ended, and another worker still waits for it in an exchange");
  }
  if (started_mpi_) Check(mpi_->finalize(), "MPI_Finalize");
}

// ---- end after a failure

void MpiJob::PrintReport(const std::string& why) {
  std::string text = why;
  const WorkerGroup* group = TheGroup();
  if (group != nullptr && group->step() >= 0) text += "; step " + std::to_string(group->step());
  std::string waits;
  for (const Communicator* channel : watched_) {
    const std::string what = channel->waiting();
    if (!what.empty() && why.find(what) == std::string::npos) waits += ", " + what;
  }
  Print(text + waits + "; its threads:");
  if (options_.print_stacks != nullptr) options_.print_stacks(STDERR_FILENO);
}

// Lets only one thread end the process.
void MpiJob::ClaimEnd() {
  if (!ending_.exchange(true)) return;
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

void MpiJob::EndHung(const std::string& why) {
  ClaimEnd();
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) Note(r, kReportNote);
  }
  PrintReport(why);
  // The other workers receive kReportNote within 0.1 s. The other workers then print their reports,
  // which takes about 0.1 s.
  const Clock::time_point start = Clock::now();
  while (Clock::now() - start < milliseconds(1500)) {
    TakeNotes();
    std::this_thread::sleep_for(milliseconds(5));
  }
  _exit(kHangCode);
}

void MpiJob::EndLeft(const std::string& why, int left) {
  ClaimEnd();
  PrintReport(why);
  Note(left, kNeededNote);
  // The launcher ends this process when the worker with rank `left` ends.
  const Clock::time_point start = Clock::now();
  while (Clock::now() - start < milliseconds(20000)) {
    TakeNotes();
    std::this_thread::sleep_for(milliseconds(5));
  }
  _exit(1);
}

void MpiJob::EndBroken(const char* why) noexcept {
  ClaimEnd();
  try {
    PrintReport(Me() + why);
  } catch (...) {
    // If memory runs out, only the cause of the failure is printed.
    if (write(STDERR_FILENO, why, std::strlen(why)) < 0) _exit(1);
  }
  _exit(1);
}

}  // namespace msrec
