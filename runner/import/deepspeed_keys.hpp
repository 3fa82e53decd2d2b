// The table of DeepSpeed's configuration keys: which are translated, ignored or refused, and why.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/base/option.hpp"

namespace runner {

/// `name`: the last part of `path`. `type`: `other` unless the key has a check of its own; the target's option checks the others.
/// `default_value`: of `checked`, the only supported value; of `ignored`, the usual one. `note`: the reason.
struct DeepSpeedKey : Option {
  enum class Fate {
    recipe,   ///< sets the recipe's key `target`
    option,   ///< sets the option `target` of the strategy `zero`
    handled,  ///< translated together with other keys, in deepspeed_meaning.cpp
    checked,  ///< must be `default_value`; otherwise it is refused with `note`
    ignored,  ///< does not affect results; if it is not `default_value`, it is noted with `note`
    refused,  ///< an error with `note`, unless it is switched off
    block,    ///< an object whose keys are in the table
    inner     ///< a key in a block that is ignored or refused with all its keys
  };
  Fate fate = Fate::handled;
  std::string path = "";  ///< "zero_optimization.stage"
  /// The recipe's key that sets the value of a `handled` key if it is "auto". Empty: it is `default_value`.
  std::string target = "";
  std::string old_name_of = "";  ///< deprecated: the path of the key that replaces it
  bool open = false;             ///< a block whose keys are not checked

  std::string parent() const { return path.substr(0, path.rfind('.') == std::string::npos ? 0 : path.rfind('.')); }
};

const std::vector<DeepSpeedKey>& deepspeed_keys();
const DeepSpeedKey* find_deepspeed_key(const std::string& path);

/// Why a type of optimizer or scheduler that DeepSpeed has is refused, and what to use instead; nullopt: it is not refused.
std::optional<std::string> refused_optimizer(const std::string& type);
std::optional<std::string> refused_scheduler(const std::string& type);

}  // namespace runner
