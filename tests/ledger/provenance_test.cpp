// The git state of the working directory, with real git repositories.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include "runner/base/files.hpp"
#include "runner/ledger/git_state.hpp"
#include "support.hpp"

using namespace runner;

namespace {

struct Repository {
  LedgerFolder folder;
  Repository() { git("init --quiet --initial-branch=main"); }
  void git(const std::string& arguments) {
    const std::string command = "git -C '" + folder.path.string() +
                                "' -c user.name=a -c user.email=a@example.org -c commit.gpgsign=false " + arguments +
                                " >/dev/null 2>&1";
    REQUIRE(std::system(command.c_str()) == 0);
  }
  void write(const std::string& name, const std::string& text) { write_file_atomic(folder.path / name, text); }
  nlohmann::json state() { return git_state(folder.path); }
};

}  // namespace

TEST_CASE("a folder outside any repository has no git state") {
  LedgerFolder folder;
  CHECK(git_state(folder.path).is_null());
  CHECK(git_state(folder.path / "missing").is_null());
}

TEST_CASE("commit, branch and changes of a repository are recorded") {
  Repository repository;
  auto state = repository.state();
  CHECK(state == nlohmann::json{{"commit", nullptr}, {"branch", "main"}, {"dirty", false}, {"diff_hash", nullptr}});

  repository.write("a.txt", "one\n");
  repository.git("add a.txt");
  repository.git("commit -m first");
  state = repository.state();
  CHECK(state["commit"].get<std::string>().size() == 40);
  CHECK(state["branch"] == "main");
  CHECK(state["dirty"] == false);
  CHECK(state["diff_hash"].is_null());

  repository.write("a.txt", "two\n");
  const auto changed = repository.state();
  CHECK(changed["commit"] == state["commit"]);
  CHECK(changed["dirty"] == true);
  CHECK(changed["diff_hash"].get<std::string>().size() == 32);
  CHECK(repository.state() == changed);
  repository.write("a.txt", "three\n");
  CHECK(repository.state()["diff_hash"] != changed["diff_hash"]);

  repository.write("a.txt", "one\n");
  repository.write("new.txt", "");
  CHECK(repository.state()["dirty"] == true);  // an untracked file

  repository.git("checkout --quiet --detach");
  CHECK(repository.state()["branch"].is_null());
}

TEST_CASE("a git process that does not answer in time is given up") {
  Repository repository;
  repository.write("git", "#!/bin/sh\nexec sleep 600\n");
  fs::permissions(repository.folder.path / "git", fs::perms(0755));
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (repository.folder.path.string() + ":" + path).c_str(), 1);
  const auto state = git_state(repository.folder.path, std::chrono::milliseconds(50));
  ::setenv("PATH", path.c_str(), 1);
  CHECK(state.is_null());
}
