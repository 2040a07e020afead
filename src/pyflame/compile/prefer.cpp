// prefer: which of the implementations that accept a group computes it.
//
// Takes    a group with the first implementation that accepts it.
// Returns  the candidate that is forced, else the one that was measured to be the fastest, else the one that was the fastest for all similar
// problems that were measured, else the first; and, if there
// is time for measurements, the others that may be faster.
// Ensures  a candidate that the device or the library cannot make is not returned, unless it is forced.
#include "pyflame/compile/choices.h"
#include "pyflame/compile/force.h"
#include "pyflame/compile/passes.h"
#include "pyflame/compile/plugins.h"

#include <algorithm>

namespace pyflame {

std::string Candidate::name() const { return configuration.empty() ? impl->name : impl->name + (":" + configuration); }

std::unique_ptr<Executable> Candidate::make(const Problem& p) const {
  if (configuration.empty()) return make_impl(*impl, p);
  PF_CHECK(impl->configurations, Value, "{}: it has no configurations; got '{}'; expected none", impl->name,
           configuration);
  return impl->configurations->make(p, configuration);
}

namespace {

// The implementations whose configurations may be measured for the problem. The step's own one is among them.
std::vector<const Impl*> measurable(const Backend& backend, const Problem& p, const Selection& s) {
  std::vector<const Impl*> all;
  const size_t end = s.impls.size() - (backend.last_is_slow() && s.impls.size() > 1 ? 1 : 0);
  for (size_t i = 0; i < end; ++i) {
    const Impl& impl = s.impls[i];
    if (i < *s.impl && !impl.plugin) continue;  // it has refused
    if (may_measure(impl.name) && (i == *s.impl || !refusal_of(impl, p))) all.push_back(&impl);
  }
  return all;
}

// All candidates besides the first implementation's own choice. The implementations come first, then the
// configurations of each.
std::vector<Candidate> other_candidates(const std::vector<const Impl*>& impls, const Problem& p, const Selection& s) {
  std::vector<Candidate> all, configured;
  for (const Impl* impl : impls) {
    if (impl != &s.impls[*s.impl]) all.push_back({impl, ""});
    if (!impl->configurations) continue;
    for (std::string& c : impl->configurations->list(p)) configured.push_back({impl, std::move(c)});
  }
  all.insert(all.end(), std::make_move_iterator(configured.begin()), std::make_move_iterator(configured.end()));
  return all;
}

// Those with an enumeration that no search has come to the end of.
std::vector<const Impl*> with_more(std::vector<const Impl*> impls, Choices& choices, const Environment& here,
                                   const std::string& op, const std::string& key) {
  std::erase_if(impls, [](const Impl* i) { return !i->configurations || !i->configurations->enumerates(); });
  if (impls.empty()) return impls;
  const std::vector<Enumerated> known = choices.enumerated(here, op, key);
  std::erase_if(impls, [&](const Impl* i) {
    return std::any_of(known.begin(), known.end(),
                       [&](const Enumerated& e) { return e.impl == i->name && e.looked >= e.size; });
  });
  return impls;
}

Candidate find_candidate(std::span<const Impl> impls, const std::string& name) {
  const size_t colon = name.find(':');
  const std::string_view impl = std::string_view(name).substr(0, colon);
  for (const Impl& i : impls)
    if (impl == i.name) return {&i, colon == std::string::npos ? "" : name.substr(colon + 1)};
  return {};
}

// Candidates that were suggested and that this problem's implementations have.
std::vector<Candidate> find_all(const std::vector<std::string>& names, const Problem& p, const Selection& s) {
  std::vector<Candidate> all;
  for (const std::string& name : names)
    if (const Candidate c = find_candidate(s.impls, name); c.impl && !refusal_of(*c.impl, p)) all.push_back(c);
  return all;
}

// The candidate that was clearly faster for each similar problem, if this problem's implementations have it, too.
std::optional<Candidate> similar(Choices& choices, const Environment& e, const std::string& op, const std::string& key,
                                 const Problem& p, const Selection& s) {
  for (const Tier tier : {Tier::bucket, Tier::any_size})
    for (const std::string& name : choices.faster_in_tier(e, op, tier_key(tier, key))) {
      Candidate c = find_candidate(s.impls, name);
      if (!c.impl || refusal_of(*c.impl, p)) continue;
      if (c.configuration.empty()) return c;
      const Configurations* all = c.impl->configurations;
      if (all && all->for_any_size() && all->has(p, c.configuration)) return c;
    }
  return std::nullopt;
}

// Most loops are too small to have configurations, and their lists are quick to make. Other lists may ask a library.
bool may_have_configurations(const Impl& impl, const Problem& p) {
  if (!impl.configurations) return false;
  return p.group.kind != GroupKind::Loop || !impl.configurations->list(p).empty();
}

// Whether an operand has no elements. There is nothing to time then, and lists of configurations divide by sizes.
bool is_empty(const Problem& p) {
  for (size_t i = 0; i < p.size(); ++i)
    for (const auto* side : {&p.node(i).ins, &p.node(i).outs})
      for (const Operand& o : *side)
        if (!o.is_param && o.numel() == 0) return true;
  return false;
}

// Whether there can be other candidates at all; it costs next to nothing to ask.
bool has_others(const Backend& backend, const Problem& p, const Selection& s) {
  if (is_empty(p)) return false;
  const size_t end = s.impls.size() - (backend.last_is_slow() && s.impls.size() > 1 ? 1 : 0);
  for (size_t i = 0; i < end; ++i)
    if (i < *s.impl ? s.impls[i].plugin != nullptr : i > *s.impl || may_have_configurations(s.impls[i], p)) return true;
  return false;
}

}  // namespace

std::vector<Candidate> neighbours(const Backend& backend, const Problem& p, const std::string& entry) {
  const Candidate c = find_candidate(impls_with_plugins(backend, p), entry);
  if (!c.impl || !c.impl->configurations || !may_measure(c.impl->name) || suggested_candidates().alone) return {};
  std::vector<Candidate> all;
  for (std::string& text : c.impl->configurations->neighbours(p, c.configuration))
    all.push_back({c.impl, std::move(text)});
  return all;
}

Preference prefer(const Backend& backend, const Problem& p, const Selection& s) {
  const Candidate first{&s.impls[*s.impl], ""};
  const std::string op(op_name(p.root().op));
  if (auto forced = forced_entry(op); forced && forced->impl == first.impl->name)
    return {{first.impl, forced->configuration}};
  const double budget = tune_budget_ms();
  if ((budget == 0 && !uses_choices()) || !has_others(backend, p, s)) return {first};
  Choices* choices = budget > 0 ? &Choices::in(choices_file()) : Choices::if_present();
  if (!choices) return {first};
  const Environment& here = environment_of(backend, p.graph.device.index);
  const std::string key = problem_key(p);
  const Choices::Known known = choices->known(here, op, key, budget > 0);
  Preference result{first};
  if (known.best && uses_choices()) {
    // A plug-in that was the fastest may be missing in this process.
    const auto takes = [&](const std::string& name) {
      const Candidate best = find_candidate(s.impls, name);
      const bool is_first = best.impl == first.impl;  // which has accepted
      if (!best.impl || (!is_first && refusal_of(*best.impl, p))) return false;
      result.chosen = best, result.measured = !is_first || !best.configuration.empty();
      return true;
    };
    if (!takes(*known.best)) static_cast<void>(std::find_if(known.next.begin(), known.next.end(), takes));
  }
  if (budget == 0) {
    if (!known.best && uses_choices())
      if (auto c = similar(*choices, here, op, key, p, s))
        result.chosen = *c, result.measured = c->name() != first.name();
    return result;
  }
  const Suggestions suggested = suggested_candidates();
  std::vector<Candidate> all = find_all(suggested.names, p, s);
  if (!suggested.alone) {
    const std::vector<const Impl*> impls = measurable(backend, p, s);
    std::vector<Candidate> others = other_candidates(impls, p, s);
    result.enumerating = with_more(impls, *choices, here, op, key);
    all.insert(all.end(), std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
  }
  const auto is_in = [&result](const std::string& name) {
    return std::any_of(result.others.begin(), result.others.end(),
                       [&](const Candidate& o) { return o.name() == name; });
  };
  for (Candidate& c : all) {
    const std::string name = c.name();
    if (name == result.chosen.name() || is_in(name) ||
        std::find(known.tried.begin(), known.tried.end(), name) != known.tried.end())
      continue;
    // What won with other versions is likely to win again.
    const bool hint = known.elsewhere && *known.elsewhere == name;
    result.others.insert(hint ? result.others.begin() : result.others.end(), std::move(c));
  }
  return result;
}

}  // namespace pyflame
