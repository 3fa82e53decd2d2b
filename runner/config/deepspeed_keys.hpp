// The one table of DeepSpeed's configuration keys: what becomes of each here, and why.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace runner {

struct DeepSpeedKey {
  enum class Fate {
    recipe,   ///< becomes the recipe's key `target`
    option,   ///< becomes zero's option `target`
    handled,  ///< means something together with others: deepspeed_config.cpp
    checked,  ///< must be `works`, which is what happens here; else refused with `reason`
    ignored,  ///< changes no result: a note with `reason`, unless it is `works`, with which nothing is asked
    refused,  ///< an error with `reason`, unless switched off
    block,    ///< an object whose keys stand in the table
    inner     ///< inside a block that is ignored or refused as a whole
  };
  std::string path;  ///< "zero_optimization.stage"
  Fate fate;
  std::string target = "";
  nlohmann::json works = nullptr;
  std::string reason = "";
  std::string old_name_of = "";  ///< the path that it is deprecated for
  bool open = false;             ///< a block with keys of others in it, which are not checked

  std::string name() const { return path.substr(path.rfind('.') + 1); }
  std::string parent() const { return path.substr(0, path.rfind('.') == std::string::npos ? 0 : path.rfind('.')); }
};

const std::vector<DeepSpeedKey>& deepspeed_keys();
const DeepSpeedKey* find_deepspeed_key(const std::string& path);

/// Types of optimizers and schedulers that DeepSpeed knows and that are refused: what to take instead. Lower case.
std::optional<std::string> refused_optimizer(const std::string& type);
std::optional<std::string> refused_scheduler(const std::string& type);

}  // namespace runner
