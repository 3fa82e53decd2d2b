// The differences between two runs, from their records (Ledger::show()), and between two texts or patches of git.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace runner {

/// A key whose values differ; null: the run does not have it.
struct Difference {
  std::string key;
  nlohmann::json a, b;
};
using DifferenceList = std::vector<Difference>;

/// {"model.dim": 64, ...}: the values of nested objects under dotted keys. Arrays and empty objects are values.
std::vector<std::pair<std::string, nlohmann::json>> flattened(const nlohmann::json& object);

/// The keys in which two objects differ, dotted and in alphabetical order.
DifferenceList different_keys(const nlohmann::json& a, const nlohmann::json& b);

/// The attempts that ran with other settings than the last one, because the run was resumed with changes: their keys, with the value of
/// the attempt (a) and that of the last one (b).
struct AttemptSettings {
  std::string number;
  DifferenceList differences;
};
std::vector<AttemptSettings> changed_settings(const nlohmann::json& run);
/// "attempt 1 had other values of optimizer.lr, train.max_steps".
std::string to_text(const AttemptSettings& settings);

/// build, commit, branch, uncommitted changes (digest of the patch) and untracked files.
DifferenceList code_differences(const nlohmann::json& a, const nlohmann::json& b);
/// Host, kernel, CPU, memory, devices, ranks, command line, working directory. What changes from moment to moment, such as free
/// memory, is not compared.
DifferenceList environment_differences(const nlohmann::json& a, const nlohmann::json& b);
enum class Results {
  of_training,  ///< status, steps, last values of the metrics, best values of losses and of checkpoint.monitor, predicted memory
  all           ///< also times, rates, measured memory and other predictions, which differ between any two runs
};
DifferenceList result_differences(const nlohmann::json& a, const nlohmann::json& b, Results results);

/// The facts of a run's host (facts of this machine as JSON) that can change the numbers of a training: {"cpu", "cores", "cuda": [{name,
/// memory_bytes, major, minor}], "avx2", "avx512", "onednn_isa"}.
nlohmann::json hardware_of(const nlohmann::json& host);

/// `diff -u A B` with these names in its head; "" if the texts are equal. Uses the program `diff`; without it, says so.
std::string unified_diff(const std::string& a, const std::string& b, const std::string& name_a,
                         const std::string& name_b);

/// The differences between two patches of one commit, file by file: the changes of a file that only one of them changes, and for a file
/// that both change differently the unified diff of their changes. Files that both change alike are left out.
std::string patch_difference(const std::string& a, const std::string& b, const std::string& name_a,
                             const std::string& name_b);

}  // namespace runner
