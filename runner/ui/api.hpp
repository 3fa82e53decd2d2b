// The JSON API of `runner ui`, below /api/1. README.md describes it.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/base/descriptor.hpp"
#include "runner/ui/changes.hpp"
#include "runner/ui/guard.hpp"
#include "runner/ui/http.hpp"
#include "runner/ui/log_index.hpp"
#include "runner/ui/readers.hpp"
#include "runner/ui/serve.hpp"

namespace runner::ui {

struct Api {
  Readers& readers;
  RunLists& lists;
  Changes& changes;
  LogIndexes& logs;
  const Hooks& hooks;
  const Guard& guard;

  /// Answers a request below /api/. Errors become {"error": message} with a fitting status; none is thrown.
  Response answer(const Request& request) const;
};

/// The parts of the path that a route leaves open.
using Captures = std::vector<std::string>;

/// An error with an HTTP status of its own. `retry_after_s`: see error_response().
class ApiError : public Error {
 public:
  ApiError(int status, const std::string& message, int retry_after_s = 0)
      : Error(ExitCode::usage, message), status_(status), retry_after_s_(retry_after_s) {}
  int status() const { return status_; }
  int retry_after_s() const { return retry_after_s_; }

 private:
  int status_, retry_after_s_;
};

/// An answer of JSON, with "schema": 1.
Response json_response(nlohmann::json value);

/// The request's integer parameter, or `otherwise`. Throws ApiError(400) if it is not an integer in [least, most].
int64_t integer_parameter(const Request& request, const std::string& name, int64_t otherwise, int64_t least,
                          int64_t most);
/// The number, if the request has the parameter. Throws ApiError(400).
std::optional<double> number_parameter(const Request& request, const std::string& name);
/// The values of a list "a,b"; empty if it is missing.
std::vector<std::string> list_parameter(const Request& request, const std::string& name);

/// A connection. Throws ApiError(404) while there is no ledger.
Readers::Lease open_ledger(const Api& api);
/// The id of the run that the text names, as in `runner show`. Throws ApiError(404).
std::string run_id(const Api& api, const std::string& text);

/// The runs that a request is about: those that `runs` names (run_id()), or those that `filter` matches, at most `most`. `left_out` counts
/// the others.
struct ChosenRun {
  std::string id, name;
};
struct ChosenRuns {
  std::vector<ChosenRun> rows;
  size_t left_out = 0;
};
ChosenRuns chosen_runs(const Api& api, const Request& request, size_t most);

/// A regular file below a folder, to be read; closed if there is none. `file` is relative, and no part of it is a link.
Descriptor open_below(const std::filesystem::path& folder, const std::filesystem::path& file);
/// The artifacts and traces of a run, the object of Ledger::show(): [{path, kind, step, time, bytes}]. `bytes` is null if the run's folder
/// does not have the file.
nlohmann::json recorded_files(const nlohmann::json& run);

/// The answers of the routes, which are listed in api.cpp.
using Answer = Response(const Api& api, const Request& request, const Captures& captures);
Answer get_runs, get_groups, get_words, get_run, get_plan, get_system, get_patch, get_curves, get_metrics, get_compare,
    get_logs, get_file, get_sweeps, get_sweep, get_devices, get_recommend, post_edit, post_stop;

}  // namespace runner::ui
