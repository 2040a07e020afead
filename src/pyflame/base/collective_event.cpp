#include "pyflame/base/collective_event.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pyflame::events {

Label label(const CollectiveText& text, const GroupName& group) {
  if (!on()) return {};
  LabelText l;
  l.name = text.op;
  l.args = fmt::format(
      "\"impl\":\"{}\",\"Collective name\":\"{}\",\"dtype\":\"{}\",\"In msg nelems\":{},\"Group size\":{},"
      "\"Process Group Name\":\"{}\",\"Process Group Ranks\":\"[{}]\"",
      text.by, text.op, text.dtype.empty() ? "uint8" : text.dtype, text.bytes / text.item, group.ranks.size(),
      group.name, fmt::join(group.ranks, ", "));
  if (const size_t at = text.call.rfind(" at "); at != std::string_view::npos) l.place = text.call.substr(at + 4);
  l.work = "communication";
  l.bytes = text.bytes;
  l.device = text.device;
  return label(l);
}

}  // namespace pyflame::events
