// `runner diff`: what differs between two runs.
#include <map>
#include <memory>

#include "runner/base/capture.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/data/data_meaning.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/report/quantity.hpp"
#include "runner/report/run_differences.hpp"
#include "runner/report/table.hpp"
#include "runner/report/terminal.hpp"

namespace runner {

namespace {

using nlohmann::json;

struct DiffOptions {
  std::string a, b = "last";
  bool config = false, code = false, env = false, results = false, json = false, exit_code = false, all = false;
};

/// A part of the comparison: values in a table, and texts below it.
struct Part {
  std::string name;
  DifferenceList values;
  std::string text = {};
  std::vector<std::string> sentences = {};  ///< below the values: of data, or of attempts

  bool equal() const { return values.empty() && text.empty() && sentences.empty(); }
};

/// The text of the run's patch; "" if it has none, or if its ledger does not have the text.
std::string patch_of(const Ledger& ledger, const json& run) {
  const json& git = run.at("git");
  const json patch = git.is_object() ? git.value("patch", json()) : json();
  return patch.is_object() ? ledger.kept(patch.value("kept", "")).value_or("") : "";
}

/// `git diff --stat` of the two commits, if the folder of a run still has both; otherwise "". A record of a stranger may have other texts,
/// which git would read as options.
std::string commits_stat(const json& a, const json& b) {
  const auto commit = [](const json& run) {
    const json value = run.at("git").is_object() ? run.at("git").value("commit", json()) : json();
    return value.is_string() ? value.get<std::string>() : "";
  };
  const auto is_commit = [](const std::string& text) { return text.size() >= 40 && from_hex(text); };
  if (!is_commit(commit(a)) || !is_commit(commit(b)) || commit(a) == commit(b)) return "";
  for (const auto* run : {&a, &b}) {
    const auto answer =
        capture({"git", "-c", "core.fsmonitor=false", "-C", run->at("working_directory"), "diff", "--stat",
                 "--no-ext-diff", "--no-color", "--stat-width=100", commit(a), commit(b), "--"},
                {.timeout = std::chrono::seconds(5), .environment = {"GIT_OPTIONAL_LOCKS=0"}});
    if (answer.status == 0) return answer.output;
  }
  return "";
}

/// Unified diffs of the scripts that both runs name.
std::string scripts_diff(const Ledger& ledger, const json& a, const json& b) {
  std::string out;
  const auto of_a = a.value("scripts", json::object()), of_b = b.value("scripts", json::object());
  for (const auto& [path, digest] : of_a.items())
    if (of_b.contains(path) && of_b[path] != digest)
      out += unified_diff(ledger.kept(digest).value_or(""), ledger.kept(of_b[path]).value_or(""),
                          path + " of " + plain(a["id"]), path + " of " + plain(b["id"]));
  return out;
}

Part code_part(const Ledger& ledger, const json& a, const json& b) {
  Part part{"code", code_differences(a, b)};
  part.text = commits_stat(a, b);
  part.text += patch_difference(patch_of(ledger, a), patch_of(ledger, b), a.at("id"), b.at("id"));
  part.text += scripts_diff(ledger, a, b);
  const auto data = [](const json& run) {
    return run.contains("inputs") ? run["inputs"].value("data", json::object()) : json::object();
  };
  part.sentences = changed_meaning(data(a), data(b));
  return part;
}

/// Takes the keys out of `values` that only one run has, and that stand at their defaults there, as the options of another strategy.
/// Returns a line for those of each section.
std::vector<std::string> take_defaults(const json& a, const json& b, DifferenceList& values) {
  std::map<std::pair<std::string, std::string>, int64_t> counts;
  std::erase_if(values, [&](const Difference& entry) {
    if (entry.a.is_null() == entry.b.is_null()) return false;
    const auto& owner = entry.a.is_null() ? b : a;
    const json origins = owner.value("origins", json::object());
    if (!origins.is_object() || origins.value(entry.key, json()) != "default") return false;
    const std::string section = entry.key.substr(0, entry.key.find('.'));
    const json part = owner.at("config").value(section, json());  // null for a name with a dot in a stranger's bundle
    const json name = part.is_object() ? part.value("name", json()) : json();
    ++counts[{&owner == &a ? "A" : "B", name.is_string() ? section + " " + name.get<std::string>() : section}];
    return true;
  });
  std::vector<std::string> lines;
  for (const auto& [of, count] : counts)
    lines.push_back(fmt::format("{}: {} of {} at {}; --all shows {}", of.first, counted(count, "option"), of.second,
                                count == 1 ? "its default" : "their defaults", count == 1 ? "it" : "them"));
  return lines;
}

/// Two runs are not equal in their settings if one of them was resumed with others.
Part config_part(const json& a, const json& b, bool all) {
  Part part{"config", different_keys(a.at("config"), b.at("config"))};
  if (!all) part.sentences = take_defaults(a, b, part.values);
  for (const auto* run : {&a, &b})
    for (const auto& attempt : changed_settings(*run))
      part.sentences.push_back(fmt::format("{}: {}", run == &a ? "A" : "B", to_text(attempt)));
  return part;
}

std::vector<Part> compare(const Ledger& ledger, const json& a, const json& b, const DiffOptions& options) {
  const bool all = !options.config && !options.code && !options.env && !options.results;
  std::vector<Part> parts;
  if (all || options.config) parts.push_back(config_part(a, b, options.all || options.json));
  if (all || options.code) parts.push_back(code_part(ledger, a, b));
  if (all || options.env) parts.push_back({"environment", environment_differences(a, b)});
  if (all || options.results) {
    const auto wanted = options.results || options.json ? Results::all : Results::of_training;
    parts.push_back({"results", result_differences(a, b, wanted)});
  }
  return parts;
}

void print_parts_as_json(const json& a, const json& b, const std::vector<Part>& parts) {
  bool equal = true;
  json out = {{"schema", 1}, {"a", a.at("id")}, {"b", b.at("id")}};
  for (const auto& part : parts) {
    equal = equal && part.equal();
    json values = json::object();
    for (const auto& entry : part.values) values[entry.key] = {entry.a, entry.b};
    out[part.name] = values;
    if (part.name == "config") out["attempts"] = part.sentences;
    if (part.name == "code") out["patch"] = part.text;
    if (part.name == "code") out["data"] = part.sentences;
  }
  out["equal"] = equal;
  print_json(out);
}

std::string head(const char* letter, const json& run) {
  return fmt::format("{}  {}  {}, {}\n", letter, plain(run.at("id")), plain(run.at("name")), plain(run.at("status")));
}

/// Long texts without the words that both begin and end with, such as two commands.
std::pair<std::string, std::string> differing_words(const std::string& a, const std::string& b) {
  constexpr size_t long_text = 60;
  if (std::max(a.size(), b.size()) <= long_text) return {a, b};
  auto of_a = split(a, ' '), of_b = split(b, ' ');
  const auto most = static_cast<std::ptrdiff_t>(std::min(of_a.size(), of_b.size()));
  const auto begin = std::mismatch(of_a.begin(), of_a.begin() + most, of_b.begin()).first - of_a.begin();
  const auto end = std::mismatch(of_a.rbegin(), of_a.rbegin() + (most - begin), of_b.rbegin()).first - of_a.rbegin();
  const auto middle = [&](const std::vector<std::string>& words) {
    const std::string text = join(std::vector<std::string>(words.begin() + begin, words.end() - end), " ");
    return (begin > 0 ? "... " : "") + (text.empty() ? "-" : text) + (end > 0 ? " ..." : "");
  };
  return {middle(of_a), middle(of_b)};
}

/// The texts of both cells of a row. The cells of two lists have only the elements that the other list lacks.
std::pair<std::string, std::string> cells_of(const Difference& entry) {
  const auto without = [](const json& list, const json& other) {
    json rest = json::array();
    for (const auto& element : list)
      if (std::ranges::find(other, element) == other.end()) rest.push_back(element);
    return rest;
  };
  if (entry.a.is_array() && entry.b.is_array())
    if (const json a = without(entry.a, entry.b), b = without(entry.b, entry.a); a != b)
      return {a.empty() ? "-" : plain(a), b.empty() ? "-" : plain(b)};
  const std::string a = quantity(entry.key, entry.a), b = quantity(entry.key, entry.b);
  return a != b ? differing_words(a, b) : std::pair(plain(entry.a), plain(entry.b));  // they differ in later digits
}

void print_text(const json& a, const json& b, const std::vector<Part>& parts) {
  std::string out = head("A", a) + head("B", b);
  std::vector<std::string> equal;
  for (const auto& part : parts) {
    if (part.equal()) {
      equal.push_back(part.name);
      continue;
    }
    out += "\n";
    std::vector<std::vector<std::string>> rows;
    for (const auto& entry : part.values) {
      const auto [of_a, of_b] = cells_of(entry);
      rows.push_back({"  " + entry.key, of_a, of_b});
    }
    if (rows.empty())
      out += part.name + "\n";
    else
      out += format_table({{part.name}, {"A", false, true}, {"B", false, true}}, rows);
    for (const auto& sentence : part.sentences) out += (part.name == "code" ? "  data: " : "  ") + sentence + "\n";
    if (!part.text.empty()) out += "\n" + part.text;
  }
  if (!equal.empty()) out += fmt::format("\nequal: {}\n", join(equal, ", "));
  show_page(out);
}

/// The run that `run` started from: the other one of a comparison if both words name the same run, as after a rerun, which has the same
/// name.
json origin_of(const Ledger& ledger, const json& run) {
  if (run.at("parents").empty())
    throw usage_error("both words name run {}, which started from no other run: name another one", plain(run.at("id")));
  return ledger.show(plain(run.at("parents").back().at("id")));
}

ExitCode diff(const DiffOptions& options) {
  const Ledger ledger(ledger_home(), Ledger::Mode::read);
  json a = ledger.show(ledger.find_run(options.a));
  const json b = ledger.show(ledger.find_run(options.b));
  if (a.at("id") == b.at("id")) a = origin_of(ledger, b);
  const auto parts = compare(ledger, a, b, options);
  options.json ? print_parts_as_json(a, b, parts) : print_text(a, b, parts);
  const bool equal = std::ranges::all_of(parts, &Part::equal);
  return equal || !options.exit_code ? ExitCode::done : ExitCode::run_failed;
}

}  // namespace

Action setup_diff(CLI::App& app) {
  auto options = std::make_shared<DiffOptions>();
  app.add_option("run", options->a, "A run: its id, part of it, its name, or last")->required();
  app.add_option("other", options->b,
                 "The run to compare it with. If both are the same run, it is compared with the run it started from")
      ->capture_default_str();
  app.add_flag("--config", options->config, "Only the keys of the resolved recipes");
  app.add_flag("--code", options->code, "Only build, commit, uncommitted changes, scripts and data");
  app.add_flag("--env", options->env, "Only host, devices, ranks and command line");
  app.add_flag("--results", options->results,
               "Only metrics, and also times, rates, memory and predictions, which differ between any two runs");
  app.add_flag("--all", options->all, "Also keys that only one run has, at their defaults; --json has them always");
  app.add_flag("--exit-code", options->exit_code,
               "End with code 1 if something differs, as `git diff --exit-code` does");
  add_json_option(app, options->json);
  app.footer(
      "Prints only what differs; the four options may be combined. The code is 0 also if the runs differ.\n"
      "--json prints {\"equal\", \"config\": {KEY: [A, B]}, \"code\", \"patch\", \"data\", \"environment\", "
      "\"results\", \"attempts\"}.");
  return [options] { return diff(*options); };
}

}  // namespace runner
