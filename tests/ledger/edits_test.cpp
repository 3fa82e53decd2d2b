// Edits of runs: what they change, their audit trail, and that a resume keeps them.
#include "runner/ledger/edits.hpp"

#include <catch2/catch_test_macros.hpp>
#include <regex>
#include <set>

#include "runner/base/clock.hpp"
#include "runner/base/metric_names.hpp"
#include "support.hpp"

using namespace runner;
using nlohmann::json;

namespace {

/// The recipe's texts are also in the config, as in the run of a recipe.
NewRun with_texts(const LedgerFolder& folder, const std::string& name, const std::vector<std::string>& tags,
                  const std::string& notes) {
  NewRun run = new_run(folder, name);
  run.tags = tags;
  run.notes = notes;
  run.config = {{"run", {{"name", name}, {"notes", notes}, {"seed", 1}}}};
  if (!tags.empty()) run.config["run"]["tags"] = tags;
  return run;
}

std::vector<std::string> trail(const json& run) {
  std::vector<std::string> list;
  for (const auto& change : run.at("changes"))
    list.push_back(change["what"].get<std::string>() + ": " + change["before"].dump() + " -> " +
                   change["after"].dump());
  return list;
}

}  // namespace

TEST_CASE("a name that looks like something else, and texts that are not UTF-8, are refused") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(with_texts(folder, "first", {}, "")),
                    other = ledger.begin_run(with_texts(folder, "other", {}, ""));
  const auto rename = [&](const std::string& name) { return error_of([&] { ledger.edit({id}, {.name = name}); }); };
  CHECK(rename(" ") == "2: the name of a run cannot be empty");
  CHECK(rename("a\nb") == "2: the name of a run cannot have line ends or other control characters");
  CHECK(rename("status:failed") ==
        "2: a run cannot be named \"status:failed\", which looks like a filter: leave out : < > and =");
  CHECK(rename("-x") == "2: a run cannot be named \"-x\", which looks like an option");
  CHECK(rename(other) == "2: a run cannot be named \"" + other + "\", which is the id of another run");
  CHECK(rename("n\xff") == "2: the name of a run must be UTF-8: byte 2 is 0xFF");
  CHECK(error_of([&] { ledger.edit({id}, {.notes = "\xff"}); }) == "2: the notes must be UTF-8: byte 1 is 0xFF");
  CHECK(error_of([&] { ledger.edit({id}, {.added_tags = {"\xff"}}); }) == "2: the tag must be UTF-8: byte 1 is 0xFF");
  CHECK(rename("other").empty());  // only a note: names may repeat
  const auto group = [&](const std::string& name) { return error_of([&] { ledger.edit({id}, {.group = name}); }); };
  CHECK(group("a\nb") == "2: the group cannot have line ends or other control characters");
  CHECK(group(std::string("a\0b", 3)) == "2: the group cannot have line ends or other control characters");
  CHECK(group("none") == "2: a group cannot be \"none\": the filter group:none finds runs without a group");
  CHECK(group("").empty());
  const std::string zero("a\0b", 3);
  CHECK(error_of([&] { ledger.edit({id}, {.notes = zero}); }) == "2: the notes cannot have a zero byte");
  CHECK(error_of([&] { ledger.edit({id}, {.appended_notes = zero}); }) == "2: the notes cannot have a zero byte");
}

TEST_CASE("expectation 40: name, tags, notes and group are edited later, with an audit trail") {
  LedgerFolder folder;
  Ledger writer(folder.home(), Ledger::Mode::write);
  const std::string id = writer.begin_run(with_texts(folder, "first", {"a"}, ""));
  Ledger editor(folder.home(), Ledger::Mode::read);
  const double before = wall_seconds();
  CHECK(editor.edit({id}, {.added_tags = {"b", "c", "b"}, .removed_tags = {"a", "x"}}) == 1);
  CHECK(editor.edit({id}, {.name = "second", .notes = "one"}) == 1);
  CHECK(editor.edit({id}, {.group = "g", .appended_notes = "two"}) == 1);
  CHECK(editor.edit({id}, {.archived = true}) == 1);
  CHECK(editor.edit({id}, {.name = "second", .added_tags = {"b"}, .archived = true}) == 0);
  const json run = editor.show(id);
  CHECK(run["name"] == "second");
  CHECK(run["tags"] == json{"b", "c"});
  CHECK(run["notes"] == "one\ntwo");
  CHECK(run["group"] == "g");
  CHECK(run["archived"] == true);
  CHECK(trail(run) == std::vector<std::string>{"tags: [\"a\"] -> [\"b\",\"c\"]", "name: \"first\" -> \"second\"",
                                               "notes: \"\" -> \"one\"", "group: \"\" -> \"g\"",
                                               "notes: \"one\" -> \"one\\ntwo\"", "archived: \"no\" -> \"yes\""});
  CHECK(run["changes"][0]["who"] == this_user());
  CHECK(run["changes"][0]["time"].get<double>() >= before);
  CHECK(editor.edit({id}, {.archived = false}) == 1);
  CHECK(editor.runs(parse_filter("second")).size() == 1);
}

