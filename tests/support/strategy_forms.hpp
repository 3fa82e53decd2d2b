// The forms of every strategy that tests train on devices, simulated and real ones.
#pragma once
#include <string>
#include <vector>

#include "tests/support/offload_forms.hpp"
#include "tests/support/tiny_training.hpp"

namespace runner::testing {

struct Form {
  std::string label;
  TinyRun run;
  bool equals_ddp = false;  ///< the same bits as ddp's with as many ranks
};

/// Three steps.
TinyRun device_run(const std::string& strategy, int world_size, nlohmann::json options = nlohmann::json::object());

std::vector<Form> whole_copies();
std::vector<Form> fsdp_forms();
std::vector<Form> zero_forms();
std::vector<Form> chunk_forms();
/// Other reductions than a sum: comm hooks of ddp, bagua, horovod.
std::vector<Form> reducer_forms();
std::vector<Form> recomputing_forms();
/// They sum over ranks before they sum over micro-batches: other bits than ddp's.
std::vector<Form> forms_reducing_each_micro_batch();
/// `folder`: of the files on NVMe.
std::vector<Form> offloading_forms(const std::string& folder);
nlohmann::json offload_options(const OffloadForm& form, const std::string& folder);
std::vector<Form> precision_forms();
std::vector<Form> frozen_forms();
std::vector<Form> packed_forms();
/// All of them, except reducer_forms().
std::vector<Form> every_form(const std::string& folder);

}  // namespace runner::testing
