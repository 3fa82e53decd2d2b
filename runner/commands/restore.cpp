// `runner restore`: brings runs back from the trash.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/trash.hpp"

namespace runner {

Action setup_restore(CLI::App& app) {
  auto named = std::make_shared<std::vector<std::string>>();
  auto json = std::make_shared<bool>(false);
  app.add_option("trashed", *named, "Runs in the trash: an id, part of it, a name, or last")
      ->required()
      ->type_name("RUN ...");
  add_json_option(app, *json);
  app.footer("`runner ls deleted:yes` lists the trash.");
  return [named, json] {
    Trash trash(ledger_home());
    std::vector<std::string> runs;
    for (const auto& text : *named)
      if (auto run = trash.find(text); std::ranges::find(runs, run) == runs.end()) runs.push_back(run);
    trash.restore(runs);
    if (*json) print_json({{"schema", 1}, {"runs", runs}});
    for (const auto& run : runs)
      if (!*json) std::puts(run.c_str());
    log::info("{} restored", counted(std::ssize(runs), "run"));
    return ExitCode::done;
  };
}

}  // namespace runner