TEST_CASE("several runs are edited together or not at all") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string a = ledger.begin_run(new_run(folder, "a")), b = ledger.begin_run(new_run(folder, "b"));
  CHECK(error_of([&] {
          ledger.edit({a, "nobody"}, {.added_tags = {"x"}});
        }) == "2: there is no run nobody in " + folder.file().string());
  CHECK(ledger.show(a)["changes"].empty());
  CHECK(ledger.edit({a, b}, {.added_tags = {"x"}}) == 2);
  CHECK(error_of([&] { ledger.edit({a}, {.name = ""}); }) == "2: the name of a run cannot be empty");
  CHECK(error_of([&] { ledger.edit({a}, {.name = "last"}); }) ==
        "2: a run cannot be named \"last\", which means the newest run");
  CHECK(error_of([&] { ledger.edit({a}, {.added_tags = {"none"}}); }) ==
        "2: a tag cannot be \"none\": the filter tag:none finds runs without tags");
}

TEST_CASE("a resume keeps what a user edited, and takes what the recipe changed since then") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(with_texts(folder, "first", {"a", "b"}, "old"));
  ledger.begin_attempt(id, "start");
  ledger.edit({id}, {.name = "mine", .notes = "my words", .group = "g", .added_tags = {"good"}, .removed_tags = {"a"}});
  ledger.finish_run(id, "interrupted", 130, "");

  CHECK(ledger.reopen_run(id, with_texts(folder, "first", {"a", "b"}, "old")) == "mine");
  ledger.begin_attempt(id, "resume", 0);
  json run = ledger.show(id);
  CHECK(run["name"] == "mine");
  CHECK(run["notes"] == "my words");
  CHECK(run["group"] == "g");
  CHECK(run["tags"] == json{"b", "good"});
  ledger.finish_run(id, "interrupted", 130, "");

  CHECK(ledger.reopen_run(id, with_texts(folder, "third", {"a", "b", "c"}, "new")) == "third");
  ledger.begin_attempt(id, "resume", 0);
  run = ledger.show(id);
  CHECK(run["name"] == "third");
  CHECK(run["notes"] == "new");
  CHECK(run["tags"] == json{"b", "c", "good"});
  ledger.finish_run(id, "interrupted", 130, "");
}

TEST_CASE("a resume that is undone keeps the edits made in the meantime") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(with_texts(folder, "first", {"a"}, "old"));
  ledger.begin_attempt(id, "start");
  ledger.finish_run(id, "interrupted", 130, "");
  ledger.reopen_run(id, with_texts(folder, "second", {"z"}, "new"));
  ledger.begin_attempt(id, "resume", 0);
  CHECK(ledger.edit({id}, {.notes = "edited"}) == 1);
  ledger.finish_run(id, "failed", 1, "");
  ledger.put_back(id);
  const json run = ledger.show(id);
  CHECK(run["name"] == "first");
  CHECK(run["tags"] == json{"a"});
  CHECK(run["notes"] == "edited");
}

TEST_CASE("expectation 40: a run without a name gets a memorable one, which a resume keeps") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  std::vector<std::string> names;
  for (int i = 1; i <= 20; ++i) {
    NewRun run = new_run(folder, "");
    run.config = {{"run", {{"name", "tiny"}}}};
    const std::string id = ledger.begin_run(run);
    names.push_back(ledger.runs().back().name);
    CHECK(std::regex_match(names.back(), std::regex("[a-z]+-[a-z]+-" + std::to_string(i))));
    CHECK(ledger.find_run(names.back()) == id);
    if (i == 1) CHECK(ledger.find_run(names[0].substr(0, names[0].size() - 1)) == id);  // later names may share words
  }
  CHECK(names.size() == std::set(names.begin(), names.end()).size());
  const std::string id = ledger.runs().back().id;
  ledger.finish_run(id, "interrupted", 130, "");
  NewRun again = new_run(folder, "tiny");  // what the resolved recipe says
  again.config = {{"run", {{"name", "tiny"}}}};
  CHECK(ledger.reopen_run(id, again) == names.back());
  ledger.begin_attempt(id, "resume", 0);
  CHECK(ledger.runs().back().name == names.back());
}

