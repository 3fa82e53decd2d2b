// The changes that the page may make: tags, notes, name, group and archived of a run, and whether it goes on.
#include <signal.h>

#include <cerrno>
#include <cstring>

#include "runner/base/clock.hpp"
#include "runner/launch/stop_signals.hpp"
#include "runner/ledger/process_identity.hpp"
#include "runner/ui/api.hpp"

namespace runner::ui {

using nlohmann::json;

namespace {

/// The process that supervises the newest attempt of a run, and its last sign of life.
struct Supervisor {
  ProcessIdentity process;
  double heartbeat = 0;
};

std::optional<Supervisor> supervisor_of(sqlite::Database& database, const std::string& id) {
  auto row = database.query(
      "SELECT host, ifnull(machine, ''), boot_id, pid_namespace, pid, process_start, heartbeat FROM attempt WHERE run "
      "= (SELECT run FROM run "
      "WHERE id = ? AND status = 'running') ORDER BY number DESC LIMIT 1",
      id);
  if (!row.step()) return {};
  return Supervisor{{row.text(0), row.text(1), row.text(2), row.text(3), row.integer(4), row.integer(5)}, row.real(6)};
}

std::string text_of(const json& value, const std::string& name) {
  if (!value.is_string()) throw ApiError(400, name + " must be a text");
  return value.get<std::string>();
}

std::vector<std::string> texts_of(const json& value, const std::string& name) {
  if (!value.is_array()) throw ApiError(400, name + " must be a list of texts");
  std::vector<std::string> list;
  for (const auto& one : value) list.push_back(text_of(one, name));
  return list;
}

/// Nested JSON is read recursively, and an edit has no need of it.
constexpr int edit_depth_max = 4;

RunEdit parse_edit(const std::string& body) {
  bool deep = false;
  const auto flat = [&](int depth, json::parse_event_t, json&) { return !(deep = deep || depth > edit_depth_max); };
  const json change = json::parse(body, flat, /*allow_exceptions=*/false);
  if (deep || !change.is_object() || change.empty())
    throw ApiError(
        400, "the body must be an object with at least one of name, notes, group, add_tags, remove_tags, archived");
  RunEdit edit;
  for (const auto& [name, value] : change.items()) {
    if (name == "name")
      edit.name = text_of(value, name);
    else if (name == "notes")
      edit.notes = text_of(value, name);
    else if (name == "group")
      edit.group = text_of(value, name);
    else if (name == "add_tags")
      edit.added_tags = texts_of(value, name);
    else if (name == "remove_tags")
      edit.removed_tags = texts_of(value, name);
    else if (name == "archived" && value.is_boolean())
      edit.archived = value.get<bool>();
    else
      throw ApiError(400, name == "archived" ? "archived must be true or false"
                                             : "there is no \"" + name +
                                                   "\"; there are name, notes, group, add_tags, remove_tags, archived");
  }
  return edit;
}

}  // namespace

Response post_edit(const Api& api, const Request& request, const Captures& captures) {
  if (auto refusal = api.guard.writing_refusal(request)) return *refusal;
  const RunEdit edit = parse_edit(request.body);
  const std::string id = run_id(api, captures[0]);
  Ledger ledger(api.readers.home().string(), Ledger::Mode::read);
  const int changed = ledger.edit({id}, edit);
  return json_response({{"run", id}, {"changed", changed}});
}

Response post_stop(const Api& api, const Request& request, const Captures& captures) {
  if (auto refusal = api.guard.writing_refusal(request)) return *refusal;
  const std::string id = run_id(api, captures[0]);
  std::optional<Supervisor> supervisor;
  {
    const auto database = open_ledger(api);
    supervisor = supervisor_of(*database, id);
  }
  const ProcessIdentity me = this_process();
  if (!supervisor || is_gone(supervisor->process, supervisor->heartbeat, me, wall_seconds()))
    throw ApiError(409, fmt::format("run {} is not running", id));
  const auto& owner = supervisor->process;
  if (owner.host != me.host || owner.machine != me.machine || owner.boot_id != me.boot_id ||
      owner.pid_namespace != me.pid_namespace)
    throw ApiError(409, fmt::format("run {} runs as process {} on {}: stop it there", id, owner.pid, owner.host));
  if (::sigqueue(static_cast<pid_t>(owner.pid), SIGTERM, {.sival_int = stopped_on_page}) != 0)
    throw ApiError(503, fmt::format("cannot signal process {}: {}", owner.pid, std::strerror(errno)));
  return json_response({{"run", id}, {"stopping", true}, {"pid", owner.pid}});
}

}  // namespace runner::ui
