#include "runner/ui/api.hpp"

#include <cmath>
#include <new>

#include "runner/base/json_text.hpp"
#include "runner/base/text.hpp"

namespace runner::ui {

using nlohmann::json;

namespace {

/// The pause after which a client may ask again: by then a ledger that was locked may be free.
constexpr int passing_s = 1;

struct Route {
  const char* method;
  const char* path;  ///< below /api/1; each * is one part
  Answer* answer;
  const char* about;
};

Response get_events(const Api& api, const Request&, const Captures&) {
  constexpr size_t listeners_max = 64;
  if (api.changes.listeners() >= listeners_max) throw ApiError(503, "too many pages listen to this server", passing_s);
  return {.type = "text/event-stream", .stream = api.changes.stream()};
}

Answer get_index;

constexpr Route routes[] = {
    {"GET", "", get_index, "this list"},
    {"GET", "runs", get_runs,
     "runs that match `filter`, with `columns`, from `offset`, at most `limit`; or those in `runs`"},
    {"GET", "groups", get_groups, "runs that match `filter`, grouped by the field, recipe key or metric `by`"},
    {"GET", "runs/*", get_run, "all about one run, as `runner show --json`"},
    {"GET", "runs/*/plan", get_plan, "predicted and measured memory and time of a run"},
    {"GET", "runs/*/logs", get_logs, "lines of a log: `file`, `from`, `lines`, `search`, `after`"},
    {"GET", "runs/*/file", get_file, "a file that the run recorded: `path`, as `files` of the run says it"},
    {"GET", "runs/*/system", get_system, "samples of CPU, memory, disk, network and GPUs, reduced to `points`"},
    {"GET", "runs/*/patch", get_patch, "changes of the working tree that were not committed, as text"},
    {"GET", "runs/*/recommend", get_recommend,
     "the strategies for a run's recipe on `device_kind`, `devices`, `num_nodes`"},

    {"POST", "runs/*/edit", post_edit,
     "changes name, notes, group, add_tags, remove_tags or archived; needs the token"},
    {"POST", "runs/*/stop", post_stop, "asks a run to write a checkpoint and stop; needs the token"},
    {"GET", "curves", get_curves,
     "a `metric` of `runs` or of `filter`, by `x`, `from`, `to`, reduced to `pixels` columns"},
    {"GET", "metrics", get_metrics, "the names of the metrics of `runs` or `filter`"},
    {"GET", "compare", get_compare, "which keys, code and results of `runs` differ"},
    {"GET", "words", get_words, "words that complete a filter: fields, keys, metrics, tags, names"},
    {"GET", "sweeps", get_sweeps, "all sweeps"},
    {"GET", "sweeps/*", get_sweep, "a sweep with its trials and the importance of its parameters"},
    {"GET", "devices", get_devices, "the device kinds that recommend knows"},
    {"GET", "events", get_events, "server-sent events: what has changed"},
};

Response get_index(const Api& api, const Request& request, const Captures&) {
  json list = json::array();
  for (const auto& route : routes)
    list.push_back({{"method", route.method}, {"path", std::string("/api/1/") + route.path}, {"about", route.about}});
  json index = {{"may_read", !api.guard.reading_refusal(request)},
                {"may_write", !api.guard.writing_refusal(request)},
                {"token_valid", api.guard.has_token(request)},
                {"api", list}};
  if (index["may_read"]) index.update({{"version", api.hooks.version}, {"home", api.readers.home().string()}});
  return json_response(index);
}

bool matches(const char* pattern, const std::vector<std::string>& parts, Captures& captures) {
  const auto wanted = split(pattern, '/');
  if (wanted.size() != parts.size()) return false;
  captures.clear();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (wanted[i] == "*")
      captures.push_back(parts[i]);
    else if (wanted[i] != parts[i])
      return false;
  }
  return true;
}

Response dispatch(const Api& api, const Request& request) {
  std::string_view path = request.path;
  constexpr std::string_view base = "/api/1";
  if (!path.starts_with(base)) throw ApiError(404, "the API is below /api/1; GET /api/1 lists it");
  path.remove_prefix(base.size());
  if (path.starts_with('/')) path.remove_prefix(1);
  const auto parts = split(path, '/');
  Captures captures;
  bool other_method = false;
  for (const auto& route : routes) {
    if (!matches(route.path, parts, captures)) continue;
    if (request.method == route.method || (request.method == "HEAD" && std::string_view(route.method) == "GET")) {
      auto refusal = route.answer == get_index ? std::nullopt : api.guard.reading_refusal(request);
      return refusal ? *refusal : route.answer(api, request, captures);
    }
    other_method = true;
  }
  if (other_method) throw ApiError(405, "this address has no method " + request.method);
  throw ApiError(404, "there is no such address; GET /api/1 lists all");
}

}  // namespace

Response json_response(json value) {
  value["schema"] = 1;
  return {.body = json_text(value)};
}

Response Api::answer(const Request& request) const {
  try {
    return dispatch(*this, request);
  } catch (const FilterError& error) {
    auto response =
        json_response({{"error", error.message()}, {"offset", error.place().offset}, {"length", error.place().length}});
    response.status = 400;
    return response;
  } catch (const ApiError& error) {
    return error_response(error.status(), error.what(), error.retry_after_s());
  } catch (const Error& error) {
    const bool usage = error.code() == ExitCode::usage;
    return error_response(usage ? 400 : 503, error.what(), usage ? 0 : passing_s);
  } catch (const std::bad_alloc&) {
    return error_response(503, "the system has no memory for this answer", passing_s);
  } catch (const std::exception& error) {
    return error_response(500, error.what());
  }
}

int64_t integer_parameter(const Request& request, const std::string& name, int64_t otherwise, int64_t least,
                          int64_t most) {
  const std::string text = request.parameter(name);
  if (text.empty()) return otherwise;
  const auto value = parse_number<int64_t>(text);
  if (!value || *value < least || *value > most)
    throw ApiError(400, fmt::format("{} must be an integer from {} to {}, not \"{}\"", name, least, most, text));
  return *value;
}

std::optional<double> number_parameter(const Request& request, const std::string& name) {
  const std::string text = request.parameter(name);
  if (text.empty()) return {};
  const auto value = parse_number<double>(text);
  if (!value || !std::isfinite(*value)) throw ApiError(400, fmt::format("{} must be a number, not \"{}\"", name, text));
  return value;
}

std::vector<std::string> list_parameter(const Request& request, const std::string& name) {
  const std::string text = request.parameter(name);
  return text.empty() ? std::vector<std::string>() : split(text, ',');
}

Readers::Lease open_ledger(const Api& api) {
  auto lease = api.readers.take();
  if (!lease)
    throw ApiError(404, fmt::format("there is no ledger in {} yet; start a run with: runner run RECIPE.toml",
                                    api.readers.home().string()));
  return lease;
}

std::string run_id(const Api& api, const std::string& text) {
  {
    auto database = open_ledger(api);
    if (run_row(*database, text) != 0) return text;
  }
  try {
    return Ledger(api.readers.home().string(), Ledger::Mode::read).find_run(text);
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) throw;
    throw ApiError(404, error.what());
  }
}

}  // namespace runner::ui
