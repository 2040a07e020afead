// What JavaScript adds to a report: copying commands, sorting and filtering tables, zooming the timeline. Everything else works without it.
(function () {
  "use strict";
  const make = (name, props) => Object.assign(document.createElement(name), props || {});

  // Copying works in a file:// page too, where the clipboard API may be closed: then the text is selected.
  for (const box of document.querySelectorAll(".command")) {
    const button = make("button", { type: "button", className: "small", textContent: "Copy" });
    const code = box.querySelector("code");
    button.onclick = async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch (e) {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
      setTimeout(() => (button.textContent = "Copy"), 1500);
    };
    box.append(button);
  }

  // Sorting: the first click on a column of numbers puts the greatest first.
  const value = (cell) => {
    if (!cell) return "";
    if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
    const text = cell.textContent.trim();
    return text !== "" && isFinite(text) ? Number(text) : text;
  };
  const order = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b
      : typeof a === "number" ? -1 : typeof b === "number" ? 1 : a.localeCompare(b, "en", { numeric: true });
  for (const table of document.querySelectorAll("table")) {
    if (table.closest(".matrix") || table.tBodies[0].rows.length < 3) continue;
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = make("button", { type: "button", textContent: head.textContent });
      head.replaceChildren(button);
      button.onclick = () => {
        const before = head.getAttribute("aria-sort");
        const down = before ? before === "ascending" : head.classList.contains("n");
        heads.forEach((h) => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...table.tBodies[0].rows].map((row) => [value(row.cells[column]), row]);
        // Rows without a value stay at the end in both directions.
        rows.sort((a, b) => (a[0] === "" || b[0] === "" ? (a[0] === "") - (b[0] === "") : order(a[0], b[0]) * (down ? -1 : 1)));
        table.tBodies[0].append(...rows.map((r) => r[1]));
      };
    });
    if (table.tBodies[0].rows.length < 15) continue;
    const tools = make("div", { className: "tools" });
    const field = make("input", { type: "search", placeholder: "Filter rows" });
    field.setAttribute("aria-label", "Filter: " + table.caption.textContent);
    const shown = make("span");
    shown.setAttribute("role", "status");
    let texts = null;
    field.oninput = () => {
      const rows = [...table.tBodies[0].rows];
      texts = texts || new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      for (const row of rows) {
        row.hidden = !words.every((w) => texts.get(row).includes(w));
        count += row.hidden ? 0 : 1;
      }
      shown.textContent = words.length ? count + " of " + rows.length : "";
    };
    tools.append(field, shown);
    table.closest(".scroll").before(tools);
  }

  // A link to something inside of a closed fold opens the fold. Printing opens all folds.
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let e = target; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
    if (target && target.closest("details")) target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => (d.open = true)));

  // The navigation marks the section that is in view.
  const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.getAttribute("href").slice(1), a]));
  if ("IntersectionObserver" in window) {
    const watch = new IntersectionObserver((entries) => {
      for (const e of entries)
        if (e.isIntersecting) {
          links.forEach((a) => a.classList.remove("here"));
          links.get(e.target.id).classList.add("here");
        }
    }, { rootMargin: "-15% 0px -75% 0px" });
    document.querySelectorAll("main > section").forEach((s) => links.has(s.id) && watch.observe(s));
  }

  // The timeline: Ctrl with the wheel, the buttons and the keys + and - zoom; dragging and the arrow keys move.
  const data = document.getElementById("data");
  const stage = document.querySelector(".zoom");
  if (!data || !stage) return;
  const { tracks, names, from, to, steps } = JSON.parse(data.textContent);
  const NAME = 18, BAR = 26, HEAD = 24;
  const canvas = make("canvas", { tabIndex: 0 }), tip = make("div", { className: "tip", hidden: true });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Timeline; plus and minus zoom, arrow keys move, 0 shows all");
  const tools = make("div", { className: "tools" });
  const readout = make("span");
  stage.querySelector("svg").replaceWith(tools, canvas);
  stage.append(tip);
  let left = from, right = to, colors = [];
  const time = (us) => (us === 0 ? "0 us" : us < 1 ? (us * 1000).toPrecision(3) + " ns" : us < 1000 ? +us.toPrecision(4) + " us" : us < 1e6 ? +(us / 1e3).toPrecision(4) + " ms" : +(us / 1e6).toPrecision(4) + " s");
  const palette = () => {
    const style = getComputedStyle(document.documentElement);
    colors = Array.from({ length: 12 }, (_, i) => style.getPropertyValue("--c" + i).trim());
    colors.sunk = style.getPropertyValue("--sunk"); colors.text = style.getPropertyValue("--faint");
    colors.line = style.getPropertyValue("--line"); colors.ink = style.getPropertyValue("--ink");
    colors.on = style.getPropertyValue("--on-color");
  };
  // Events are sorted by start; of those that begin before the window, the longest decides how far back to look.
  for (const t of tracks) t.longest = t.events.reduce((m, e) => Math.max(m, e[1]), 0);
  const first = (events, start) => {
    let low = 0, high = events.length;
    while (low < high) { const mid = (low + high) >> 1; if (events[mid][0] < start) low = mid + 1; else high = mid; }
    return low;
  };
  const draw = () => {
    const width = canvas.clientWidth, height = HEAD + tracks.length * (NAME + BAR + 4), ratio = devicePixelRatio || 1;
    canvas.width = width * ratio; canvas.height = height * ratio; canvas.style.height = height + "px";
    const g = canvas.getContext("2d"), scale = width / (right - left);
    g.scale(ratio, ratio);
    g.font = "12px " + getComputedStyle(document.body).fontFamily;
    const raw = (right - left) / Math.max(2, width / 130), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw);
    for (let t = Math.ceil((left - from) / step) * step; t <= right - from; t += step) {
      const x = (t + from - left) * scale;
      g.fillStyle = colors.line; g.fillRect(x, 16, 1, height);
      g.fillStyle = colors.text; g.fillText(time(t), Math.min(Math.max(2, x - 14), width - 50), 11);
    }
    tracks.forEach((track, i) => {
      const top = HEAD + i * (NAME + BAR + 4);
      g.fillStyle = colors.text; g.fillText(track.name, 0, top + 12);
      g.fillStyle = colors.sunk; g.fillRect(0, top + NAME, width, BAR);
      let busyTo = -1;
      for (let k = first(track.events, left - track.longest); k < track.events.length && track.events[k][0] < right; ++k) {
        const e = track.events[k], x = (e[0] - left) * scale, w = e[1] * scale;
        if (x + w < 0 || x + w < busyTo) continue;
        // There is a gap between neighbours if the bar is wide enough.
        const draw_w = Math.max(w - (w > 4 ? 1 : 0), .7);
        g.fillStyle = colors[e[2]]; g.fillRect(x, top + NAME, draw_w, BAR);
        busyTo = x + Math.min(w, .35);
        if (w > 46) {
          g.save(); g.beginPath(); g.rect(Math.max(x, 0), top + NAME, w - 4, BAR); g.clip();
          g.fillStyle = colors.on; g.fillText(names[e[3]] || "", Math.max(x, 0) + 5, top + NAME + 17); g.restore();
        }
      }
    });
    g.strokeStyle = colors.ink; g.globalAlpha = .5; g.setLineDash([3, 3]);
    for (const s of steps) {
      const x = (s - left) * scale;
      if (x >= 0 && x <= width) { g.beginPath(); g.moveTo(x, 16); g.lineTo(x, height); g.stroke(); }
    }
    readout.textContent = time(left - from) + " – " + time(right - from);
  };
  const show = (a, b) => {
    const span = Math.min(Math.max(b - a, (to - from) / 1e5, 0.01), to - from);
    left = Math.min(Math.max(a, from), to - span); right = left + span;
    draw();
  };
  const zoom = (factor, at) => show(at - (at - left) * factor, at + (right - at) * factor);
  const middle = () => (left + right) / 2;
  for (const [label, title, act] of [["+", "Zoom in", () => zoom(.5, middle())], ["−", "Zoom out", () => zoom(2, middle())],
    ["All", "Show all", () => show(from, to)]]) {
    const b = make("button", { type: "button", className: "small", textContent: label, title, onclick: act });
    b.setAttribute("aria-label", title);
    tools.append(b);
  }
  tools.append(readout, make("span", { textContent: "Ctrl + wheel zooms, dragging moves" }));
  canvas.onkeydown = (e) => {
    const act = { "+": () => zoom(.6, middle()), "=": () => zoom(.6, middle()), "-": () => zoom(1.6, middle()), "0": () => show(from, to),
      ArrowLeft: () => show(left - (right - left) / 8, right - (right - left) / 8), ArrowRight: () => show(left + (right - left) / 8, right + (right - left) / 8) }[e.key];
    if (act) { e.preventDefault(); act(); }
  };
  const under = (e) => left + (e.offsetX / canvas.clientWidth) * (right - left);
  canvas.addEventListener("wheel", (e) => {
    if (!e.ctrlKey && !e.metaKey) return;
    e.preventDefault();
    zoom(e.deltaY > 0 ? 1.25 : .8, under(e));
  }, { passive: false });
  canvas.ondblclick = (e) => zoom(.4, under(e));
  let held = null;
  canvas.onpointerdown = (e) => { held = { x: e.offsetX, left, right }; canvas.setPointerCapture(e.pointerId); };
  canvas.onpointerup = canvas.onpointercancel = () => (held = null);
  canvas.onpointerleave = () => (tip.hidden = true);
  canvas.onpointermove = (e) => {
    if (held) {
      const by = ((held.x - e.offsetX) / canvas.clientWidth) * (held.right - held.left);
      show(held.left + by, held.right + by);
      tip.hidden = true;
      return;
    }
    const track = tracks[Math.floor((e.offsetY - HEAD) / (NAME + BAR + 4))], at = under(e), near = (right - left) / canvas.clientWidth;
    let hit = null;
    if (track)
      for (let k = first(track.events, at - track.longest - near); k < track.events.length && track.events[k][0] <= at + near; ++k)
        if (track.events[k][0] + track.events[k][1] >= at - near) hit = track.events[k];
    tip.hidden = !hit;
    if (!hit) return;
    tip.textContent = (names[hit[3]] || "") + " · " + time(hit[1]) + " at " + time(hit[0] - from);
    tip.style.left = Math.min(e.offsetX + 12, Math.max(0, stage.clientWidth - tip.offsetWidth - 4)) + "px";
    tip.style.top = canvas.offsetTop + e.offsetY + 16 + "px";
  };
  const restyle = () => { palette(); draw(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", restyle);
  addEventListener("resize", draw);
  restyle();
})();
