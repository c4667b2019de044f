#pragma once
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

/// Enough of a test framework to run the core under sanitizers without Python.
#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (0)

#define CHECK_THROWS(type, text, ...)                                 \
  do {                                                                \
    bool thrown = false;                                              \
    try {                                                             \
      __VA_ARGS__;                                                    \
    } catch (const type& e) {                                         \
      thrown = std::string(e.what()).find(text) != std::string::npos; \
      if (!thrown) std::fprintf(stderr, "said: %s\n", e.what());      \
    }                                                                 \
    CHECK(thrown && "expected " #type);                               \
  } while (0)
