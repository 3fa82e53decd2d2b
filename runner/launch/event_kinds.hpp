// Which events are signs of trouble.
#pragma once
#include <algorithm>
#include <array>
#include <string_view>

namespace runner {

struct TroubleKind {
  std::string_view kind;
  bool is_alert = false;    ///< `logging.notify` tells those who want alerts
  bool is_warning = false;  ///< the terminal warns at once; other output tells of the others
};

/// `runner show` and the web page always show them. events.hpp describes them; the supervisor itself records:
///   restart      before another attempt of the same command    {attempt, why}
///   undelivered  a notification, or points for a server        {message}
inline constexpr std::array<TroubleKind, 7> trouble_kinds = {
    {{.kind = "nonfinite", .is_alert = true},
     {.kind = "loss_spike", .is_alert = true, .is_warning = true},
     {.kind = "stall", .is_alert = true, .is_warning = true},
     {.kind = "restart", .is_alert = true},
     {.kind = "skipped"},
     {.kind = "failed"},
     {.kind = "undelivered"}}};

/// Null for an event that is no sign of trouble.
inline const TroubleKind* find_trouble(std::string_view kind) {
  const auto* found = std::ranges::find(trouble_kinds, kind, &TroubleKind::kind);
  return found != trouble_kinds.end() ? found : nullptr;
}

}  // namespace runner
