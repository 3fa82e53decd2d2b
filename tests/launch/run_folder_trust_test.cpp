// A node without a secret runs only what its own user or root has written, and code that its own recipe names.
#include "runner/launch/follower.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/launch/members_support.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

namespace {

constexpr uid_t somebody = 4321;

/// A run's folder with what a leader puts there.
struct RunDir {
  TemporaryFolder folder;
  fs::path path = folder.path / "run";
  RunDir() {
    fs::create_directories(path / "logs");
    write_file_atomic(path / "logs" / proof_file_name, "1");
    write_file_atomic(path / "resolved.toml", "");
  }
};

/// A node that follows in a process, with a check of the folder.
class CheckingNode {
 public:
  CheckingNode(const Introduction& self, const RunFolderCheck& check) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    try {
      MessageSocket leader = join_leader(self, 20s);
      follow(leader, self, group_of(self), check);
    } catch (const Error&) {
    }
    ::_exit(0);
  }
  ~CheckingNode() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
};

/// What a node says first, that this leader tells to start workers for a run's folder.
json answer_to_start(const std::string& secret, const RunDir& run, const RunFolderCheck& check,
                     const json& arguments = json::array({"*=wait"})) {
  int port = free_port();
  Introduction self = introduction(1, 2, 1, port);
  self.secret = secret;
  CheckingNode node(self, check);
  MessageSocket leader = accept_node(port, secret);
  json message;
  const auto says = [&] {
    auto said = leader.receive();
    if (said) message = *said;
    return said.has_value();
  };
  REQUIRE(wait_until(says, 20));
  leader.send({{"say", "welcome"}});
  leader.send(start_order((run.path / "logs").string(), arguments));
  if (!wait_until([&] { return says() || !leader.is_open(); }, 20)) return {};
  return leader.is_open() || message["say"] != "hello" ? message : json("closed");
}

}  // namespace

TEST_CASE("a folder that another user has written is not trusted, and one of root is") {
  RunDir run;
  const uid_t me = ::geteuid();
  CHECK(why_untrusted(run.path, me).empty());
  CHECK(why_untrusted(run.path / "nowhere", me).empty());
  if (me != 0) {
    CHECK_THAT(why_untrusted(run.path, me + 1), StartsWith(run.path.string() + " belongs to "));
    SKIP("only root can give files to others");
  }
  CHECK(why_untrusted(run.path, somebody).empty());  // it is root's
  const auto recipe = run.path / "resolved.toml";
  REQUIRE(::chown(recipe.c_str(), somebody, somebody) == 0);
  CHECK(why_untrusted(recipe, me) == recipe.string() + " belongs to user 4321, and this node runs as root (user 0)");
  CHECK(why_untrusted(recipe, somebody).empty());
  REQUIRE(::chown(run.path.c_str(), somebody + 1, somebody) == 0);
  CHECK_THAT(why_untrusted(recipe, somebody), StartsWith(run.path.string() + " belongs to user 4322"));
}

TEST_CASE("a folder that every user can write or replace is not trusted") {
  RunDir run;
  const uid_t me = ::geteuid();
  const auto said = [&](fs::perms more, const fs::path& of, const fs::path& path) {
    fs::permissions(of, fs::perms::owner_all | more);
    const auto why = why_untrusted(path, me);
    fs::permissions(of, fs::perms::owner_all);
    return why;
  };
  const auto everyone = fs::perms::others_write, sticky = everyone | fs::perms::sticky_bit;
  const auto parent = run.folder.path, missing = parent / "nowhere";
  CHECK(said(fs::perms::group_write, parent, run.path).empty());
  CHECK(said(everyone, parent, run.path) == "every user can write to " + parent.string());
  CHECK(said(sticky, parent, run.path).empty());
  CHECK(said(sticky, parent, missing) == "every user can write to " + parent.string());
  CHECK(said(sticky, run.path, run.path) == "every user can write to " + run.path.string());
  CHECK(said(everyone, run.path / "resolved.toml", run.path / "resolved.toml") ==
        "every user can write to " + (run.path / "resolved.toml").string());
}

TEST_CASE("workers get the paths without links that were checked") {
  RunDir run;
  const auto link = run.folder.path / "link";
  fs::create_directory_symlink(run.path, link);
  WorkerGroup group;
  group.log_dir = (link / "logs").string();
  group.arguments = {"--run-dir", link.string(), "--cache-dir", (link / "cache").string()};
  require_trusted_folders(group, {});
  CHECK(group.log_dir == (run.path / "logs").string());
  CHECK(group.arguments ==
        std::vector<std::string>{"--run-dir", run.path.string(), "--cache-dir", (run.path / "cache").string()});
  fs::create_directories(run.path / "cache" / "programs");
  fs::permissions(run.path / "cache" / "programs", fs::perms::all);
  CHECK_THAT(refusal([&] { require_trusted_folders(group, {}); }),
             ContainsSubstring("every user can write to " + (run.path / "cache" / "programs").string()));
}

TEST_CASE("a node does not start workers for a folder of another user, unless a secret says who the leader is") {
  if (::geteuid() != 0) SKIP("only root can give files to others");
  RunDir run;
  REQUIRE(::chown(run.path.c_str(), somebody, somebody) == 0);
  const json refused = answer_to_start("", run, {});
  CHECK(refused["event"] == "failed");
  CHECK(refused["kind"] == "environment");
  CHECK_THAT(refused["message"].get<std::string>(),
             StartsWith(run.path.string() + " belongs to user 4321, and this node runs as root (user 0): ") &&
                 EndsWith("or give all of them the same RUNNER_NODES_SECRET"));
  CHECK(answer_to_start("a secret of many characters", run, {})["event"] == "ready");
}

TEST_CASE("a node asks its own recipe before it starts workers, unless a secret says who the leader is") {
  RunDir run;
  const RunFolderCheck check = [&](const fs::path& run_dir) {
    throw usage_error("{}", run_dir == run.path ? "other code" : run_dir.string());
  };
  const json refused = answer_to_start("", run, check);
  CHECK(refused["event"] == "failed");
  CHECK(refused["kind"] == "usage");
  CHECK(refused["message"] == "other code");
  CHECK(answer_to_start("a secret of many characters", run, check)["event"] == "ready");
  CHECK(answer_to_start("", run, [](const fs::path&) {})["event"] == "ready");
}

TEST_CASE("workers read the folder that was checked") {
  RunDir run;
  WorkerGroup group;
  group.log_dir = run.path / "logs";
  CHECK(run_folder_of(group) == run.path);
  group.arguments = {"--run-dir", run.path.string(), "--attempt", "1"};
  CHECK(run_folder_of(group) == run.path);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--run-dir", "/elsewhere"}, std::vector<std::string>{"--run-dir"}}) {
    WorkerGroup other = group;
    other.arguments.insert(other.arguments.end(), more.begin(), more.end());
    CHECK_THROWS_AS(run_folder_of(other), BadMessage);
  }
  CHECK(answer_to_start("", run, {}, {"--run-dir", "/elsewhere"}) == "closed");
}