TEST_CASE("any unique prefix of a name finds the run") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string a = ledger.begin_run(new_run(folder, "quiet-otter-1"));
  const std::string b = ledger.begin_run(new_run(folder, "quick-otter-2"));
  const std::string c = ledger.begin_run(new_run(folder, "quick-otter-2"));
  CHECK(ledger.find_run("quie") == a);
  CHECK(ledger.find_run("quick") == c);  // the newest of one name
  CHECK(error_of([&] { ledger.find_run("qui"); }) == "2: \"qui\" names 2 runs: quick-otter-2 or quiet-otter-1");
}

TEST_CASE("a filter is completed with fields, values of the ledger and metrics") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  NewRun run = with_texts(folder, "first", {"night", "two words"}, "");
  run.config["optimizer"] = {{"lr", 0.5}, {"name", "adamw"}};
  const std::string id = ledger.begin_run(run);
  ledger.metrics(id, {{"loss", 1, 1.0}, {"val_loss", 1, 1.0}});
  ledger.flush();
  const auto complete = [&](const std::string& text) {
    const auto found = ledger.complete_filter(text, text.size());
    std::vector<std::string> list;
    for (const auto& candidate : found.candidates) list.push_back(text.substr(0, found.place.offset) + candidate.text);
    return list;
  };
  using Texts = std::vector<std::string>;
  CHECK(complete("stat") == Texts{"status:"});
  CHECK(complete("tag:x status:f") == Texts{"tag:x status:finished", "tag:x status:failed"});
  CHECK(complete("status:failed,l") == Texts{"status:failed,lost"});
  CHECK(complete("-tag:") == Texts{"-tag:night", "-tag:\"two words\""});
  CHECK(complete("opt") == Texts{"optimizer.lr", "optimizer.name"});
  CHECK(complete("optimizer.name:") == Texts{"optimizer.name:adamw"});
  CHECK(complete("best(v") == Texts{"best(val_loss)"});
  CHECK(complete("sort:-bes") == Texts{"sort:-best("});
  CHECK(complete("sort:-best(lo") == Texts{"sort:-best(loss)"});
  CHECK(complete("name:f") == Texts{"name:first"});
  CHECK(complete("tag:\"two w") == Texts{"tag:\"two words\""});
  CHECK(complete("archived:") == Texts{"archived:yes", "archived:no", "archived:any"});
  CHECK(ledger.complete_filter("status:f tag:x", 8).place.offset == 7);
}

TEST_CASE("the directions of metrics are those of the table of names, also in a ledger of an older program") {
  LedgerFolder folder;
  { Ledger(folder.home(), Ledger::Mode::write); }
  const auto stored = [&] {
    std::set<std::string> patterns;
    auto file = folder.raw();
    auto rows = file.query("SELECT pattern FROM higher_is_better");
    while (rows.step()) patterns.insert(rows.text(0));
    return patterns;
  };
  const auto list = higher_is_better_patterns();
  const std::set<std::string> known(list.begin(), list.end());
  CHECK(stored() == known);
  {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    const std::string id = ledger.begin_run(new_run(folder));
    for (const char* name : {"my_reward", "Val_F1", "top/acc", "accident", "perplexity", "tokens_per_s"})
      ledger.metrics(id, {{name, 1, 1.0}});
    ledger.finish_run(id, "finished", 0, "");
  }
  {
    auto file = folder.raw();  // as an older program has left it
    file.run("DELETE FROM higher_is_better WHERE pattern LIKE '%reward%'");
    file.run("UPDATE key SET higher_is_better = 0 WHERE name = 'my_reward'");
  }
  { Ledger(folder.home(), Ledger::Mode::write); }
  CHECK(stored() == known);
  auto file = folder.raw();
  auto keys = file.query("SELECT name, higher_is_better FROM key");
  int64_t higher = 0;
  while (keys.step()) {
    CHECK(higher_is_better(keys.text(0)) == (keys.integer(1) == 1));
    higher += keys.integer(1);
  }
  CHECK(higher == 4);
}
