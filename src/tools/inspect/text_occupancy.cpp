// Prints the documents of `pyflame occupancy` as text.
#include "tools/inspect/text_occupancy.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/inspect/text_kernel.h"
#include "tools/view/finding.h"

namespace pyflame::tools::inspect {

namespace {

using Json = nlohmann::json;
using view::Style;
using view::Tone;

std::string number(const Json& j) { return std::to_string(j.get<int64_t>()); }
std::string text_of(const Json& j) { return j.get<std::string>(); }

void put_answer(std::string& out, const Style& style, const Json& doc) {
  const Json &o = doc["occupancy"], &arch = doc["arch"];
  const bool runs = o["workgroups"] > 0;
  const std::string mode = o["wgp_mode"].is_null() ? "" : o["wgp_mode"].get<bool>() ? ", WGP mode" : ", CU mode";
  const std::string where = text_of(o["workgroups_per"]);
  const std::string headline = fmt::format("{} ({}), wave{}{}: {} of {} waves per SIMD, limited by {}",
                                           text_of(arch["gfx"]), text_of(arch["family"]), number(o["wave"]), mode,
                                           number(o["waves_per_simd"]), number(o["max_waves"]), text_of(o["limiter"]));
  out += view::paint(style, Tone::bold, view::wrap(headline, style.width)) + "\n";
  if (runs)
    out += view::wrap(fmt::format("{} of {} threads per {}: {} on {} SIMDs, {} of the slots",
                                  plural(o["workgroups"], "workgroup"), number(o["block"]), where,
                                  plural(o["waves"], "wave"), number(o["simds"]), view::percent(o["fill"])),
                      style.width) +
           "\n";
  else
    out += fmt::format(
        "{}\n",
        view::paint(style, Tone::red,
                    fmt::format("A workgroup of {} threads does not fit: its {} waves need more {} than a {} has.",
                                number(o["block"]), number(o["waves_per_workgroup"]), text_of(o["limiter"]), where)));
  if (o["idle_lanes"] > 0)
    out += fmt::format("The block is not a multiple of the wave: {} of its last wave are idle.\n",
                       plural(o["idle_lanes"], "lane"));
  if (o["compiler_waves"] != o["waves_per_simd"])
    out += fmt::format("{}\n",
                       view::wrap(fmt::format("LLVM prints \"Occupancy: {}\": it does not round to whole workgroups, "
                                              "and ignores dynamic LDS and the allocation step of LDS ({} bytes).",
                                              number(o["compiler_waves"]), number(arch["lds_granule"])),
                                  style.width));
}

void put_limits(std::string& out, const Style& style, const Json& doc) {
  const Json &o = doc["occupancy"], &k = doc["kernel"], &arch = doc["arch"];
  std::vector<std::vector<std::string>> rows;
  for (const char* name : {"VGPRs", "SGPRs", "LDS", "barriers", "waves"}) {
    if (!o["limits"].contains(name)) continue;
    std::string used, allocated;
    if (name == std::string("VGPRs")) used = number(k["vgpr"]), allocated = number(o["allocated_vgpr"]);
    if (name == std::string("SGPRs")) used = number(k["sgpr"]);
    if (name == std::string("LDS"))
      used = fmt::format("{} bytes", k["lds"].get<int64_t>() + k["dynamic_lds"].get<int64_t>()),
      allocated = number(o["allocated_lds"]);
    rows.push_back({name, used, allocated, number(o["limits"][name]), text_of(o["limiter"]) == name ? "limits" : ""});
  }
  out += fmt::format("\n{}", view::table(style, {"resource", ">used", ">allocated", ">waves per SIMD", ""}, rows));
  if (o["next"].is_object()) {
    out += "\n" +
           view::wrap(fmt::format("Next step, {} per SIMD ({} per {}): save {}.", plural(o["next"]["waves"], "wave"),
                                  plural(o["next"]["workgroups"], "workgroup"), text_of(o["workgroups_per"]),
                                  text_of(o["next"]["save"])),
                      style.width) +
           "\n";
    if (o["next"].contains("hint"))
      out += view::wrap(fmt::format("Ask the compiler: {}.", text_of(o["next"]["hint"])), style.width) + "\n";
  }
  rows.clear();
  for (const Json& b : o["blocks"])
    rows.push_back({number(b["block"]), number(b["workgroups"]), number(b["waves_per_simd"]), view::bar(b["fill"], 16),
                    view::percent(b["fill"]), text_of(b["limiter"])});
  std::vector<std::string> titles = {">block", ">workgroups", ">waves per SIMD", "slots", ">filled", "limited by"};
  if (style.width < 80) {  // without the bars
    titles.erase(titles.begin() + 3);
    for (std::vector<std::string>& row : rows) row.erase(row.begin() + 3);
  }
  out += fmt::format("\n{}", view::table(style, titles, rows));

  const int vgprs = std::max<int>(1, k["vgpr"]), most = arch["addressable_vgprs"];
  rows.clear();
  int below = 0;
  for (auto step = doc["vgpr_steps"].rbegin(); step != doc["vgpr_steps"].rend(); ++step) {
    const int max = (*step)["max_vgprs"];
    rows.push_back({number((*step)["waves"]), fmt::format("{} to {}", below + 1, max),
                    view::bar(static_cast<double>(max) / most, 32),
                    below < vgprs && vgprs <= max ? "<- this kernel" : ""});
    below = max;
  }
  out += fmt::format("\n{}", view::table(style, {">waves per SIMD", ">VGPRs", "", ""}, rows));
}

void put_guide(std::string& out, const Style& style, const Json& guide) {
  if (guide.is_null()) return;
  std::string text = fmt::format("The formula of the MI300X workload guide gives an occupancy of {}",
                                 guide["waves_per_simd"].get<double>());
  if (guide["agrees"].get<bool>()) {
    text += ", which is correct here";
    std::string ranges;
    for (const Json& r : guide["wrong_for_vgprs"])
      ranges += fmt::format("{}{}-{}", ranges.empty() ? "" : ", ", number(r[0]), number(r[1]));
    text += fmt::format("; it counts VGPRs in steps of 16 and is wrong for {} VGPRs.", ranges);
  } else {
    std::string reasons;
    for (const Json& why : guide["why_wrong"]) reasons += (reasons.empty() ? "" : "; ") + text_of(why);
    text += fmt::format(", which is wrong: {}.", reasons);
  }
  out += fmt::format("\n{}\n", view::wrap(text, style.width));
}

void put_launch(std::string& out, const Style& style, const Json& l) {
  if (l.is_null()) return;
  const Json& m = l["machine"];
  const std::string unit = text_of(l["unit"]);
  out += fmt::format(
      "\n{}\n",
      view::paint(style, Tone::bold,
                  fmt::format("Launch of {}x{}x{} workgroups on {}{} CUs{}", number(l["grid"][0]), number(l["grid"][1]),
                              number(l["grid"][2]), m["name"].is_null() ? "" : text_of(m["name"]) + ", ",
                              number(m["cus"]), m["xccs"] > 1 ? ", " + number(m["xccs"]) + " XCDs" : "")));
  out += fmt::format(
      "{}", view::table(style, {"", ">"},
                        {{"workgroups at once", number(l["at_once"])},
                         {"rounds", number(l["rounds"])},
                         {"filled by the first round", view::percent(l["fill"])},
                         {"filled by the last round", view::percent(l["tail_fill"])},
                         {"mean waves per SIMD", fmt::format("{:.2f}", l["waves_per_simd"].get<double>())},
                         {unit + "s with work", fmt::format("{} of {}", number(l["busy_units"]), number(l["units"]))},
                         {"balance of the " + unit + "s", view::percent(l["balance"])}}));
  for (const Json& f : l["advice"]) out += "\n" + view::finding_text(f, style);
}

}  // namespace

std::string architectures_text(const Json& doc, const Style& style) {
  std::vector<std::vector<std::string>> rows;
  for (const Json& a : doc["architectures"]) {
    std::string waves, products;
    for (const Json& w : a["waves"]) waves += (waves.empty() ? "" : ", ") + number(w);
    for (const Json& p : a["products"])
      if (products.find(text_of(p)) == std::string::npos) products += (products.empty() ? "" : ", ") + text_of(p);
    rows.push_back({text_of(a["gfx"]), text_of(a["family"]), waves, number(a["max_waves_per_simd"]), number(a["vgprs"]),
                    number(a["vgpr_granule"]), view::bytes(a["lds_bytes"]), number(a["lds_granule"]), text_of(a["fp8"]),
                    products});
  }
  if (style.width < 80) {  // without the steps of allocation and the kind of fp8
    for (std::vector<std::string>& row : rows) row = {row[0], row[1], row[2], row[3], row[4], row[6], row[9]};
    return view::table(style, {"architecture", "family", "wave", ">waves", ">VGPRs", ">LDS", "products"}, rows);
  }
  return (view::table(
      style, {"architecture", "family", "wave", ">waves", ">VGPRs", ">step", ">LDS", ">step", "fp8", "products"},
      rows));
}

std::string occupancy_text(const Json& doc, const Style& style) {
  std::string out;
  put_answer(out, style, doc);
  put_limits(out, style, doc);
  put_guide(out, style, doc["guide"]);
  put_launch(out, style, doc["launch"]);
  return out;
}

}  // namespace pyflame::tools::inspect
