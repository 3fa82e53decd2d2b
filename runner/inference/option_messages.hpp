// Messages about recipe keys in the words of the command line.
#pragma once
#include <string>

#include "runner/inference/request.hpp"

namespace runner {

/// A message of the data's reader with the options of the command in the place of recipe keys that the user has not written:
/// "data.validation: there is no file x" becomes "--data: there is no file x", and of the files of `runner predict` "there is no file x".
std::string with_options_for_keys(const InferenceRequest& request, std::string message);

}  // namespace runner
