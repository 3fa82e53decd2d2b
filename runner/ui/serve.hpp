// Runs the server of `runner ui` until it is interrupted.
#pragma once
#include <string>

#include "runner/ui/guard.hpp"
#include "runner/ui/hooks.hpp"

namespace runner::ui {

struct UiOptions {
  std::string home;  ///< folder of the ledger, which need not exist yet
  std::string host = "127.0.0.1";
  int port = 0;  ///< 0: the first free one from default_port on
  Access access = {};
};

constexpr int default_port = 8787;

/// Prints the page's address on stdout and serves until SIGINT or SIGTERM. Throws Error(environment) if it cannot listen.
void serve(const UiOptions& options, const Hooks& hooks);

}  // namespace runner::ui
