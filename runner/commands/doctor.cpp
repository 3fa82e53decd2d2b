// `runner doctor`: checks this machine's requirements for training, one line each, with a fix under each failing line.
// `--calibrate` measures its speed.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sqlite3.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>

#include "runner/base/capture.hpp"
#include "runner/base/clock.hpp"
#include "runner/base/descriptor.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/own_program.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/build_id.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/run.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/commands/step_clock.hpp"
#include "runner/devices/devices.hpp"
#include "runner/launch/supervisor.hpp"
#include "runner/ledger/calibrations.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/sqlite.hpp"
#include "runner/report/table.hpp"
#include "strategies/collective/shm_layout.hpp"
#ifdef RUNNER_HAS_XLA
#include "strategies/pjrt/plugin.hpp"
#endif

namespace runner {

namespace {

constexpr double all_seconds = 40;  ///< may be exceeded, because each shape is measured a minimum number of times

/// The numbers of ranks to measure: powers of two up to the number of cores, at most eight.
std::vector<int> rank_counts(int cores) {
  std::vector<int> counts;
  for (int ranks = 1; ranks <= std::min(cores, 8); ranks *= 2) counts.push_back(ranks);
  return counts;
}

struct Measured {
  Calibration calibration;
  std::string disturbed;  ///< why it cannot be used; empty if it can
};

/// Runs the ranks and returns what rank 0 measured.
Measured measure(int ranks, int threads, int cores, double seconds, const fs::path& logs) {
  Measured measured{.calibration = {.ranks = ranks, .threads = threads, .cores = cores, .time = wall_seconds()},
                    .disturbed = "the ranks reported no verdict"};
  auto& points = measured.calibration.points;
  WorkerGroup group;
  group.worker = worker_binary();
  group.arguments = {"--calibrate", fmt::format("{}", seconds)};
  group.local_size = group.world_size = ranks;
  auto text = std::to_string(threads);
  group.environment = {{"OMP_NUM_THREADS", text}, {"MKL_NUM_THREADS", text}, {"OMP_WAIT_POLICY", "passive"}};
  group.log_dir = logs.string();
  if (ranks > 1) group.shm_bytes = static_cast<int64_t>(shm_segment_bytes(ranks));
  SupervisorHooks hooks;
  hooks.on_event = [&](const nlohmann::json& event) {
    if (event.value("event", "") != "calibration") return;
    if (event.at("what") == "verdict")
      measured.disturbed = event.at("disturbed");
    else
      points.push_back(event);
  };
  hooks.on_tick = [] {};
  Outcome outcome = supervise(group, hooks);
  if (outcome.code != ExitCode::done) throw Error(outcome.code, "calibration: " + outcome.first_cause);
  for (auto& point : points)
    for (const char* key : {"event", "rank", "time"}) point.erase(key);
  return measured;
}

/// A list with an entry for each family and precision: the fitted rates and their errors on the measured steps.
nlohmann::json fits_of(const Calibration& calibration) {
  auto list = nlohmann::json::array();
  for (const char* family : {"gpt", "llama"})
    for (const char* precision : {"32-true", "bf16-mixed"}) {
      auto steps = steps_of(calibration, family, precision);
      if (steps.size() < least_steps) continue;
      Fit fit = fit_rates(steps);
      nlohmann::json rates;
      for (size_t kind = 0; kind < work_kinds; ++kind) rates[name_of(static_cast<Work>(kind))] = fit.seconds[kind];
      list.push_back({{"family", family},
                      {"precision", precision},
                      {"seconds_for_one", rates},
                      {"median_error", fit.median_error},
                      {"worst_error", fit.worst_error}});
    }
  return list;
}

void print(const Calibration& calibration) {
  std::printf("%d rank(s) of %d thread(s)\n", calibration.ranks, calibration.threads);
  std::vector<std::vector<std::string>> rows;
  for (const auto& point : calibration.points) {
    if (point.at("what") == "product")
      rows.push_back({fmt::format("  matrix product, {} x {} x {}", point.at("rows").get<int64_t>(),
                                  point.at("width").get<int64_t>(), point.at("width").get<int64_t>()),
                      format_count(point.at("flops_per_s").get<double>()) + "FLOP/s"});
    else if (point.at("what") == "copy")
      rows.push_back({"  copy", format_bytes(point.at("bytes_per_s").get<double>()) + "/s"});
    else if (point.at("what") == "collective")
      rows.push_back(
          {fmt::format("  {}, {}", point.at("name").get<std::string>(), format_bytes(point.at("bytes").get<double>())),
           fmt::format("{:.3g} ms", 1000 * point.at("seconds").get<double>())});
  }
  auto fits = fits_of(calibration);
  for (const auto& fit : fits)
    rows.push_back(
        {fmt::format("  steps of {} in {}", fit.at("family").get<std::string>(),
                     fit.at("precision").get<std::string>()),
         fmt::format("explained to {:.1f} % at the median, {:.1f} % at worst",
                     100 * fit.at("median_error").get<double>(), 100 * fit.at("worst_error").get<double>())});
  std::printf("%s", format_table({{""}, {""}}, rows).c_str());
}

/// `runner doctor --calibrate`: measures this machine's speed for predictions of time and stores the results in the ledger.
/// Takes about 50 s, and up to twice that if other work disturbs it. Prints the measurements and the errors of the fitted
/// rates. A calibration that stays disturbed is stored without measurements, and the result is then `environment`.
ExitCode calibrate(const Facts& facts, bool json) {
  auto counts = rank_counts(facts.cores);
  fs::path home = ledger_home(), logs = home / "calibration-logs";
  auto all = nlohmann::json::array();
  bool settled = true;
  for (int ranks : counts) {
    int threads = facts.cores / ranks;
    double seconds = all_seconds / static_cast<double>(counts.size());
    log::info("measuring {} of {}, about {:.0f} s", counted(ranks, "rank"), counted(threads, "thread"), seconds);
    auto [calibration, disturbed] = measure(ranks, threads, facts.cores, seconds, logs);
    keep_calibration(home.string(),
                     {.time = calibration.time,
                      .machine = machine_of(facts),
                      .ranks = ranks,
                      .threads = threads,
                      .build_id = build_id(),
                      .points = disturbed.empty() ? nlohmann::json(calibration.points) : nlohmann::json::array(),
                      .disturbed = disturbed});
    settled &= disturbed.empty();
    if (!disturbed.empty())
      log::warning("disturbed, and not used: {}. Run `runner doctor --calibrate` again when the machine is quiet",
                   disturbed);
    if (json)
      all.push_back({{"ranks", ranks},
                     {"threads", threads},
                     {"points", calibration.points},
                     {"fits", fits_of(calibration)},
                     {"disturbed", disturbed.empty() ? nlohmann::json() : nlohmann::json(disturbed)}});
    else if (disturbed.empty())
      print(calibration);
  }
  fs::remove_all(logs);
  if (json) print_json(nlohmann::json{{"schema", 1}, {"machine", machine_of(facts)}, {"calibrations", all}});
  return settled ? ExitCode::done : ExitCode::environment;
}

constexpr double MiB = 1 << 20, GiB = 1 << 30;

enum class Health { ok, warn, fail };

const char* name(Health health) { return std::array{"ok", "warn", "fail"}[static_cast<size_t>(health)]; }

struct Finding {
  std::string subject;
  Health health = Health::ok;
  std::string text;
  std::string fix = "";  ///< what the user can do; empty if and only if the check is ok
};

std::string last_error() { return std::strerror(errno); }

/// The output of a program without blanks around it, and its end.
Captured output_of(const std::vector<std::string>& command, std::chrono::seconds timeout) {
  Captured captured = capture(command, {.timeout = timeout, .with_stderr = true});
  captured.output = trim(captured.output);
  return captured;
}

/// The folder itself, or its nearest existing parent, in which it would be created.
fs::path existing_folder(fs::path path) {
  path = fs::absolute(path);
  std::error_code error;
  while (!fs::is_directory(path, error) && path.has_relative_path()) path = path.parent_path();
  return path;
}

// ---- the checks, in the order of the output

Finding check_worker() {
  const fs::path worker = beside_program("runner-worker");
  if (!fs::exists(worker))
    return {"LibTorch", Health::fail, worker.string() + " is not there", "build it: scripts/runner does"};
  const double begin = steady_seconds();
  const Captured version = output_of({worker.string(), "--version"}, std::chrono::minutes(1));
  if (version.status == 0)
    return {"LibTorch", Health::ok,
            fmt::format("{} loads in {}", version.output, format_duration(steady_seconds() - begin))};
  const std::string why =
      version.too_late ? "does not answer within a minute" : "does not start: " + first_line(version.output);
  return {"LibTorch", Health::fail, "runner-worker " + why,
          "scripts/setup brings LibTorch's libraries; then build again"};
}

Finding check_cuda(const Facts& facts) {
  if (facts.devices.empty()) return {"CUDA", Health::ok, "runs use the CPU: " + facts.cuda_problem};
  if (!facts.cuda_module)
    return {"CUDA", Health::warn, list_devices(facts) + ", but this build cannot use them",
            "scripts/setup --cuda, then build again"};
  const fs::path module = beside_program("librunner_cuda.so");
  if (fs::exists(module) && !dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL))
    return {"CUDA", Health::fail, list_devices(facts) + ", but the CUDA module does not load: " + dlerror(),
            "scripts/setup --cuda"};
  return {"CUDA", Health::ok, list_devices(facts)};
}

/// A program without XLA is complete, except for the strategies that need it.
Finding check_xla() {
#ifdef RUNNER_HAS_XLA
  try {
    const double begin = steady_seconds();
    const pjrt::Plugin plugin(pjrt::cpu_plugin());
    return {"XLA", Health::ok,
            fmt::format("PJRT plug-in for CPUs, interface {}, loads in {}", plugin.version(),
                        format_duration(steady_seconds() - begin))};
  } catch (const Error& error) {
    return {"XLA", Health::warn, error.what(), "scripts/setup --xla; only the strategies xla and xla_fsdp need it"};
  }
#else
  return {"XLA", Health::ok,
          "not in this program; scripts/setup --xla and a build add the strategies xla and xla_fsdp"};
#endif
}

Finding check_cores(const Facts& facts) {
  const std::string text = fmt::format("{} of {}", facts.cores, facts.cpu.empty() ? "this CPU" : facts.cpu);
  if (facts.avx2) return {"cores", Health::ok, text};
  return {"cores", Health::warn, text + ", which has no AVX2",
          "none: training on this CPU works, several times slower than on a newer one"};
}

Finding check_memory(const Facts& facts) {
  const auto free = static_cast<double>(facts.memory_free_bytes);
  const std::string text = fmt::format("{} free of {}", format_bytes(free), format_bytes(facts.memory_bytes));
  if (free >= GiB) return {"memory", Health::ok, text};
  return {"memory", free < 256 * MiB ? Health::fail : Health::warn, text + "; a rank takes 120 MiB before its model",
          "end other programs, or raise the memory limit of this container or job"};
}

Finding check_disk(const fs::path& home) {
  std::error_code error;
  const auto space = fs::space(existing_folder(home), error);
  if (error)
    return {"disk", Health::fail, fmt::format("{}: {}", home.string(), error.message()),
            "name another folder with RUNNER_HOME"};
  const auto free = static_cast<double>(space.available);
  const std::string text = fmt::format("{} free for {}", format_bytes(free), home.string());
  if (free >= 10 * GiB) return {"disk", Health::ok, text};
  return {"disk", free < GiB ? Health::fail : Health::warn, text + "; checkpoints take 12 bytes a parameter, each",
          "make room, or name another folder with RUNNER_HOME"};
}

Finding check_ledger(const fs::path& home) {
  const std::string version = std::string("SQLite ") + sqlite3_libversion();
  const fs::path file = home / "ledger.db", folder = existing_folder(home);
  const std::string elsewhere = "name another folder with RUNNER_HOME";
  try {
    if (fs::exists(file)) {
      sqlite::Database database(file, sqlite::Access::existing);
      database.execute("BEGIN IMMEDIATE; ROLLBACK");
    } else if (access(folder.c_str(), W_OK | X_OK) != 0) {
      return {"ledger", Health::fail,
              fmt::format("{} cannot be created in {}: {}", home.string(), folder.string(), last_error()), elsewhere};
    }
  } catch (const Error& error) {
    return {"ledger", Health::fail, error.what(), elsewhere};
  }
  std::string text = fmt::format("{} can be written, {}", fs::exists(file) ? file.string() : folder.string(), version);
  if (on_network_filesystem(folder.string()))
    text += "; on a network file system, with a rollback journal: safe as long as file locks work there";
  return {"ledger", Health::ok, text};
}

Finding check_shared_memory() {
  constexpr size_t size = 1 << 20;
  Descriptor memory(memfd_create("runner-doctor", MFD_CLOEXEC));
  if (memory.get() >= 0 && ftruncate(memory.get(), size) == 0) {
    void* map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (map != MAP_FAILED) {
      munmap(map, size);
      return {"shared memory", Health::ok, "memfd works"};
    }
  }
  return {"shared memory", Health::fail, "no memfd: " + last_error(),
          "allow memfd_create in this container; or set devices.process_group_backend = \"gloo\""};
}

Finding check_loopback() {
  Descriptor server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(server.get(), generic, length) == 0 && listen(server.get(), 1) == 0 &&
      getsockname(server.get(), generic, &length) == 0 && connect(client.get(), generic, length) == 0)
    return {"loopback", Health::ok, "127.0.0.1 answers"};
  return {"loopback", Health::fail, "127.0.0.1 does not answer: " + last_error(), "ip link set lo up"};
}

