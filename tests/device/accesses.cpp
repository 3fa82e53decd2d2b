#include "tests/device/accesses.hpp"

namespace runner::simulated {

namespace {

bool comes_before(const AccessLog::Access& access, const Stream& stream) {
  return access.stream == &stream ||
         (access.stream->device == stream.device && stream.clock.of(access.stream->index) >= access.task);
}

const char* verb(const Use& use) { return use.writes ? "write" : "read"; }

}  // namespace

void AccessLog::add(const Stream& stream, Use use, Reports& reports) {
  // From the newest on, and one report for each other stream: the uses before that one are the same mistake.
  std::vector<const Stream*> reported;
  for (auto access = accesses_.rbegin(); access != accesses_.rend(); ++access) {
    const Use& other = access->use;
    bool overlaps = other.begin < use.end && use.begin < other.end, conflicts = other.writes || use.writes;
    if (!overlaps || !conflicts || comes_before(*access, stream)) continue;
    if (std::find(reported.begin(), reported.end(), access->stream) != reported.end()) continue;
    reported.push_back(access->stream);
    reports.add(std::string("race: the ") + verb(use) + " by `" + use.what + "` on " + stream.name() +
                " is not ordered after the " + verb(other) + " by `" + other.what + "` on " + access->stream->name());
  }
  // A later use that is ordered after this access is also ordered after these earlier ones. So they can be dropped.
  std::erase_if(accesses_, [&](const Access& access) {
    bool inside = access.use.begin >= use.begin && access.use.end <= use.end;
    return inside && (use.writes || !access.use.writes) && comes_before(access, stream);
  });
  accesses_.push_back({std::move(use), &stream, stream.clock.of(stream.index)});
}

void AccessLog::forget(int device, const Clock& clock) {
  std::erase_if(accesses_, [&](const Access& access) {
    return access.stream->device == device && clock.of(access.stream->index) >= access.task;
  });
}

}  // namespace runner::simulated
