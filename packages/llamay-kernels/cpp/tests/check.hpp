#pragma once
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

/// Ends the program at once, from any thread, without destructors, which would wait for other threads.
#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::_Exit(1);                                                       \
    }                                                                      \
  } while (0)

/// Runs f(0), ..., f(n - 1), each in a thread of its own.
inline void in_threads(unsigned n, const std::function<void(unsigned)>& f) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < n; ++t) threads.emplace_back(f, t);
  for (std::thread& t : threads) t.join();
}