Finding check_clock() {
  constexpr double start_of_2025 = 1735689600;
  if (wall_seconds() > start_of_2025) return {"clock", Health::ok, format_time(wall_seconds())};
  return {"clock", Health::fail, format_time(wall_seconds()) + " is in the past: runs would sort before older ones",
          "set this machine's clock"};
}

Finding check_files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string text = limit.rlim_cur == RLIM_INFINITY ? "any number" : fmt::format("at most {}", limit.rlim_cur);
  if (limit.rlim_cur >= 1024) return {"open files", Health::ok, text};
  return {"open files", limit.rlim_cur < 256 ? Health::fail : Health::warn, text + "; each local rank takes about 20",
          "ulimit -n 4096"};
}

Finding check_git() {
  const Captured version = output_of({"git", "--version"}, std::chrono::seconds(10));
  if (version.status == 0) return {"git", Health::ok, version.output};
  return {"git", Health::warn, "not found: runs will not note the state of their working directory",
          "apt-get install git"};
}

std::vector<Finding> examine(const Facts& facts) {
  const fs::path home = ledger_home();
  return {check_worker(),      check_cuda(facts), check_xla(),        check_cores(facts),
          check_memory(facts), check_disk(home),  check_ledger(home), check_shared_memory(),
          check_loopback(),    check_clock(),     check_files(),      check_git()};
}

