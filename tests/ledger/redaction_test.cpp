// No secret value reaches the ledger's file.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include "runner/base/files.hpp"
#include "support.hpp"

using namespace runner;
using nlohmann::json;

namespace {

/// The bytes of the ledger and of its write-ahead log.
std::string bytes_of(const LedgerFolder& folder) {
  std::string bytes = read_file(folder.file());
  const fs::path log = folder.file().string() + "-wal";
  return fs::exists(log) ? bytes + read_file(log) : bytes;
}

NewRun with_secret(const LedgerFolder& folder, const std::string& secret) {
  NewRun run = new_run(folder, "mail");
  run.recipe_source = "[hooks.mail]\nsmtp_password = \"" + secret + "\"\n";
  run.resolved = run.recipe_source + "seed = 1\n";
  run.config = {{"hooks", {{"mail", {{"smtp_password", secret}, {"to", "me"}}}}}, {"run", {{"name", "mail"}}}};
  run.origins = {{"hooks.mail.smtp_password", "--set hooks.mail.smtp_password=" + secret}};
  run.plan = {{"reason", "because of " + secret}};
  run.argv = {"runner", "run", "--set", "hooks.mail.smtp_password=" + secret};
  run.notes = "the password is " + secret;
  run.group = "password=" + secret;
  run.tags = {"token=" + secret + " tail"};
  run.annotations = {{"data", secret}};
  return run;
}

}  // namespace

TEST_CASE("expectation 38: the ledger's file has no secret of recipe, command line or environment") {
  const std::string secret = "hunter2-hunter2", of_environment = "xyzzy-xyzzy-xyzzy";
  ::setenv("MY_SERVICE_TOKEN", of_environment.c_str(), 1);
  LedgerFolder folder;
  {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    const std::string id = ledger.begin_run(with_secret(folder, secret));
    ledger.begin_attempt(id, "start");
    ledger.event(id, "note", {{"message", "cannot log in with " + secret}, {"token", of_environment}});
    ledger.annotate(id, "measured", {{"text", {secret, of_environment}}});
    ledger.artifact(id, "artifact", "file", {{"about", secret}});
    ledger.finish_run(id, "failed", 1, "wrong password: " + secret);
    ledger.reopen_run(id, with_secret(folder, secret));
    ledger.finish_run(id, "finished", 0, "");
    CHECK(bytes_of(folder).find("smtp_password") != std::string::npos);
    CHECK(bytes_of(folder).find(secret) == std::string::npos);
    CHECK(bytes_of(folder).find(of_environment) == std::string::npos);
    const json run = ledger.show(id);
    CHECK(run["config"]["hooks"]["mail"] == json{{"smtp_password", "***"}, {"to", "me"}});
    CHECK(run["recipe"] == "[hooks.mail]\nsmtp_password = \"***\"\n");
    CHECK(run["argv"][3] == "hooks.mail.smtp_password=***");
    CHECK(run["notes"] == "the password is ***");
    CHECK(run["redacted"] == json{"hooks.mail.smtp_password"});
    CHECK(run["events"][0]["message"] == "cannot log in with ***");
  }
  CHECK(bytes_of(folder).find(secret) == std::string::npos);
  ::unsetenv("MY_SERVICE_TOKEN");
}

TEST_CASE("a run without secrets is stored as it is") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const NewRun given = new_run(folder);
  const json run = ledger.show(ledger.begin_run(given));
  CHECK(run["recipe"] == given.recipe_source);
  CHECK(run["config"] == given.config);
  CHECK_FALSE(run.contains("redacted"));
}

TEST_CASE("a short secret is in none of the places that name it") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const json run = ledger.show(ledger.begin_run(with_secret(folder, "zq9")));
  CHECK(run["config"]["hooks"]["mail"]["smtp_password"] == "***");
  CHECK(run["argv"][3] == "hooks.mail.smtp_password=***");
  CHECK(run["group"] == "password=***");
  CHECK(run["tags"] == json{"token=***"});
  CHECK(run["origins"]["hooks.mail.smtp_password"] == "--set hooks.mail.smtp_password=***");
}

TEST_CASE("edits keep no secrets") {
  const std::string of_environment = "xyzzy-xyzzy-xyzzy";
  ::setenv("MY_SERVICE_TOKEN", of_environment.c_str(), 1);
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  ::unsetenv("MY_SERVICE_TOKEN");
  NewRun row = new_run(folder, "a");
  row.tags.clear();
  const std::string id = ledger.begin_run(row);
  ledger.edit({id}, {.name = "b " + of_environment,
                     .notes = "key " + of_environment,
                     .appended_notes = "password=abc",
                     .added_tags = {of_environment, "kept"}});
  const json run = ledger.show(id);
  CHECK(run["name"] == "b ***");
  CHECK(run["notes"] == "key ***\npassword=***");
  CHECK(run["tags"] == json{"***", "kept"});
  ledger.edit({id}, {.removed_tags = {of_environment}});
  CHECK(ledger.show(id)["tags"] == json{"kept"});
  CHECK(bytes_of(folder).find(of_environment) == std::string::npos);
}
