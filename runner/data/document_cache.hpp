// Tokenises files of records once, in parts on all cores, into files of the cache.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runner/data/record_reader.hpp"
#include "runner/data/token_parts.hpp"

namespace runner {

/// The parts of `files` of a format of records, in order. Memory is bounded by the marks of a part for each call of make(), which throws
/// Error(usage) for a bad record.
std::unique_ptr<TokenParts> record_parts(const Recipe::Data& data, const std::vector<std::string>& files,
                                         std::shared_ptr<const RecordReader> reader, const std::string& cache_dir,
                                         PartBytes part_bytes);

}  // namespace runner