void print_table(const std::vector<Finding>& findings) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& finding : findings) {
    rows.push_back({name(finding.health), finding.subject, finding.text});
    if (!finding.fix.empty()) rows.push_back({"", "", "fix: " + finding.fix});
  }
  std::fputs(format_table({{""}, {""}, {""}}, rows).c_str(), stdout);
}

void print_as_json(const std::vector<Finding>& findings, const Facts& facts, bool ok) {
  auto checks = nlohmann::json::array();
  for (const auto& finding : findings)
    checks.push_back(
        {{"name", finding.subject}, {"status", name(finding.health)}, {"message", finding.text}, {"fix", finding.fix}});
  print_json(nlohmann::json{{"schema", 1}, {"ok", ok}, {"checks", checks}, {"facts", to_json(facts)}});
}

}  // namespace

Action setup_doctor(CLI::App& app) {
  auto json = std::make_shared<bool>(false), measure = std::make_shared<bool>(false);
  add_json_option(app, *json);
  app.add_flag("--calibrate", *measure, "Measure this machine, so that `runner recommend` can predict times");
  return [json, measure] {
    const Facts facts = read_facts();
    if (*measure) return calibrate(facts, *json);
    const std::vector<Finding> findings = examine(facts);
    const bool ok = std::none_of(findings.begin(), findings.end(),
                                 [](const Finding& finding) { return finding.health == Health::fail; });
    *json ? print_as_json(findings, facts, ok) : print_table(findings);
    return ok ? ExitCode::done : ExitCode::environment;
  };
}

}  // namespace runner
