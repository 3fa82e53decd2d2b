#include "runner/ui/serve.hpp"

#include <malloc.h>
#include <signal.h>

#include <cstdio>
#include <thread>

#include "runner/base/log.hpp"
#include "runner/base/loopback.hpp"
#include "runner/ui/api.hpp"
#include "runner/ui/page.hpp"

namespace runner::ui {

namespace {

constexpr int ports_tried = 20;

/// The signals that end the server. They are blocked in all threads, and the main thread waits for them.
sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);  // with nohup the server stays
  return set;
}

std::unique_ptr<HttpServer> listen(const UiModule& module, const UiOptions& options, const Handler& handler) {
  Response refusal;
  Guard::protect(refusal);
  const auto listen_on = [&](int port) { return module.listen(options.host, port, handler, refusal.headers, {}); };
  if (options.port != 0) return listen_on(options.port);
  for (int port = default_port; port < default_port + ports_tried; ++port) {
    try {
      return listen_on(port);
    } catch (const Error&) {
      if (port + 1 == default_port + ports_tried) break;
    }
  }
  return listen_on(0);
}

/// The host in the printed address. "0.0.0.0" is none that a browser of another machine could use.
std::string shown_host(const std::string& host) {
  if (const auto name = machine_name(); is_any_address(host) && !name.empty()) return name;
  return host.find(':') != std::string::npos ? "[" + host + "]" : host;
}

}  // namespace

void serve(const UiOptions& options, const Hooks& hooks) {
  if (options.host.empty())  // it would mean all addresses
    throw usage_error("--host \"\" is no address: it is a name or an address of this machine, or 0.0.0.0 for all");
  ::mallopt(M_ARENA_MAX,
            2);  // threads of many connections would keep the memory of large answers, each in an arena of its own
  const UiModule& module = load_ui_module();
  const sigset_t signals = ending_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);

  Readers readers(options.home);
  RunLists lists(readers);
  Changes changes(readers);
  LogIndexes logs;
  const Page page(module.assets());
  std::unique_ptr<Guard> guard;  // made when the port is known, before the first request
  const auto [read_only, open_read] = options.access;
  const std::string token = read_only && open_read ? "" : random_token();
  const Handler handler = [&](const Request& request) {
    Response response;
    if (auto refusal = guard->refusal(request))
      response = std::move(*refusal);
    else if (request.path == "/api" || request.path.starts_with("/api/"))
      response = Api{readers, lists, changes, logs, hooks, *guard}.answer(request);
    else if (request.method == "GET" || request.method == "HEAD")
      response = page.answer(request);
    else
      response = error_response(405, "the page is only read");
    guard->protect(response);
    return response;
  };
  const auto server = listen(module, options, handler);
  guard = std::make_unique<Guard>(options.host, server->port(), token, options.access);
  std::thread serving([&] { server->run(); });

  std::printf("http://%s:%d/%s\n", shown_host(options.host).c_str(), server->port(),
              token.empty() ? "" : ("#token=" + token).c_str());
  std::fflush(stdout);
  log::info("the page of the ledger in {}; Ctrl-C ends it", options.home);
  if (open_read)
    log::warning("all users of {} can read all runs (--open-read)",
                 is_loopback(options.host) ? "this machine" : "the machines that reach " + options.host);
  else
    log::info("it is read {}only with the token behind #", read_only ? "" : "and changed ");
  if (!is_loopback(options.host))
    log::warning("{} can be reached from other machines, and what they send and get is not encrypted", options.host);

  int received = 0;
  ::sigwait(&signals, &received);
  changes.stop();
  server->stop();
  serving.join();
}

}  // namespace runner::ui
