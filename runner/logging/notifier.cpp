#include "runner/logging/notifier.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "runner/base/blocked_signals.hpp"
#include "runner/base/child_process.hpp"
#include "runner/base/environment_text.hpp"
#include "runner/base/host_name.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/secrets.hpp"
#include "runner/base/text.hpp"
#include "runner/http/http.hpp"
#include "runner/launch/events.hpp"

namespace runner {

Delivery::Delivery(std::string place, Send send, std::function<void()> stop, Retries retries)
    : place_(std::move(place)), send_(std::move(send)), stop_sending_(std::move(stop)), retries_(retries) {
  BlockedSignals blocked;
  thread_ = std::thread([this] { loop(); });
}

Delivery::~Delivery() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  stop_sending_();
  thread_.join();
}

void Delivery::add(std::string message) {
  constexpr size_t most = 64;
  {
    std::lock_guard lock(mutex_);
    if (queue_.size() >= most) queue_.erase(queue_.begin() + 1);  // the first one is being delivered
    queue_.push_back(std::move(message));
  }
  changed_.notify_all();
}

void Delivery::finish(const Patience& patience) {
  std::unique_lock lock(mutex_);
  const auto what = fmt::format("{} to be delivered to {}", counted(std::ssize(queue_), "notification"), place_);
  if (patience.wait(changed_, lock, what, [this] { return queue_.empty(); })) return;
  stop_ = true;
  changed_.notify_all();
  warn(fmt::format("{} could not be delivered to {} in time", counted(std::ssize(queue_), "notification"), place_));
}

std::vector<std::string> Delivery::take_problems() {
  std::lock_guard lock(mutex_);
  return std::exchange(problems_, {});
}

void Delivery::warn(const std::string& problem) {
  log::warning("{}", problem);
  problems_.push_back(problem);
}

bool Delivery::pause(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds time) {
  return !changed_.wait_for(lock, time, [this] { return stop_; });
}

void Delivery::failed(const std::string& problem, int tries) {
  if (!std::exchange(failing_, true))
    warn(fmt::format("a notification could not be delivered to {} ({}): {}", place_,
                     tries == 1 ? "1 try" : fmt::format("{} tries", tries), problem));
}

void Delivery::delivered() {
  if (std::exchange(failing_, false)) log::info("notifications are delivered to {} again", place_);
}

void Delivery::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    const std::string message = queue_.front();
    auto wait = retries_.first_pause;
    for (int tries = 1;; ++tries, wait *= 2) {
      lock.unlock();
      Result result;
      try {
        result = send_(message);
      } catch (const std::exception& error) {  // the machine has no processes or descriptors left
        result = {.problem = error.what(), .again = true};
      }
      lock.lock();
      if (stop_) return;
      if (result.problem.empty()) {
        delivered();
        break;
      }
      if (!result.again || tries >= retries_.tries) {
        failed(result.problem, tries);
        break;
      }
      if (!pause(lock, wait)) return;
    }
    queue_.pop_front();
    changed_.notify_all();
  }
}

using nlohmann::json;

