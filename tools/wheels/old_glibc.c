// SPDX-License-Identifier: Apache-2.0
//
// What the core calls of glibc, and glibc 2.28 does not have. `tools/wheels` links this into wheels
// for older systems; no symbol is visible outside the core.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef OLD_GLIBC
#define OLD_GLIBC __attribute__((visibility("hidden")))
#endif

// Since 2.32: whether the process has one thread only. libstdc++ then counts references without
// atomic instructions.
OLD_GLIBC char __libc_single_threaded = 0;

// Functions since 2.33; headers before had them call __fxstat and __xstat.
OLD_GLIBC int fstat(int file, struct stat* found) { return (int)syscall(SYS_fstat, file, found); }

OLD_GLIBC int stat(const char* path, struct stat* found) {
  return (int)syscall(SYS_newfstatat, AT_FDCWD, path, found, 0);
}

typedef int ClockWait(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);

// Since 2.30: waits until a time of that clock. An older glibc waits until the same moment as the
// clock of the day shows it; if someone sets that clock meanwhile, the wait ends earlier or later.
OLD_GLIBC int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                     clockid_t clock, const struct timespec* until) {
#ifndef OLD_GLIBC_ALONE
  static ClockWait* newer;
  static int looked;
  if (!__atomic_load_n(&looked, __ATOMIC_ACQUIRE)) {
    __atomic_store_n(&newer, (ClockWait*)dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&looked, 1, __ATOMIC_RELEASE);
  }
  ClockWait* const found = __atomic_load_n(&newer, __ATOMIC_RELAXED);
  if (found != NULL) return found(condition, mutex, clock, until);
#endif
  struct timespec now, end;
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &end) != 0) return EINVAL;
  end.tv_sec += until->tv_sec - now.tv_sec;
  end.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (end.tv_nsec < 0) {
    --end.tv_sec;
    end.tv_nsec += 1000000000L;
  } else if (end.tv_nsec >= 1000000000L) {
    ++end.tv_sec;
    end.tv_nsec -= 1000000000L;
  }
  if (end.tv_sec < 0) end.tv_sec = 0;  // long over
  return pthread_cond_timedwait(condition, mutex, &end);
}
