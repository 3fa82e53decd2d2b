#include "runner/ui/serve.hpp"

#include <malloc.h>
#include <signal.h>
#include <zlib.h>

#include <cstdio>
#include <map>
#include <thread>

#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/loopback.hpp"
#include "runner/base/own_program.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/ui/api.hpp"

namespace runner::ui {

namespace {

std::string type_of(std::string_view name) {
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "text/html; charset=utf-8";
}

std::string unpacked(std::string_view gzip) {
  std::string text;
  z_stream stream{};
  constexpr int gzip_format = 16 + MAX_WBITS;
  RUNNER_CHECK(inflateInit2(&stream, gzip_format) == Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(gzip.data()));
  stream.avail_in = static_cast<uInt>(gzip.size());
  int result = Z_OK;
  while (result == Z_OK) {
    char piece[16384];
    stream.next_out = reinterpret_cast<Bytef*>(piece);
    stream.avail_out = sizeof piece;
    result = inflate(&stream, Z_NO_FLUSH);
    text.append(piece, sizeof piece - stream.avail_out);
  }
  inflateEnd(&stream);
  RUNNER_CHECK(result == Z_STREAM_END);
  return text;
}

bool accepts_gzip(const Request& request) {
  return request.header("accept-encoding").find("gzip") != std::string::npos;
}

/// The files of the page: one HTML, one CSS, modules, ECharts. index.html is at every path outside /api and /static, because each view of
/// the page has a path of its own. The other files are below /static/HASH/, where HASH depends on their content: browsers keep them
/// forever.
class Page {
 public:
  explicit Page(const std::vector<Asset>& assets) {
    std::string all;
    for (const auto& asset : assets) all += std::string(asset.name) + '\0' + std::string(asset.gzip);
    hash_ = xxh3_hex(all).substr(0, 16);
    for (const auto& asset : assets) {
      if (asset.name == "index.html")
        index_ = unpacked(asset.gzip);
      else
        files_[std::string(asset.name)] = {.type = type_of(asset.name), .gzip = asset.gzip};
    }
    const std::string mark = "{{static}}";
    for (size_t at = index_.find(mark); at != std::string::npos; at = index_.find(mark, at))
      index_.replace(at, mark.size(), "/static/" + hash_);
    index_tag_ = "\"" + hash_ + "\"";
  }

  Response answer(const Request& request) const {
    const std::string folder = "/static/" + hash_ + "/";
    if (request.path.starts_with("/static/")) {
      const auto file =
          request.path.starts_with(folder) ? files_.find(request.path.substr(folder.size())) : files_.end();
      if (file == files_.end()) return error_response(404, "there is no such file");
      Response response{
          .type = file->second.type,
          .headers = {{"Cache-Control", "public, max-age=31536000, immutable"}, {"Vary", "Accept-Encoding"}}};
      if (accepts_gzip(request)) {
        response.headers.emplace_back("Content-Encoding", "gzip");
        response.body = file->second.gzip;
      } else {
        response.body = unpacked(file->second.gzip);
      }
      return response;
    }
    Response response{.type = type_of("index.html"), .headers = {{"ETag", index_tag_}, {"Cache-Control", "no-cache"}}};
    if (request.header("if-none-match") == index_tag_)
      response.status = 304;
    else
      response.body = index_;
    return response;
  }

 private:
  struct File {
    std::string type;
    std::string_view gzip;
  };
  std::string hash_, index_, index_tag_;
  std::map<std::string, File, std::less<>> files_;
};

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
  const auto& module = open_module<UiModule>({.file = "librunner_ui.so",
                                              .function = "runner_ui_module",
                                              .lack = "has no `runner ui`",
                                              .title = "the module of `runner ui`",
                                              .setup = "scripts/setup"});
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
