/* Which results of the search are first. Sphinx puts this in place of the numbers of its searchtools.js. */
var Scorer = {
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,

  /* Pages for readers are before what was decided and what changed, and files of the repository are last. A page whose own title has a word of the query is before
     pages of which a section has it, and `pyflame.save` before `pyflame.memory.Snapshot.save`. */
  score: ([page, title, anchor, description, score, file, kind]) => {
    const other = /^(CHANGELOG|CONTRIBUTING|ARCHITECTURE|docs\/(decisions|internals|coverage|differences|examples))/.test(page);
    const shown = !/^(README|CHANGELOG|CONTRIBUTING|ARCHITECTURE|docs|reference)/.test(page);
    const words = splitQuery((new URLSearchParams(location.search).get("q") ?? "").toLowerCase());
    const named = kind === "text" && words.some((word) => word.length > 2 && title.toLowerCase().includes(word));
    return score - (other ? 6 : 0) - (shown ? 12 : 0) + (named ? 10 : 0) - (kind === "object" ? title.split(".").length / 100 : 0);
  },
};
