/* How the search takes a query apart, before Sphinx's own searchtools.js is loaded: `pf.save` and `torch.save` are looked for as `save`. */
var splitQuery = (query) => query.replace(/\b(pf|torch|pyflame)\.(?=\w)/g, "").split(/[^\p{Letter}\p{Number}_\p{Emoji_Presentation}]+/gu).filter((term) => term);