namespace {

constexpr std::chrono::seconds time_of_a_command{30};

/// A file without a name that has the text, to be read from its beginning.
Descriptor file_with(const std::string& text) {
  Descriptor file(::memfd_create("notification", MFD_CLOEXEC));
  if (!file.is_open() || ::write(file.get(), text.data(), text.size()) != std::ssize(text) ||
      ::lseek(file.get(), 0, SEEK_SET) != 0)
    throw environment_error("cannot make a file in memory: {}", std::strerror(errno));
  return file;
}

/// The end of what a child has written, as far as it is in the pipe.
void read_output(ChildPipe& pipe, std::string& last) {
  constexpr size_t kept = 4096;
  std::array<char, 65536> buffer;
  for (int reads = 0; reads < 16 && pipe.read.is_open();
       ++reads) {  // a child that writes without end must not hold it up
    const ssize_t n = ::read(pipe.read.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;
    if (n == 0) return pipe.read.close();
    last.append(buffer.data(), static_cast<size_t>(n));
    if (last.size() > kept) last.erase(0, last.size() - kept);
  }
}

/// Waits for a child while it reads what the child writes. Returns why its status is not known; empty: `status` has it.
std::string wait_for_child(pid_t pid, ChildPipe& output, std::string& last, const std::atomic<bool>& stop,
                           int& status) {
  const auto deadline = std::chrono::steady_clock::now() + time_of_a_command;
  while (true) {
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    read_output(output, last);
    if (ended == pid) return "";
    if (ended < 0 && errno != EINTR) return fmt::format("its exit code is not known: {}", std::strerror(errno));
    if (stop || std::chrono::steady_clock::now() > deadline) {
      ::kill(-pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      return fmt::format("it has not ended after {} s", time_of_a_command.count());
    }
    pollfd readable{output.read.get(), POLLIN, 0};  // of a closed pipe, poll() only waits
    ::poll(&readable, 1, 20);
  }
}

/// Runs a command with `message` as its standard input. The last line of its output explains a failure.
Delivery::Result run_command(const std::string& command, const std::string& message, const std::atomic<bool>& stop) {
  const Descriptor in = file_with(message + "\n");
  ChildPipe output;
  const pid_t pid = start_child({.program = "/bin/sh",
                                 .arguments = {"-c", shell_references(command)},
                                 .out = output.write.get(),
                                 .log = output.write.get(),
                                 .in = in.get()});
  output.write.close();
  std::string last;
  int status = 0;
  if (auto unknown = wait_for_child(pid, output, last, stop, status); !unknown.empty()) return {.problem = unknown};
  if (status == 0) return {};
  // The shell does not understand the command, may not run it, or does not find it.
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  const bool hopeless = code == 2 || code == 126 || code == 127;
  constexpr size_t shown = 200;
  const auto said = trim(std::string_view(last).substr(last.size() - std::min(last.size(), shown)));
  return {.problem = fmt::format("{}{}{}",
                                 WIFEXITED(status) ? fmt::format("exit code {}", code)
                                                   : fmt::format("ended by signal {}", WTERMSIG(status)),
                                 said.empty() ? "" : ": ", said),
          .again = !hopeless};
}

Delivery::Result post(HttpClient& client, const std::string& url, const std::string& message) {
  const auto reply = client.send({.url = expand_environment(url),
                                  .body = message,
                                  .headers = {"Content-Type: application/json"},
                                  .timeout = std::chrono::seconds(10)});
  if (reply.ok()) return {};
  return {.problem = reply.status == 0 ? reply.problem : fmt::format("status {}", reply.status),
          .again = reply.may_recover()};
}

std::unique_ptr<Delivery> make_delivery(const Recipe::Logging::Notify& target, Retries retries) {
  if (target.webhook) {
    auto client = std::make_shared<HttpClient>();
    return std::make_unique<Delivery>(
        "the webhook at " + origin_of_url(expand_environment(*target.webhook)),
        [client, url = *target.webhook](const std::string& message) { return post(*client, url, message); },
        [client] { client->stop(); }, retries);
  }
  auto stop = std::make_shared<std::atomic<bool>>(false);
  return std::make_unique<Delivery>(
      "the command `" + Secrets().take_from(target.command.value_or("")) + "`",
      [stop, command = target.command.value_or("")](const std::string& message) {
        return run_command(command, message, *stop);
      },
      [stop] { *stop = true; }, retries);
}

bool contains(const std::vector<std::string>& on, const char* kind) { return std::ranges::find(on, kind) != on.end(); }

/// The notification of a target at an end: "failure", "end", or none. A target that wants both gets one notification.
const char* kind_of_end(const std::vector<std::string>& on, bool failed) {
  return failed && contains(on, "failure") ? "failure" : contains(on, "end") ? "end" : nullptr;
}

/// "loss 1.7011, val_loss 1.6823".
std::string in_words(const json& metrics) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : metrics.items())
    parts.push_back(name + " " + (value.is_number() ? metric_text(value) : value.get<std::string>()));
  return join(parts, ", ");
}

}  // namespace

void check_targets(const std::vector<Recipe::Logging::Notify>& targets) {
  if (std::ranges::any_of(targets, [](const auto& target) { return target.webhook.has_value(); })) HttpClient();
}

Notifier::Notifier(const std::vector<Recipe::Logging::Notify>& targets, Ledger& ledger, const std::string& run,
                   const fs::path& folder, Retries retries)
    : ledger_(ledger), run_({{"schema", 1}, {"run", run}, {"host", host_name()}, {"folder", folder.string()}}) {
  for (const auto& target : targets) targets_.push_back({target.on, make_delivery(target, retries)});
}

