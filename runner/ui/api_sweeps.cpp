// Sweeps and their trials.
#include "runner/ledger/sweeps.hpp"
#include "runner/ui/api.hpp"

namespace runner::ui {

using nlohmann::json;

namespace {

json short_sweep(const SweepRow& row) {
  return {{"id", row.id},
          {"name", row.name},
          {"status", row.status},
          {"message", row.message},
          {"started", row.started},
          {"ended", row.ended ? json(*row.ended) : json()},
          {"seconds", row.seconds},
          {"method", row.space.value("method", "")},
          {"metric", row.space.value("metric", "")},
          {"goal", row.space.value("goal", "min")},
          {"budget", row.space.value("trials", json())}};
}

}  // namespace

Response get_sweeps(const Api& api, const Request&, const Captures&) {
  json list = json::array();
  if (!api.readers.take()) return json_response({{"sweeps", list}});
  const Sweeps store(api.readers.home().string(), Ledger::Mode::read);
  const auto sweeps = store.sweeps();
  const auto database = open_ledger(api);
  sqlite::Statement counts(
      *database,
      "SELECT status, count(*) FROM trial WHERE sweep = (SELECT sweep FROM sweep WHERE id = ?) GROUP BY status");
  for (auto row = sweeps.rbegin(); row != sweeps.rend(); ++row) {
    json one = short_sweep(*row);
    one["counts"] = json::object();
    counts.bind(row->id);
    while (counts.step()) one["counts"][counts.text(0)] = counts.integer(1);
    list.push_back(std::move(one));
  }
  return json_response({{"sweeps", list}});
}

Response get_sweep(const Api& api, const Request&, const Captures& captures) {
  open_ledger(api);
  const Sweeps store(api.readers.home().string(), Ledger::Mode::read);
  SweepRow row;
  try {
    row = store.find(captures[0]);
  } catch (const Error& error) {
    throw ApiError(404, error.what());
  }
  const auto trials = store.trials(row.id);
  json list = json::array();
  for (const auto& trial : trials) list.push_back(to_json(trial));
  json answer = short_sweep(row);
  if (api.hooks.sweep_summary) answer.update(api.hooks.sweep_summary(row, trials));
  answer["trials"] = std::move(list);
  return json_response(std::move(answer));
}

}  // namespace runner::ui