void Notifier::begin(const AttemptStart& attempt) { step_ = attempt.from_step; }

void Notifier::points(const PointGroup& group) {
  step_ = std::max(step_, group.step);
  for (const auto& point : group.points) {
    const auto* known = find_metric(point.name);
    if (known && (known->of != MetricInfo::Of::step || point.name == metric::loss))
      metrics_[point.name] = json_number(point.value);
  }
}

void Notifier::send(Target& target, const char* kind, const std::string& text, const json& more) {
  json message = run_;
  message.update({{"kind", kind}, {"text", text}, {"content", text}});
  message.update(more);
  target.delivery->add(json_text(message));
}

void Notifier::event(const std::string& kind, const json& fields) {
  const auto* trouble = find_trouble(kind);
  if (!trouble || !trouble->is_alert) return;
  json event = fields;
  event["event"] = kind;
  const std::string message = fields.value("message", fields.value("why", ""));
  for (auto& target : targets_)
    if (contains(target.on, "alert"))
      send(target, "alert", fmt::format("{}: {}: {}", who(), kind, message), {{"event", event}});
}

void Notifier::end(const RunEnd& end) {
  const auto& status = end.outcome.status;
  const std::string metrics = in_words(metrics_);
  const std::string why = end.message.empty() ? "" : fmt::format(" ({})", first_line(end.message));
  const std::string text = fmt::format("{}: {} after {}{}{}", who(), status, counted(step_, "step"), why,
                                       metrics.empty() ? "" : ": " + metrics);
  const json more = {{"status", status}, {"message", end.message}, {"steps", step_}, {"metrics", metrics_}};
  for (auto& target : targets_)
    if (const char* kind = kind_of_end(target.on, status == "failed")) send(target, kind, text, more);
  for (auto& target : targets_) target.delivery->finish(end.patience);
  record_problems();
}

void Notifier::record_problems() {
  for (auto& target : targets_)
    for (const auto& problem : target.delivery->take_problems())
      ledger_.event(run_.at("run"), "undelivered", {{"step", step_}, {"message", problem}});
}

std::string Notifier::who() {
  try {
    run_["name"] = ledger_.row(run_.at("run")).name;
  } catch (const std::exception&) {  // the ledger is away: the name that it had last
  }
  return fmt::format("{} ({})", run_.value("name", ""), run_.at("run").get<std::string>());
}

std::vector<Recipe::Logging::Notify> of_trials(std::vector<Recipe::Logging::Notify> targets) {
  std::erase_if(targets, [](const auto& target) { return !contains(target.on, "trial"); });
  return targets;
}

void notify_sweep(const std::vector<Recipe::Logging::Notify>& targets, const SweepEnd& end, Retries retries) {
  std::vector<std::string> parts;
  for (const auto& [status, number] : end.counts.items())
    if (number != 0) parts.push_back(fmt::format("{} {}", number.get<int64_t>(), status));
  std::string text =
      fmt::format("sweep {} ({}): {}{}: {}", end.name, end.sweep, end.status,
                  end.message.empty() ? "" : " (" + end.message + ")", parts.empty() ? "no trials" : join(parts, ", "));
  if (end.best.is_object())
    text += fmt::format("; best {} {}, trial {}", end.best.at("metric").get<std::string>(),
                        metric_text(end.best.at("value")), end.best.at("trial").get<int64_t>());
  json message = {{"schema", 1},          {"sweep", end.sweep},   {"name", end.name},
                  {"host", host_name()},  {"folder", end.folder}, {"text", text},
                  {"content", text},      {"status", end.status}, {"message", end.message},
                  {"trials", end.counts}, {"best", end.best}};
  std::vector<std::unique_ptr<Delivery>> deliveries;
  for (const auto& target : targets)
    if (const char* kind = kind_of_end(target.on, end.failed)) {
      message["kind"] = kind;
      deliveries.push_back(make_delivery(target, retries));
      deliveries.back()->add(json_text(message));
    }
  const Patience patience;
  for (auto& delivery : deliveries) delivery->finish(patience);
}

}  // namespace runner
